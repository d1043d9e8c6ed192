"""What an option's value may be, and how a shell completes it: a type of click for each kind of option."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem

from . import rank_range
from .known_hosts import known_hosts
from .options import Kind, Option, usage


class OptionParameter(click.Option):
    """An option of the table, for click: under each of its names, with one dash and with two."""

    def __init__(self, option: Option) -> None:
        flag = option.kind == "flag"
        super().__init__(
            [option.field, *(f"{dashes}{name}" for name in option.names for dashes in ("-", "--"))],
            type=None if flag else TYPES[option.kind],
            # a plain False would mean that the value may be left out
            is_flag=flag or None,
            # what is given twice is compared, not replaced
            multiple=not flag,
            callback=None if flag or option.repeated else _single,
            metavar=option.metavar,
            help=option.help,
        )
        self.option = option


def _single(_ctx: click.Context, param: click.Parameter, values: Any) -> Any:
    """The value of an option that has one."""
    for other in values or ():
        if other != values[0]:
            raise usage(f"{_option(param).spelling} is given twice, as {values[0]} and as {other}")
    return values[0] if values else None


def _option(param: click.Parameter | None) -> Option:
    assert isinstance(param, OptionParameter)
    return param.option


def _starting(candidates: Iterable[str], incomplete: str) -> list[CompletionItem[str]]:
    return [CompletionItem(word) for word in candidates if word.startswith(incomplete)]


class Text(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5
    """Text that is not empty; a shell offers the option's `values`."""

    name = "text"
    may_be_empty = False

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self.read(str(value), _option(param))

    def read(self, text: str, option: Option) -> Any:
        """The value that a text stands for. Raises LaunchError (USAGE)."""
        if not text and not self.may_be_empty:
            raise usage(f"{option.spelling} has an empty value")
        if "\0" in text:
            raise usage(f"{option.spelling} has a value with a NUL character")
        return text

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        return _starting(_option(param).values, incomplete)


class Words(Text):
    """Words for another program, or none."""

    name = "words"
    may_be_empty = True


class Choice(Text):
    name = "choice"

    def read(self, text: str, option: Option) -> str:
        if text not in option.values:
            raise usage(f"{option.spelling} {text!r} is none of {', '.join(option.values)}")
        return text


class Mode(Text):
    """DDL's algorithms and sizes of tiers: what is no mode is said later, with the modes that there are."""

    name = "mode"

    def read(self, text: str, option: Option) -> Any:
        if not re.fullmatch(r".(:.*)?", text) and _MODULE.fullmatch(text):
            raise usage(
                f"-m {text}: -m is DDL's mode, as in the original ddlrun",
                f"for Python's -m write `ddlrun --module {text}`; the modes are {' '.join(option.values)}",
            )
        return super().read(text, option)


_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


class Module(Text):
    name = "module"

    def read(self, text: str, option: Option) -> str:
        if not _MODULE.fullmatch(text):
            raise usage(
                f"{option.spelling} {text!r} is no name of a module",
                "write it as in `python -m`: package.module",
            )
        return text


class Count(Text):
    name = "count"

    def read(self, text: str, option: Option) -> int:
        # isdecimal also accepts digits of other scripts, and int() of a very long text is refused with a
        # traceback.
        if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) >= 1):
            raise usage(f"{option.spelling} {text!r} is not a whole number of at least 1")
        return int(text)


class Ranks(Count):
    """A number of ranks, or the least and the most of them."""

    name = "ranks"

    def read(self, text: str, option: Option) -> Any:
        if ":" not in text:
            return super().read(text, option)
        span = rank_range.parse(text)
        if span is None:
            raise usage(
                f"{option.spelling} {text!r} is no range of ranks",
                "write MIN:MAX, such as 2:4; MIN is at most MAX",
            )
        return span


class Seconds(Text):
    name = "seconds"

    def read(self, text: str, option: Option) -> float:
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < 1e9:
            raise usage(f"{option.spelling} {text!r} is not a time in seconds greater than 0")
        return seconds


_UNITS = {"": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}


class Bytes(Text):
    name = "bytes"

    def read(self, text: str, option: Option) -> int:
        match = re.fullmatch(r"([0-9.]{1,20}) ?([A-Za-z]*)", text)
        try:
            size = round(float(match[1]) * _UNITS[match[2]]) if match else 0
        except (KeyError, ValueError):
            size = 0
        if not 1 <= size <= 10**15:
            raise usage(
                f"{option.spelling} {text!r} is not a size from 1 byte to 1000 TB",
                f"write a number, or one with a unit such as 717MB: {' '.join(filter(None, _UNITS))}",
            )
        return size


class Hosts(Text):
    """Hosts with commas between them; a shell offers those that ssh knows for the last one."""

    name = "hosts"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        before, comma, _ = incomplete.rpartition(",")
        return _starting((f"{before}{comma}{host}" for host in known_hosts()), incomplete)


class Variable(Text):
    name = "variable"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        return _starting(sorted(os.environ), incomplete)


class File(Text):
    name = "file"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        listed = super().shell_complete(ctx, param, incomplete)
        return [CompletionItem(incomplete, type="file"), *listed]


class Folder(Text):
    name = "folder"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        return [CompletionItem(incomplete, type="dir")]


TYPES: dict[Kind, Text] = {
    "text": Text(),
    "choice": Choice(),
    "list": Text(),
    "words": Words(),
    "variable": Variable(),
    "count": Count(),
    "ranks": Ranks(),
    "seconds": Seconds(),
    "bytes": Bytes(),
    "module": Module(),
    "mode": Mode(),
    "hosts": Hosts(),
    "file": File(),
    "folder": Folder(),
}
