"""What is newer than the lock files, what speaks for or against moving to it, and the move itself."""
