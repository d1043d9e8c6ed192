"""Training on the digits: two ranks equal one process that takes the whole global batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rank_launcher import Launcher, Run

INTERFACES = [
    "tf1",
    "tf_keras_fit",
    "tf_keras_legacy_fit",
    "tf_keras_legacy_loop",
    "keras3_fit",
    "keras3_accumulation_fit",
    "tape_and_optimizer",
    "tape_and_tf1_optimizer",
    "tf1_accumulation",
    "tf_keras_accumulation_fit",
    "tf_keras_legacy_accumulation_fit",
    "tape_and_accumulator",
    "keras3_embedding_fit",
    "tf_keras_embedding_fit",
    "keras3_two_devices_fit",
    "tf_keras_two_devices_fit",
]
Weights = dict[str, list[np.ndarray[Any, Any]]]


def weights(run: Run, rank: int = 0, size: int = 1) -> Weights:
    """The final weights of each interface on one rank."""
    assert run.status == 0, run.output
    by_name: Weights = {}
    with np.load(run.folder / f"rank{rank}of{size}.npz") as arrays:
        for key in arrays.files:
            by_name.setdefault(key.split("/")[0], []).append(arrays[key])
    return by_name


def distance(a: list[np.ndarray[Any, Any]], b: list[np.ndarray[Any, Any]]) -> float:
    """The largest difference of two lists of arrays."""
    return max(float(np.abs(x - y).max()) for x, y in zip(a, b, strict=True))


@pytest.fixture(scope="module")
def alone(launcher: Launcher) -> Weights:
    """The reference: one process, no launcher, the whole global batch."""
    return weights(launcher.alone("train_digits", "ddl", "OUT", *INTERFACES))


@pytest.fixture(scope="module")
def half(launcher: Launcher) -> Weights:
    """What rank 0 would reach by itself, without the other rank's part of the batch."""
    run = launcher.alone("train_digits", "ddl", "OUT", *INTERFACES, ONLY_FIRST_PART_OF="2")
    return weights(run)


@pytest.fixture(scope="module")
def two(launcher: Launcher) -> list[Weights]:
    """Two ranks, `import ddl` first."""
    run = launcher.ranks(2, "train_digits", "ddl", "OUT", *INTERFACES)
    return [weights(run, rank, 2) for rank in range(2)]


@pytest.mark.parametrize("interface", INTERFACES)
def test_two_ranks_equal_one(two: list[Weights], alone: Weights, half: Weights, interface: str) -> None:
    """Within rounding of the single process, the same on both ranks, and not what one rank reaches alone."""
    assert distance(two[0][interface], two[1][interface]) == 0.0
    assert distance(two[0][interface], alone[interface]) < 2e-5
    assert distance(half[interface], alone[interface]) > 1e-3


@pytest.mark.long
@pytest.mark.parametrize(
    ("auto_init", "chosen"), [("1", ["tf1", "tf_keras_fit", "keras3_fit"]), ("0", ["tape_and_tf1_optimizer"])]
)
def test_frameworks_imported_first(
    launcher: Launcher, alone: Weights, auto_init: str, chosen: list[str]
) -> None:
    """The frameworks are imported before ddl; with auto_init 0 the script calls ddl.init() later."""
    run = launcher.ranks(2, "train_digits", "tensorflow", "OUT", *chosen, DDL_AUTO_INIT=auto_init)
    for rank in range(2):
        reached = weights(run, rank, 2)
        for interface in chosen:
            assert distance(reached[interface], alone[interface]) < 2e-5


def test_one_rank_is_unchanged(launcher: Launcher, alone: Weights) -> None:
    """A single rank under the launcher gives bitwise what no launcher gives."""
    chosen = ["tf1", "tf_keras_fit", "tf_keras_legacy_fit", "keras3_accumulation_fit", "tape_and_accumulator"]
    reached = weights(launcher.ranks(1, "train_digits", "ddl", "OUT", *chosen))
    for interface in chosen:
        assert distance(reached[interface], alone[interface]) == 0.0
