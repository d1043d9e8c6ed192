"""The command: ``ddl-bench run | scenarios | peers | show``."""

from __future__ import annotations

import argparse
import datetime
import functools
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from ..common import machine
from ..common.console import output_console
from ..common.files import write_atomic
from ..common.signals import end_on_sigterm
from . import sizes
from .charts import page
from .cpu_share import parse_share, slowed
from .errors import BenchError, PeerMissing
from .options import parser, peers_of
from .peers import MEMORIES, PEERS, Ddl, OpenMpi, Peer, open_testbed
from .peers.gpu import facts_of
from .prefixes import find_peers, parse_prefixes
from .programs import default_cache
from .real_hosts import real_scenario
from .results import DOCUMENT, SCHEMA, Outcome, Store, dump, read_document
from .runner import Effort, Runner
from .scenarios import HOST_RATE, NAMED, UPLINK_RATE, Scenario, by_tier, named
from .table import describe, show

PICTURE = "allreduce.html"
OK, FAILED, USAGE, INCOMPLETE = 0, 1, 2, 3


def _scenarios(options: argparse.Namespace, ddlrun_prefix: Path | None) -> list[Scenario]:
    """What the options ask for; BenchError where they contradict each other."""
    hosts = {"--hosts": options.hosts, "-H": options.real, "--hosts-from": options.hosts_from}
    sources = [word for word, value in {"--scenario": options.scenario, **hosts}.items() if value]
    if len(sources) > 1:
        raise BenchError(f"{' and '.join(sources)}: choose one of them")
    own_layout = options.racks != 1 or options.order != "by-host"
    if options.hosts:
        try:
            slots = tuple(int(word) for word in options.hosts.split(","))
        except ValueError:
            raise BenchError(f"--hosts {options.hosts!r}: write numbers with commas: 3,2,2,1") from None
        shuffled = "-shuffled" if options.order == "shuffled" else ""
        name = f"{'+'.join(map(str, slots))}-{options.racks}racks{shuffled}"
        host, uplink = options.host_rate or HOST_RATE, options.uplink_rate or UPLINK_RATE
        return [Scenario(name, slots, options.racks, options.order, host, uplink)]
    if options.real or options.hosts_from:
        if ddlrun_prefix is None:
            raise BenchError("real hosts are found by ddlrun, which was not found: say --prefix ddl=DIR")
        arguments = ["-H", options.real] if options.real else []
        if options.hosts_from and options.hosts_from != "scheduler":
            arguments = ["-hostfile", options.hosts_from]
        rates = (options.host_rate, options.uplink_rate)
        return [real_scenario(ddlrun_prefix, arguments, options.racks, options.order, *rates)]
    if own_layout or options.host_rate or options.uplink_rate:
        raise BenchError("--racks, --order and the rates belong to --hosts, -H or --hosts-from")
    if options.memory == "cuda" and not options.scenario:
        if ddlrun_prefix is None:
            raise BenchError("no DDL was found: say --prefix ddl=DIR")
        ranks = max(2, len(facts_of(ddlrun_prefix).gpus))
        return [Scenario(f"1x{ranks}", (ranks,), 1, "by-host", None, None)]
    return [named(name) for name in options.scenario or NAMED]


def _document(
    runner: Runner, outcomes: list[Outcome], options: argparse.Namespace, conditions: dict[str, Any]
) -> dict[str, Any]:
    """conditions: facts of the machine, and the speed of its cores."""
    return {
        "kind": "allreduce",
        "schema": SCHEMA,
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "host": conditions["host"],
        "type": "float32",
        "op": "sum",
        "memory": options.memory,
        "effort": vars(runner.effort),
        "bind": options.bind,
        "told": options.tell,
        "wire": options.wire,
        "cpu_share": conditions["cpu_share"],
        "settings": options.settings,
        "peers": runner.versions,
        "scenarios": [outcome.as_json() for outcome in outcomes],
        "failures": [vars(failure) for failure in runner.failures],
    }


