"""Initialisation: with and without a launcher, options, and what can go wrong."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

MPI_STATE = """
import ctypes, sys
import ddl
from ddl import _core
flag = ctypes.c_int(-1)
# libddl.so has brought MPI's library; asking whether it is initialised is always allowed.
ctypes.CDLL(_core.__file__).MPI_Initialized(ctypes.byref(flag))
print("state", flag.value, ddl.is_initialized(), ddl.rank(), ddl.size(), "tensorflow" in sys.modules)
"""


def test_without_a_launcher_mpi_is_not_touched(mpirun: Any) -> None:
    """A world of size 1."""
    run = mpirun.alone(MPI_STATE)
    assert run.lines("state ") == ["0 True 0 1 False"], run.output


def test_under_a_launcher_importing_is_enough(mpirun: Any) -> None:
    """MPI is initialised and the ranks are known; TensorFlow is not imported."""
    run = mpirun(2, MPI_STATE)
    assert run.lines("state ") == ["1 True 0 2 False", "1 True 1 2 False"], run.output
    assert run.status == 0, run.output


TAKEN_SIGNALS = """
import signal

def taken():
    with open("/proc/self/status") as status:
        mask = next(int(line.split()[1], 16) for line in status if line.startswith("SigCgt:"))
    return {number for number in signal.valid_signals() if mask >> (number - 1) & 1}

before = taken()
import ddl
ddl.allreduce([1.0])
ends = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}
print("taken", sorted(int(number) for number in (taken() - before) & ends))
"""


def test_signals_that_end_a_process_stay_its_own(mpirun: Any) -> None:
    """What a library takes for itself outlives its terminal, its parent and its job: UCX takes SIGHUP."""
    assert mpirun.alone(TAKEN_SIGNALS).lines("taken ") == ["[]"]
    run = mpirun(2, TAKEN_SIGNALS)
    assert run.lines("taken ") == ["[]"] * 2, run.output


OPTIONS_OF_THE_PROGRAM = """
import ddl
assert ddl.describe()["mode"] == "p" and ddl.size() == 4
try:
    ddl.init("-mode b:4x8")
except ddl.DDLError as error:
    assert error.code == 2 and "invalid dim size=4 usr_size=32" in str(error), error
else:
    raise AssertionError("accepted")
ddl.init("-mode r:4 -dump_iter 2")
before = ddl.describe()
assert (before["mode"], ddl.rank(), ddl.size()) == ("r", before["rank"], 4), before
assert before["options"] == "-mode p:2x2 -timeout 70 -mode r:4 -dump_iter 2", before
for _ in range(2):
    assert ddl.allreduce([ddl.rank() + 1.0])[0] == 10
ddl.init("-mode r:4"); ddl.init("-timeout 70"); ddl.init()
try:
    ddl.init("-mode c")
except ddl.DDLError as error:
    text = "DDL has made calls with the options '" + before["options"] + "', and now gets '-mode c'"
    assert error.code == 3 and text in str(error) and "ddlrun -ddlarg" in str(error), error
else:
    raise AssertionError("accepted")
assert ddl.allreduce([1.0])[0] == 4
print("obeyed", ddl.stats()["calls"])
"""


def test_options_of_the_program_are_obeyed(mpirun: Any) -> None:
    """Before the first call, on top of those of the job; after it they are refused."""
    run = mpirun(4, OPTIONS_OF_THE_PROGRAM, env={"DDL_OPTIONS": "-mode p:2x2 -timeout 70"})
    assert run.status == 0 and run.lines("obeyed ") == ["3"] * 4, run.output
    assert "[DDL] call 2: allreduce" in run.output, run.output


def test_options_that_one_rank_alone_gives(mpirun: Any) -> None:
    program = """
import ddl
if ddl.rank() == 0:
    ddl.init("-mode r")
ddl.allreduce([1.0])
"""
    run = mpirun(2, program)
    assert run.status != 0, run.output
    for words in ("called ddl_init with other options", "called allreduce of 1 float64 element"):
        assert words in run.output, run.output


def test_auto_init_can_be_switched_off(mpirun: Any) -> None:
    """Then everything but init is an error that says so."""
    program = """
