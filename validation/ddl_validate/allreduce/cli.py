"""The command: ``ddl-bench run | scenarios | peers | show``."""

from __future__ import annotations

import argparse
import datetime
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ..common import machine
from ..common.console import output_console
from ..common.files import write_atomic
from ..common.signals import end_on_sigterm
from . import sizes
from .bounds import WIRE_FORMATS
from .charts import page
from .cpu_share import METHODS, parse_share, slowed
from .errors import BenchError, PeerMissing
from .peers import MEMORIES, PEERS, Ddl, OpenMpi, Peer
from .peers.gpu import facts_of
from .peers.openmpi import DEFAULT_SEGMENTS
from .prefixes import find_peers, parse_prefixes
from .programs import default_cache
from .real_hosts import real_scenario
from .results import DOCUMENT, SCHEMA, Outcome, Store, dump, read_document
from .runner import Effort, Runner
from .scenarios import HOST_RATE, NAMED, ORDERS, UPLINK_RATE, Scenario, by_tier, named
from .table import describe, show
from .testbed import BINDINGS, DirectTestbed, EmulatedTestbed, Testbed

PICTURE = "allreduce.html"
OK, FAILED, USAGE, INCOMPLETE = 0, 1, 2, 3

EPILOG = """\
exit codes:
  0  everything asked for was measured, and all sums were right
  1  a sum was wrong, or nothing could be measured
  2  the command line cannot be read
  3  a peer was missing or failed; the rest was measured

examples:
  ddl-bench run --scenario 1x2                          shared memory of this machine; needs no root
  ddl-bench run --scenario 4x2-2racks --sizes 1M,64M    emulated hosts; needs root
  ddl-bench run --hosts 3,2,2,1 --racks 2 --uplink-rate 500mbit
  ddl-bench run -H node1:4,node2:4 --host-rate 25gbit   real hosts; the rate is for the lower bound alone
  ddl-bench run --hosts-from scheduler                  inside a Slurm or LSF job
  ddl-bench run --scenario 1x2 --cpu-share 0.5          as on cores of half the speed
  ddl-bench run --device gpu                            GPUs of this host: DDL beside NCCL alone
  ddl-bench run --device gpu -H a:8,b:8 --by-tier       in a host, between hosts, and all of it
  ddl-bench run --output results --resume               goes on where a run was stopped
  ddl-bench show results --all-settings                 the tables again
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ddl-bench",
        description="All-reduce of DDL and its peers side by side: time, ratio to what the wire allows, "
        "bandwidth, processor time, and ratio to the best peer.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="run | scenarios | peers | show")
    _add_run(actions.add_parser("run", help="measure", epilog=EPILOG, formatter_class=parser.formatter_class))
    actions.add_parser("scenarios", help="list the named layouts of hosts")
    peers = actions.add_parser("peers", help="say which peers can run here, and how to get the others")
    _add_prefixes(peers)
    shown = actions.add_parser("show", help="print the tables of an earlier run")
    shown.add_argument("results", type=Path, help="its output folder, or a results.json")
    shown.add_argument("--all-settings", action="store_true", help="also a table of every setting")
    return parser


def _add_prefixes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prefix",
        action="append",
        default=[],
        metavar="PEER=DIR",
        help="environment that holds a peer (default: this one and those beside it); may be repeated",
    )


def _add_run(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group("where: named layouts, one of your own, or real hosts")
    where.add_argument(
        "--scenario",
        action="append",
        metavar="NAME",
        help="named layout, see `ddl-bench scenarios`; may be repeated (default: all)",
    )
    where.add_argument("--hosts", metavar="3,2,2,1", help="emulated hosts with so many ranks")
    where.add_argument("-H", dest="real", metavar="HOST[:RANKS],…", help="real hosts, reached by ssh")
    where.add_argument(
        "--hosts-from", metavar="scheduler|FILE", help="real hosts of the job around, or of a host file"
    )
    where.add_argument(
        "--racks", type=int, default=1, help="racks of --hosts, -H, --hosts-from, in blocks (1)"
    )
    where.add_argument("--order", choices=ORDERS, default="by-host", help="numbering of the ranks (by-host)")
    where.add_argument(
        "--shuffled", dest="order", action="store_const", const="shuffled", help="as --order shuffled"
    )
    where.add_argument(
        "--by-tier",
        action="store_true",
        help="also the tiers one by one: within a host, between hosts of a rack, between racks",
    )
    where.add_argument("--host-rate", metavar="RATE", help=f"of each host's link (emulated: {HOST_RATE})")
    where.add_argument(
        "--uplink-rate", metavar="RATE", help=f"of each rack's uplink (emulated: {UPLINK_RATE})"
    )
    where.add_argument(
        "--interface", help="network interface between real hosts, for Gloo (it chooses itself)"
    )
    where.add_argument(
        "--measure-links", action="store_true", help="also measure what the emulated links carry"
    )
    what = parser.add_argument_group("what")
    what.add_argument(
        "--sizes",
        help=f"4K,1M or 4K-256M ({','.join(sizes.DEFAULT)}; of a GPU's memory {sizes.DEFAULT_CUDA})",
    )
    what.add_argument(
        "--memory",
        choices=MEMORIES,
        default="host",
        help="where the buffers lie; cuda: in the memory of GPUs, of which each rank has one (%(default)s)",
    )
    what.add_argument(
        "--device",
        dest="memory",
        type=_memory_of,
        metavar="cpu|gpu",
        help="as --memory host and --memory cuda",
    )
    what.add_argument(
        "--peers", metavar="NAMES", help="with commas (" + "; ".join(map(_peers_of, MEMORIES)) + ")"
    )
    what.add_argument(
        "--settings",
        choices=("all", "defaults"),
        default="all",
        help="all: also fixed algorithms, each peer counts at its best (all)",
    )
    what.add_argument(
        "--segment",
        default=",".join(sizes.show_size(s).replace("iB", "").replace(" ", "") for s in DEFAULT_SEGMENTS),
        help="segments of Open MPI's segmented ring, with commas (%(default)s)",
    )
    what.add_argument("--ddl-options", default="", help='added to DDL_OPTIONS, such as "-dbg_level 1"')
    what.add_argument(
        "--wire",
        choices=WIRE_FORMATS,
        default="full",
        help="DDL's format between hosts, with its own lower bound; the peers send float32 (%(default)s)",
    )
    what.add_argument(
        "--tell",
        choices=("racks", "nothing"),
        default="racks",
        help="what DDL is told of the network; nothing: as the other peers (%(default)s)",
    )
    _add_prefixes(what)  # type: ignore[arg-type]
    what.add_argument(
        "--bind",
        choices=BINDINGS,
        default=BINDINGS[0],
        help="cores: each rank on cores of its own, where there are enough; none: all ranks on all cores; "
        "auto: cores on real hosts, none on this machine (%(default)s)",
    )
    what.add_argument(
        "--cpu-share",
        default="1",
        metavar="SHARE",
        help="slow the cores of this machine down to such a part of their speed, for every peer alike (1)",
    )
    what.add_argument(
        "--cpu-share-by",
        choices=METHODS,
        default=METHODS[0],
        help="clock: real-time threads take the rest in short turns; quota: of a control group; auto: the "
        "first that is allowed here (%(default)s)",
    )
    effort = parser.add_argument_group("effort")
    default = Effort()
    effort.add_argument(
        "--rounds",
        type=int,
        default=default.rounds,
        help="starts of every peer, in an order that rotates; medians over them count (%(default)s)",
    )
    effort.add_argument(
        "--budget",
        type=float,
        default=default.budget,
        help="seconds a round for a setting and size (%(default)g)",
    )
    effort.add_argument(
        "--least", type=int, default=default.least, help="repetitions a round at least (%(default)s)"
    )
    effort.add_argument(
        "--most", type=int, default=default.most, help="repetitions a round at most (%(default)s)"
    )
    effort.add_argument(
        "--warmup",
        type=int,
        default=default.warmups,
        help="repetitions at the start of a round and size that do not count, 1 or more (%(default)s)",
    )
    effort.add_argument(
        "--timeout",
        type=float,
        default=default.silence,
        help="a peer that tells nothing for so many seconds is ended (%(default)g)",
    )
    out = parser.add_argument_group("results")
    out.add_argument("--output", type=Path, default=Path("ddl-bench"), help="folder (%(default)s)")
    kept = out.add_mutually_exclusive_group()
    kept.add_argument("--resume", action="store_true", help="measure only what the folder does not hold")
    kept.add_argument("--fresh", action="store_true", help="replace the results that the folder holds")
    out.add_argument("--json", action="store_true", help="print the JSON document instead of tables")
    out.add_argument("--all-settings", action="store_true", help="also a table of every setting")


def _memory_of(device: str) -> str:
    try:
        return {"cpu": "host", "gpu": "cuda"}[device]
    except KeyError:
        raise argparse.ArgumentTypeError(f"{device!r}: cpu or gpu") from None


def _peers_of(memory: str) -> str:
    return f"{memory}: {','.join(name for name, peer in PEERS.items() if memory in peer.memories)}"


def _scenarios(options: argparse.Namespace, ddlrun_prefix: Path | None) -> list[Scenario]:
    """What the options ask for; BenchError where they contradict each other."""
    given = [
        word
        for word, value in (
            ("--scenario", options.scenario),
            ("--hosts", options.hosts),
            ("-H", options.real),
            ("--hosts-from", options.hosts_from),
        )
        if value
    ]
    if len(given) > 1:
        raise BenchError(f"{' and '.join(given)}: say one of them")
    own_layout = options.racks != 1 or options.order != "by-host"
    if options.hosts:
        try:
            slots = tuple(int(word) for word in options.hosts.split(","))
        except ValueError:
            raise BenchError(f"--hosts {options.hosts!r}: write numbers with commas: 3,2,2,1") from None
        name = f"{'+'.join(map(str, slots))}-{options.racks}racks" + (
            "-shuffled" if options.order == "shuffled" else ""
        )
        host, uplink = options.host_rate or HOST_RATE, options.uplink_rate or UPLINK_RATE
        return [Scenario(name, slots, options.racks, options.order, host, uplink)]
    if options.real or options.hosts_from:
        if ddlrun_prefix is None:
            raise BenchError("real hosts are found by ddlrun, which was not found: say --prefix ddl=DIR")
        words = ["-H", options.real] if options.real else []
        if options.hosts_from and options.hosts_from != "scheduler":
            words = ["-hostfile", options.hosts_from]
        return [
            real_scenario(
                ddlrun_prefix, words, options.racks, options.order, options.host_rate, options.uplink_rate
            )
        ]
    if own_layout or options.host_rate or options.uplink_rate:
        raise BenchError("--racks, --order and the rates belong to --hosts, -H or --hosts-from")
    if options.memory == "cuda" and not options.scenario:
        if ddlrun_prefix is None:
            raise BenchError("no DDL was found: say --prefix ddl=DIR")
        ranks = max(2, len(facts_of(ddlrun_prefix).gpus))
        return [Scenario(f"1x{ranks}", (ranks,), 1, "by-host", None, None)]
    return [named(name) for name in options.scenario or NAMED]


def _document(
    runner: Runner,
    outcomes: list[Outcome],
    options: argparse.Namespace,
    machine_facts: dict[str, Any],
    cpu_share: dict[str, Any],
) -> dict[str, Any]:
    return {
        "kind": "allreduce",
        "schema": SCHEMA,
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "host": machine_facts,
        "type": "float32",
        "op": "sum",
        "memory": options.memory,
        "effort": vars(runner.effort),
        "bind": options.bind,
        "told": options.tell,
        "wire": options.wire,
        "cpu_share": cpu_share,
        "settings": options.settings,
        "peers": runner.versions,
        "scenarios": [outcome.as_json() for outcome in outcomes],
        "failures": [vars(failure) for failure in runner.failures],
    }


def _run(options: argparse.Namespace) -> int:
    effort = Effort(
        options.budget, options.least, options.most, options.timeout, options.warmup, options.rounds
    )
    if not (
        effort.budget >= 0
        and 1 <= effort.least <= effort.most
        and effort.silence > 0
        and effort.warmups >= 1
        and effort.rounds >= 1
    ):
        raise BenchError(
            "--budget, --least, --most, --warmup, --rounds, --timeout: not negative, and 1 <= least <= most"
        )
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
    usual = sizes.DEFAULT_CUDA if options.memory == "cuda" else ",".join(sizes.DEFAULT)
    wanted = sizes.parse_sizes(options.sizes or usual)
    given = parse_prefixes(options.prefix)
    asked = [name for name in (options.peers or "").split(",") if name]
    unable = [name for name in asked if name in PEERS and options.memory not in PEERS[name].memories]
    if unable:
        raise BenchError(
            f"--peers {unable[0]} does not reduce this memory (--memory {options.memory}); "
            f"{'; '.join(map(_peers_of, MEMORIES))}"
        )
    names = (
        [name for name, peer in PEERS.items() if options.memory in peer.memories]
        if not asked
        else [name for name in PEERS if name in asked] + [name for name in asked if name not in PEERS]
    )
    cache = default_cache()
    peers, missing = find_peers(names, given, cache)
    everything, _ = find_peers([Ddl.name], given, cache)
    try:
        chosen = _scenarios(options, everything[0].prefix if everything else None)
    except PeerMissing as error:
        raise BenchError(f"--memory cuda: {error}") from None
    if options.by_tier:
        chosen = [tier for scenario in chosen for tier in by_tier(scenario)]
    for peer in peers:
        peer.memory = options.memory
        if isinstance(peer, OpenMpi):
            peer.segments = sizes.parse_sizes(options.segment)
        if isinstance(peer, Ddl):
            peer.options = options.ddl_options
            peer.told = options.tell == "racks"
            peer.wire = options.wire

    # Progress goes to standard error: standard output is the result.
    err = Console(stderr=True)
    store = Store(options.output)
    if store.used() and not options.resume and not options.fresh:
        raise BenchError(
            f"{options.output} holds results already: --resume goes on, --fresh replaces them, "
            "or name another --output"
        )

    def say(line: str) -> None:
        err.print(line, markup=False, highlight=False, soft_wrap=True)

    runner = Runner(
        store,
        peers,
        wanted,
        say,
        effort,
        only_defaults=options.settings == "defaults",
        resume=options.resume,
        measure_links=options.measure_links,
        asked=tuple(asked),
    )
    facts = machine.facts()
    with slowed(share, options.cpu_share_by, cache) as (cores, cpu_share):
        options.output.mkdir(parents=True, exist_ok=True)
        if share < 1:
            say(f"cores at {share:g} of their speed by {cores.method}: {cores.explanation}")
            runner.conditions = {"share": share, "method": cores.method}

        def open_testbed(scenario: Scenario, peers: list[Peer]) -> Testbed:
            if len(scenario.slots) == 1 or scenario.names:
                parent = options.output.resolve() if scenario.names else None
                return DirectTestbed(scenario, options.interface, parent, options.bind, cores)
            folders = [folder for peer in peers for folder in peer.folders()]
            return EmulatedTestbed(scenario, folders, options.bind, cores)

        runner.open_testbed = open_testbed
        runner.prepare(missing)
        minutes = runner.estimate(chosen) / 60
        say(
            f"{len(chosen)} scenario(s), {len(wanted)} size(s), {len(runner.peers)} peer(s), {effort.rounds} "
            f"round(s): about {minutes:.0f} min; results in {options.output}"
        )
        outcomes: list[Outcome] = []
        broken: BenchError | None = None
        for number, scenario in enumerate(chosen, 1):
            say(f"[{number}/{len(chosen)}] {scenario.name}: {describe(scenario.as_json())}")
            try:
                outcomes.append(runner.run(scenario))
            except BenchError as error:
                broken = error
                runner.lack_scenario(scenario.name, str(error))
            document = _document(runner, outcomes, options, facts, {**cpu_share, **cores.facts()})
            write_atomic(options.output / DOCUMENT, dump(document))
            write_atomic(options.output / PICTURE, page(document))
    if not any(outcome.cells for outcome in outcomes) and broken:
        raise broken
    if options.json:
        print(dump(document))
    else:
        show(document, output_console(), options.all_settings)
        err.print(f"picture: {options.output / PICTURE}; data: {options.output / DOCUMENT}", soft_wrap=True)
    if any(failure.wrong for failure in runner.failures) or not any(o.cells for o in outcomes):
        return FAILED
    return INCOMPLETE if runner.failures else OK


def _list_scenarios() -> int:
    table = Table()
    for heading in ("scenario", "what it is", "ranks on"):
        table.add_column(heading)
    for name, (scenario, text) in NAMED.items():
        sequence = scenario.sequence() if len(scenario.slots) > 1 else ["this machine"]
        table.add_row(name, f"{text}\n{describe(scenario.as_json())}", " ".join(sequence))
    output_console().print(table)
    return OK


def _list_peers(options: argparse.Namespace) -> int:
    peers, missing = find_peers(list(PEERS), parse_prefixes(options.prefix), default_cache())
    table = Table()
    for heading in ("peer", "version", "where, or what is missing"):
        table.add_column(heading, overflow="fold")
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
    """Run the command; returns its exit code."""
    options = _parser().parse_args(arguments)
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
        print("ddl-bench: stopped; --resume goes on with the same --output", file=sys.stderr)
        return 130
