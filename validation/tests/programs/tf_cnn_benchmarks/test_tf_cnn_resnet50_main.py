"""The flags of WML CE's tensorflow-benchmarks/resnet50/main.py, and what tf_cnn_benchmarks gets of them."""

from __future__ import annotations

from typing import Any

import pytest
from program_runner import ROOT, Environment

MAIN = ROOT / "validation/programs/tf_cnn_benchmarks/resnet50_main.py"
CODE = """
import json, runpy, sys
from tf_cnn_benchmarks.params import parse
flags = runpy.run_path(sys.argv[1])["flags_of_tf_cnn_benchmarks"](sys.argv[2:])
print(json.dumps({name: value for name, value in vars(parse(["main", *flags])).items() if name != "present"},
                 default=str))
"""


@pytest.mark.parametrize(
    ("given", "understood"),
    [
        ("", {"batch_size": 32, "num_epochs": 1.0, "num_batches": None, "data_dir": None, "use_fp16": False}),
        (
            "--mode=training_benchmark --iter_unit=batch --num_iter=7 --warmup_steps=3 --batch_size=16",
            {"num_batches": 7, "num_warmup_batches": 3, "batch_size": 16, "num_epochs": None},
        ),
        (
            "--mode=train_and_evaluate --num_iter=50 --data_dir=/data --results_dir=/results --amp",
            {
                **{"num_epochs": 50.0, "data_dir": "/data", "train_dir": "/results", "use_fp16": True},
                "eval_during_training_every_n_epochs": 1.0,
            },
        ),
        (
            "--mode=evaluate --results_dir=/results --precision=fp16 --device=cpu",
            {"eval": True, "train_dir": "/results", "use_fp16": True, "device": "cpu"},
        ),
    ],
)
def test_flags(given: str, understood: dict[str, Any], env: Environment) -> None:
    parsed = env.evaluate(CODE, str(MAIN), *given.split())
    assert parsed | understood == parsed
    assert (parsed["model"], parsed["variable_update"]) == ("resnet50", "ddl")
