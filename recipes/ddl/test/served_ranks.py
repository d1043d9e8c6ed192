"""Two ranks that no MPI launcher started: the package's own server gives MPI its start, as under torchrun."""

import os
import subprocess
import sys
from pathlib import Path

from ddl.bootstrap.rendezvous import Exchange, Job
from ddl.bootstrap.server import Server


class NoStore:
    """One host has nobody to exchange with."""

    def __getattr__(self, name: str) -> None:
        raise AssertionError(f"the store was asked to {name}")


job = Job("served", (("ddl-test-host", (0, 1)),), {0: os.getpid(), 1: os.getpid()}, host_index=0, rank=0)
server = Server(job, Exchange(NoStore(), 0, 1))
program = "import ddl, numpy as np; print(ddl.local_rank(), ddl.allreduce(np.full(3, ddl.rank() + 1.0, 'f')))"
ranks = [
    subprocess.Popen(
        [sys.executable, "-c", program], env=os.environ | variables, stdout=subprocess.PIPE, text=True
    )
    for variables in server.environments.values()
]
said = [rank.communicate(timeout=100)[0] for rank in ranks]
server.close()
assert said == ["0 [3. 3. 3.]\n", "1 [3. 3. 3.]\n"], said
assert server.ended, "the server outlives its ranks"
left = list(Path("/dev/shm").glob("sm_segment.ddl-test-host.*"))
assert not left, f"shared memory is left: {left}"
