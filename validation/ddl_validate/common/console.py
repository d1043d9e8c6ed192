"""Where the programs of this package print their tables."""

from __future__ import annotations

import os

from rich.console import Console


def output_console() -> Console:
    """Standard output; wide enough for the tables where it is no terminal and COLUMNS says nothing else."""
    console = Console()
    return console if console.is_terminal or os.environ.get("COLUMNS") else Console(width=120)
