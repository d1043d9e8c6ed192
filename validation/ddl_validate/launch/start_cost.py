"""What ddlrun costs beside bare mpirun: the start of a job on this host and on emulated ones, and output.

    python -m ddl_validate.launch.start_cost --prefix build/envs/powerai
    python -m ddl_validate.launch.start_cost --record      # writes the record and the page made of it

The ways take turns, so that what else the machine does falls on all of them. Prints one line of JSON.
Processor time is that of the command and of all processes below it on this host: mpirun, ranks, clients of
ssh, but no sshd.
"""

import argparse
import os
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..cluster import Cluster, ClusterSpec
from ..common.measured import ROOT, Measured
from ..common.mpi import MPI_AS_ROOT

# Long enough to be running when all hosts have started it.
PROGRAM = ["sleep", "0.3"]
# Ranks that wait must yield where hosts share this machine's cores. SHLVL: commands that come by ssh do not
# read ~/.bashrc.
ENVIRONMENT = {**MPI_AS_ROOT, "OMPI_MCA_mpi_yield_when_idle": "1", "SHLVL": "1"}
_LINE = 100
_LINES = "import sys; line = 'x' * 99 + '\\n'\nfor _ in range({}): sys.stdout.write(line)"
_ONE_LINE = "import sys; sys.stdout.write('x' * {} + '\\n')"

Ways = Mapping[str, Callable[[], object]]


