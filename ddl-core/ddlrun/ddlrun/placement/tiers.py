"""Nodes, racks, aisles, and the DDL_OPTIONS that tell them to DDL."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from ..command_line.options import Options
from ..errors import Code, LaunchError

MODES = "pbnrmc"
#: Of so many hosts DDL does not measure how they are grouped.
_TOO_FEW_FOR_RACKS = 2
_SIZES = re.compile(r"[1-9][0-9]{0,6}(x[1-9][0-9]{0,6}){0,3}")


@dataclass(frozen=True)
class Tiers:
    """Hosts in a rack, racks in an aisle, aisles."""

    nodes: int
    racks: int
    aisles: int


def tiers(hosts: int, nodes: int | None, racks: int | None, aisles: int | None) -> Tiers:
    """The tiers of ``hosts`` hosts; what is not said follows from the rest. Raises LaunchError (TOPOLOGY)."""
    outer = (racks or 1) * (aisles or 1)
    if nodes is None:
        nodes = max(1, hosts // outer)
    elif racks is None and hosts % (nodes * (aisles or 1)) == 0:
        racks = hosts // (nodes * (aisles or 1))
    result = Tiers(nodes, racks or 1, aisles or 1)
    product = result.nodes * result.racks * result.aisles
    if product != hosts:
        raise LaunchError(
            Code.TOPOLOGY,
            f"nodes x racks x aisles = {result.nodes} x {result.racks} x {result.aisles} = {product}, "
            f"but the job has {hosts} hosts",
            "in -nodes, -racks and -aisles",
            f"choose them so that their product is {hosts}",
        )
    return result


def mode(text: str | None, counts: Sequence[int], grouping: Tiers, sized: bool = True) -> str:
    """The value of DDL's -mode for ranks ``counts`` on the hosts. Sizes are left out where the hosts are
    uneven, and unless ``sized``.
    """
    letter, colon, sizes = (text or "p").partition(":")
    where = f"in -mode {text}"
    if letter not in MODES or len(letter) != 1:
        raise LaunchError(
            Code.TOPOLOGY, f"{letter!r} is no mode", where, f"the modes are {' '.join(MODES)}", exit_code=2
        )
    if colon:
        if not _SIZES.fullmatch(sizes):
            raise LaunchError(
                Code.TOPOLOGY, f"{sizes!r} are no sizes", where, "write AxBxCxD, such as 4x2x1x1", exit_code=2
            )
        product = 1
        for size in sizes.split("x"):
            product *= int(size)
        if product != sum(counts):
            raise LaunchError(
                Code.TOPOLOGY,
                f"{sizes.replace('x', ' x ')} = {product}, but the job has {sum(counts)} ranks",
                where,
                "the product of the sizes is the number of ranks",
            )
        return f"{letter}:{sizes}"
    if len(set(counts)) > 1 or not sized:
        return letter
    return f"{letter}:{counts[0]}x{grouping.nodes}x{grouping.racks}x{grouping.aisles}"


def _words(text: str, where: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise LaunchError(
            Code.TOPOLOGY, f"{text!r} cannot be read: {error}", where, "close the quotes", exit_code=2
        ) from None


def _given(surrounding: str, options: Options) -> tuple[str | None, list[str], list[str]]:
    """The -mode of the surrounding DDL_OPTIONS, their other words, and those of -ddlarg."""
    arguments = surrounding.split()  # as DDL does: it knows no quotes
    mode_value: str | None = None
    rest: list[str] = []
    while arguments:
        word = arguments.pop(0)
        name, equals, value = word.partition("=")
        if name.lstrip("-") == "mode":
            mode_value = value if equals else (arguments.pop(0) if arguments else "")
        else:
            rest.append(word)
    return mode_value, rest, [word for text in options.ddlarg for word in _words(text, "in -ddlarg")]


def _names_topology(arguments: Sequence[str]) -> bool:
    return any(
        word.startswith("-") and word.lstrip("-").partition("=")[0] == "topology" for word in arguments
    )


def is_described(options: Options, surrounding: str) -> bool:
    """Whether the user said how the hosts are grouped: by an option, by sizes, or by a topology of DDL."""
    mode_value, rest, added = _given(surrounding, options)
    return options.grouped or ":" in (options.mode or mode_value or "") or _names_topology(rest + added)


def letter(options: Options, surrounding: str) -> str:
    """The letter of the mode that is asked for, without sizes."""
    return (options.mode or _given(surrounding, options)[0] or "p").partition(":")[0]


def ddl_options(
    options: Options,
    surrounding: str,
    counts: Sequence[int],
    grouping: Tiers,
    scheduled: bool = False,
    switches: str | None = None,
) -> tuple[str, list[str]]:
    """The ranks' DDL_OPTIONS, and warnings. What the surrounding DDL_OPTIONS say stays, unless an option says
    else.

    To DDL, sizes count more than a topology file, a measurement, and what a scheduler tells (``scheduled``).
    So they are only written when the user gave some, or where there are too few hosts for racks. switches: a
    topology that ddlrun found out, as one word.
    """
    mode_value, rest, added = _given(surrounding, options)
    warnings: list[str] = []
    if mode_value is not None and options.mode:
        warnings.append(f"-mode {options.mode} replaces -mode {mode_value} of the environment's DDL_OPTIONS")
    described = scheduled or switches is not None or _names_topology(rest + added)
    sized = options.grouped or (not described and len(counts) <= _TOO_FEW_FOR_RACKS)
    chosen = mode(options.mode or mode_value, counts, grouping, sized=sized)
    topology_option = ["-topology", switches] if switches is not None else []
    return " ".join(["-mode", chosen, *rest, *added, *topology_option]), warnings
