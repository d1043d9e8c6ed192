"""Snap ML, which users install themselves, with the scikit-learn and numpy of this channel, and under DDL."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from overlays import overlay
from rank_processes import ROOT

EXAMPLES = ROOT / "ddl-core/examples/snapml"
REFUSALS = """
import os, sys
import numpy as np, snapml
os.chdir(sys.argv[1])  # export_model opens its file before it refuses
try:
    import pandas
except ImportError:
    pandas = None  # no part of powerai
from scipy.sparse import csr_matrix
x = np.random.default_rng(1).normal(size=(60, 4))
y = (x[:, 0] > 0).astype(int)
tries = {
    "weights": lambda: snapml.LogisticRegression().fit(x, y, sample_weight=np.ones(60)),
    "table": lambda: snapml.LogisticRegression().fit(pandas.DataFrame(x), y),
    "table, trees": lambda: snapml.RandomForestClassifier().fit(pandas.DataFrame(x), y),
    "sparse, trees": lambda: snapml.BoostingMachineClassifier().fit(csr_matrix(x), y),
    "probabilities": lambda: snapml.SupportVectorMachine().fit(x, y).predict_proba(x),
    "onnx": lambda: snapml.RandomForestClassifier().fit(x, y).export_model("out.onnx", "onnx"),
}
for name, attempt in tries.items():
    try:
        attempt()
        print(f"{name}: works")
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {error}")
"""


@pytest.fixture(scope="module")
def snapml() -> Path:
    return overlay("snapml")


def alone(mpirun: Any, snapml: Path, program: Path | str, *words: str) -> Any:
    found = os.pathsep.join([str(snapml), str(ROOT / "recipes/pai4sk")])
    return mpirun.alone(program, *words, env={"PYTHONPATH": found, "DDL_AUTO_INIT": "0"}, timeout=150)


def test_as_good_as_scikit_learn(mpirun: Any, snapml: Path) -> None:
    done = alone(mpirun, snapml, EXAMPLES / "compare_sklearn.py", "--json", "--repeats", "1")
    assert done.status == 0, done.output
    rows = json.loads(done.stdout)["rows"]
    assert len(rows) == 13 and {row["data"] for row in rows} == {"digits", "breast_cancer", "diabetes"}
    for row in rows:
        assert abs(row["snapml"] - row["sklearn"]) <= row["margin"] <= 0.05, row
        assert row["snapml"] > (0.8 if row["measure"] == "accuracy" else 0.1), row
        assert row["snapml_seconds"] > 0 < row["sklearn_seconds"]


def test_made_data_and_its_table(mpirun: Any, snapml: Path) -> None:
    done = alone(mpirun, snapml, EXAMPLES / "compare_sklearn.py", "--data", "400x8", "--repeats", "1")
    # of so few rows, differences beyond the margin may be; they are named then
    assert done.status == (1 if "differs by" in done.stderr else 0), done.output
    assert done.stdout.count("400x8") == 8 and "snapml 1.17.2" in done.stdout


def test_pai4sk_has_its_estimators(mpirun: Any, snapml: Path) -> None:
    program = (
        "import snapml, pai4sk\n"
        "print(all(getattr(pai4sk, name) is getattr(snapml, name) for name in pai4sk.SNAP_ML))\n"
    )
    done = alone(mpirun, snapml, program)
    assert done.stdout == "True\n", done.output


def test_what_the_page_says_it_refuses(mpirun: Any, snapml: Path, tmp_path: Path) -> None:
    """If one of these works with another version, docs/train/snapml.md must say so."""
    done = alone(mpirun, snapml, REFUSALS, str(tmp_path))
    assert done.status == 0, done.output
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    assert said["weights"].endswith("got an unexpected keyword argument 'sample_weight'")
    if not said["table"].startswith("AttributeError"):
        assert "X_train has type DataFrame" in said["table"]
    for name in ("table, trees", "sparse, trees"):
        if said[name].startswith("AttributeError: 'NoneType'"):
            continue  # without pandas
        assert said[name] == "TypeError: Tree-based models in Snap ML only support numpy.ndarray"
    assert said["probabilities"].endswith("has no attribute 'predict_proba'")
    assert "non-supported output file type" in said["onnx"]


def test_ranks_find_what_scikit_learn_finds_on_all_rows(mpirun: Any, snapml: Path) -> None:
    environment = {"PYTHONPATH": str(snapml)}
    done = mpirun(2, EXAMPLES / "distributed.py", hosts="1,1", env=environment, timeout=150)
    assert done.status == 0, done.output
    for name in ("ridge", "logistic"):
        (line,) = done.lines(f"{name}: relative difference of coefficients ")
        assert float(line.split()[0]) < 1e-4, line
    (line,) = done.lines("forest: 100 trees on 2 rank(s); scikit-learn on all rows: ")
    (accuracy,) = done.lines("accuracy: ")
    assert float(accuracy) > 0.9 and abs(float(accuracy) - float(line)) < 0.04
    (speed,) = done.lines("images/sec: ")
    assert float(speed) > 0
