"""Exported models answer in a process that has no DDL; the models are made by programs/serving.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rank_launcher import Launcher, Run, case_names

MODELS = ["tf1_session", "tf1_checkpoint", "keras", "tf_keras", "module"]
#: Saved with its optimizer, to show what the others would be without the export.
NOT_SERVABLE = "training_graph"


@pytest.fixture(scope="module")
def exported(launcher: Launcher) -> Run:
    """The models, trained and exported by two ranks."""
    return launcher.ranks(2, "serving", "OUT")


@pytest.fixture(scope="module")
def asked(launcher: Launcher, exported: Run) -> dict[str, Any]:
    """What saved_model_cli made of each."""
    run = launcher.alone("saved_model_cli", str(exported.folder), *MODELS, NOT_SERVABLE)
    assert run.status == 0, run.output
    outcome: dict[str, Any] = json.loads((exported.folder / "outcome.json").read_text())
    return outcome


@pytest.mark.parametrize("case", case_names("serving"))
def test_export(exported: Run, case: str) -> None:
    """One kind of model, on every rank."""
    exported.outcome(case, 2)


def answer(folder: Path, name: str) -> np.ndarray[Any, Any]:
    """The only output that saved_model_cli has written for a model."""
    (file,) = (folder / f"{name}.answers").glob("*.npy")
    result: np.ndarray[Any, Any] = np.load(file)
    return result


@pytest.mark.parametrize("model", MODELS)
def test_answers_without_ddl(exported: Run, asked: dict[str, Any], model: str) -> None:
    """The same answers as the trained model gave under DDL."""
    assert asked["libddl is loaded"] is False
    assert asked[model] == "answered", asked
    with np.load(exported.folder / f"{model}.npz") as wanted:
        np.testing.assert_allclose(answer(exported.folder, model), wanted["answer"], rtol=1e-5, atol=1e-6)


def test_a_training_graph_needs_ddl(asked: dict[str, Any]) -> None:
    """Why there is an export: in the same process a graph with DDL's operators does not load."""
    assert "AllReduceN" in asked[NOT_SERVABLE], asked
