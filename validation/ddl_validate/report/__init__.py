"""The report of what was built, verified and measured: one HTML page that needs no network."""
