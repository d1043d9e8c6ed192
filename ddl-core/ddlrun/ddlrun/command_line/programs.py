"""The programs that can be started, for completion."""

from __future__ import annotations

import os

import click
from click.shell_completion import CompletionItem


def offers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Files first: bash forgets what was offered before them."""
    items = [CompletionItem(incomplete, type="file")]
    if "/" not in incomplete:
        items += map(CompletionItem, commands(incomplete))
    return items


def commands(beginning: str, path: str | None = None) -> list[str]:
    """Names on PATH that begin so and can be run."""
    names: set[str] = set()
    for folder in (os.environ.get("PATH", "") if path is None else path).split(os.pathsep):
        try:
            with os.scandir(folder or ".") as entries:
                names.update(
                    entry.name
                    for entry in entries
                    if entry.name.startswith(beginning) and entry.is_file() and os.access(entry, os.X_OK)
                )
        except OSError:
            continue
    return sorted(names)
