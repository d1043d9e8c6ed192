"""A release: one folder with everything that others get, its checksums and its signatures."""
