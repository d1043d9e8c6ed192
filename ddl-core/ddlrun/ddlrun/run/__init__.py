"""The job while it runs: output, signals, limits, failures, restarts, its end."""
