"""Every example that takes --device says in one line what to do where there is no GPU."""

from __future__ import annotations

import json
from typing import Any

import pytest
from overlays import overlay
from rank_processes import ROOT

EXAMPLES = ROOT / "ddl-core/examples"
#: Those of a group are run one after the other by one process, as their imports take long.
GROUPS = {
    "torch": ("pytorch/digits.py", "resume/torch_digits.py", "horovod/torch_digits.py"),
    "tensorflow": (
        *("tensorflow/keras_digits.py", "tensorflow/tf_keras_digits.py", "tensorflow/tf1_digits.py"),
        *("resume/keras_digits.py", "resume/tf_keras_digits.py", "horovod/keras_digits.py"),
    ),
    "lightning": ("pytorch/lightning_digits.py",),
    "transformers": ("pytorch/accelerate_digits.py", "pytorch/transformers_copy.py"),
    "deepspeed": ("pytorch/deepspeed_digits.py",),
}
IN_CHANNEL = ("torch", "tensorflow")
PROGRAM = """
import json, runpy, sys
for path in sys.argv[1:]:
    sys.argv = [path, "--device=gpu"]
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        sys.stdout.write(json.dumps(["ended", end.code]) + "\\n")
"""


def test_none_is_left_out() -> None:
    takes = {
        str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.py") if '"--device"' in path.read_text()
    }
    assert takes == {name for names in GROUPS.values() for name in names}


@pytest.mark.parametrize(
    "group", [pytest.param(group, marks=[] if group in IN_CHANNEL else pytest.mark.long) for group in GROUPS]
)
def test_no_gpu(jobs: Any, group: str) -> None:
    more = {} if group in IN_CHANNEL else {"PYTHONPATH": str(overlay(group))}
    paths = [str(EXAMPLES / name) for name in GROUPS[group]]
    job = jobs.alone(PROGRAM, *paths, CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3", **more)
    assert job.status == 0, job.out + job.err
    ends = [json.loads(line)[1] for line in job.out.splitlines() if line.startswith('["ended"')]
    framework = "TensorFlow" if group == "tensorflow" else "torch"
    error = f"--device=gpu: {framework} sees no GPU; install powerai-gpu, or use --device=cpu"
    assert ends == [error] * len(paths), job.out + job.err
