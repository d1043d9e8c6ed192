"""Training with Horovod on two ranks equals one process with the same global batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

TORCH = (
    *("distributed_optimizer", "compressed", "accumulated", "sparse", "state_goes_on", "resumed", "drift"),
    *("other_optimizer_of_one_rank", "drift_behind_a_join", "two_optimizers_of_one_class"),
)
WAYS = (
    *("tape", "tf_keras_fit", "tf_keras_legacy_fit", "keras3_fit", "keras3_accumulation_fit", "keras3_loop"),
    *("tf_keras_callbacks", "keras3_callbacks"),
)
Arrays = dict[str, list[np.ndarray[Any, Any]]]


@pytest.mark.parametrize("ranks", [1, 2])
def test_torch(jobs: Any, ranks: int) -> None:
    """The program compares with one process without Horovod."""
    job = jobs.mpirun(ranks, "torch_training.py")
    assert job.status == 0, job.err
    assert {case: job.passed(case) for case in TORCH} == dict.fromkeys(TORCH, ranks)


def results(job: Any, rank: int, size: int) -> Arrays:
    assert job.status == 0, job.err
    by_name: Arrays = {}
    with np.load(Path(job.folder) / f"rank{rank}of{size}.npz") as arrays:
        for key in arrays.files:
            by_name.setdefault(key.split("/")[0], []).append(arrays[key])
    return by_name


def trained(jobs: Any, ranks: int, *ways: str, **more: str) -> list[Arrays]:
    job = jobs.mpirun(ranks, "tf_training.py", ".", *ways, **more)
    return [results(job, rank, ranks) for rank in range(ranks)]


def distance(a: list[np.ndarray[Any, Any]], b: list[np.ndarray[Any, Any]]) -> float:
    return max(float(np.abs(x - y).max()) for x, y in zip(a, b, strict=True))


def test_tensorflow_and_keras(jobs: Any) -> None:
    alone = trained(jobs, 1, *WAYS)[0]
    half = trained(jobs, 1, *WAYS[:6], ONLY_FIRST_HALF="1")[0]
    two = trained(jobs, 2, *WAYS)
    assert two[0]["ddl_calls"][0] > 100
    for way in WAYS:
        assert distance(two[0][way], two[1][way]) == 0.0, way
    for way in WAYS[:6]:
        assert distance(two[0][way], alone[way]) < 2e-5, way
        assert distance(half[way], alone[way]) > 1e-3, way
    for way in WAYS[6:]:
        loss, accuracy, rate = two[0][way][-3:]
        assert loss[-1] < loss[0] / 2 and accuracy[-1] > 0.8
        np.testing.assert_allclose(rate, [0.075, 0.1, 0.1], rtol=1e-3)


@pytest.mark.long
def test_tf1_session(jobs: Any) -> None:
    """Each rank starts from weights of its own; the hook sends those of rank 0."""
    alone, two = trained(jobs, 1, "tf1")[0], trained(jobs, 2, "tf1")
    assert two[0]["ddl_calls"][0] >= 15
    assert distance(two[0]["tf1"], two[1]["tf1"]) == 0.0
    assert distance(two[0]["tf1"], alone["tf1"]) < 2e-5


def test_accumulation_of_another_keras_is_refused(jobs: Any) -> None:
    program = (
        "import horovod.keras as hvd, keras; hvd.init()\n"
        "import horovod.tensorflow.keras as hvd_tf\n"
        "hvd_tf.DistributedOptimizer(keras.optimizers.SGD(), backward_passes_per_step=2)\n"
    )
    job = jobs.alone(program)
    assert job.status != 0 and "pass them gradient_accumulation_steps=2" in job.err


KERAS_SCRIPTS = (
    *("models_of_horovod_go_on", "models_without_horovod_go_on", "hdf5_of_horovod_goes_on"),
    *("hdf5_without_horovod_goes_on", "rank_0_alone_loads", "a_rank_overflows", "a_loop_of_tensorflow_2"),
    *("a_train_step_with_a_tape", "what_was_an_argument_of_compile", "seeds_stay_different"),
    *("ranks_drift_apart", "first_gradients_are_of_one_model"),
)
LEGACY = ["0", pytest.param("1", marks=pytest.mark.long)]


@pytest.mark.parametrize("legacy", LEGACY, ids=["keras3", "tf_keras"])
def test_scripts_for_older_versions(jobs: Any, tmp_path: Path, legacy: str) -> None:
    """And what they save loads without Horovod."""
    job = jobs.mpirun(2, "keras_scripts.py", str(tmp_path), TF_USE_LEGACY_KERAS=legacy)
    assert job.status == 0, job.err
    assert {case: job.passed(case) for case in KERAS_SCRIPTS} == dict.fromkeys(KERAS_SCRIPTS, 2)
    assert (
        job.err.count("[WARN] the optimizer SGD, which model.compile was given, averages no gradients") == 1
    )
    for name in ("horovod-model.keras", "plain-model.keras"):
        program = f"import {'tf_keras' if legacy == '1' else 'keras'} as keras, numpy as np\n" + (
            f"model = keras.models.load_model({str(tmp_path / name)!r})\n"
            "before = int(np.array(model.optimizer.iterations))\n"
            "model.fit(np.ones((4, 4)), np.ones((4, 1)), verbose=0)\n"
            "print('steps', before, int(np.array(model.optimizer.iterations)))\n"
        )
        alone = jobs.alone(program)
        assert alone.status == 0 and "steps 4 5" in alone.out, alone.err


TF1_DRIFT = (
    *("nothing_drifts", "a_weight_is_set_on_one_rank", "missing_broadcast", "a_monitored_session"),
    *("nothing_is_averaged", "a_rank_trains_a_probe_alone", "local_variables", "other_ranks_may_differ"),
    *("updates_of_several_passes", "control_flow_v2"),
)


@pytest.mark.parametrize("kind", ["resource", pytest.param("ref", marks=pytest.mark.long)])
def test_drift_in_sessions(jobs: Any, kind: str) -> None:
    """Horovod alone, without `import ddl`."""
    job = jobs.mpirun(2, "tf1_drift.py", kind)
    assert job.status == 0, job.err
    assert {case: job.passed(case) for case in TF1_DRIFT} == dict.fromkeys(TF1_DRIFT, 2)
    assert job.err.count("[WARN] the optimizer of this session averages no gradients") == 1
