"""Evaluations: of checkpoints, again and again, and between the steps of a training."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from program_runner import Environment

DIGITS = ["--data_name=digits", "--model=resnet20", "--batch_size=32", "--num_warmup_batches=2"]
ACCURACY = re.compile(r"Accuracy @ 1 = (\S+) Accuracy @ 5 = (\S+) \[(\d+) examples\]")

RUN = """
import glob, json, sys
import tensorflow as tf
from tf_cnn_benchmarks.cli import main
found = []
for flags in json.loads(sys.argv[1]):
    assert main(["x", *flags, f"--result_json={sys.argv[2]}/r.json"]) == 0
    events = []
    for folder in [flag.partition("=")[2] for flag in flags if flag.startswith("--eval_dir")]:
        for path in glob.glob(folder + "/events*"):
            events += [[e.step, v.tag, v.simple_value]
                       for e in tf.compat.v1.train.summary_iterator(path) for v in e.summary.value]
    found.append([json.loads(open(f"{sys.argv[2]}/r.json").read().splitlines()[-1]), events])
print(json.dumps(found))
"""


def run(env: Environment, folder: Path, *runs: list[str]) -> list[Any]:
    """[results, scalars of --eval_dir] of each."""
    return list(env.evaluate(RUN, json.dumps(runs), folder, timeout=240))


def test_an_evaluation_during_training_is_that_of_the_checkpoint(tf_env: Environment, tmp_path: Path) -> None:
    """With batch normalisation, on two devices: the accuracy five steps after the warm-up, and after the last
    one, is what --eval finds in the checkpoint of that step. The training itself is not disturbed."""
    train = [*DIGITS, "--num_batches=10", "--save_model_steps=5", "--optimizer=momentum", "--num_gpus=2",
             "--variable_update=replicated", "--device=cpu", "--init_learning_rate=0.05"]  # fmt: skip
    first, plain = tmp_path / "first", tmp_path / "plain"
    trained, alone = run(
        tf_env,
        tmp_path,
        [*train, f"--train_dir={first}", "--eval_during_training_every_n_steps=5", "--eval_batch_size=60",
         f"--eval_dir={tmp_path / 'events'}"],
        [*train, f"--train_dir={plain}"],
    )  # fmt: skip
    found = trained[0]["evaluations"]
    assert [one["global_step"] for one in found] == [7, 12]
    assert [(one["examples"], one["steps"]) for one in found] == [(360, 3)] * 2
    assert trained[0]["total_loss"] == pytest.approx(alone[0]["total_loss"], rel=1e-4)
    assert trained[1] == [
        [one["global_step"], f"eval/Accuracy@{k}", pytest.approx(one[f"top_{k}_accuracy"])]
        for one in found
        for k in (1, 5)
    ]
    (first / "checkpoint").unlink()
    for step, one in zip((7, 12), found, strict=True):
        (first / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-{step}"\n')
        # With one device and another batch.
        ((evaluated, _),) = run(tf_env, tmp_path, [*DIGITS[:2], "--eval", f"--train_dir={first}"])
        assert evaluated["top_1_accuracy"] == pytest.approx(one["top_1_accuracy"], abs=1 / 360 + 1e-9)
        assert evaluated["top_5_accuracy"] == pytest.approx(one["top_5_accuracy"], abs=1 / 360 + 1e-9)


def test_when_evaluations_are_due(tf_env: Environment) -> None:
    code = """
import json
from tf_cnn_benchmarks.evaluation import EvaluationTimes
from tf_cnn_benchmarks.params import parse
def due(flag, steps_of_epoch, warmup=0):
    times = EvaluationTimes(parse(["x", "--eval_during_training_" + flag]), steps_of_epoch, warmup)
    return [step for step in range(1, 31) if times.due(step)]
print(json.dumps([due("every_n_steps=7", 10), due("every_n_epochs=0.5", 9), due("every_n_epochs=0.3", 10),
                  due("at_specified_steps=3,1,29", 10), due("at_specified_epochs=0.25,2", 10),
                  due("every_n_steps=7", 10, 10)]))