import ddl
try:
    ddl.rank()
except ddl.DDLError as error:
    assert error.code == 3 and "[ERROR DDL-1-3]" in str(error) and "ddl_init" in str(error)
else:
    raise AssertionError
assert not ddl.is_initialized()
ddl.init("-timeout 30"); ddl.init("-timeout 30"); ddl.init()
print("options", ddl.describe()["options"], ddl.size())
ddl.finalize(); ddl.finalize()
assert not ddl.is_initialized()
try:
    ddl.allreduce([1.0])
except ddl.DDLError as error:
    print("after", error.code)
"""
    run = mpirun(2, program, env={"DDL_AUTO_INIT": "0"})
    assert run.status == 0, run.output
    assert run.lines("options ") == ["-timeout 30 2"] * 2 and run.lines("after ") == ["3"] * 2, run.output


def test_initialisation_on_a_background_thread(mpirun: Any) -> None:
    """Calls may then come from other threads."""
    program = """
import ddl, threading, numpy as np
thread = threading.Thread(target=ddl.init); thread.start(); thread.join()
print("sum", ddl.allreduce(np.ones(1))[0])
"""
    run = mpirun(2, program, env={"DDL_AUTO_INIT": "0"})
    assert run.status == 0 and run.lines("sum ") == ["2.0"] * 2, run.output


@pytest.mark.parametrize(
    "environment",
    [
        {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"},
        {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
        {"PMI_RANK": "0", "PMI_SIZE": "4"},
    ],
)
def test_a_launcher_of_another_mpi(mpirun: Any, environment: dict[str, str]) -> None:
    """Its ranks come up as worlds of size 1 each: an error, not two trainings that never meet."""
    run = mpirun.alone("import ddl", env=environment)
    assert run.status == 1, run.output
    assert "[ERROR DDL-1-5]" in run.stderr and "MPI_COMM_WORLD has size 1" in run.stderr, run.output
    assert "mpirun of the same environment" in run.stderr
    size = environment.get("OMPI_COMM_WORLD_SIZE") or environment["PMI_SIZE"]
    assert f"of {size}" in run.stderr


STEP = {"SLURM_PROCID": "1", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}


@pytest.mark.parametrize("initialised", [False, True], ids=["plain", "mpi4py"])
@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"RANK": "1", "WORLD_SIZE": "4"}, "rank 1 of 4 (RANK, WORLD_SIZE)"),
        (STEP, "Slurm says task 1 of 4"),
    ],
)
def test_ranks_that_nobody_gave_an_mpi(
    mpirun: Any, environment: dict[str, str], words: str, initialised: bool
) -> None:
    """The same: an error that tells how to start them, also where the program has initialised MPI itself."""
    first = "from mpi4py import MPI; " if initialised else ""
    run = mpirun.alone(f"{first}import ddl", env=environment)
    if initialised and "No module named 'mpi4py'" in run.stderr:
        pytest.skip("mpi4py is not installed in the environment under test")
    assert run.status == 1, run.output
    assert f"[ERROR DDL-1-5] {'the environment says ' * (words[0] == 'r')}{words}" in run.stderr, run.output
    assert "set up no MPI" in run.stderr and "ddlrun or mpirun" in run.stderr


@pytest.mark.parametrize(
    "environment",
    [
        {"RANK": "0", "WORLD_SIZE": "1"},
        {"WORLD_SIZE": "4"},
        # a batch script, an interactive shell of an allocation, a step of one task
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"},
        {**STEP, "SLURM_PROCID": "0", "SLURM_STEP_ID": "4294967290"},
        {**STEP, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},
    ],
)
def test_variables_that_describe_no_other_rank(mpirun: Any, environment: dict[str, str]) -> None:
    run = mpirun.alone("import ddl; print('size', ddl.size())", env=environment)
    assert run.lines("size ") == ["1"], run.output


def test_plain_mpirun_needs_nothing_else(mpirun: Any) -> None:
    """Neither DDL_OPTIONS nor ddlrun: ranks, their places and the topology are DDL's own finding."""
    program = """
import os
assert not any(name.startswith("DDL_") for name in os.environ)
import ddl, numpy as np
place = ddl.rank(), ddl.size(), ddl.local_rank(), ddl.local_size(), ddl.num_hosts()
(host,) = ddl.describe()["topology"]["hosts"]
print("rank", *place, host["ranks"], ddl.allreduce([1.0])[0])
"""
    run = mpirun(4, program)
    assert run.status == 0, run.output
    assert run.lines("rank ") == [f"{rank} 4 {rank} 4 1 [0, 1, 2, 3] 4.0" for rank in range(4)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("-mode p:3", ["invalid dim size=2 usr_size=3 dim[0]=3"]),
        ("-mode p:2x2x1", ["invalid dim size=2 usr_size=4 dim[0]=2 dim[1]=2 dim[2]=1"]),
        ("-mode z", ["invalid mode 'z'"]),
        ("-mod p", ["unknown option '-mod'", "-mode", "-timeout", "-dump_iter", "-dev_sync", "-rebind_iter"]),
        ("-timeout never", ["'never'", "seconds"]),
    ],
)
def test_bad_options(mpirun: Any, options: str, words: list[str]) -> None:
    """The original's errors."""
    run = mpirun(2, "import ddl", env={"DDL_OPTIONS": options})
    assert run.status != 0 and "[ERROR DDL-1-2]" in run.stderr, run.output
    for word in words:
        assert word in run.stderr, run.output


