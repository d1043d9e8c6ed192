"""The hosts of a job: named by the user, in a file, or by the scheduler around."""
