"""The command line of ``ddl-bench``."""

from __future__ import annotations

import argparse
from pathlib import Path

from . import sizes
from .bounds import WIRE_FORMATS
from .cpu_share import METHODS
from .peers import MEMORIES, PEERS
from .peers.openmpi import DEFAULT_SEGMENTS
from .runner import Effort
from .scenarios import HOST_RATE, ORDERS, UPLINK_RATE
from .testbed import BINDINGS

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
  ddl-bench run --output results --resume               continues a run that was stopped
  ddl-bench show results --all-settings                 the tables again
"""


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(
        prog="ddl-bench",
        description="All-reduce of DDL and its peers side by side: time, ratio to what the wire allows, "
        "bandwidth, processor time, and ratio to the best peer.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = command.add_subparsers(dest="action", required=True, metavar="run | scenarios | peers | show")
    _add_run(
        actions.add_parser("run", help="measure", epilog=EPILOG, formatter_class=command.formatter_class)
    )
    actions.add_parser("scenarios", help="list the named layouts of hosts")
    peers = actions.add_parser("peers", help="say which peers can run here, and how to get the others")
    _add_prefixes(peers)
    show = actions.add_parser("show", help="print the tables of an earlier run")
    show.add_argument("results", type=Path, help="its output folder, or a results.json")
    show.add_argument("--all-settings", action="store_true", help="also a table of every setting")
    return command


def _add_prefixes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prefix",
        action="append",
        default=[],
        metavar="PEER=DIR",
        help="environment that holds a peer (default: this one and those beside it); may be repeated",
    )


def _add_run(parser: argparse.ArgumentParser) -> None:
    for add_group in (_add_layout, _add_measurement, _add_cores, _add_effort, _add_results):
        add_group(parser)


def _add_layout(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("where: named layouts, one of your own, or real hosts").add_argument
    add(
        "--scenario",
        action="append",
        metavar="NAME",
        help="named layout, see `ddl-bench scenarios`; may be repeated (default: all)",
    )
    add("--hosts", metavar="3,2,2,1", help="emulated hosts with so many ranks")
    add("-H", dest="real", metavar="HOST[:RANKS],…", help="real hosts, reached by ssh")
    add("--hosts-from", metavar="scheduler|FILE", help="real hosts of the job around, or of a host file")
    add("--racks", type=int, default=1, help="racks of --hosts, -H, --hosts-from, in blocks (1)")
    add("--order", choices=ORDERS, default="by-host", help="numbering of the ranks (by-host)")
    add("--shuffled", dest="order", action="store_const", const="shuffled", help="as --order shuffled")
    add(
        "--by-tier",
        action="store_true",
        help="also the tiers one by one: within a host, between hosts of a rack, between racks",
    )
    add("--host-rate", metavar="RATE", help=f"of each host's link (emulated: {HOST_RATE})")
    add("--uplink-rate", metavar="RATE", help=f"of each rack's uplink (emulated: {UPLINK_RATE})")
    add("--interface", help="network interface between real hosts, for Gloo (it chooses itself)")
    add("--measure-links", action="store_true", help="also measure what the emulated links carry")


def _add_measurement(parser: argparse.ArgumentParser) -> None:
    measurement = parser.add_argument_group("what")
    add = measurement.add_argument
    add(
        "--sizes",
        help=f"4K,1M or 4K-256M ({','.join(sizes.DEFAULT)}; of a GPU's memory {sizes.DEFAULT_CUDA})",
    )
    add(
        "--memory",
        choices=MEMORIES,
        default="host",
        help="where the buffers lie; cuda: in the memory of GPUs, of which each rank has one (%(default)s)",
    )
    add(
        "--device",
        dest="memory",
        type=_memory_of,
        metavar="cpu|gpu",
        help="as --memory host and --memory cuda",
    )
    add("--peers", metavar="NAMES", help="with commas (" + "; ".join(map(peers_of, MEMORIES)) + ")")
    add(
        "--settings",
        choices=("all", "defaults"),
        default="all",
        help="all: also fixed algorithms, each peer counts at its best (all)",
    )
    add(
        "--segment",
        default=",".join(sizes.show_size(s).replace("iB", "").replace(" ", "") for s in DEFAULT_SEGMENTS),
        help="segments of Open MPI's segmented ring, with commas (%(default)s)",
    )
    add("--ddl-options", default="", help='added to DDL_OPTIONS, such as "-dbg_level 1"')
    add(
        "--wire",
        choices=WIRE_FORMATS,
        default="full",
        help="DDL's format between hosts, with its own lower bound; the peers send float32 (%(default)s)",
    )
    add(
        "--tell",
        choices=("racks", "nothing"),
        default="racks",
        help="what DDL gets to know about the network; nothing: as the other peers (%(default)s)",
    )
    _add_prefixes(measurement)  # type: ignore[arg-type]


def _add_cores(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("cores").add_argument
    add(
        "--bind",
        choices=BINDINGS,
        default=BINDINGS[0],
        help="cores: each rank on cores of its own, where there are enough; none: all ranks on all cores; "
        "auto: cores on real hosts, none on this machine (%(default)s)",
    )
    add(
        "--cpu-share",
        default="1",
        metavar="SHARE",
        help="slow the cores of this machine down to such a part of their speed, for every peer alike (1)",
    )
    add(
        "--cpu-share-by",
        choices=METHODS,
        default=METHODS[0],
        help="clock: real-time threads take the rest in short turns; quota: of a control group; auto: the "
        "first that is allowed here (%(default)s)",
    )


def _add_effort(parser: argparse.ArgumentParser) -> None:
    add, default = parser.add_argument_group("effort").add_argument, Effort()
    add(
        "--rounds",
        type=int,
        default=default.rounds,
        help="starts of every peer, in an order that rotates; medians over them count (%(default)s)",
    )
    add(
        "--budget",
        type=float,
        default=default.budget,
        help="seconds a round for a setting and size (%(default)g)",
    )
    add("--least", type=int, default=default.least, help="repetitions a round at least (%(default)s)")
    add("--most", type=int, default=default.most, help="repetitions a round at most (%(default)s)")
    add(
        "--warmup",
        type=int,
        default=default.warmups,
        help="repetitions at the start of a round and size that do not count, 1 or more (%(default)s)",
    )
    add(
        "--timeout",
        type=float,
        default=default.silence,
        help="a peer that prints nothing for so many seconds is ended (%(default)g)",
    )


def _add_results(parser: argparse.ArgumentParser) -> None:
    out = parser.add_argument_group("results")
    add = out.add_argument
    add("--output", type=Path, default=Path("ddl-bench"), help="folder (%(default)s)")
    policy = out.add_mutually_exclusive_group()
    policy.add_argument("--resume", action="store_true", help="measure only what the folder does not hold")
    policy.add_argument("--fresh", action="store_true", help="replace the results that the folder holds")
    add("--json", action="store_true", help="print the JSON document instead of tables")
    add("--all-settings", action="store_true", help="also a table of every setting")


def _memory_of(device: str) -> str:
    try:
        return {"cpu": "host", "gpu": "cuda"}[device]
    except KeyError:
        raise argparse.ArgumentTypeError(f"{device!r}: cpu or gpu") from None


def peers_of(memory: str) -> str:
    """A kind of memory with the peers that reduce it."""
    return f"{memory}: {','.join(name for name, peer in PEERS.items() if memory in peer.memories)}"
