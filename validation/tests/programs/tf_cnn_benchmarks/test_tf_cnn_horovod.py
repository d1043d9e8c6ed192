"""--variable_update=horovod on ranks started by the real mpirun."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from program_runner import Environment

COMPARE = """
import json, sys
import numpy as np
import tensorflow as tf
reads = [tf.train.load_checkpoint(path) for path in sys.argv[1:]]
names = [sorted(r.get_variable_to_shape_map()) for r in reads]
assert all(n == names[0] for n in names), names
print(json.dumps([max(float(np.abs(reads[0].get_tensor(n) - r.get_tensor(n)).max()) for n in names[0])
                  for r in reads[1:]]))
"""


@pytest.fixture(scope="module")
def horovod_env(ddl_env: Environment) -> Environment:
    if not ddl_env.has("horovod.tensorflow"):
        pytest.skip(f"{ddl_env.prefix} has no horovod.tensorflow")
    return ddl_env


def train(env: Environment, ranks: int, folder: Path, *flags: str) -> dict[str, Any]:
    folder.mkdir()
    result = folder / "result.json"
    common = ["--data_name=digits", "--model=lenet", f"--batch_size={48 // ranks}", "--num_batches=12",
              "--num_warmup_batches=2", "--optimizer=momentum", "--init_learning_rate=0.02",
              f"--train_dir={folder}", f"--result_json={result}", *flags]  # fmt: skip
    if ranks == 1:
        env.benchmark(*common).ok()
    else:
        run = env.ranks(ranks, "-m", "tf_cnn_benchmarks", "--variable_update=horovod", *common).ok()
        assert run.out.count("Done warm up") == 1, "only rank 0 prints"
        assert "Devices:     ['horovod/cpu:0', 'horovod/cpu:1']\n" in run.out
        assert "Horovod on:  cpu\n" in run.out
        assert "Variables:   horovod\n" in run.out and "Batch size:  48 global\n" in run.out
    return dict(json.loads(result.read_text().splitlines()[-1]))


def test_two_ranks_equal_one_with_the_same_global_batch(horovod_env: Environment, tmp_path: Path) -> None:
    """Weights, slots and step count after 14 steps, loss, accuracy, and an evaluation on the ranks."""
    evaluate = "--eval_during_training_at_specified_steps=12"
    one = train(horovod_env, 1, tmp_path / "1", evaluate)
    two = train(horovod_env, 2, tmp_path / "2", evaluate, "--horovod_device=cpu")
    assert two["ranks"] == 2 and two["batch_global"] == one["batch_global"] == 48
    (difference,) = horovod_env.evaluate(COMPARE, tmp_path / "1", tmp_path / "2")
    assert difference < 1e-4
    assert two["total_loss"] == pytest.approx(one["total_loss"], rel=1e-4)
    assert two["top_1_accuracy"] == one["top_1_accuracy"]
    (mine,), (theirs,) = one["evaluations"], two["evaluations"]
    assert mine["examples"] == theirs["examples"] == 360
    assert theirs["top_1_accuracy"] == pytest.approx(mine["top_1_accuracy"], abs=1 / 360 + 1e-9)


def test_where_horovod_exchanges(horovod_env: Environment) -> None:
    """Each gradient is exchanged once, on the device that --horovod_device names."""
    code = """
import json
import tensorflow as tf
from tf_cnn_benchmarks.workers import make_workers
found = []
for device in ("", "cpu", "gpu"):
    with tf.Graph().as_default() as graph, tf.device("/gpu:3"):
        pairs = [(tf.constant([1.0, 2.0]), "first"), (tf.constant([3.0]), "second")]
        workers = make_workers("horovod", horovod_device=device)
        means = workers.mean_gradients(pairs)
        found.append([[op.type, op.device] for op in graph.get_operations() if "Horovod" in op.type])
if workers.rank == 0:
    print(json.dumps(found))
"""
    run = horovod_env.ranks(2, "-c", code).ok()
    unset, on_cpu, on_gpu = json.loads(run.out.splitlines()[-1])
    assert unset == [["HorovodAllreduce", "/device:GPU:3"]] * 2
    assert on_cpu == [["HorovodAllreduce", "/device:CPU:0"]] * 2
    assert on_gpu == [["HorovodAllreduce", "/device:GPU:0"]] * 2
