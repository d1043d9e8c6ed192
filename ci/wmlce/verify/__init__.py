"""What a finished channel and an installed environment must be, checked from the outside."""
