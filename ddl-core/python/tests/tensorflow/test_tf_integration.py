"""What `import ddl` does to TensorFlow, tf_keras and Keras 3; the cases are in programs/integration.py."""

from __future__ import annotations

import pytest
from rank_launcher import Launcher, Run, case_names


@pytest.fixture(scope="module")
def run(launcher: Launcher) -> Run:
    """Two ranks."""
    return launcher.ranks(2, "integration", "OUT")


@pytest.mark.parametrize("case", case_names("integration"))
def test_case(run: Run, case: str) -> None:
    """One case, on every rank."""
    run.outcome(case, 2)


def test_keras_in_graph_mode(launcher: Launcher) -> None:
    """tf_keras after disable_eager_execution, which a process cannot take back."""
    run = launcher.ranks(2, "keras_in_graph_mode", "OUT")
    for case in case_names("keras_in_graph_mode"):
        run.outcome(case, 2)


def test_threads_fit_the_cores(launcher: Launcher) -> None:
    """A rank bound to one core gets one compute thread, without any setting of ours."""
    run = launcher.alone("threads", "OUT")
    assert run.status == 0, run.output
    assert (run.folder / "threads").read_text() == "1"
