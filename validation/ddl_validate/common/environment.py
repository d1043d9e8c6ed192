"""The conda environment under test: which one it is, and what is installed in it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path


def add_environment(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--env",
        type=Path,
        default=Path(sys.prefix),
        help="environment that holds ddlrun (default: the one that runs this)",
    )


def require_ddlrun(parser: argparse.ArgumentParser, prefix: Path) -> None:
    """End the program with a usage error where --env has no ddlrun."""
    if not (prefix / "bin/ddlrun").exists():
        parser.error(f"--env {prefix}: no bin/ddlrun there; create it: wmlce env create powerai powerai")


def versions(prefix: Path) -> dict[str, str]:
    """Name and version of every package of a conda environment; powerai-pytorch is also pytorch."""
    by_name = {}
    for record in (prefix / "conda-meta").glob("*.json"):
        name, version, _ = record.stem.rsplit("-", 2)
        by_name[name] = version
        by_name.setdefault(name.removeprefix("powerai-"), version)
    return by_name


def missing_modules(names: Iterable[str], prefix: Path, beside: Path | None = None) -> list[str]:
    """Python packages that neither an environment has nor the folder of packages beside it."""
    sites = [*prefix.glob("lib/python3*/site-packages"), *([beside] if beside else [])]
    return [name for name in names if not any((site / name).is_dir() for site in sites)]
