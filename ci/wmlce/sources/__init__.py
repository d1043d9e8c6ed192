"""Locked sources: what the lock files promise, getting exactly that, and renewing the locks."""
