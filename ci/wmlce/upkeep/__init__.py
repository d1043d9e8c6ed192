"""What is newer than the lock files, and what speaks for or against moving to it."""
