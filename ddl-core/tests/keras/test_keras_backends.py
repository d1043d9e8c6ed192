"""Keras 3 on other backends than TensorFlow: averaged on PyTorch, refused on JAX."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from keras_ranks import KerasRanks
from overlays import overlay


@pytest.mark.parametrize("case", ["fit", "accumulate", "loss_scale", "own_loop"])
def test_two_ranks_on_torch_equal_one(run_keras: KerasRanks, tmp_path: Path, case: str) -> None:
    """The same global batch, trained by one rank and by two, gives the same weights."""
    weights = {}
    for ranks in (1, 2):
        file = tmp_path / f"{ranks}.npy"
        status, output = run_keras(ranks, "torch", "on_torch.py", case, str(file))
        assert status == 0 and output.count(f"passed {case}") == ranks, output
        weights[ranks] = np.load(file)
    np.testing.assert_allclose(weights[2], weights[1], rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("case", ["backup", "different", "no_averaging"])
def test_on_torch(run_keras: KerasRanks, tmp_path: Path, case: str) -> None:
    status, output = run_keras(
        2, "torch", "on_torch.py", case, str(tmp_path / "w.npy"), str(tmp_path / "backup")
    )
    assert status == 0 and output.count(f"passed {case}") == 2, output


@pytest.mark.parametrize(("ranks", "word"), [(2, "refused"), (0, "trained")])
def test_jax_is_refused_by_a_distributed_job(run_keras: KerasRanks, ranks: int, word: str) -> None:
    """Where there is one process there is nothing to average."""
    path = overlay("jax")
    status, output = run_keras(ranks, "jax", "on_jax.py", PYTHONPATH=str(path), JAX_PLATFORMS="cpu")
    assert status == 0 and output.count(word) == output.count("passed") == max(ranks, 1), output
