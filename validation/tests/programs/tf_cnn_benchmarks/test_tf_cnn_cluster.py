"""Training over processes of TensorFlow's servers: each way computes what one process does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster_tasks import Tasks
from program_runner import Environment

COMMON = [
    "--data_name=digits", "--model=lenet", "--num_batches=8", "--num_warmup_batches=2", "--device=cpu",
    "--optimizer=momentum", "--init_learning_rate=0.05", "--print_training_accuracy",
]  # fmt: skip
STEPS = 10


@pytest.fixture(scope="module")
def reference(
    tf_env: Environment, tmp_path_factory: pytest.TempPathFactory, weights: Callable[..., dict[str, Any]]
) -> tuple[Path, dict[str, Any]]:
    """The folder of a run of one process with the whole batch, and its variables."""
    folder = tmp_path_factory.mktemp("reference")
    flags = [*COMMON, "--batch_size=32", f"--train_dir={folder}", f"--result_json={folder / 'result.json'}"]
    tf_env.benchmark(*flags).ok()
    return folder, weights(folder, STEPS)


MODES: dict[str, dict[str, Any]] = {
    "parameter_server": {"ps": 2, "worker": 2},
    "distributed_replicated": {"ps": 1, "worker": 2, "tf_config": True},
    "collective_all_reduce": {"chief": 1, "worker": 1, "tf_config": True},
    "distributed_all_reduce": {"controller": 1, "worker": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_processes_equal_one_with_the_whole_batch(
    tf_env: Environment,
    reference: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    weights: Callable[..., dict[str, Any]],
    mode: str,
) -> None:
    """Variables, slots and step count of ten steps with momentum, under equal names; loss and accuracy; the
    lines of the one task that prints. All tasks end by themselves."""
    result = tmp_path / "result.json"
    flags = [*COMMON, "--batch_size=16", f"--variable_update={mode}"]
    flags += [f"--train_dir={tmp_path}", f"--result_json={result}"]
    with Tasks(tf_env, tmp_path, flags, **MODES[mode]) as tasks:
        tasks.all_end()
        printing = {"collective_all_reduce": "chief 0", "distributed_all_reduce": "controller 0"}
        leader = printing.get(mode, "worker 0")
        out = (tmp_path / f"{leader}.out").read_text()
        others = [task for task in tasks._running if task != leader]
        assert not any((tmp_path / f"{task}.out").read_text() for task in others), "only one task prints"
    assert "Sync:        True\n" in out
    assert f"SingleSess:  {mode == 'distributed_all_reduce'}\n" in out
    assert ("AllReduce:   None\n" in out) == mode.endswith("all_reduce")
    assert f"Variables:   {mode}\n" in out and "Batch size:  32 global\n             16 per device\n" in out
    found = weights(tmp_path, STEPS)
    folder, wanted = reference
    assert sorted(found) == sorted(wanted)
    for name, value in wanted.items():
        assert np.abs(np.asarray(found[name]) - np.asarray(value)).max() < 1e-4, name
    one, many = (json.loads((folder / "result.json").read_text()) for folder in (folder, tmp_path))
    assert many["total_loss"] == pytest.approx(one["total_loss"], rel=1e-4)
    assert many["top_1_accuracy"] == one["top_1_accuracy"]
    total = float(out.rpartition("total images/sec: ")[2].split()[0])
    assert total == pytest.approx(8 * 32 / many["elapsed_seconds"], abs=0.006)


LOOP = """
import json, sys, time
from types import SimpleNamespace
from tf_cnn_benchmarks.cluster.served_loop import ServedLoop
from tf_cnn_benchmarks.cluster.served_steps import Job, Progress
from tf_cnn_benchmarks.params import parse
from tf_cnn_benchmarks.training_loop import Between

found = {}
for sync in (True, False):
    class Stepper:
        def step(self, done, recorder, summarised):
            return Progress(done + 1, 8, [0.0, 1.0, 1.0, 1.0], None)
    def evaluate(step):
        time.sleep(5)
        return {"top_1_accuracy": 0.5}
    params = parse(["x", f"--cross_replica_sync={sync}"])
    between = Between(None, None, None, None, evaluate, SimpleNamespace(due=lambda step: step == 4))
    loop = ServedLoop(params, lambda *lines: None, between, 16, 16, None)
    found[str(sync)] = loop.lead(None, Stepper(), 0, Job(1, 2, 8), again=False)
