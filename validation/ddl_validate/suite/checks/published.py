"""The published figures of the original DDL, beside the predictions of the cost model: for the report."""

from __future__ import annotations

from ..bench import Bench
from ..model import CheckResult
from ..published import TITLE
from ..published import check as predicted

__all__ = ["TITLE", "check"]


def check(bench: Bench, before: list[CheckResult]) -> CheckResult:
    """It asks the cost model alone, and starts nothing on the hosts."""
    return predicted(bench.prefix)
