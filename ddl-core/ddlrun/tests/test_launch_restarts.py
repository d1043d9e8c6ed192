"""Jobs that are started again: a training that loses a rank or a host ends with the weights of one that lost
nothing.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ddlrun_program import Ddlrun
from emulated import ROOT, assert_nothing_left, kill, shared_folders, started_on_h1
from resumed_training import await_line, rank_process

from ddl_validate.cluster import Cluster, ClusterSpec, missing_requirements

TRAIN = str(ROOT / "ddl-core/examples/resume/train.py")
STEPS = ("--steps", "60", "--every", "5")
FAILS_ONCE = (
    "import ddl, os, sys, time\n"
    "print('start', ddl.restart_count(), ddl.restart_reason(), flush=True)\n"
    "ddl.barrier()\n"
    "if ddl.restart_count() < int(sys.argv[1]): os._exit(9) if ddl.rank() == 1 else time.sleep(30)\n"
)


@pytest.fixture(autouse=True)
def _needs_ddl(prefix: Path) -> None:
    python = str(prefix / "bin/python3")
    if subprocess.run([python, "-c", "import ddl._core, numpy"], capture_output=True, timeout=60).returncode:
        pytest.skip(f"DDL and numpy are not installed in {prefix}")


def result(path: Path, prefix: Path) -> dict[str, Any]:
    """The last checkpoint, read by the environment under test."""
    script = (
        "import json, sys, numpy as np\n"
        "with np.load(sys.argv[1]) as f:\n"
        "    print(json.dumps({name: f[name].tolist() for name in f.files}))"
    )
    done = subprocess.run(
        [str(prefix / "bin/python3"), "-c", script, str(path / "latest.npz")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def undisturbed(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("undisturbed")
    run = Ddlrun(prefix, ROOT, folder)(
        "-np", "3", "-checkpoint-dir", str(folder / "c"), "python", TRAIN, *STEPS
    )
    assert run.code == 0, run.err
    assert "3 ranks, from step 0\n" in run.out and "step 60 loss" in run.out
    return result(folder / "c", prefix)


def test_any_rank_may_be_killed(ddlrun: Ddlrun, undisturbed: dict[str, Any]) -> None:
    """Each in turn, in one training."""
    folder = ddlrun.folder / "checkpoints"
    words = ["-np", "3", "-max-restarts", "3", "-checkpoint-dir", str(folder), "-timeout", "80"]
    child = ddlrun.start(*words, "python", TRAIN, *STEPS, "--pause", "0.05")
    seen: list[str] = []
    for rank, step in enumerate((10, 25, 40)):
        seen += await_line(child, f"step {step} ")
        rank_process(child, rank).kill()
    run = ddlrun.finish(child)
    assert run.code == 0, run.err
    for rank, step in enumerate((10, 25, 40)):
        assert f"[ERROR DDL-2-13] rank {rank} was killed by signal 9 (SIGKILL)" in run.err
        assert f"[WARN DDL-2-23] restart {rank + 1} of 3, after: rank {rank} was killed" in run.err
        begun = re.search(
            rf"3 ranks, from step (\d+), started again after: rank {rank} ", "".join(seen) + run.out
        )
        assert begun and int(begun[1]) >= step
    # The same ranks reduce in the same order: not a bit differs.
    assert result(folder, ddlrun.prefix) == undisturbed


def test_only_so_many_restarts(ddlrun: Ddlrun) -> None:
    run = ddlrun("-np", "2", "-max-restarts", "2", "python", "-c", FAILS_ONCE, "5")
    assert run.code == 9
    starts = sorted(line for line in run.out.splitlines() if line.startswith("start"))
    assert [line.split()[1] for line in starts] == ["0", "0", "1", "1", "2", "2"]
    assert "start 1 rank 1 ended with exit code 9; on host localhost" in run.out
    assert run.err.count("[ERROR DDL-2-13] rank 1 ended with exit code 9") == 3
    folders = [path.name for path in ddlrun.folder.glob("DDLRUN.*/*/restart-*")]
    assert sorted(folders) == ["restart-1", "restart-2"]
    assert "restart 2 of 2" in ddlrun.log()


def test_a_script_that_recovers(ddlrun: Ddlrun) -> None:
    run = ddlrun("-np", "2", "-max-restarts", "3", "python", "-c", FAILS_ONCE, "1")
    assert run.code == 0 and run.err.count("[WARN DDL-2-23]") == 1, run.err


@pytest.mark.parametrize("words", [("no-such-program",), ("-mpiarg", "--no-such-option", "true")])
def test_what_never_began_is_not_started_again(ddlrun: Ddlrun, words: tuple[str, ...]) -> None:
    run = ddlrun("-np", "2", "-max-restarts", "3", *words)
    assert run.code and "DDL-2-23" not in run.err, run.err


def test_the_limit_holds_over_all_runs(ddlrun: Ddlrun) -> None:
    script = "import time, sys; time.sleep(1); sys.exit(3)"
    began = time.monotonic()
    run = ddlrun("-np", "1", "-max-restarts", "50", "-timeout", "6", "python", "-c", script)
    assert run.code == 124 and "[ERROR DDL-2-14]" in run.err, run.err
    assert 1 <= run.err.count("DDL-2-23") <= 4 and time.monotonic() - began < 12


@pytest.fixture(scope="module")
def hosts(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    reasons = missing_requirements()
    if reasons:
        pytest.skip("; ".join(reasons))
    folder = tmp_path_factory.mktemp("cluster")
    spec = ClusterSpec.even(
        hosts=3,
        shared=(*shared_folders(prefix), str(folder)),
        environment={"SHLVL": "1", "CHECKPOINTS": str(folder)},
        life_seconds=600,
    )
    with Cluster(spec, folder / "state") as cluster:
        yield cluster


Begin = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def begin(hosts: Cluster, ddlrun: Ddlrun, tmp_path: Path) -> Iterator[Begin]:
    """Starts the training on h1, h2 and h3, and returns when it has made some checkpoints."""
    with started_on_h1(hosts, ddlrun) as start:

        def on_h1(names: str, folder: str, *words: str) -> subprocess.Popen[str]:
            fixed = ["-H", names, "-timeout", "80", "-checkpoint-dir", folder]
            child = start(*fixed, *words, "python", TRAIN, *STEPS, "--pause", "0.05")
            await_line(child, "step 10 ")
            return child

        yield on_h1


def assert_close(ended: dict[str, Any], undisturbed: dict[str, Any]) -> None:
    """Other ranks or hosts add in another order."""
    assert ended["step"] == 60 == undisturbed["step"]
    for name in ("weights", "speed"):
        assert ended[name] == pytest.approx(undisturbed[name], rel=1e-9, abs=1e-12)


@pytest.mark.long
def test_a_lost_daemon_leaves_the_host_in_the_job(
    hosts: Cluster, begin: Begin, prefix: Path, undisturbed: dict[str, Any]
) -> None:
    folder = Path(hosts.spec.environment["CHECKPOINTS"]) / "daemon"
    child = begin("h1,h2,h3", str(folder), "-max-restarts", "1")
    kill(hosts, "h3", f"{prefix}/bin/prted ")
    out, err = child.communicate(timeout=90)
    assert child.returncode == 0 and "3 ranks on h1, h2, h3" in err, err
    assert "started again after: host h3 was lost" in out
    assert_close(result(folder, prefix), undisturbed)


def test_a_lost_host_is_left_out(
    hosts: Cluster, begin: Begin, prefix: Path, undisturbed: dict[str, Any]
) -> None:
    folder = Path(hosts.spec.environment["CHECKPOINTS"]) / "host"
    words = ["-np", "3", "-nodes", "3", "-mode", "r:1x3", "-max-restarts", "2", "-min-hosts", "2"]
    child = begin("h1,h2,h3", str(folder), *words)
    hosts.kill_host("h3")
    out, err = child.communicate(timeout=90)
    assert child.returncode == 0, err
    assert "2 ranks on h1, h2, without h3" in err and "2 ranks, from step " in out
    assert_close(result(folder, prefix), undisturbed)


def test_too_few_hosts_are_said(hosts: Cluster, begin: Begin, prefix: Path) -> None:
    """Nobody answers at h2's door any more when its daemon is lost."""
    folder = Path(hosts.spec.environment["CHECKPOINTS"]) / "few"
    child = begin("h1,h2", str(folder), "-max-restarts", "1")
    door = hosts.run("h2", ["pgrep", "-o", "sshd"], timeout=10, check=True).stdout.strip()
    hosts.run("h2", ["kill", "-9", door], timeout=10, check=True)
    kill(hosts, "h2", f"{prefix}/bin/prted ")
    _, err = child.communicate(timeout=60)
    assert child.returncode == 1, err
    assert "[ERROR DDL-2-23] 1 of 2 hosts can take part, and a restart needs 2; in -min-hosts" in err
    assert_nothing_left(hosts, ["h1", "h2"])
