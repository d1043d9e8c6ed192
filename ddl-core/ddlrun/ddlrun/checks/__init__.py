"""What every host is, and whether it can take part."""
