"""What stops a validation before it begins."""


class ValidateError(Exception):
    """One clear line: what, where, and what to do."""
