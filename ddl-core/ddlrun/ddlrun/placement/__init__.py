"""Which ranks each host gets, which cores each rank, and the tiers that DDL is told of."""
