"""The parser of the command line: click's, with ddlrun's rules.

One dash is as good as two, and underscores are as good as dashes. The first word that is neither an option
nor an option's value starts the program; everything after it is the program's. -module ends the options too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from ..errors import LaunchError
from . import combinations
from .options import OPTIONS, SECTIONS, Option, Options, usage
from .programs import offers
from .value_types import OptionParameter

_BY_NAME = {name: option for option in OPTIONS for name in option.names}

_HELP = """\
Start PROGRAM as a distributed job: one process a rank, on the hosts of -H or of a hostfile, of the
surrounding Slurm, LSF, PBS or Flux job, or on this machine.

\b
  ddlrun -np 2 python train.py                 two ranks here
  ddlrun -H host1:4,host2:4 python train.py    four ranks on each of two hosts
  ddlrun python train.py                       inside a job: on all its hosts
  ddlrun -np 2 --module package.train          as `python -m package.train`
"""

_EPILOG = "One or two dashes, `-np 2` or `--np=2`: all the same. The first word that is no option is PROGRAM."


class _Program(click.Command):
    """ddlrun, as click sees it."""

    allow_interspersed_args = False

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, options in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (f"{_all_spellings(option, ', ')} {option.metavar}".rstrip(), option.help)
                        for option in options
                    ]
                )

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Names of options, with the dashes that were begun."""
        dashes = "--" if incomplete.startswith("--") else "-"
        spelled = ((f"{dashes}{name}", option.help) for option in OPTIONS for name in option.names)
        begun = incomplete.replace("_", "-")
        return [CompletionItem(word, help=text) for word, text in spelled if word.startswith(begun)]


def _all_spellings(option: Option, between: str) -> str:
    return between.join(f"-{name}" for name in reversed(option.names))


@cache
def program() -> click.Command:
    """The command that click parses for."""
    parameters: list[click.Parameter] = [OptionParameter(option) for option in OPTIONS]
    program_argument = click.Argument(
        ["program"], nargs=-1, type=click.UNPROCESSED, metavar="PROGRAM [ARGUMENTS]", shell_complete=offers
    )
    return _Program(
        "ddlrun", params=[*parameters, program_argument], help=_HELP, epilog=_EPILOG, add_help_option=False
    )


def context() -> click.Context:
    return click.Context(
        program(), info_name="ddlrun", token_normalize_func=_normalized, max_content_width=112
    )


def _normalized(name: str) -> str:
    """An option's first name, for any of its names without the dashes.

    The dash in front of it makes of `-x` a long option in click's eyes: with short ones `-xvalue` is a value
    and `-qv` two options, so that a misspelled long one would be read as something else.
    """
    option = _BY_NAME.get(name.replace("_", "-"))
    if option is None:
        from difflib import get_close_matches

        # click itself looks for the closest since 8.4
        raise click.NoSuchOption(name, possibilities=get_close_matches(name, _BY_NAME, n=1))
    return f"-{option.names[0]}"


class Reading(NamedTuple):
    """How click reads words: the options in their order, each with its text (none for a flag), and the
    program.
    """

    options: list[tuple[Option, str | None]]
    program: tuple[str, ...]

    def has(self, name: str) -> bool:
        return any(option.names[0] == name for option, _ in self.options)


class MissingValue(Exception):
    """The words end with an option that needs a value."""

    def __init__(self, option: Option) -> None:
        super().__init__(option.spelling)
        self.option = option


def read(argv: Sequence[str]) -> Reading:
    """Options and program, their values unseen. Raises MissingValue, or LaunchError (USAGE)."""
    try:
        parsed, _, order = program().make_parser(context()).parse_args(list(argv))
    except click.NoSuchOption as error:
        raise _unknown(error, argv) from None
    except click.BadOptionUsage as error:
        option = _BY_NAME[error.option_name.lstrip("-")]
        if option.kind == "flag":
            raise usage(f"{option.spelling} takes no value") from None
        raise MissingValue(option) from None
    texts = {name: iter(values) for name, values in parsed.items() if isinstance(values, list)}
    options = [
        (param.option, next(texts[param.option.field]) if param.option.field in texts else None)
        for param in order
        if isinstance(param, OptionParameter)
    ]
    return Reading(options, _words(parsed.get("program")))


def _words(value: Any) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()  # click has a mark of its own for none


def _unknown(error: click.NoSuchOption, argv: Sequence[str]) -> LaunchError:
    at = next(at for at, word in enumerate(argv) if _is_option(word, error.option_name, argv[:at]))
    # A wrong value before it is said first: in `-m package.train --lr 1` it is the cause.
    program().parse_args(context(), list(argv[:at]))
    meant = f"did you mean -{error.possibilities[0]}? " if error.possibilities else ""
    valid = " ".join(_all_spellings(option, "/") for option in OPTIONS)
    return usage(f"unknown option {argv[at].partition('=')[0]}", f"{meant}valid options: {valid}")


def _is_option(word: str, name: str, before: Sequence[str]) -> bool:
    """Whether a word is this option, and no value of the one before it."""
    if word.partition("=")[0] not in (f"-{name}", f"--{name}"):
        return False
    try:
        read(before)
    except MissingValue:
        return False
    return True


def end_at_module(argv: Sequence[str]) -> list[str]:
    """The arguments with `--` behind -module and its value: what follows belongs to the module."""
    for at, word in enumerate(argv):
        name, equals, _ = word.partition("=")
        if name.replace("_", "-") not in ("-module", "--module"):
            continue
        end = at + (1 if equals else 2)
        try:
            # not where it is a value, or a word of the program
            if end <= len(argv) and read([*argv[:at], "-module=x"]).has("module"):
                return [*argv[:end], "--", *argv[end:]]
        except (MissingValue, LaunchError):
            break
    return list(argv)


def parse(argv: Sequence[str]) -> Options:
    """Options of a command line without the program's name. Raises LaunchError (USAGE)."""
    argv = end_at_module(argv)
    try:
        reading = read(argv)
    except MissingValue as error:
        raise usage(f"{error.option.spelling} needs a value: {error.option.metavar}") from None
    filled = context()
    program().parse_args(filled, list(argv))
    values = {name: value for name, value in filled.params.items() if value is not None and name != "program"}
    started = reading.program
    if "module" in values:
        # The name of the environment's own Python, as ranks find it on PATH.
        started = ("python", "-m", values["module"], *started)
    options = Options(**values, program=started, inside=_inside(reading))
    combinations.check(options)
    return options


def _inside(reading: Reading) -> tuple[str, ...]:
    again: list[str] = []
    for option, text in reading.options:
        if option.names[0] not in ("image", "imagearg"):
            again += [option.spelling, *([] if text is None else [text])]
    if reading.program and not reading.has("module"):
        again.append("--")
    return (*again, *reading.program)


def help_text(width: int | None = None) -> str:
    """The text of -help. width: of the lines; None: the terminal's, at most 110."""
    ctx = context()
    ctx.terminal_width = width
    return f"{program().get_help(ctx)}\n"
