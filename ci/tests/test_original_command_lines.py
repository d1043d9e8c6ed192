"""The command lines of WML CE's users, as they stand in their job files.

Added to them is what a processor asks for (`--device=cpu`), changed are the numbers: batches and images small
enough for a test, and hosts that are there. One line trains the model `trivial` where the original has
resnet50: processors have no fast half-precision convolutions.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import module_systems
import pytest
from tree import ROOT
from wmlce.util.layout import Layout

from validation.common.mpi import MPI_AS_ROOT

pytestmark = pytest.mark.slow

PREFIX = ROOT / "build/envs/powerai"


def _shell(script: str, folder: Path, variables: Mapping[str, str]) -> str:
    """What the script printed, both streams."""
    run = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={"HOME": str(folder), "TMPDIR": os.environ.get("TMPDIR", "/tmp"), **MPI_AS_ROOT, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    assert run.returncode == 0, run.stdout[-5000:]
    return run.stdout


@pytest.fixture
def activated() -> dict[str, str]:
    """What `conda activate` sets."""
    assert PREFIX.is_dir(), "the environment is missing: run ./ci/quickstart"
    return {"CONDA_PREFIX": str(PREFIX), "PATH": f"{PREFIX}/bin:/usr/local/bin:/usr/bin:/bin"}


def _trained(said: str, ranks: int) -> None:
    assert " global\n" in said and "total images/sec: " in said, said[-3000:]
    batch = next(line for line in said.splitlines() if line.startswith("Batch size:"))
    each = next(line for line in said.splitlines() if line.endswith(" per device"))
    assert int(batch.split()[2]) == ranks * int(each.split()[0])


def test_horovod_in_half_precision(activated: dict[str, str], tmp_path: Path) -> None:
    said = _shell(
        "ddlrun -np 2 python $CONDA_PREFIX/tf_cnn_benchmarks/tf_cnn_benchmarks.py --variable_update=horovod"
        " --model=trivial --num_gpus=1 --batch_size=16 --num_batches=3 --num_warmup_batches=1"
        " --data_name=imagenet --allow_growth=True --use_fp16 --device=cpu",
        tmp_path,
        activated,
    )
    _trained(said, 2)


def test_ddl_on_hosts(activated: dict[str, str], tmp_path: Path) -> None:
    said = _shell(
        "ddlrun -H localhost:2 python $CONDA_PREFIX/tf_cnn_benchmarks/tf_cnn_benchmarks.py"
        " --variable_update=ddl --model=resnet50 --num_gpus=1 --batch_size=1 --num_batches=2"
        " --num_warmup_batches=1 --data_name=imagenet --allow_growth=True --device=cpu",
        tmp_path,
        activated,
    )
    _trained(said, 2)


def test_mpirun_with_ddls_options(activated: dict[str, str], tmp_path: Path) -> None:
    said = _shell(
        'mpirun -x LD_LIBRARY_PATH -x PATH -x DDL_OPTIONS="-mode p -dbg_level 2" -n 2 -host localhost:2'
        " python $CONDA_PREFIX/tf_cnn_benchmarks/tf_cnn_benchmarks.py --variable_update=ddl --model=trivial"
        " --batch_size=4 --num_batches=2 --num_warmup_batches=1 --device=cpu",
        tmp_path,
        {**activated, "LD_LIBRARY_PATH": ""},
    )
    _trained(said, 2)
    assert "[DDL] topology " in said


_BATCH = """\
#BSUB -W 0:20
#BSUB -P project
#BSUB -q batch
#BSUB -J ddl_test
#BSUB -nnodes 1
module load ibm-wml-ce
ddlrun -accelerators 2 python $CONDA_PREFIX/tf_cnn_benchmarks/tf_cnn_benchmarks.py --variable_update=ddl \
    --model=trivial --batch_size=32 --num_batches=3 --num_warmup_batches=1 --device=cpu
module unload ibm-wml-ce
command -v ddlrun || echo unloaded
"""


def test_batch_script_around_the_module(tmp_path: Path) -> None:
    """The module is the real one, of the whole environment; LSF is what it sets for a job."""
    system = module_systems.lmod()
    wmlce = [str(Layout.locate(ROOT).build / "tools/bin/wmlce"), "module", "install", "--no-compile"]
    installed = subprocess.run(
        [*wmlce, "--prefix", str(tmp_path / "tree")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert installed.returncode == 0, installed.stderr
    (tmp_path / "job.lsf").write_text(_BATCH)
    (tmp_path / "hosts").write_text("localhost\nlocalhost\n")
    said = _shell(
        f'module() {{ eval "$({system.command} bash "$@")"; }}\n. ./job.lsf',
        tmp_path,
        {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "PS1": "",
            "MODULEPATH": str(tmp_path / "tree/modulefiles"),
            "LMOD_IGNORE_CACHE": "yes",
            "LSB_JOBID": "7",
            "LSB_DJOB_HOSTFILE": str(tmp_path / "hosts"),
        },
    )
    _trained(said, 2)
    assert said.endswith("unloaded\n")
