"""`wmlce validate`: proves a cluster, or names what is at fault."""
