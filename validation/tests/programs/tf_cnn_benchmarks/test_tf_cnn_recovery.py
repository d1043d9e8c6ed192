"""Tasks with parameter servers that are killed, wait, come back, or do not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster_tasks import Tasks, newest_step, wait_until
from program_runner import Environment

pytestmark = pytest.mark.slow

MODEL = ["--data_name=digits", "--model=lenet", "--device=cpu", "--optimizer=momentum"]
STEPS = 60


@pytest.mark.long
def test_together_a_killed_worker_chief_and_server_change_nothing(
    tf_env: Environment, tmp_path: Path, weights: Callable[..., dict[str, Any]]
) -> None:
    """One after the other is killed, and started again. The others wait and say for whom; the variables are
    in the end those of an undisturbed run of one process. After the loss of a server, they come from a
    checkpoint."""
    flags = [*MODEL, "--init_learning_rate=0.005", "--num_warmup_batches=2", f"--num_batches={STEPS - 2}"]
    one, many = tmp_path / "one", tmp_path / "many"
    tf_env.benchmark(*flags, "--batch_size=32", f"--train_dir={one}").ok()
    flags += ["--batch_size=16", "--save_model_steps=5", f"--train_dir={many}", "--display_every=1"]
    settings = {"pause": 0.2, "NOTICE_S": 1.0}
    with Tasks(tf_env, tmp_path / "logs", flags, settings=settings, ps=2, worker=2) as tasks:

        def trained_on() -> None:
            """A checkpoint later than all so far."""
            last = newest_step(many)
            wait_until("a checkpoint", lambda: newest_step(many) > last or None)

        trained_on()
        tasks.kill("worker 1")
        tasks.says("worker 0", f"for worker 1 ({tasks.cluster['worker'][1]}) to make step")
        tasks.start("worker 1")
        trained_on()
        tasks.kill("worker 0")
        tasks.says("worker 1", f"for worker 0 ({tasks.cluster['worker'][0]}) to apply step")
        tasks.start("worker 0")
        trained_on()
        tasks.kill("ps 1")
        tasks.says("worker 0", f"worker 0 has lost ps 1 ({tasks.cluster['ps'][1]})")
        tasks.start("ps 1")
        tasks.all_end()
        out = tasks.output("worker 0")
    # After the restoring it may go on a second time: gRPC may still hold the broken connection.
    before, _, _ = out.partition("Restored ")
    resumed = re.findall(r"Going on at step (\d+) with the variables of the parameter servers", before)
    assert len(resumed) == 1 and int(resumed[0]) >= 10, out
    restored = re.findall(r"Restored .*model.ckpt-(\d+)", out)
    assert len(restored) == 1 and int(restored[0]) >= 15, out
    found, wanted = weights(many, STEPS), weights(one, STEPS)
    assert sorted(found) == sorted(wanted)
    for name, value in wanted.items():
        assert np.abs(np.asarray(found[name]) - np.asarray(value)).max() < 1e-4, name


@pytest.mark.long
def test_apart_the_others_go_on_without_a_killed_worker(tf_env: Environment, tmp_path: Path) -> None:
    """Worker 1 never comes back, worker 2 does. All updates are made; the servers end though worker 1 has not
    said that it is done."""
    result = tmp_path / "result.json"
    flags = [*MODEL, "--init_learning_rate=0.02", "--num_epochs=6", "--num_warmup_batches=2"]
    flags += ["--batch_size=16", "--nocross_replica_sync", "--save_model_steps=20", f"--train_dir={tmp_path}"]
    flags += ["--eval_during_training_every_n_epochs=6", f"--result_json={result}"]
    settings = {"pause": 0.05, "LAST_S": 3.0}
    with Tasks(tf_env, tmp_path / "logs", flags, settings=settings, ps=1, worker=3) as tasks:
        wait_until("a checkpoint", lambda: newest_step(tmp_path))
        tasks.kill("worker 1")
        tasks.kill("worker 2")
        last = newest_step(tmp_path)
        wait_until("a later checkpoint", lambda: newest_step(tmp_path) > last)
        tasks.start("worker 2")
        tasks.all_end(but=("worker 1",))
        tasks.says(
            "ps 0", f"ps 0 ends; worker 1 ({tasks.cluster['worker'][1]}) did not report that it is done"
        )
    found = json.loads(result.read_text())
    wanted = (2 + -(-6 * 1437 // 48)) * 3
    # Workers that were in their last step when that number was reached finish it.
    assert wanted <= found["global_step"] <= wanted + 2
    assert found["evaluations"][-1]["top_1_accuracy"] > 0.9


def test_without_a_checkpoint_a_lost_server_ends_the_training(tf_env: Environment, tmp_path: Path) -> None:
    """And a server that never comes is not waited for without end."""
    flags = [*MODEL, "--num_batches=100000", "--batch_size=4"]
    with Tasks(tf_env, tmp_path, flags, ps=1, worker=1) as tasks:
        tasks.says("worker 0", "Done warm up")
        tasks.kill("ps 0")
        assert tasks.ended("worker 0") == 1
        said = tasks.output("worker 0").splitlines()
        (line,) = [line for line in said if line.startswith("tf_cnn_benchmarks: error: ")]
        assert f"worker 0: ps 0 ({tasks.cluster['ps'][0]}) was lost" in line and "--train_dir" in line
        tasks._settings = {"LOST_S": 1.0}
        tasks.start("worker 0")
        assert tasks.ended("worker 0") == 1
        assert f"ps 0 ({tasks.cluster['ps'][0]}) did not start within 1 s" in tasks.output("worker 0")


def test_an_all_reduce_names_the_lost_worker(tf_env: Environment, tmp_path: Path) -> None:
    flags = [*MODEL, "--num_batches=100000", "--batch_size=4", "--variable_update=collective_all_reduce"]
    with Tasks(tf_env, tmp_path, flags, settings={"GONE_S": 2.0}, worker=2) as tasks:
        tasks.says("worker 0", "Done warm up")
        tasks.kill("worker 1")
        assert tasks.ended("worker 0") == 1, tasks.everything()
        lost = f"worker 0: worker 1 ({tasks.cluster['worker'][1]}) was lost"
        assert lost in tasks.output("worker 0"), tasks.everything()
