"""What ddlrun adds to the start of a job: its time minus that of bare mpirun, on emulated hosts.

    python -m ddl_validate.launch.start_cost --prefix build/envs/powerai

The three ways take turns, so that what else the machine does falls on all of them. Prints one line of JSON.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

from ..cluster import Cluster, ClusterSpec
from ..common.mpi import MPI_AS_ROOT

ROOT = Path(__file__).resolve().parents[3]
# Long enough to be running when all hosts have started it.
PROGRAM = ["sleep", "0.3"]
# Ranks that wait must yield where hosts share this machine's cores. SHLVL: commands that come by ssh do not
# read ~/.bashrc.
ENVIRONMENT = {**MPI_AS_ROOT, "OMPI_MCA_mpi_yield_when_idle": "1", "SHLVL": "1"}


def measure(prefix: Path, hosts: int, turns: int) -> dict[str, float]:
    """Seconds: medians of bare mpirun's start, and of what ddlrun takes more with and without its checks."""
    shared = tuple(str(path) for path in (prefix, ROOT) if path.is_relative_to("/tmp"))
    spec = ClusterSpec.even(hosts=hosts, shared=shared, environment=ENVIRONMENT)
    with Cluster(spec) as cluster:
        names = ",".join(host.name for host in spec.hosts)
        mpirun = [f"{prefix}/bin/mpirun", "--hostfile", str(cluster.hostfile), "-np", str(hosts), *PROGRAM]
        ddlrun = [f"{prefix}/bin/ddlrun", "-H", names]
        ways = {"mpirun": mpirun, "checks": [*ddlrun, *PROGRAM], "skip": [*ddlrun, "-skip-checks", *PROGRAM]}
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(turns + 1):
            for name, command in ways.items():
                start = time.monotonic()
                cluster.run("h1", command, timeout=120, check=True)
                if turn:  # the first one fills the caches
                    taken[name].append(time.monotonic() - start)

    def more(name: str) -> float:
        return statistics.median(a - b for a, b in zip(taken[name], taken["mpirun"], strict=True))

    return {
        "hosts": hosts,
        "mpirun_s": round(statistics.median(taken["mpirun"]), 3),
        "checks_on_s_more": round(more("checks"), 3),
        "checks_off_s_more": round(more("skip"), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--prefix", type=Path, default=ROOT / "build/envs/powerai", help="the environment")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args()
    print(json.dumps(measure(options.prefix.resolve(), options.hosts, options.turns)))


if __name__ == "__main__":
    main()