print(json.dumps(found))
"""


def test_the_time_of_an_evaluation_counts_where_others_train_on(tf_env: Environment) -> None:
    """Else the steps that the others have made meanwhile would make the speed too high."""
    found = tf_env.evaluate(LOOP)
    assert found["True"]["elapsed_seconds"] < 5 <= found["False"]["elapsed_seconds"]
    for one in found.values():
        assert one["images_per_sec"] == pytest.approx(6 * 16 / one["elapsed_seconds"])


READS = """
import json
import tensorflow as tf
from tf_cnn_benchmarks.cluster.placement import Placement
from tf_cnn_benchmarks.cluster.served_variables import ServedVariables
from tf_cnn_benchmarks.models import find_model
from tf_cnn_benchmarks.params import parse
from tf_cnn_benchmarks.towers import build_tower

v1 = tf.compat.v1
params = parse(["x", "--weight_decay=0.1"])
found = {}
for copied in (False, True):
    with tf.Graph().as_default() as graph:
        devices = [f"/job:worker/task:1/cpu:{number}" for number in (0, 1)]
        with tf.device(devices[0]):
            images, labels = tf.zeros([4, 32, 32, 1]), tf.zeros([4], tf.int32)
        variables = ServedVariables(Placement(2), devices, copied=copied)
        towers = variables.build(lambda _: build_tower(
            params, find_model("lenet", "digits"), images, labels, classes=10, data_format="NHWC",
            training=True))
        refreshed = variables.refresh()
        gradients = [gradient for gradient, _ in variables.mean_pairs(towers)]
        # TensorFlow puts a read that has no device of its own where the variable is.
        place = lambda operator: operator.device or operator.inputs[0].device
        on = lambda operator: tf.DeviceSpec.from_string(place(operator)).job
        todo = [tensor.op for tensor in [*gradients, *(tower.loss for tower in towers)]] + refreshed
        seen, crossing = set(), set()
        while todo:
            operator = todo.pop()
            if operator in seen:
                continue
            seen.add(operator)
            todo += [*(tensor.op for tensor in operator.inputs), *operator.control_inputs]
            crossing |= {t.ref() for t in operator.inputs if on(t.op) == "ps" != on(operator)}
        size = lambda tensor: tensor.shape.num_elements()
        found[str(copied)] = [sum(size(ref.deref()) for ref in crossing),
                              sum(size(variable) for variable in v1.trainable_variables())]
print(json.dumps(found))
"""


def test_a_step_fetches_each_variable_once(tf_env: Environment) -> None:
    """The forward pass, the weight decay and the reported loss of two devices need it: one copy crosses the
    network."""
    found = tf_env.evaluate(READS)
    for fetched, held in found.values():
        assert fetched == held > 10_000, found


WRONG = [
    (["--job_name=worker"], "--ps_hosts and --worker_hosts"),
    (["--ps_hosts=a:1", "--worker_hosts=b:1"], "--job_name"),
    (["--task_index=1"], "--job_name"),
    (["--job_name=worker", "--worker_hosts=a:1,b:1"], "needs --ps_hosts"),
    (["--job_name=ps", "--ps_hosts=a:1"], "needs --worker_hosts"),
    (["--job_name=controller", "--ps_hosts=a:1", "--worker_hosts=b:1"], "no such task"),
    (["--job_name=worker", "--ps_hosts=a:1", "--worker_hosts=b:1", "--task_index=1"], "0 to 0"),
    (["--job_name=worker", "--ps_hosts=a:1", "--worker_hosts=a:1"], "to two tasks"),
    (["--job_name=worker", "--ps_hosts=a", "--worker_hosts=b:1"], "'a' is not a host:port"),
    (["--job_name=worker", "--ps_hosts=a:1", "--worker_hosts=b:99999"], "'b:99999' is not a host:port"),
    (["--job_name=worker", "--ps_hosts=a:1", "--worker_hosts=b:1", "--variable_update=ddl"], "no use for"),
    (["--job_name=worker", "--ps_hosts=a:1", "--worker_hosts=b:1", "--variable_update=replicated"], "no use"),
    (
        ["--job_name=worker", "--ps_hosts=a:1", "--worker_hosts=b:1",
         "--variable_update=collective_all_reduce"],
        "has no --ps_hosts",
    ),
    (["--job_name=worker", "--worker_hosts=b:1", "--variable_update=distributed_all_reduce"],
     "needs --controller_host"),
    (
        ["--job_name=worker", "--worker_hosts=b:1,c:1", "--variable_update=collective_all_reduce",
         "--nocross_replica_sync"],
        "--variable_update=parameter_server",
    ),
    (["--job_name=worker", "--ps_hosts=a:1", "--worker_hosts=b:1", "--eval"], "in one process"),
    (["--job_name=worker", "--ps_hosts=a:1", "--worker_hosts=b:1", "--forward_only"], "in one process"),
    (["--job_name=boss"], "controller, ps, worker"),
    (["--server_protocol=grpc+verbs"], "grpc alone"),
]  # fmt: skip
CONFIGS = [
    ("nonsense", "parameter_server", "TF_CONFIG is not"),
    ('{"cluster": {"worker": ["a:1", "b:1"]}}', "parameter_server", "ddlrun -ps 1"),
    ('{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"index": 2}}', "collective_all_reduce", "0 to 1"),
    ('{"cluster": {"worker": ["a:1", "b:1"]}}', "distributed_all_reduce", "ddlrun -tf-config chief"),
    ('{"cluster": {"worker": ["a:1", "b"]}}', "collective_all_reduce", "'b' is not a host:port"),
    ('{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}}', "replicated", "no use for"),
    ("", "distributed_replicated", "ddlrun -ps 1 -np 2"),
]
FIND = """
import json, sys
from tf_cnn_benchmarks.cluster.spec import find_cluster
from tf_cnn_benchmarks.errors import BenchmarkError
from tf_cnn_benchmarks.params import parse
found = []
for flags, config in json.loads(sys.argv[1]):
    try:
        cluster = find_cluster(parse(["x", *flags]), {"TF_CONFIG": config})
        found.append(cluster and [cluster.task, cluster.address, cluster.leads, cluster.jobs])
    except BenchmarkError as error:
        found.append(str(error))