def _effort(options: argparse.Namespace) -> Effort:
    """How long to measure; BenchError where the numbers make no sense."""
    effort = Effort(
        options.budget, options.least, options.most, options.timeout, options.warmup, options.rounds
    )
    repetitions = 1 <= effort.least <= effort.most and effort.warmups >= 1 and effort.rounds >= 1
    if not (effort.budget >= 0 and effort.silence > 0 and repetitions):
        raise BenchError(
            "--budget, --least, --most, --warmup, --rounds, --timeout: not negative, and 1 <= least <= most"
        )
    return effort


def _share(options: argparse.Namespace) -> float:
    """The speed of the cores; BenchError where it cannot be set."""
    share = parse_share(options.cpu_share)
    if share < 1 and (options.real or options.hosts_from):
        raise BenchError(
            f"--cpu-share {share:g} slows down the cores of this machine, not those of real hosts; set their "
            "clock by their own means (cpupower frequency-set)"
        )
    if options.memory == "cuda" and (options.wire != "full" or share < 1):
        raise BenchError(
            "--wire and --cpu-share are for the host's memory: leave them out with --memory cuda"
        )
    return share


def _requested_peers(options: argparse.Namespace) -> list[str]:
    """The peers of --peers; BenchError where one does not reduce this kind of memory."""
    requested = [name for name in (options.peers or "").split(",") if name]
    unable = [name for name in requested if name in PEERS and options.memory not in PEERS[name].memories]
    if unable:
        raise BenchError(
            f"--peers {unable[0]} does not reduce this memory (--memory {options.memory}); "
            f"{'; '.join(map(peers_of, MEMORIES))}"
        )
    return requested


def _names(requested: list[str], memory: str) -> list[str]:
    """All peers that reduce this kind of memory, or the requested ones in the order of PEERS."""
    if not requested:
        return [name for name, peer in PEERS.items() if memory in peer.memories]
    unknown = [name for name in requested if name not in PEERS]
    return [name for name in PEERS if name in requested] + unknown


def _configure(peer: Peer, options: argparse.Namespace) -> None:
    peer.memory = options.memory
    if isinstance(peer, OpenMpi):
        peer.segments = sizes.parse_sizes(options.segment)
    if isinstance(peer, Ddl):
        peer.options = options.ddl_options
        peer.describe_racks = options.tell == "racks"
        peer.wire = options.wire


def _chosen_scenarios(options: argparse.Namespace, prefixes: Mapping[str, Path]) -> list[Scenario]:
    """What is measured: the layouts, with --by-tier also their tiers."""
    ddl, _ = find_peers([Ddl.name], prefixes, default_cache())
    try:
        chosen = _scenarios(options, ddl[0].prefix if ddl else None)
    except PeerMissing as error:
        raise BenchError(f"--memory cuda: {error}") from None
    return [tier for scenario in chosen for tier in by_tier(scenario)] if options.by_tier else chosen


def _open_store(options: argparse.Namespace) -> Store:
    store = Store(options.output)
    if store.used() and not options.resume and not options.fresh:
        raise BenchError(
            f"{options.output} already holds results: --resume continues them, --fresh replaces them, "
            "or name another --output"
        )
    return store


