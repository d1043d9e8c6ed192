"""What the global options decide, for every command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from wmlce.util.errors import printable
from wmlce.util.layout import Layout
from wmlce.util.progress import Progress

Context = typer.Context


class Session:
    """What the global options decide."""

    answered = False
    """Has the command's one JSON document been printed? Then an error goes to standard error alone."""

    def __init__(self, root: Path | None, as_json: bool, quiet: bool) -> None:
        self.root = root
        self.as_json = as_json
        self.progress = Progress(quiet=quiet)
        self._layout: Layout | None = None

    @property
    def layout(self) -> Layout:
        if self._layout is None:
            self._layout = Layout.locate(self.root)
        return self._layout

    def say(self, text: str) -> None:
        self.progress.say(text)

    def answer(self, value: Any, text: str) -> None:
        """The command's result: text for people, or the value for scripts (--json)."""
        print(json.dumps(value, indent=1, sort_keys=True) if self.as_json else printable(text))
        Session.answered = True


def session_of(context: Context) -> Session:
    session = context.find_root().obj
    assert isinstance(session, Session)
    return session
