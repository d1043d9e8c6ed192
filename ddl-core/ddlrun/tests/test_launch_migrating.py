"""docs/train/migrating.md: its job of 2019, as it is after the walk, in a job of a real Slurm on two hosts.

The command `module` is a stand-in that activates the environment: ci/tests/test_original_command_lines.py
has the real one, in a job of LSF.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import migrated_job
import pytest
from emulated import shared_folders, started_slurm
from rank_processes import ALLOW_ROOT

from ddl_validate.cluster import ClusterSpec
from ddl_validate.cluster.slurm import Slurm


@pytest.fixture(scope="module")
def slurm(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    folder = tmp_path_factory.mktemp("home")
    spec = ClusterSpec.even(
        hosts=2,
        slots=2,
        shared=(*shared_folders(prefix), str(folder)),
        environment={"SHLVL": "1", "FOLDER": str(folder), "TF_CPP_MIN_LOG_LEVEL": "3", **ALLOW_ROOT},
        life_seconds=900,
    )
    with started_slurm(spec, tmp_path_factory.mktemp("migrating") / "state") as made:
        yield made


@pytest.mark.long
def test_job_of_2019_under_slurm(slurm: Slurm, prefix: Path) -> None:
    folder = Path(slurm.cluster.spec.environment["FOLDER"])
    (folder / "train.py").write_text(migrated_job.after(migrated_job.program()))
    script = migrated_job.small(migrated_job.slurm_script(), ranks=1)
    module = (
        f'module() {{ [ "$1" = unload ] || export PATH="{prefix}/bin:$PATH" CONDA_PREFIX="{prefix}"; }}\n'
    )
    (folder / "train.slurm").write_text(script.replace("module load", f"{module}module load", 1))
    words = ["sbatch", "--parsable", f"--chdir={folder}", str(folder / "train.slurm")]
    job = slurm.run(words, timeout=20, check=True).stdout.strip()
    end = time.monotonic() + 500
    while time.monotonic() < end:
        shown = slurm.run(["scontrol", "show", "job", "-o", job], timeout=20, check=True).stdout
        if re.search(r"JobState=(?!PENDING|CONFIGURING|RUNNING|COMPLETING)", shown):
            break
        time.sleep(1)
    output = (folder / f"digits.{job}").read_text()
    assert "JobState=COMPLETED" in shown, f"{shown}\n{output[-5000:]}"
    migrated_job.check(output, 2, folder)
