"""The table of frameworks: each trains, and what did not train is not in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddl_validate.frameworks.examples import ALL

ROOT = Path(__file__).resolve().parents[3]
PREFIX = Path(os.environ.get("DDL_TEST_PREFIX") or ROOT / "build/envs/powerai")


def frameworks(env: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "ddl_validate.frameworks", "--env", str(env), *arguments]
    return subprocess.run(
        words, cwd=ROOT, env={**os.environ, "COLUMNS": "120"}, capture_output=True, text=True, timeout=300
    )


def fake_environment(folder: Path, body: str) -> Path:
    """An environment whose ddlrun is a script: for what broken trainings look like, not for results."""
    (folder / "bin").mkdir(parents=True)
    (folder / "conda-meta").mkdir()
    for name in ("pytorch-2.13.0-h1_0", "ddl-pytorch-2.0.0-h2_0"):
        (folder / "conda-meta" / f"{name}.json").write_text("{}")
    script = folder / "bin/ddlrun"
    script.write_text(f"#!{sys.executable}\n{body}")
    script.chmod(0o755)
    return folder


def test_the_examples_are_there() -> None:
    assert all(example.path.is_file() for example in ALL)
    assert len({example.path for example in ALL}) == len(ALL)


def test_pytorch_trains_and_is_not_trained_twice(tmp_path: Path) -> None:
    if not list(PREFIX.glob("conda-meta/ddl-pytorch-*.json")):
        pytest.skip(f"no ddl-pytorch in {PREFIX}")
    output = tmp_path / "frameworks.json"
    first = frameworks(PREFIX, "--framework", "PyTorch", "--output", str(output))
    assert first.returncode == 0, first.stdout + first.stderr
    (row,) = json.loads(output.read_text())["frameworks"]
    assert row["framework"] == "PyTorch" and row["ranks"] == 2 and 0.8 < row["accuracy"] <= 1
    log = (tmp_path / "logs/digits-pytorch-2.log").read_text()
    assert f"test accuracy {row['accuracy']:.3f}" in log and f"{row['accuracy']:.3f}" in first.stdout
    output.write_text(output.read_text().replace(row["time"], "2026-01-02T03:04:05+00:00"))
    second = frameworks(PREFIX, "--framework", "PyTorch", "--output", str(output))
    assert second.returncode == 0 and "training:" not in second.stdout and "(before)" in second.stdout
    (row,) = json.loads(output.read_text())["frameworks"]
    assert row["time"] == "2026-01-02T03:04:05+00:00"  # when it was trained, not when it was shown again
    other = frameworks(PREFIX, "--framework", "PyTorch", "--ranks", "1", "--output", str(output))
    assert other.returncode == 0 and "training: PyTorch" in other.stdout, other.stdout + other.stderr


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("print('all is lost'); raise SystemExit(3)", "exit code 3"),
        ("print('nothing to see')", "should have printed their accuracy once"),
        ("print('ranks 2  test accuracy 0.9\\n' * 2)", "should have printed their accuracy once"),
        ("print('ranks 1  test accuracy 0.9')", "should have printed their accuracy once"),
        ("import time; time.sleep(60)", "exceeded its 2 s"),
    ],
)
def test_what_did_not_train_is_an_error_that_names_the_log(tmp_path: Path, body: str, says: str) -> None:
    output = tmp_path / "frameworks.json"
    found = frameworks(fake_environment(tmp_path / "env", body), "--timeout", "2", "--output", str(output))
    assert found.returncode == 1 and says in found.stderr, found.stdout + found.stderr
    assert str(tmp_path / "logs/digits-pytorch-2.log") in found.stderr
    assert "Keras 3: not in this environment" in found.stdout and not output.exists()


def test_no_environment_and_no_framework(tmp_path: Path) -> None:
    absent = frameworks(tmp_path)
    assert absent.returncode == 2 and "wmlce env create powerai" in absent.stderr
    env = fake_environment(tmp_path / "env", "")
    for record in (env / "conda-meta").iterdir():
        record.unlink()
    empty = frameworks(env)
    assert empty.returncode == 1 and "none of the frameworks" in empty.stderr
