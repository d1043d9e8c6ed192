"""Mutants of a C++ file: its text with one small mistake in the body of a function.

The text is clang-format's, in which a binary operator has a space on both sides, and neither a template's
bracket nor a reference has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_SWAPS = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "&&": "||",
    "||": "&&",
    "+": "-",
    "-": "+",
    "*": "/",
    "/": "*",
    "%": "*",
    "+=": "-=",
    "-=": "+=",
    "std::min": "std::max",
    "std::max": "std::min",
    "true": "false",
    "false": "true",
}
_PLACE = re.compile(
    r"(?<= )(?:<=|>=|==|!=|&&|\|\||\+=|-=|[-<>+*/%])(?= )"
    r"|\bstd::(?:min|max)\b(?!_)|\b(?:true|false)\b"
    r"|(?<![\w.'])(?P<number>\d+(?:\.\d+)?(?:e[-+]?\d+)?)(?P<suffix>[uUlLfF]*)(?![\w.'])"
)
_BLANKED = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
    re.DOTALL | re.MULTILINE,
)
_NO_FUNCTION = re.compile(r"\b(?:namespace|struct|class|enum|union)\b")


@dataclass(frozen=True)
class CppMutant:
    """One mistake."""

    line: int
    description: str
    """The line's text before and after."""
    text: str
    """The whole file with the mistake."""


def mutants(source: str) -> Iterator[CppMutant]:
    """Yields all mutants of a file, in the order of their places."""
    code = _BLANKED.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), source)
    for begin, end in _bodies(code):
        for match in _PLACE.finditer(code, begin, end):
            text = source[: match.start()] + _mistake(match) + source[match.end() :]
            line = source.count("\n", 0, match.start()) + 1
            before, after = (version.splitlines()[line - 1].strip() for version in (source, text))
            yield CppMutant(line, f"{before} -> {after}", text)


def _mistake(match: re.Match[str]) -> str:
    number = match["number"]
    if number is None:
        return _SWAPS[match[0]]
    if number.isdigit():
        return f"{int(number) + 1}{match['suffix']}"
    return f"(2 * {match[0]})"


def _bodies(code: str) -> Iterator[tuple[int, int]]:
    """Yields the places of functions' bodies, in code without comments, texts and directives."""
    depth = 0
    body: tuple[int, int] | None = None
    statement = 0
    for match in re.finditer(r"[{};]", code):
        if match[0] == "{":
            head = code[statement : match.start()]
            if body is None and "(" in head and not _NO_FUNCTION.search(head):
                body = (match.end(), depth)
            depth += 1
        elif match[0] == "}":
            depth -= 1
            if body is not None and depth == body[1]:
                yield body[0], match.start()
                body = None
        statement = match.end()