print(json.dumps(found))
"""


def test_clusters_that_cannot_be_are_said(env: Environment) -> None:
    """Flags, then TF_CONFIG; each in one line that names the remedy."""
    cases = [(flags, "") for flags, _ in WRONG]
    cases += [([f"--variable_update={kind}"], config) for config, kind, _ in CONFIGS]
    says = [text for _, text in WRONG] + [text for *_, text in CONFIGS]
    for case, text, found in zip(cases, says, env.evaluate(FIND, json.dumps(cases)), strict=True):
        assert isinstance(found, str) and text in found and "\n" not in found, (case, found)
    assert "0 to 0" in env.benchmark(*WRONG[6][0]).error()


def test_tf_config_names_the_cluster(env: Environment) -> None:
    """A chief is worker 0, or the controller; one worker alone is no cluster; flags come first; ranks of a
    launcher have no use for it."""
    both = '{"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]%s}, "task": {"type": "%s", "index": %d}}'
    served = ', "ps": ["d:1"]'
    flags = ["--job_name=ps", "--ps_hosts=p:1", "--worker_hosts=w:1"]
    cases: list[tuple[list[str], str]] = [
        ([], both % (served, "worker", 1)),
        ([], both % (served, "chief", 0)),
        ([], both % (served, "ps", 0)),
        (["--variable_update=distributed_all_reduce"], both % ("", "chief", 0)),
        (["--variable_update=distributed_all_reduce"], both % ("", "worker", 0)),
        (["--variable_update=collective_all_reduce"], both % ("", "worker", 0)),
        ([], '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}'),
        (flags, both % ("", "worker", 0)),
        (["--variable_update=ddl"], both % ("", "worker", 0)),
        ([], ""),
    ]
    found = env.evaluate(FIND, json.dumps(cases))
    workers = {"ps": ["d:1"], "worker": ["a:1", "b:1", "c:1"]}
    controlled = {"worker": ["b:1", "c:1"], "controller": ["a:1"]}
    assert found == [
        ["worker 2", "c:1", False, workers],
        ["worker 0", "a:1", True, workers],
        ["ps 0", "d:1", False, workers],
        ["controller", "a:1", True, controlled],
        ["worker 0", "b:1", False, controlled],
        ["worker 1", "b:1", False, {"worker": ["a:1", "b:1", "c:1"]}],
        None,
        ["ps 0", "p:1", False, {"ps": ["p:1"], "worker": ["w:1"]}],
        None,
        None,
    ]
