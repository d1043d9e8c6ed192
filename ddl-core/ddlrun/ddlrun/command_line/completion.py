"""Completion of ddlrun's command line in a shell: click's scripts, and ddlrun's answers to them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from ..errors import LaunchError
from .options import COMPLETION_VARIABLE, Option
from .parser import MissingValue, context, end_at_module, program, read
from .value_types import OptionParameter


def script(shell: str) -> str:
    """The completion script of a shell."""
    return _completer(shell).source()


def answer(instruction: str) -> int:
    """Print what a script asks for, and return the exit code. instruction: the value of
    COMPLETION_VARIABLE.
    """
    shell, _, action = instruction.partition("_")
    if shell not in _CLASSES or action != "complete":
        return 1
    print(_completer(shell).complete())
    return 0


def offers(before: Sequence[str], incomplete: str) -> list[CompletionItem[str]]:
    """What may stand in place of an incomplete word, behind the words before it."""
    arguments = end_at_module(before)
    try:
        reading = read(arguments)
        if reading.program or reading.has("module"):
            return [CompletionItem(incomplete, type="file")]
        # One option more is read only where no `--` has ended them.
        ended = len(read([*arguments, "-tcp"]).options) == len(reading.options)
        if ended or not incomplete.startswith("-"):
            return program().params[-1].shell_complete(context(), incomplete)
        name, equals, value = incomplete.partition("=")
        return _values_behind(name, value) if equals else program().shell_complete(context(), incomplete)
    except MissingValue as error:
        return _values(error.option, incomplete)
    except LaunchError:
        return []


def _values(option: Option, incomplete: str) -> list[CompletionItem[str]]:
    parameter = next(p for p in program().params if isinstance(p, OptionParameter) and p.option is option)
    return parameter.shell_complete(context(), incomplete)


def _values_behind(name: str, incomplete: str) -> list[CompletionItem[str]]:
    """What `name=value` may become: `start` of an item is what stands before the value."""
    try:
        read([name])
    except MissingValue as error:
        start = f"{name}="
        return [
            CompletionItem(f"{start}{item.value}", item.type, item.help, start=start)
            for item in _values(error.option, incomplete)
        ]
    return []


class _Offers(ShellComplete):
    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        return offers(args, incomplete)


class _WholeWords(_Offers):
    """For shells that look for files by whole words, and find none for `-hostfile=na`."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        return [offer for item in super().get_completions(args, incomplete) for offer in _whole(item)]


def _whole(item: CompletionItem[str]) -> Iterator[CompletionItem[str]]:
    if item.type not in ("file", "dir") or not item.start:
        yield item
        return
    folder, slash, name = item.value.removeprefix(item.start).rpartition("/")
    try:
        with os.scandir(f"{folder}{slash}" or ".") as entries:
            matches = sorted((entry.name, entry.is_dir()) for entry in entries if entry.name.startswith(name))
    except OSError:
        return
    for name, is_folder in matches:
        if is_folder or item.type == "file":
            yield CompletionItem(f"{item.start}{folder}{slash}{name}{'/' if is_folder else ''}")


class _Bash(_Offers, BashComplete):
    """bash takes `=` and `:` for words of their own (COMP_WORDBREAKS), and completes what is behind them."""

    _cut = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        parts: list[str] = []
        joining = False
        for word in (*args, incomplete):
            is_break = re.fullmatch("[=:]+", word) is not None
            if parts and word and (is_break or joining):
                self._cut = parts[-1] if not is_break else parts[-1] + word
                parts[-1] += word
            else:
                self._cut = ""
                parts.append(word)
            joining = is_break
        return parts[:-1], parts[-1]

    def format_completion(self, item: CompletionItem[str]) -> str:
        return f"{item.type},{item.value.removeprefix(self._cut)}"


class _Zsh(_WholeWords, ZshComplete):
    pass


class _Fish(_WholeWords, FishComplete):
    # a list of hosts and a description have commas too
    source_template = FishComplete.source_template.replace('string split ","', 'string split --max 1 ","')


_CLASSES: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}


def _completer(shell: str) -> ShellComplete:
    return _CLASSES[shell](program(), {}, "ddlrun", COMPLETION_VARIABLE)
