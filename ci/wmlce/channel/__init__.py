"""The published channel and what it must be."""
