"""The examples of Keras 3, tf_keras and PyTorch: killed at any step, they end with the weights of a run that
nothing happened to.
"""

from __future__ import annotations

import random
import re
import subprocess
import time
from pathlib import Path

import pytest
from ddlrun_program import PROGRAMS, Ddlrun
from resumed_training import DISTURBED, EXAMPLES, KERAS3, QUIET, TF_KERAS, TORCH, require, weights

STEPS = 75


@pytest.mark.parametrize(
    "example", [TORCH, *(pytest.param(one, marks=pytest.mark.long) for one in (KERAS3, TF_KERAS))]
)
def test_killed_at_a_random_step(ddlrun: Ddlrun, example: str) -> None:
    require(ddlrun.prefix, example)
    seed = time.time_ns() % 1_000_000
    rank, step = random.Random(seed).randrange(2), random.Random(seed + 1).randrange(1, STEPS)
    print(f"seed {seed}: rank {rank} is killed at step {step}")
    script = [str(EXAMPLES / example), "--epochs", "3"]
    folders = [ddlrun.folder / name for name in ("undisturbed", "killed")]
    first = ddlrun("-np", "2", "-checkpoint-dir", str(folders[0]), "python", *script, **QUIET)
    assert first.code == 0, first.err
    words = ["-np", "2", "-max-restarts", "1", "-checkpoint-dir", str(folders[1])]
    again = ddlrun(*words, "python", DISTURBED, f"0:{rank}:{step}", *script, **QUIET)
    assert again.code == 0, again.err
    assert f"[WARN DDL-2-23] restart 1 of 1, after: rank {rank} was killed by signal 9" in again.err
    begun = re.search(rf"(?:from step|epoch) (\d+).*, started again after: rank {rank} ", again.out)
    assert begun, again.out
    if step > STEPS // 2:  # not from the beginning: a checkpoint was made and used
        assert int(begun[1]) >= 1
    # The same ranks reduce in the same order: not a bit differs.
    assert weights(folders[1], ddlrun.prefix) == weights(folders[0], ddlrun.prefix)


def test_a_backup_of_keras_is_whole_after_any_interruption(ddlrun: Ddlrun) -> None:
    require(ddlrun.prefix, KERAS3)
    words = [str(ddlrun.prefix / "bin/python3"), str(PROGRAMS / "interrupted_backups.py")]
    done = subprocess.run(
        [*words, str(ddlrun.folder)],
        env=ddlrun.environment(**QUIET),
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    # Remove and two moves before the write, and the two files of it; each in two generations.
    interruptions = re.findall(r"^interrupted (\d+) times$", done.stdout, re.MULTILINE)
    assert interruptions and int(interruptions[0]) >= 9, done.stdout
    assert Path(ddlrun.folder).exists()
