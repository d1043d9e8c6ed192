"""torch's own tests of a backend, out of the torch that is installed, by ranks that are started once.

Arguments: a backend, a folder that all ranks see, the names of the tests, or PART/PARTS of all there are.
Under mpirun. Writes what became of each test to outcomes.json in the folder.

torch would start processes for every test; here each test has a process group of its own in the same
processes.
"""

import json
import os
import shutil
import socket
import sys
import traceback
import unittest
import warnings
from datetime import timedelta
from pathlib import Path

from mpi4py import MPI

ALL = MPI.COMM_WORLD
RANK, SIZE = ALL.Get_rank(), ALL.Get_size()
BACKEND, FOLDER, WHICH = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


# which tests there are is decided at the import: those of gloo
os.environ |= {"BACKEND": "gloo", "WORLD_SIZE": str(SIZE), "RANK": str(RANK), "TEMP_DIR": str(FOLDER)}
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ALL.bcast(free_port()))}

import torch.distributed as dist  # noqa: E402
from torch.testing._internal.common_distributed import TEST_SKIPS  # noqa: E402
from torch.testing._internal.common_utils import set_rng_seed  # noqa: E402
from torch.testing._internal.distributed import distributed_test  # noqa: E402

warnings.simplefilter("ignore")
REASONS = {skip.exit_code: skip.message for skip in TEST_SKIPS.values()}


class LikeGloo(str):
    """The backend's name. What the tests do for gloo and for no other they do for it too."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return other == "gloo" or str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other


distributed_test.BACKEND = LikeGloo(BACKEND)


class OwnTests(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    """Their methods; processes are not started."""


def run(name: str) -> str:
    """What became of a test: passed, skipped: why, or failed: how."""
    if RANK == 0:
        # torch's barrier between processes, which counts files
        shutil.rmtree(FOLDER / "barrier", ignore_errors=True)
        for part in ("barrier", "test_dir", "init_dir"):
            (FOLDER / part).mkdir(exist_ok=True)
    distributed_test.Barrier.barrier_id = 0
    ALL.Barrier()
    test = OwnTests(name)
    test.rank, test.file_name = RANK, str(FOLDER / f"store-{name}")
    set_rng_seed(1234)
    # A test may leave it raised, and DDP of torch 2.13 crashes on gloo with DETAIL.
    os.environ.pop("TORCH_DISTRIBUTED_DEBUG", None)
    dist.set_debug_level_from_env()
    seconds = distributed_test.CUSTOM_PG_TIMEOUT.get(name, distributed_test.default_pg_timeout)
    dist.init_process_group(
        BACKEND,
        init_method=f"file://{test.file_name}",
        rank=RANK,
        world_size=SIZE,
        timeout=timedelta(seconds=seconds),
    )
    try:
        test._barrier()
        getattr(test, name)()
        test._barrier()
        return "passed"
    except unittest.SkipTest as skip:
        return f"skipped: {skip}"
    except SystemExit as end:
        return f"skipped: {REASONS.get(end.code, f'exit {end.code}')}"
    except BaseException as error:
        return f"failed: {error}\n{traceback.format_exc()}"
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def main() -> None:
    names = WHICH
    if "/" in WHICH[0]:
        part, parts = WHICH[0].split("/")
        names = list(unittest.TestLoader().getTestCaseNames(OwnTests))[int(part) :: int(parts)]
    outcomes = {}
    for name in names:
        if RANK == 0:
            sys.stderr.write(f"{name}\n")
        found = ALL.allgather(run(name))
        failed = [f"rank {rank}: {text}" for rank, text in enumerate(found) if text.startswith("failed")]
        outcomes[name] = "\n".join(failed) or ("passed" if "passed" in found else found[0])
    if RANK == 0:
        (FOLDER / "outcomes.json").write_text(json.dumps(outcomes, indent=1))


main()
