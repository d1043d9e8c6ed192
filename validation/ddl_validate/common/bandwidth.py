"""Bandwidths of an all-reduce, as nccl-tests define them."""

from __future__ import annotations


def algbw(size: int, seconds: float) -> float:
    """Algorithm bandwidth: bytes of the buffer over time."""
    return size / seconds


def busbw(size: int, seconds: float, ranks: int) -> float:
    """Bus bandwidth: algbw x 2 (P-1)/P, which each of P ranks sends in a ring.

    It does not change with P where links are used alike.
    """
    return algbw(size, seconds) * 2 * (ranks - 1) / ranks
