"""Models travel: what a training with DDL or Horovod saves goes on in a plain process, and the reverse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rank_launcher import Launcher

Arrays = dict[str, np.ndarray]


def train(launcher: Launcher, phase: str, by: str, files: Path) -> list[Arrays]:
    """The weights behind a phase, rank by rank."""
    ranks = 1 if by == "alone" else 2
    words = ("saved_models", phase, by, str(files), "OUT")
    off = {"DDL_AUTO_INIT": "0", "TF_USE_LEGACY_KERAS": "1"} if by == "horovod" else {}
    run = launcher.alone(*words) if ranks == 1 else launcher.ranks(ranks, *words, **off)
    assert run.status == 0, run.output
    return [dict(np.load(run.folder / f"{phase}-rank{rank}.npz")) for rank in range(ranks)]


def assert_close(some: Arrays, others: Arrays) -> None:
    assert some.keys() == others.keys()
    for name, value in some.items():
        np.testing.assert_allclose(value, others[name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.fixture(scope="module")
def alone(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Arrays, Arrays]:
    """One process all along: its files, and its weights behind each phase."""
    files = tmp_path_factory.mktemp("alone")
    (saved,) = train(launcher, "save", "alone", files)
    (result,) = train(launcher, "go_on", "alone", files)
    assert len({name.partition("/")[0] for name in result}) >= 20
    assert any(np.abs(value - saved[name]).max() > 0.01 for name, value in result.items())
    return files, saved, result


BY = ["ddl", pytest.param("horovod", marks=pytest.mark.long)]


@pytest.mark.parametrize("by", BY)
def test_goes_on_in_a_plain_process(
    launcher: Launcher, alone: tuple[Path, Arrays, Arrays], by: str, tmp_path: Path
) -> None:
    _, saved, wanted = alone
    for weights in train(launcher, "save", by, tmp_path):
        assert_close(weights, saved)
    (result,) = train(launcher, "go_on", "alone", tmp_path)
    assert_close(result, wanted)


@pytest.mark.parametrize("by", BY)
def test_goes_on_distributed(launcher: Launcher, alone: tuple[Path, Arrays, Arrays], by: str) -> None:
    files, _, wanted = alone
    for weights in train(launcher, "go_on", by, files):
        assert_close(weights, wanted)
