"""The trainers people use: with the same global batch, two ranks end with the weights of one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from overlays import overlay

EXAMPLES = Path(__file__).resolve().parents[3] / "examples/pytorch"
RUNS = [
    ("lightning", "lightning_digits.py", ()),
    ("transformers", "accelerate_digits.py", ()),
    ("transformers", "transformers_copy.py", ()),
    pytest.param("deepspeed", "deepspeed_digits.py", ("--stage", "0"), marks=pytest.mark.long),
    pytest.param("deepspeed", "deepspeed_digits.py", ("--stage", "1"), marks=pytest.mark.long),
    pytest.param("deepspeed", "deepspeed_digits.py", ("--stage", "2"), marks=pytest.mark.long),
    pytest.param("deepspeed", "deepspeed_digits.py", ("--stage", "3"), marks=pytest.mark.long),
]
#: After the example, as NumPy's archive: what is compared knows nothing of torch.
_SAVED = (
    "\nimport numpy, runpy, sys, torch\n"
    "program, target, *sys.argv[1:] = sys.argv[1:]\n"
    "sys.argv[0] = program\n"
    "runpy.run_path(program, run_name='__main__')\n"
    "import os\n"
    "if os.environ['RANK'] == '0':\n"
    "    saved = torch.load(target + '.pt')\n"
    "    numpy.savez(target, **{name: value.numpy() for name, value in saved.items()})\n"
)


@pytest.mark.parametrize(("packages", "example", "flags"), RUNS)
def test_two_ranks_equal_one(
    jobs: Any, tmp_path: Path, packages: str, example: str, flags: tuple[str, ...]
) -> None:
    path = str(overlay(packages))
    weights = {}
    for ranks in (1, 2):
        target = str(tmp_path / f"of-{ranks}")
        words = (str(EXAMPLES / example), target, "--save", f"{target}.pt", *flags)
        offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub"), "OMP_NUM_THREADS": "1"}
        job = jobs.ddlrun(ranks, _SAVED, *words, PYTHONPATH=path, **offline)
        assert job.status == 0, job.out + job.err
        learned = re.findall(r"ranks (\d+)  (test accuracy (?:0\.[89]|1\.0)|loss [0-9])", job.out)
        assert [number for number, _ in learned] == [str(ranks)], job.out
        with np.load(f"{target}.npz") as saved:
            weights[ranks] = dict(saved)
    assert weights[1].keys() == weights[2].keys()
    for name, value in weights[1].items():
        np.testing.assert_allclose(weights[2][name], value, rtol=2e-3, atol=2e-4, err_msg=name)


#: Accelerate's test scripts for two ranks, and what of them is changed. The others of its wheel need GPUs
#: (test_ddp_comm_hook, test_merge_weights, test_notebook), or packages and downloads (external_deps).
_ON_CPUS_IT_DOES_NOT_JOIN = (
    "test_can_join_uneven_inputs",
    "test_join_can_override_even_batches",
    "test_join_can_override_for_mixed_type_dataloaders",
    "test_join_raises_warning_for_iterable_when_overriding_even_batches",
)
ACCELERATES_OWN = [
    pytest.param("test_ops", ()),
    pytest.param("test_sync", ()),
    # Each rank trains the reference by itself.
    pytest.param("test_script", ("mock_training=local",), marks=pytest.mark.long),
    pytest.param(
        "test_distributed_data_loop",
        tuple(f"{function}=skip" for function in _ON_CPUS_IT_DOES_NOT_JOIN),
        marks=pytest.mark.long,
    ),
]


@pytest.mark.parametrize(("script", "changes"), ACCELERATES_OWN)
def test_accelerates_own_scripts(jobs: Any, script: str, changes: tuple[str, ...]) -> None:
    offline = {"HF_HUB_OFFLINE": "1", "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    path = str(overlay("transformers"))
    job = jobs.ddlrun(2, "accelerates_own.py", "ddl", script, *changes, PYTHONPATH=path, **offline)
    assert job.status == 0, job.out + job.err
    assert job.out.count("script ended") == 2
