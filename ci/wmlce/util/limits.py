"""Limits of waits that several parts share."""

from __future__ import annotations

from datetime import timedelta

SOLVE_LIMIT = timedelta(seconds=300)
"""For the solver to find an environment."""
