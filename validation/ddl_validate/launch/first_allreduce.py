"""How long ranks take to start and to make their first all-reduce, by MPI and by DDL, on emulated hosts.

    python -m ddl_validate.launch.first_allreduce --prefix build/envs/powerai

Every rank counts from the beginning of its main function; the slowest rank's time is taken. The two ways take
turns, so that what else the machine does falls on both; the first start of DDL, which also measures links, is
reported separately. Prints one line of JSON.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

from ..cluster import Cluster, ClusterSpec
from ..common.measured import ROOT
from .start_cost import ENVIRONMENT

SOURCE = Path(__file__).with_name("first_allreduce.c")


def build(prefix: Path, folder: Path) -> dict[str, Path]:
    """The program by either way, compiled with the environment's MPI."""
    programs = {name: folder / f"first_{name}" for name in ("mpi", "ddl")}
    link = [f"-L{prefix}/lib", "-lddl", f"-Wl,-rpath,{prefix}/lib"]
    for name, program in programs.items():
        more = ["-DBY_DDL", f"-I{prefix}/include", *link] if name == "ddl" else []
        command = [f"{prefix}/bin/mpicc", "-O2", str(SOURCE), "-o", str(program), *more]
        subprocess.run(command, check=True, timeout=120)
    return programs


def measure(prefix: Path, hosts: int, ranks: int, turns: int) -> dict[str, float]:
    """Seconds, medians of the turns, and DDL's as a multiple of MPI's, the median of the ratios."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = build(prefix, folder)
        shared = tuple(str(path) for path in (prefix, ROOT, folder) if path.is_relative_to("/tmp"))
        more = {"DDL_CACHE_DIR": str(folder / "cache")}
        spec = ClusterSpec.even(hosts=hosts, slots=ranks, shared=shared, environment=ENVIRONMENT | more)
        with Cluster(spec) as cluster:
            command = [f"{prefix}/bin/mpirun", "--hostfile", str(cluster.hostfile), "--bind-to", "none"]
            command += ["-np", str(hosts * ranks), "-x", "DDL_CACHE_DIR"]

            def start(way: str) -> float:
                run = cluster.run("h1", [*command, str(programs[way])], timeout=300, check=True, env=more)
                return float(run.stdout)

            start("mpi")
            first = start("ddl")
            pairs = [(start("mpi"), start("ddl")) for _ in range(turns)]
    return {
        "hosts": hosts,
        "ranks": hosts * ranks,
        "mpi_s": round(statistics.median(mpi for mpi, _ in pairs), 3),
        "ddl_s": round(statistics.median(ddl for _, ddl in pairs), 3),
        "ratio": round(statistics.median(ddl / mpi for mpi, ddl in pairs), 3),
        "ddl_first_s": round(first, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--prefix", type=Path, default=ROOT / "build/envs/powerai", help="the environment")
    parser.add_argument("--hosts", type=int, default=16)
    parser.add_argument("--ranks", type=int, default=8, help="on each host")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    print(json.dumps(measure(options.prefix.resolve(), options.hosts, options.ranks, options.turns)))


if __name__ == "__main__":
    main()
