"""The environment with torch in which torchrun is tested, and runs in it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = Path(__file__).parent / "programs"
WMLCE = ROOT / "build/tools/bin/wmlce"
LIMIT = 120.0
# What a launcher or scheduler around the tests has set must not reach the ranks.
_FOREIGN = (
    *("OMPI_", "PMIX_", "PRTE_", "PMI_", "SLURM_", "DDL_", "TORCHELASTIC_"),
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_"),
)

sys.path.append(str(ROOT / "validation"))


@dataclass
class Run:
    """How a run ended."""

    code: int
    out: str
    err: str

    def lines(self, start: str) -> list[str]:
        """The rest of every line of standard output that starts with `start`, sorted."""
        return sorted(line[len(start) :] for line in self.out.splitlines() if line.startswith(start))


class Ranks:
    """Runs programs of one environment; nothing of a run is left when it has ended."""

    def __init__(self, prefix: Path, folder: Path) -> None:
        self.prefix, self.folder = prefix, folder
        self.torchrun = str(prefix / "bin/torchrun")
        self.python = str(prefix / "bin/python3")

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        own = {"TMPDIR": str(self.folder), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        # asking this transport costs a second; the channel's Open MPI leaves it out by itself
        own["OMPI_MCA_btl"] = "^ofi"
        for project in ("OMPI", "PRTE"):
            own |= {f"{project}_ALLOW_RUN_AS_ROOT": "1", f"{project}_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return kept | own | more

    def start(self, words: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            words,
            env=dict(env),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def finish(self, child: subprocess.Popen[str], limit: float = LIMIT) -> Run:
        # A process that is left holds the pipes open, so this waits for it too.
        try:
            out, err = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGTERM)
            try:
                out, err = child.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                out, err = child.communicate()
            raise AssertionError(f"not ended within {limit:g} s\n{out}\n{err}") from None
        return Run(child.returncode, out, err)

    def __call__(self, *words: str, **more: str) -> Run:
        return self.finish(self.start(words, self.environment(**more)))

    def by_hand(self, size: int, port: int, program: str, *arguments: str, **more: str) -> list[Run]:
        """Ranks with torch's variables, but no torchrun that watches them."""
        variables = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **more}
        ranks = [
            self.start(
                [self.python, str(PROGRAMS / program), *arguments],
                self.environment(**variables, RANK=str(rank)),
            )
            for rank in range(size)
        ]
        return [self.finish(rank) for rank in ranks]

    def servers(self) -> list[str]:
        """What is left of the servers: processes that still live, and folders."""
        left = [path.name for path in self.folder.glob("ddl-bootstrap.*")]
        for status in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = status.read_bytes().split(b"\0")
                environment = status.with_name("environ").read_bytes()
            except OSError:
                continue
            mine = f"TMPDIR={self.folder}".encode() in environment.split(b"\0")
            if words[0].endswith(b"/ddl-bootstrap") and mine:
                left.append(status.parent.name)
        return left

    def await_no_servers(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self.servers():
            assert time.monotonic() < end, self.servers()
            time.sleep(0.05)


def _with_torch() -> Path:
    """The environment under test where it has torch, else one that is made out of the channel."""
    prefix = Path(os.environ.get("DDL_TEST_PREFIX") or ROOT / "build/envs/powerai")
    if (prefix / "bin/torchrun").exists():
        return prefix
    made = ROOT / "build/envs/ddl-torchrun"
    if not WMLCE.exists():
        pytest.skip(f"no torchrun in {prefix}, and no wmlce to make {made}: run ci/bootstrap.sh")
    # brings it up to date with the channel, where it is there
    words = [WMLCE, "--root", ROOT, "env", "create", made.name, "ddl", "mpi4py", "pytorch"]
    run = subprocess.run(words, capture_output=True, text=True, timeout=400)
    if run.returncode:
        pytest.skip(f"no {made}: wmlce env create: {run.stderr.strip()[-300:]}")
    return made


@pytest.fixture(scope="session")
def torch_prefix() -> Path:
    prefix = _with_torch()
    programs = list(prefix.glob("lib/python3*/site-packages/ddl/bootstrap/ddl-bootstrap"))
    assert programs, f"the DDL in {prefix} was built without DDL_BUILD_BOOTSTRAP"
    return prefix


@pytest.fixture
def ranks(torch_prefix: Path, tmp_path: Path) -> Ranks:
    return Ranks(torch_prefix, tmp_path)
