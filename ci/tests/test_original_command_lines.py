"""The command lines of WML CE's users, as they stand in their job files.

Added to them is what a processor asks for (`--device=cpu`), changed are the numbers: batches and images small
enough for a test, and hosts that are there. One line trains the model `trivial` where the original has
resnet50: processors have no fast half-precision convolutions.

conda itself is not run: it cannot be installed from what the build has. Instead, what conda reads is looked
at. `conda create` and `conda install` answer their words by a solve of the channel's index, which rattler
does here with the same index. `conda create --clone NAME` looks for a folder of that name in those of
CONDA_ENVS_DIRS, which the module sets (test_module.py), reads the records in its `conda-meta`, and fetches
each package by its address.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import migrated_job
import module_systems
import pytest
from images import CHANNEL, Singularity
from tree import ROOT
from wmlce.envs import environments
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout

from ddl_validate.common.mpi import MPI_AS_ROOT

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
#BSUB -nnodes {nodes}
module load ibm-wml-ce
ddlrun {more} python $CONDA_PREFIX/tf_cnn_benchmarks/tf_cnn_benchmarks.py --variable_update=ddl \
    --model=trivial --batch_size=32 --num_batches=3 --num_warmup_batches=1 --device=cpu
module unload ibm-wml-ce
command -v ddlrun || echo unloaded
"""


@pytest.fixture(scope="module")
def modulefiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real module, of the whole environment."""
    tree = tmp_path_factory.mktemp("tree")
    wmlce = [str(Layout.locate(ROOT).build / "tools/bin/wmlce"), "module", "install", "--no-compile"]
    installed = subprocess.run(
        [*wmlce, "--prefix", str(tree)], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert installed.returncode == 0, installed.stderr
    return tree / "modulefiles"


def _batch(script: str, folder: Path, modulefiles: Path, lsf: Mapping[str, str]) -> str:
    """What a batch script said. LSF is what it sets for a job."""
    system = module_systems.lmod()
    (folder / "job.lsf").write_text(script)
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PS1": "", "LMOD_IGNORE_CACHE": "yes"}
    return _shell(
        f'module() {{ eval "$({system.command} bash "$@")"; }}\n. ./job.lsf',
        folder,
        {**variables, "MODULEPATH": str(modulefiles), "LSB_JOBID": "7", **lsf},
    )


def test_batch_script_around_the_module(modulefiles: Path, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost\nlocalhost\n")
    script = _BATCH.format(nodes=1, more="-accelerators 2")
    said = _batch(script, tmp_path, modulefiles, {"LSB_DJOB_HOSTFILE": str(hosts)})
    _trained(said, 2)
    assert said.endswith("unloaded\n")


def test_batch_script_of_18_nodes(modulefiles: Path, tmp_path: Path) -> None:
    """LSF lists the launch node first; --dry-run, as there are no such hosts here."""
    nodes = [f"a01n{number:02}" for number in range(1, 19)]
    listed = " ".join(["batch5 1", *(f"{node} 42" for node in nodes)])
    script = _BATCH.format(nodes=18, more="--dry-run -accelerators 6")
    said = _batch(script, tmp_path, modulefiles, {"LSB_MCPU_HOSTS": listed, "CSM_ALLOCATION_ID": "9"})
    assert re.search(r"^hosts from LSF job 7; 18 nodes x ", said, re.MULTILINE), said
    placed = re.findall(r"^  (\S+): 6 ranks \(rank:cores\) (\d+):", said, re.MULTILINE)
    assert placed == [(node, str(6 * number)) for number, node in enumerate(nodes)]
    (line,) = [line for line in said.splitlines() if line.startswith("+ ") and "mpirun" in line]
    assert " -np 108 " in line and " --variable_update=ddl --model=trivial --batch_size=32 " in line
    assert said.endswith("unloaded\n")


def test_job_of_2019_under_lsf(modulefiles: Path, tmp_path: Path) -> None:
    """docs/train/migrating.md: the two files as they are after the walk. jsrun is a stand-in."""
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost\nlocalhost\n")
    (tmp_path / "train.py").write_text(migrated_job.after(migrated_job.program()))
    script = migrated_job.after(migrated_job.lsf_script())
    standins = ROOT / "ddl-core/ddlrun/tests/standins"
    lsf = {"LSB_DJOB_HOSTFILE": str(hosts), "PATH": f"{standins}:/usr/local/bin:/usr/bin:/bin", **MPI_AS_ROOT}
    output = _batch(migrated_job.small(script, ranks=2), tmp_path, modulefiles, lsf)
    migrated_job.check(output, 2, tmp_path)


@pytest.mark.long
def test_ranks_in_the_image(singularity: Singularity, image: Path, tmp_path: Path) -> None:
    """The line of the job file, in quotes: $CONDA_PREFIX is the image's, no shell outside may replace it."""
    line = (
        "ddlrun -np 2 python $CONDA_PREFIX/tf_cnn_benchmarks/tf_cnn_benchmarks.py --variable_update=ddl"
        " --model=trivial --num_gpus=1 --batch_size=4 --num_batches=2 --num_warmup_batches=1"
        " --data_name=imagenet --allow_growth=True --device=cpu"
    )
    run = singularity("exec", image, "sh", "-c", line, cwd=tmp_path, limit=300)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    _trained(run.stdout, 2)


def _solved(*words: str) -> set[str]:
    """Names of the packages that `conda create` or `conda install` with these words would bring."""
    return {record.name.normalized for record in environments.solve_channel(CHANNEL, words)}


def test_conda_create_python_then_install_powerai() -> None:
    before = _solved("python=3.11")
    after = _solved("python=3.11", "powerai")
    assert "python" in before and "powerai" not in before
    assert {
        "powerai",
        "ddl",
        "ddl-tensorflow",
        "ddl-pytorch",
        "powerai-horovod",
        "tf-cnn-benchmarks",
    } <= after
    assert before <= after


@pytest.mark.parametrize("word", ["python=3.6", "gxx_linux-ppc64le", "cffi", "cudatoolkit-dev"])
def test_words_without_an_answer_are_in_the_table(word: str) -> None:
    """The channel cannot give them, and docs/train/migrating.md says what to do instead."""
    with pytest.raises(WmlceError):
        _solved(word)
    page = (ROOT / "docs/train/migrating.md").read_text()
    table = [line for line in page.splitlines() if line.startswith("| ")]
    told = [line.split(" | ", 1) for line in table if word in line.split(" | ", 1)[0]]
    assert told and all(len(cells) == 2 and len(cells[1]) > 10 for cells in told), word


def test_conda_clone_finds_every_package_by_its_record() -> None:
    """What `conda create --clone` reads: `history` makes it an environment, the records name the packages."""
    meta = PREFIX / "conda-meta"
    assert (meta / "history").is_file()
    records = [json.loads(path.read_text()) for path in meta.glob("*.json")]
    assert {"powerai", "ddl", "python"} <= {record["name"] for record in records}
    for record in records:
        assert record["url"] == f"{record['channel'].rstrip('/')}/{record['subdir']}/{record['fn']}"
        package = Path(record["url"].removeprefix("file://"))
        assert package.stat().st_size == record["size"], package
        assert all((PREFIX / file).exists() or (PREFIX / file).is_symlink() for file in record["files"])
    smallest = min(records, key=lambda record: int(record["size"]))
    data = Path(smallest["url"].removeprefix("file://")).read_bytes()
    assert hashlib.md5(data).hexdigest() == smallest["md5"]
    assert hashlib.sha256(data).hexdigest() == smallest["sha256"]
