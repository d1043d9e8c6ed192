"""What proves a cluster: benchmarks, checks and the report about them."""
