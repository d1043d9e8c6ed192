"""torch's own tests of a backend, out of the torch that is installed, by ranks that are started once.

Arguments: a backend, a folder that all ranks see, names of tests that are left out, with commas. Under
mpirun. Prints
what became of each test as JSON.

torch would start processes for every test; here each test has a process group of its own in the same
processes.
"""

import json
import os
import shutil
import sys
import traceback
import unittest
import warnings
from datetime import timedelta
from pathlib import Path

from mpi4py import MPI

ALL = MPI.COMM_WORLD
RANK, SIZE = ALL.Get_rank(), ALL.Get_size()
BACKEND, FOLDER, LEFT_OUT = sys.argv[1], Path(sys.argv[2]), set(sys.argv[3].split(","))
CHOSEN = sys.argv[4:]
# which tests there are is decided at the import: those of gloo
os.environ |= {"BACKEND": "gloo", "WORLD_SIZE": str(SIZE), "RANK": str(RANK), "TEMP_DIR": str(FOLDER)}
os.environ |= {"MASTER_ADDR": "127.0.0.1"}

import torch.distributed as dist  # noqa: E402
from torch.testing._internal.common_distributed import TEST_SKIPS  # noqa: E402
from torch.testing._internal.distributed import distributed_test  # noqa: E402

warnings.simplefilter("ignore")
distributed_test.BACKEND = BACKEND
REASONS = {skip.exit_code: skip.message for skip in TEST_SKIPS.values()}


class OwnTests(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    """Their methods; processes are not started."""


def one(name: str, number: int) -> str:
    """What became of a test: passed, skipped: why, or failed: how."""
    barrier = FOLDER / "barrier"
    if RANK == 0:
        shutil.rmtree(barrier, ignore_errors=True)
        for part in ("barrier", "test_dir", "init_dir"):
            (FOLDER / part).mkdir(parents=True, exist_ok=True)
    distributed_test.Barrier.barrier_id = 0
    ALL.Barrier()
    test = OwnTests(name)
    test.rank, test.file_name = RANK, str(FOLDER / f"store-{number}")
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
        outcome = "passed"
        test._barrier()
    except unittest.SkipTest as skip:
        outcome = f"skipped: {skip}"
    except SystemExit as end:
        outcome = f"skipped: {REASONS.get(end.code, f'exit {end.code}')}"
    except BaseException as error:
        outcome = f"failed: {error}\n{traceback.format_exc()}"
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return outcome


def main() -> None:
    names = unittest.TestLoader().getTestCaseNames(OwnTests)
    outcomes = {}
    for number, name in enumerate(names):
        if name in LEFT_OUT or (CHOSEN and name not in CHOSEN):
            continue
        sys.stderr.write(f"{RANK} {name}\n")
        found = ALL.allgather(one(name, number))
        failed = [f"rank {rank}: {text}" for rank, text in enumerate(found) if text.startswith("failed")]
        outcomes[name] = "\n".join(failed) or ("passed" if "passed" in found else found[0])
    if RANK == 0:
        print(json.dumps(outcomes, indent=1), flush=True)


main()
