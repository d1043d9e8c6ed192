"""Keras 3 on other backends than TensorFlow: averaged on PyTorch, refused on JAX."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from keras_ranks import KerasRanks
from overlays import overlay

TRAINING = ("fit", "accumulate", "loss_scale", "on_batch", "callbacks_in_any_form", "own_loop")
OTHERS = ("backup", "no_averaging", "drift", "different", "other_start")


@dataclass(frozen=True)
class Trained:
    """What one rank and two ranks said, and the folder with the weights of each case."""

    one: str
    two: str
    folder: Path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("on_torch")
    run = KerasRanks(folder)
    _, one = run(1, "torch", "on_torch.py", str(folder), *TRAINING)
    _, two = run(2, "torch", "on_torch.py", str(folder), *TRAINING, *OTHERS)
    return Trained(one, two, folder)


@pytest.mark.slow
@pytest.mark.parametrize("case", TRAINING)
def test_two_ranks_on_torch_equal_one(trained: Trained, case: str) -> None:
    """The same global batch, trained by one rank and by two, gives the same weights."""
    assert trained.one.count(f"passed {case}\n") == 1, trained.one
    assert trained.two.count(f"passed {case}\n") == 2, trained.two
    one, two = (np.load(trained.folder / f"{case}-of{ranks}.npy") for ranks in (1, 2))
    np.testing.assert_allclose(two, one, rtol=2e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("case", OTHERS)
def test_on_torch(trained: Trained, case: str) -> None:
    assert trained.two.count(f"passed {case}\n") == 2, trained.two


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "word"), [(2, "refused"), (0, "trained")])
def test_jax_is_refused_by_a_distributed_job(run_keras: KerasRanks, ranks: int, word: str) -> None:
    """Where there is one process there is nothing to average."""
    path = overlay("jax")
    status, output = run_keras(ranks, "jax", "on_jax.py", PYTHONPATH=str(path), JAX_PLATFORMS="cpu")
    assert status == 0 and output.count(word) == output.count("passed") == max(ranks, 1), output
