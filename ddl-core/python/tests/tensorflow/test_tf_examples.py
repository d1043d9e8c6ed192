"""The examples learn, with one rank and with two, and only rank 0 writes."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from rank_launcher import LIMIT, PREFIX

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "tensorflow"


def run(example: str, ranks: int, folder: Path, *flags: str) -> str:
    """The standard output of an example started as its first lines say."""
    command = [str(PREFIX / "bin" / "python"), str(EXAMPLES / example), "--folder", str(folder), *flags]
    if ranks > 1:
        command = [str(PREFIX / "bin" / "ddlrun"), "-np", str(ranks), *command]
    finished = subprocess.run(
        command,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "DDL_OPTIONS": "-timeout 60"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.long), 2])
@pytest.mark.parametrize(
    ("example", "files"),
    [
        ("keras_digits.py", {"digits.keras", "digits.csv"}),
        pytest.param(
            "tf_keras_digits.py", {"digits.keras", "digits.csv", "servable"}, marks=pytest.mark.long
        ),
        ("tf1_digits.py", {"checkpoint", "servable", "model.ckpt-160.index"}),
    ],
)
def test_example(example: str, files: set[str], ranks: int, tmp_path: Path) -> None:
    """It says that it has learned, once; the files are there."""
    output = run(example, ranks, tmp_path)
    assert re.findall(r"^ranks (\d+) ", output, re.MULTILINE) == [str(ranks)], output
    assert files <= {file.name for file in tmp_path.iterdir()}
    if (tmp_path / "digits.csv").exists():
        epochs = (tmp_path / "digits.csv").read_text().splitlines()
        assert len(epochs) == 1 + 6, epochs  # one writer, or there were more
    if "servable" in files:
        assert (tmp_path / "servable" / "1" / "saved_model.pb").stat().st_size > 1000


@pytest.mark.long
@pytest.mark.parametrize("example", ["keras_digits.py", "tf_keras_digits.py", "tf1_digits.py"])
def test_example_in_float16(example: str, tmp_path: Path) -> None:
    """With a scaled loss, on the processor."""
    output = run(example, 2, tmp_path, "--device=cpu", "--use_fp16")
    assert re.findall(r"^ranks (\d+)  test accuracy (?:0\.[89]|1\.0)", output, re.MULTILINE) == ["2"], output