def test_options_that_differ_between_ranks(mpirun: Any) -> None:
    """They would plan differently, so it is an error."""
    program = """
import os
os.environ["DDL_OPTIONS"] = "-mode p:" + ("2x1" if os.environ["OMPI_COMM_WORLD_RANK"] == "0" else "1x2")
import ddl
"""
    run = mpirun(2, program)
    assert run.status != 0, run.output
    assert "rank 1 has -mode p:1x2 but rank 0 has -mode p:2x1" in run.stderr, run.output


def test_emulated_hosts_that_do_not_fit(mpirun: Any) -> None:
    """The test aid checks its argument as well."""
    run = mpirun(2, "import ddl", hosts="2,1")
    assert run.status != 0 and "DDL_EMULATE_HOSTS='2,1' does not divide 2 ranks" in run.stderr, run.output


def test_a_rank_that_never_initialises(mpirun: Any) -> None:
    """The others do not wait for it for ever."""
    program = """
import os, time
if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
    time.sleep(60)
import ddl
"""
    run = mpirun(2, program, env={"DDL_OPTIONS": "-timeout 2 -late 1"}, timeout=50)
    assert run.status != 0, run.output
    assert run.seconds < 30, "it ended only with the sleeping rank"
    assert "[WARN DDL-1-8] MPI_Init has waited 1 s for other ranks; in ddl_init" in run.stderr, run.output
    assert "[ERROR DDL-1-8]" in run.stderr and "ddl_init" in run.stderr, run.output


def test_a_rank_that_initialises_late(mpirun: Any) -> None:
    """Two of the others say that they wait."""
    program = """
import os, time
if os.environ["OMPI_COMM_WORLD_RANK"] == "3":
    time.sleep(4)
import ddl
"""
    run = mpirun(4, program, env={"DDL_OPTIONS": "-late 1"}, timeout=50)
    assert run.status == 0, run.output
    assert run.stderr.count("[WARN DDL-1-8] MPI_Init has waited 1 s for other ranks") == 2, run.output


def test_a_home_that_is_not_there(mpirun: Any, tmp_path: Path) -> None:
    """Nothing is made in its place."""
    home = tmp_path / "none"
    program = "import ddl, numpy as np; print('sum', ddl.allreduce(np.ones(1, 'f'))[0])"
    run = mpirun(2, program, hosts="1,1", env={"HOME": str(home), "DDL_CACHE_DIR": "", "XDG_CACHE_HOME": ""})
    assert run.status == 0 and run.lines("sum ") == ["2.0"] * 2, run.output
    assert not home.exists()


