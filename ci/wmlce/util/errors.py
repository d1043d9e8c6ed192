"""The one kind of error that reaches a user: what is wrong, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def printable(text: str) -> str:
    """The text without what would steer a terminal: parts of it come from servers, packages and logs."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


class WmlceError(Exception):
    """A failure that the user can act on; anything else that escapes is a defect of the tool.

    message: one sentence that names the recipe, file or command concerned
    remedy:  what to do next
    log:     the file with the whole story
    detail:  the few lines of it that matter, shown indented
    """

    def __init__(
        self,
        message: str,
        *,
        remedy: str | None = None,
        log: Path | None = None,
        detail: Iterable[str] = (),
        recipe: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.log = log
        self.detail = [line.rstrip() for line in detail]
        self.recipe = recipe

    def __str__(self) -> str:
        """The lines for a terminal."""
        lines = [self.message]
        lines += [f"    {line}" for line in self.detail]
        if self.log is not None:
            lines.append(f"  log: {self.log}")
        if self.remedy:
            lines.append(f"  remedy: {self.remedy}")
        return printable("\n".join(lines))

    def to_json(self) -> dict[str, object]:
        """The same facts for scripts that read `--json`."""
        return {
            "what": self.message,
            "recipe": self.recipe,
            "log": str(self.log) if self.log else None,
            "detail": self.detail,
            "remedy": self.remedy,
        }


class OutOfSpace(WmlceError):
    """A disk is full, or the memory."""