def _measure(ways: Ways, turns: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of each way in each turn, of wall clock and of processors."""
    taken: dict[str, dict[str, list[float]]] = {name: {"wall": [], "cpu": []} for name in ways}
    for turn in range(turns + 1):
        for name, run in ways.items():
            before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            run()
            wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
            if turn:  # the first one fills the caches
                taken[name]["wall"].append(wall)
                cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                taken[name]["cpu"].append(cpu)
    return taken


def _more(taken: Mapping[str, Mapping[str, Sequence[float]]], name: str, clock: str) -> float:
    pairs = zip(taken[name][clock], taken["mpirun"][clock], strict=True)
    return round(statistics.median(a - b for a, b in pairs), 3)


def _starts(ways: Ways, turns: int) -> dict[str, Any]:
    taken = _measure(ways, turns)
    figures = {}
    for clock, unit in (("wall", "s"), ("cpu", "cpu_s")):
        figures[f"mpirun_{unit}"] = round(statistics.median(taken["mpirun"][clock]), 3)
        figures[f"checks_on_{unit}_more"] = _more(taken, "checks", clock)
        figures[f"checks_off_{unit}_more"] = _more(taken, "skip", clock)
    if "ssh" in taken:
        figures["ssh_cpu_s"] = round(statistics.median(taken["ssh"]["cpu"]), 3)
    return figures


def measure_hosts(prefix: Path, hosts: int, turns: int) -> dict[str, Any]:
    """The start of a job on emulated hosts, a rank on each. ssh_cpu_s: of one `ssh HOST true`."""
    shared = tuple(str(path) for path in (prefix, ROOT) if path.is_relative_to("/tmp"))
    spec = ClusterSpec.even(hosts=hosts, shared=shared, environment=ENVIRONMENT)
    with Cluster(spec) as cluster:

        def way(*arguments: str) -> Callable[[], object]:
            return lambda: cluster.run("h1", arguments, timeout=120, check=True)

        ddlrun = [f"{prefix}/bin/ddlrun", "-H", ",".join(host.name for host in spec.hosts)]
        bare = [f"{prefix}/bin/mpirun", "--hostfile", str(cluster.hostfile), "-np", str(hosts)]
        ways = {
            "mpirun": way(*bare, *PROGRAM),
            "checks": way(*ddlrun, *PROGRAM),
            "skip": way(*ddlrun, "-skip-checks", *PROGRAM),
            "ssh": way("ssh", spec.hosts[-1].name, "true"),
        }
        return {"hosts": hosts, **_starts(ways, turns)}


def _way(arguments: Sequence[str]) -> Callable[[], object]:
    environment = {**os.environ, **ENVIRONMENT}
    return lambda: subprocess.run(
        arguments,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=120,
        check=True,
    )


def measure_host(prefix: Path, turns: int) -> dict[str, Any]:
    """The start of a job of two ranks on this host alone."""
    ddlrun, two = [f"{prefix}/bin/ddlrun", "-q"], ["-np", "2", "true"]
    ways = {
        "mpirun": _way([f"{prefix}/bin/mpirun", *two]),
        "checks": _way([*ddlrun, *two]),
        "skip": _way([*ddlrun, "-skip-checks", *two]),
    }
    return _starts(ways, turns)


def measure_output(prefix: Path, megabytes: int, turns: int) -> dict[str, Any]:
    """Two ranks that write lines, half of the bytes each, beside two processes that write them into one pipe;
    and one rank with a single long line.
    """
    python, job = f"{prefix}/bin/python3", f"{prefix}/bin/ddlrun -q -skip-checks"
    half = megabytes * 10**6 // 2
    program = _LINES.format(half // _LINE)
    long_line = _ONE_LINE.format(half)
    ways = {
        "pipe": _shell('{ "$0" -c "$1" & "$0" -c "$1"; wait; } | cat', python, program),
        "ddlrun": _shell(f'{job} -np 2 "$0" -c "$1" | cat', python, program),
        "empty": _shell(f'{job} -np 2 "$0" -c "$1" | cat', python, ""),
        "line": _shell(f'{job} -np 1 "$0" -c "$1" | cat', python, long_line),
    }
    wall = {name: statistics.median(times["wall"]) for name, times in _measure(ways, turns).items()}
    lines = wall["ddlrun"] - wall["empty"]
    return {
        "megabytes": megabytes,
        "pipe_s": round(wall["pipe"], 3),
        "ddlrun_s": round(lines, 3),
        "ratio": round(lines / wall["pipe"], 2),
        "line_s": round(wall["line"] - wall["empty"], 3),
    }


def _shell(script: str, *arguments: str) -> Callable[[], object]:
    return _way(["bash", "-o", "pipefail", "-c", script, *arguments])


def _lines(document: Mapping[str, Any]) -> list[str]:
    single, many, output = (document[name] for name in ("host", "hosts", "output"))
    ssh = (many["checks_on_cpu_s_more"] - single["checks_on_cpu_s_more"]) / (many["hosts"] - 1)
    lines = [
        "| | `mpirun`: wall clock, processor | `ddlrun` adds | `ddlrun -skip-checks` adds |",
        "|---|---|---|---|",
    ]
    titles = ("2 ranks on one host", f"{many['hosts']} emulated hosts that share the cores, a rank on each")
    for title, figures in zip(titles, (single, many), strict=True):
        ways, ends = ("checks_on", "checks_off"), ("s_more", "cpu_s_more")
        cells = [figures[f"{way}_{end}"] for way in ways for end in ends]
        lines.append(
            f"| {title} | {figures['mpirun_s']:.2f} s, {figures['mpirun_cpu_s']:.2f} s "
            f"| {cells[0]:.2f} s, {cells[1]:.2f} s | {cells[2]:.2f} s, {cells[3]:.2f} s |"
        )
    beside = f"{output['ddlrun_s']:.2f} s and {output['pipe_s']:.2f} s"
    return [
        *lines,
        "",
        f"Each further host costs {ssh:.3f} s of processor time on the host of `ddlrun`, beside that of",
        f"`mpirun`; one `ssh` to a host costs {many['ssh_cpu_s']:.3f} s.",
        "",
        f"{output['megabytes']} MB of lines from 2 ranks take {output['ratio']:.2f} times as long as from 2",
        f"processes through one pipe ({beside}). A line of {output['megabytes'] // 2} MB takes",
        f"{output['line_s']:.2f} s.",
    ]


MEASURED = Measured(
    path=ROOT / "validation/measured/start_cost.json",
    page=ROOT / "docs/reference/ddlrun-reference.md",
    module="ddl_validate.launch.start_cost",
    subject="ddlrun",
    sources=("ddl-core/ddlrun/bin/ddlrun", "ddl-core/ddlrun/ddlrun"),
    lines=_lines,
)


def _measure_all(options: argparse.Namespace) -> dict[str, Any]:
    prefix, turns = options.prefix, options.turns
    return {
        "host": measure_host(prefix, turns),
        "hosts": measure_hosts(prefix, options.hosts, turns),
        "output": measure_output(prefix, options.megabytes, max(1, turns // 2)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hosts", type=int, default=4, help="emulated ones, which only root can have (4)")
    parser.add_argument("--turns", type=int, default=9, help="of each way (9)")
    parser.add_argument("--megabytes", type=int, default=100, help="of output (100)")
    MEASURED.run(parser, _measure_all)


if __name__ == "__main__":
    main()