def test_children_of_a_rank_are_no_ranks(mpirun: Any) -> None:
    """They inherit the launcher's variables, but must neither join nor disturb the job: programs with DDL or
    another user of MPI, whatever the options of the job, and forked processes, which know their rank.
    """
    program = """
import os, subprocess, sys
import ddl, numpy as np
for text, said in (("import ddl; print(ddl.size(), ddl.allreduce([2.0]))", "1 [2.]"),
                   ("from mpi4py import MPI; print(MPI.COMM_WORLD.size)", "1"),
                   ("import os; print(os.environ['RANK_OF_PARENT'])", str(ddl.rank()))):
    child = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60,
                           env={**os.environ, "RANK_OF_PARENT": os.environ["OMPI_COMM_WORLD_RANK"]})
    assert child.stdout == said + "\\n", (child.stdout, child.stderr)
pid = os.fork()
if pid == 0:
    if ddl.is_initialized() or (ddl.rank(), ddl.size()) != (int(os.environ["OMPI_COMM_WORLD_RANK"]), 2):
        os._exit(3)
    for call in ddl.init, lambda: ddl.allreduce([1.0]):
        try:
            call()
        except ddl.DDLError as error:
            if error.code != 3 or "forked" not in str(error):
                os._exit(1)
        else:
            os._exit(2)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
print("sum", ddl.allreduce([1.0])[0])
"""
    run = mpirun(2, program, env={"DDL_OPTIONS": "-mode p:2x1x1x1"})
    assert run.status == 0 and run.lines("sum ") == ["2.0"] * 2, run.output


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_pool_in_a_script_that_imports_ddl(mpirun: Any, tmp_path: Path, method: str) -> None:
    """spawn and forkserver import the script again, as workers of PyTorch's DataLoader do."""
    script = tmp_path / "script.py"
    script.write_text(f"""
import ddl, multiprocessing
def square(x): return x * x
if __name__ == "__main__":
    with multiprocessing.get_context("{method}").Pool(2) as pool:
        print("squares", *pool.map_async(square, range(3)).get(timeout=60))
    ddl.barrier()
""")
    run = mpirun(2, script, env={"DDL_OPTIONS": "-mode p:2x1x1x1"})
    assert run.status == 0 and run.lines("squares ") == ["0 1 4"] * 2, run.output


EXITS = {
    "exit": ("sys.exit(3)", 3),
    "text": ("sys.exit('the data are bad')", 1),
    "in a function": ("(lambda: sys.exit(4))()", 4),
    "argparse": ("import argparse; argparse.ArgumentParser().parse_args(['--nothing'])", 2),
    "caught": ("exec('try: sys.exit(5)\\nexcept SystemExit: pass')", 0),
    "zero": ("sys.exit(0)", 0),
    "of a thread": (
        "import threading; t = threading.Thread(target=sys.exit, args=[6]); t.start(); t.join()",
        0,
    ),
}


@pytest.mark.parametrize("name", EXITS)
def test_a_rank_that_ends_by_sys_exit(mpirun: Any, name: str) -> None:
    """As argparse and click do after an error: the others are not waited for, and the code is the rank's."""
    statement, code = EXITS[name]
    busy = "time.sleep(100)" if code else "pass"
    run = mpirun(
        2,
        f"import ddl, sys, time\nddl.barrier()\nif ddl.rank() == 1:\n  {statement}\nelse:\n  {busy}",
        timeout=60,
    )
    assert run.status == code, run.output


def test_full_shared_memory(mpirun: Any) -> None:
    """Less room than two ranks of 2 MiB need: an error that says what to do, on all ranks; not a bus error
    later."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare, to give the job a small /dev/shm of its own")
    within = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=3m tmpfs /dev/shm && exec "$@"', "sh"]
    if mpirun(1, "print(1)", within=within).status != 0:
        pytest.skip("mounting in a new namespace is not allowed here")
    # MPI itself is kept from using /dev/shm.
    run = mpirun(2, "import ddl", within=within, env={"OMPI_MCA_btl": "self,tcp"})
    assert run.status != 0, run.output
    assert "[ERROR DDL-1-6] cannot reserve" in run.stderr and "/dev/shm" in run.stderr, run.output
    assert "No space left" in run.stderr and "free space" in run.stderr, run.output
