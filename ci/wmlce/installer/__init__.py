"""The single-file installer: an environment in one file, for machines without conda and without a network."""