def _run(options: argparse.Namespace) -> int:
    effort, share = _effort(options), _share(options)
    usual = sizes.DEFAULT_CUDA if options.memory == "cuda" else ",".join(sizes.DEFAULT)
    chosen_sizes = sizes.parse_sizes(options.sizes or usual)
    requested, prefixes = _requested_peers(options), parse_prefixes(options.prefix)
    peers, missing = find_peers(_names(requested, options.memory), prefixes, default_cache())
    scenarios = _chosen_scenarios(options, prefixes)
    for peer in peers:
        _configure(peer, options)

    # Progress goes to standard error: standard output is the result.
    err = Console(stderr=True)

    def say(line: str) -> None:
        err.print(line, markup=False, highlight=False, soft_wrap=True)

    runner = Runner(
        _open_store(options),
        peers,
        chosen_sizes,
        say,
        effort,
        only_defaults=options.settings == "defaults",
        resume=options.resume,
        measure_links=options.measure_links,
        requested=tuple(requested),
    )
    host = machine.facts()
    with slowed(share, options.cpu_share_by, default_cache()) as (cores, cpu_share):
        options.output.mkdir(parents=True, exist_ok=True)
        if share < 1:
            say(f"cores at {share:g} of their speed by {cores.method}: {cores.explanation}")
            runner.conditions = {"share": share, "method": cores.method}
        runner.open_testbed = functools.partial(
            open_testbed,
            interface=options.interface,
            shared=options.output.resolve(),
            bind=options.bind,
            share=cores,
        )
        runner.prepare(missing)
        minutes = runner.estimate(scenarios) / 60
        say(
            f"{len(scenarios)} scenario(s), {len(chosen_sizes)} size(s), {len(runner.peers)} peer(s), "
            f"{effort.rounds} round(s): about {minutes:.0f} min; results in {options.output}"
        )

        def document_of(outcomes: list[Outcome]) -> dict[str, Any]:
            conditions = {"host": host, "cpu_share": cpu_share | cores.facts()}
            return _document(runner, outcomes, options, conditions)

        document = _measure_all(runner, scenarios, document_of)
    if options.json:
        print(dump(document))
    else:
        show(document, output_console(), options.all_settings)
        err.print(f"picture: {options.output / PICTURE}; data: {options.output / DOCUMENT}", soft_wrap=True)
    measured = any(scenario["cells"] for scenario in document["scenarios"])
    if any(failure.wrong for failure in runner.failures) or not measured:
        return FAILED
    return INCOMPLETE if runner.failures else OK


def _measure_all(
    runner: Runner, scenarios: list[Scenario], document_of: Callable[[list[Outcome]], dict[str, Any]]
) -> dict[str, Any]:
    """Measure every scenario and write document and charts after each; the last document.

    BenchError where no scenario could be measured.
    """
    outcomes: list[Outcome] = []
    broken: BenchError | None = None
    for number, scenario in enumerate(scenarios, 1):
        runner.say(f"[{number}/{len(scenarios)}] {scenario.name}: {describe(scenario.as_json())}")
        try:
            outcomes.append(runner.run(scenario))
        except BenchError as error:
            broken = error
            runner.lack_scenario(scenario.name, str(error))
        document = document_of(outcomes)
        write_atomic(runner.store.folder / DOCUMENT, dump(document))
        write_atomic(runner.store.folder / PICTURE, page(document))
    if not any(outcome.cells for outcome in outcomes) and broken:
        raise broken
    return document


def _list_scenarios() -> int:
    table = Table("scenario", "what it is", "ranks on")
    for name, (scenario, text) in NAMED.items():
        sequence = scenario.sequence() if len(scenario.slots) > 1 else ["this machine"]
        table.add_row(name, f"{text}\n{describe(scenario.as_json())}", " ".join(sequence))
    output_console().print(table)
    return OK


def _list_peers(options: argparse.Namespace) -> int:
    peers, missing = find_peers(list(PEERS), parse_prefixes(options.prefix), default_cache())
    headings = ("peer", "version", "where, or what is missing")
    table = Table(*(Column(heading, overflow="fold") for heading in headings))
    lacking = dict(missing)
    for peer in peers:
        try:
            version = peer.version()
            peer.prepare()
            table.add_row(peer.name, version, str(peer.prefix))
        except PeerMissing as error:
            lacking[peer.name] = str(error)
    for name, reason in lacking.items():
        table.add_row(name, "-", reason)
    output_console().print(table)
    return INCOMPLETE if any(not PEERS[name].optional for name in lacking) else OK


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    end_on_sigterm()
    try:
        if options.action == "scenarios":
            return _list_scenarios()
        if options.action == "peers":
            return _list_peers(options)
        if options.action == "show":
            show(read_document(options.results), output_console(), options.all_settings)
            return OK
        return _run(options)
    except BenchError as error:
        print(f"ddl-bench: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("ddl-bench: stopped; --resume with the same --output continues", file=sys.stderr)
        return 130
