"""docs/train/first-script.md: its scripts, pasted, on two ranks here and then in a job of a real Slurm."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ddlrun_program import Ddlrun
from emulated import ROOT, shared_folders, started_slurm

from ddl_validate.cluster import ClusterSpec
from ddl_validate.cluster.slurm import Slurm

BLOCK = re.compile(r"^```sh(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def slurm(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    folder = tmp_path_factory.mktemp("clone")
    spec = ClusterSpec.even(
        hosts=2,
        slots=2,
        shared=(*shared_folders(prefix), str(folder)),
        environment={"SHLVL": "1", "CLONE": str(folder)},
        life_seconds=600,
    )
    with started_slurm(spec, tmp_path_factory.mktemp("first") / "state") as made:
        yield made


@pytest.mark.long
def test_from_one_process_to_a_job(slurm: Slurm, ddlrun: Ddlrun) -> None:
    """The page's commands in their order, in a folder that has the environment where a clone has it."""
    clone = Path(slurm.cluster.spec.environment["CLONE"])
    (clone / "build/envs").mkdir(parents=True)
    (clone / "build/envs/powerai").symlink_to(ddlrun.prefix)
    page = (ROOT / "docs/train/first-script.md").read_text()
    here, in_slurm = [], []
    for block in BLOCK.finditer(page):
        (in_slurm if "needs Slurm" in block["info"] else here).append(block["body"])
    assert len(here) == 3 and len(in_slurm) == 1
    pasted = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(here)],
        cwd=clone,
        env=ddlrun.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert pasted.returncode == 0, pasted.stderr[-3000:]
    one = re.search(r"^test accuracy: (\S+)$", pasted.stdout, re.MULTILINE)
    two = re.search(r"^2 ranks on 1 hosts, test accuracy: (\S+)$", pasted.stdout, re.MULTILINE)
    assert one and two, pasted.stdout
    assert float(one[1]) > 0.8 and float(two[1]) > 0.8
    assert (clone / "build/first-script/model.keras").is_file()

    job = slurm.run(["bash", "-euc", f"cd {clone}\n{in_slurm[0]}"], timeout=240, env=ddlrun.variables)
    assert job.returncode == 0, job.stderr[-3000:]
    four = re.search(r"^4 ranks on 2 hosts, test accuracy: (\S+)$", job.stdout, re.MULTILINE)
    assert four and float(four[1]) > 0.8, job.stdout
