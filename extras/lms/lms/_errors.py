"""What goes wrong in Large Model Support."""

from __future__ import annotations


class LmsError(RuntimeError):
    """Large Model Support cannot do what it was asked for."""


class HostMemoryError(LmsError):
    """The host's memory for moved tensors is used up."""
