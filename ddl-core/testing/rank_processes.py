"""Processes that the tests start: a clean environment, pipes, an end within a limit; and where they live."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: The environment under test: DDL_TEST_PREFIX, or the one that the quick start makes.
PREFIX = Path(os.environ.get("DDL_TEST_PREFIX") or ROOT / "build/envs/powerai")
_WMLCE = ROOT / "build/tools/bin/wmlce"
_FOREIGN = (
    *("OMPI_", "PMIX_", "PRTE_", "PMI_", "SLURM_", "LSB_", "DDL_", "DDLRUN_", "TORCHELASTIC_"),
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_"),
)
#: Root is who runs tests in most containers.
ALLOW_ROOT = {
    f"{project}_ALLOW_RUN_AS_ROOT{suffix}": "1" for project in ("OMPI", "PRTE") for suffix in ("", "_CONFIRM")
}
#: One thread a rank, as the tests have more ranks than cores as it is. The transport that is left out takes a
#: second to find out that there is no fabric; the channel's Open MPI leaves it out by itself.
QUICK = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMPI_MCA_btl": "^ofi"}
_POLITE_SECONDS = 20


def own_environment() -> dict[str, str]:
    """Ours, without what a launcher or scheduler around the tests has set, which must not reach the ranks."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}


def start(
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    folder: Path | None = None,
    own_session: bool = True,
    one_stream: bool = False,
) -> subprocess.Popen[str]:
    """A process with nothing to read, whose output is piped here; with one_stream all of it to stdout."""
    return subprocess.Popen(
        command,
        env=dict(env),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if one_stream else subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=own_session,
    )


def mpirun_words(prefix: Path, ranks: int) -> list[str]:
    """Starts so many ranks, also where the machine has fewer cores."""
    bound = ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
    return [str(prefix / "bin/mpirun"), "-n", str(ranks), *bound]


def exits_together(python: Path) -> list[str]:
    """Begins a rank's command of whose end the launcher learns when all ranks have ended."""
    return [str(python), str(Path(__file__).with_name("exit_together.py"))]


def finish(child: subprocess.Popen[str], limit: float) -> tuple[str, str]:
    """Waits for the end of a process and of all that hold its pipes, which is failed after `limit` seconds.

    Returns:
        Its standard output and errors.
    """
    try:
        return _output(child, limit)
    except subprocess.TimeoutExpired:
        # A launcher passes this on to the ranks, which SIGKILL would orphan.
        child.send_signal(signal.SIGTERM)
        try:
            out, err = _output(child, _POLITE_SECONDS)
        except subprocess.TimeoutExpired:
            if os.getpgid(child.pid) == child.pid:
                os.killpg(child.pid, signal.SIGKILL)
            else:
                child.kill()
            out, err = _output(child, None)
        command = " ".join(map(str, child.args))[:500] if isinstance(child.args, list) else child.args
        pytest.fail(f"{command}\nnot ended within {limit:g} s:\n{out}\n{err}")


def _output(child: subprocess.Popen[str], limit: float | None) -> tuple[str, str]:
    out, err = child.communicate(timeout=limit)
    return out, err or ""


def prefix_with(file: str, name: str, *packages: str) -> Path:
    """The environment under test where it has a file, else one that is made of packages of the channel.

    Args:
        file: What must be there, with wildcards.
        name: Of the other environment.
        packages: It has these and what they need.
    """
    if list(PREFIX.glob(file)):
        return PREFIX
    folder = ROOT / "build/envs" / name
    if not _WMLCE.exists():
        pytest.skip(f"no {file} in {PREFIX}, and no wmlce to make {folder}: run ci/bootstrap.sh")
    # Brings it up to date with the channel, where it is there.
    command = [_WMLCE, "--root", ROOT, "env", "create", name, *packages]
    run = subprocess.run(command, capture_output=True, text=True, timeout=400)
    if run.returncode:
        pytest.skip(f"no {folder}: wmlce env create: {run.stderr.strip()[-300:]}")
    return folder


def compiled_program(name: str) -> Path:
    """A program of DDL's C++ tests; skips the test where they are not built."""
    build = Path(os.environ.get("DDL_TEST_BUILD") or ROOT / "build/ddl-core")
    program = build / "libddl/tests" / name
    if not os.access(program, os.X_OK):
        pytest.skip(
            f"{program} is missing: ci/test builds it; or set DDL_TEST_BUILD to a build folder of ddl-core"
        )
    return program


def own_segments() -> set[str]:
    """Names of DDL's shared memory that there is; also of other jobs that start at the moment."""
    return {name for name in os.listdir("/dev/shm") if name.startswith("ddl-")}


def segments_left(before: set[str]) -> set[str]:
    """Names that are there for good and were not before; those of a job that starts go at once."""
    limit = time.monotonic() + 10
    remaining = own_segments() - before
    while remaining and time.monotonic() < limit:
        time.sleep(0.05)
        remaining &= own_segments()
    return remaining
