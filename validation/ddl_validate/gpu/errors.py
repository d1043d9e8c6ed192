"""What the programs of this package say instead of a traceback."""


class GpuError(Exception):
    """A driver, NCCL or DDL that is missing or fails; the text says what, and what helps."""
