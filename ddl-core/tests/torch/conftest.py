"""The environment with PyTorch in which the backend is tested, and jobs in it."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = Path(__file__).parent / "programs"
WMLCE = ROOT / "build/tools/bin/wmlce"
LIMIT = 240.0
# What a launcher or scheduler around the tests has set must not reach the ranks.
_FOREIGN = (
    *("OMPI_", "PMIX_", "PRTE_", "PMI_", "SLURM_", "DDL_", "TORCHELASTIC_"),
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_"),
)


@dataclass
class Job:
    """How a job ended."""

    status: int
    out: str
    err: str

    def passed(self, case: str) -> int:
        """How many ranks say that the case passed."""
        return self.out.splitlines().count(f"passed {case}")


class Jobs:
    """Starts programs of this folder, or texts, as ranks."""

    def __init__(self, prefix: Path, folder: Path) -> None:
        self._bin, self._folder = prefix / "bin", folder

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        own = {"TMPDIR": str(self._folder), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        own |= {"DDL_OPTIONS": "-timeout 60", "PATH": f"{self._bin}:{os.environ['PATH']}"}
        # asking this transport costs a second; the channel's Open MPI leaves it out by itself
        own["OMPI_MCA_btl"] = "^ofi"
        for project in ("OMPI", "PRTE"):
            own |= {f"{project}_ALLOW_RUN_AS_ROOT": "1", f"{project}_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return kept | own | more

    def _program(self, program: str) -> str:
        if program.endswith(".py"):
            return str(PROGRAMS / program)
        path = self._folder / "program.py"
        path.write_text(program)
        return str(path)

    def mpirun(self, ranks: int, program: str, *arguments: str, **more: str) -> Job:
        start = ["mpirun", "-n", str(ranks), "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "python"]
        return self._run([*start, self._program(program), *arguments], more)

    def torchrun(self, ranks: int, program: str, *arguments: str, **more: str) -> Job:
        start = [
            "python",
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            str(ranks),
            "--rdzv-backend",
            "c10d",
            "--rdzv-endpoint",
        ]
        return self._run([*start, "127.0.0.1:0", self._program(program), *arguments], more)

    def ddlrun(self, ranks: int, program: str, *arguments: str, **more: str) -> Job:
        return self._run(["ddlrun", "-np", str(ranks), "python", self._program(program), *arguments], more)

    def alone(self, program: str, **more: str) -> Job:
        return self._run(["python", self._program(program)], more)

    def _run(self, words: list[str], more: dict[str, str]) -> Job:
        words[0] = str(self._bin / words[0])
        child = subprocess.Popen(
            words,
            env=self._environment(more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            out, err = child.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            # mpirun passes this on to the ranks, which SIGKILL would orphan
            child.send_signal(signal.SIGTERM)
            try:
                out, err = child.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                out, err = child.communicate()
            raise AssertionError(f"not ended within {LIMIT:g} s\n{out}\n{err}") from None
        return Job(child.returncode, out, err)


@pytest.fixture(scope="session")
def torch_prefix() -> Path:
    """The environment under test where it has the backend, else one that is made out of the channel."""
    prefix = Path(os.environ.get("DDL_TEST_PREFIX") or ROOT / "build/envs/powerai")
    if list(prefix.glob("lib/python3*/site-packages/ddl/torch/_backend*.so")):
        return prefix
    made = ROOT / "build/envs/ddl-pytorch"
    if not WMLCE.exists():
        pytest.skip(f"no ddl-pytorch in {prefix}, and no wmlce to make {made}: run ci/bootstrap.sh")
    # brings it up to date with the channel, where it is there
    words = [WMLCE, "--root", ROOT, "env", "create", made.name, "ddl-pytorch"]
    run = subprocess.run(words, capture_output=True, text=True, timeout=400)
    if run.returncode:
        pytest.skip(f"no {made}: wmlce env create: {run.stderr.strip()[-300:]}")
    return made


@pytest.fixture
def jobs(torch_prefix: Path, tmp_path: Path) -> Jobs:
    return Jobs(torch_prefix, tmp_path)