"""
    assert tf_env.evaluate(code) == [
        [7, 14, 21, 28],
        [5, 9, 14, 18, 23, 27],
        [3, 6, 9, 12, 15, 18, 21, 24, 27, 30],
        [1, 3, 29],
        [3, 20],
        [17, 24],
    ]


def test_stop_at_top_1_accuracy(tf_env: Environment, tmp_path: Path) -> None:
    """The training ends with the first evaluation that is good enough, and not with one that is not."""
    result = tmp_path / "r.json"
    lenet = ["--data_name=digits", "--model=lenet", "--num_epochs=20", f"--train_dir={tmp_path / 'run'}"]
    (trained,) = tf_env.benchmarks(
        [*lenet, "--eval_during_training_every_n_epochs=1", "--stop_at_top_1_accuracy=0.9",
         f"--result_json={result}"],
    )  # fmt: skip
    shown = [float(match[1]) for match in ACCURACY.finditer(trained.ok().out)]
    assert shown[-1] >= 0.9 and all(accuracy < 0.9 for accuracy in shown[:-1])
    found = json.loads(result.read_text())
    assert found["global_step"] == found["evaluations"][-1]["global_step"] < 909
    assert found["steps"] + found["warmup_steps"] == found["global_step"]
    assert "Stopping, as eval accuracy at least 0.9 was reached\n" in trained.out
    assert (tmp_path / "run" / f"model.ckpt-{found['global_step']}.index").exists()


def test_how_much_is_evaluated(tf_env: Environment, tmp_path: Path) -> None:
    """Of 360 images, in batches of 100: parts of an epoch are whole batches from the first image on."""
    trained = ["--data_name=digits", "--num_batches=2", f"--train_dir={tmp_path}"]
    flags = ["--data_name=digits", "--eval", f"--train_dir={tmp_path}", "--eval_batch_size=100"]
    amounts = [[], ["--num_eval_batches=2"], ["--num_eval_epochs=0.5"], ["--num_eval_epochs=1.25"]]
    amounts.append(["--num_batches=3"])
    _, *found = tf_env.benchmarks(trained, *([*flags, *amount] for amount in amounts))
    shown = [(ACCURACY.search(one.ok().out), re.search(r"Num batches: (\d+)", one.out)) for one in found]
    assert [int(accuracy[3]) for accuracy, _ in shown if accuracy] == [360, 200, 200, 460, 300]
    assert [int(batches[1]) for _, batches in shown if batches] == [4, 2, 2, 5, 3]
    assert all("Batch size:  100 global\n" in one.out for one in found)


AGAIN = """
import json, sys
from tf_cnn_benchmarks import benchmark
from tf_cnn_benchmarks.cli import main
folder = sys.argv[1]
slept = []

class Ended(Exception):
    pass

def train(batches):
    assert main(["x", "--data_name=digits", f"--num_batches={batches}", "--num_warmup_batches=0",
                 f"--train_dir={folder}"]) == 0

def sleep(seconds):
    # What another job does meanwhile.
    slept.append(seconds)
    if len(slept) in (2, 3):
        train({2: 2, 3: 5}[len(slept)])
    if len(slept) == 5:
        raise Ended

benchmark.time.sleep = sleep
try:
    main(["x", "--data_name=digits", "--eval", "--eval_interval_secs=7", f"--train_dir={folder}"])
except Ended:
    print("ended")
print(json.dumps(slept))
"""


def test_each_checkpoint_that_appears_is_evaluated_once(tf_env: Environment, tmp_path: Path) -> None:
    """None at first, then one after 2 steps, then one after 5, then no other."""
    done = tf_env.python("-c", AGAIN, tmp_path / "run").ok()
    assert json.loads(done.out.splitlines()[-1]) == [7] * 5
    told = [
        line
        for line in done.out.splitlines()
        if line.startswith(("Checkpoint", "Restored", "Success", "Accuracy"))
    ]
    kinds = [re.sub(r" .*ckpt-| .*", " ", line).strip(" .") for line in told]
    first = ["Checkpoint", "Successfully 2", "Accuracy"]
    second = ["Checkpoint", "Restored 2", "Successfully 5", "Accuracy"]
    assert kinds == [*first, *second, "Checkpoint"]
