"""The examples that go on from their checkpoints: their starts, and the weights they end with."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import psutil
import pytest
from ddlrun_program import PROGRAMS
from emulated import ROOT

EXAMPLES = ROOT / "ddl-core/examples/resume"
DISTURBED = str(PROGRAMS / "disturbed.py")
TRAIN, KERAS3, TF_KERAS, TORCH = "train.py", "keras_digits.py", "tf_keras_digits.py", "torch_digits.py"
#: What an example imports beside DDL.
NEEDS = {
    TRAIN: "numpy",
    KERAS3: "sklearn, keras, tensorflow",
    TF_KERAS: "sklearn, tf_keras",
    TORCH: "sklearn, torch, ddl.torch",
}
#: So that each takes 75 steps.
LENGTH = {
    TRAIN: ("--steps", "75", "--every", "5"),
    **dict.fromkeys((KERAS3, TF_KERAS, TORCH), ("--epochs", "3")),
}
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1", "KERAS_BACKEND": "tensorflow"}


def require(prefix: Path, example: str) -> None:
    """Skips the test where the environment has not what the example needs."""
    words = [str(prefix / "bin/python3"), "-c", f"import ddl, {NEEDS[example]}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    if done.returncode:
        pytest.skip(f"{example} cannot run in {prefix}: {done.stderr.strip()[-200:]}")


def weights(folder: Path, prefix: Path) -> list[float]:
    """All weights at the end of an example, read by the environment under test."""
    script = (
        "import json, sys, numpy as np\n"
        "with np.load(sys.argv[1]) as f:\n"
        "    names = ['weights'] if 'weights' in f.files else f.files\n"
        "    print(json.dumps(np.concatenate([f[name].ravel() for name in names]).tolist()))"
    )
    # train.py keeps them in its last checkpoint.
    file = next(path for name in ("weights", "latest") if (path := folder / f"{name}.npz").exists())
    words = [str(prefix / "bin/python3"), "-c", script, str(file)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    found: list[float] = json.loads(done.stdout)
    return found


def await_line(child: subprocess.Popen[str], beginning: str) -> list[str]:
    """Reads up to the line that begins so."""
    assert child.stdout
    seen: list[str] = []
    while not seen or not seen[-1].startswith(beginning):
        line = child.stdout.readline()
        assert line, (seen, child.communicate(timeout=60)[1])
        seen.append(line)
    return seen


def rank_process(child: subprocess.Popen[str], rank: int) -> psutil.Process:
    """The process of a rank below a launcher on this machine."""
    for process in psutil.Process(child.pid).children(recursive=True):
        try:
            if process.environ().get("OMPI_COMM_WORLD_RANK") == str(rank):
                return process
        except psutil.Error:
            continue
    raise AssertionError(f"no process of rank {rank}")
