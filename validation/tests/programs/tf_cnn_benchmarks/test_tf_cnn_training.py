"""What a training step computes, against numpy in float64, and what training achieves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from program_runner import Environment

STEPS = """
import json, sys
from pathlib import Path
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from tf_cnn_benchmarks.cli import main

folder = Path(sys.argv[1])
digits = load_digits()
chosen = np.arange(len(digits.target)) % 5 != 0
x = digits.images[chosen].reshape(-1, 64) / 8.0 - 1.0
y = np.eye(10)[digits.target[chosen]]
n = len(x)

def gradients(w, b, decay):
    z = x @ w + b
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    return x.T @ (p - y) / n + decay * w, (p - y).sum(0) / n + decay * b

def loss(w, b, decay):
    z = x @ w + b
    z = z - z.max(1, keepdims=True)
    data = (np.log(np.exp(z).sum(1)) - (z * y).sum(1)).mean()
    return data + decay * ((w ** 2).sum() + (b ** 2).sum()) / 2

def sgd(state, v, g, t, rate): return v - rate * g
def momentum(state, v, g, t, rate):
    state["m"] = 0.8 * state.get("m", 0) + g
    return v - rate * (g + 0.8 * state["m"])  # Nesterov's
def rmsprop(state, v, g, t, rate):
    state["s"] = 0.95 * state.get("s", 1.0) + 0.05 * g * g
    state["m"] = 0.7 * state.get("m", 0) + rate * g / np.sqrt(state["s"] + 0.5)
    return v - state["m"]
def adam(state, v, g, t, rate):
    state["m"] = 0.9 * state.get("m", 0) + 0.1 * g
    state["s"] = 0.999 * state.get("s", 0) + 0.001 * g * g
    size = rate * np.sqrt(1 - 0.999 ** t) / (1 - 0.9 ** t)
    return v - size * state["m"] / (np.sqrt(state["s"]) + 1e-8)

cases = {
    "sgd": (sgd, ["--init_learning_rate=0.5", "--weight_decay=0.01"], [0.5] * 4, 0.01, None),
    "clipped": (sgd, ["--init_learning_rate=0.5", "--gradient_clip=0.02"], [0.5] * 4, 4e-5, 0.02),
    "momentum": (momentum, ["--optimizer=momentum", "--momentum=0.8", "--init_learning_rate=0.2"], [0.2] * 4,
                 4e-5, None),
    "rmsprop": (rmsprop, ["--optimizer=rmsprop", "--rmsprop_decay=0.95", "--rmsprop_momentum=0.7",
                "--rmsprop_epsilon=0.5", "--init_learning_rate=0.1"], [0.1] * 4, 4e-5, None),
    "adam": (adam, ["--optimizer=adam", "--init_learning_rate=0.01"], [0.01] * 4, 4e-5, None),
    "piecewise": (sgd, ["--piecewise_learning_rate_schedule=0.5;1;0.25;3;0.125"], [0.5, 0.25, 0.25, 0.125],
                  4e-5, None),
    "decay": (sgd, ["--init_learning_rate=0.4", "--num_epochs_per_decay=1",
              "--learning_rate_decay_factor=0.5", "--minimum_learning_rate=0.15"],
              [0.4, 0.2, 0.15, 0.15], 4e-5, None),
    "warmup": (sgd, ["--init_learning_rate=0.4", "--num_learning_rate_warmup_epochs=4"], [0, 0.1, 0.2, 0.3],
               4e-5, None),
    "warmup in pieces": (sgd, ["--piecewise_learning_rate_schedule=0.4;3;0.1",
                         "--num_learning_rate_warmup_epochs=2"], [0, 0.2, 0.4, 0.1], 4e-5, None),
    "fp16": (sgd, ["--init_learning_rate=0.5", "--use_fp16", "--fp16_loss_scale=64"], [0.5] * 4, 4e-5, None),
}
errors = {}
for name, (rule, flags, rates, decay, clip) in cases.items():
    here = folder / name
    result = folder / f"{name}.json"
    code = main(["x", "--data_name=digits", f"--batch_size={n}", "--num_warmup_batches=0", "--num_batches=4",
                 "--save_model_steps=1", f"--train_dir={here}", f"--result_json={result}", *flags])
    assert code == 0, name
    # Before the first step the weights are those of a run that learns nothing.
    still = folder / (name + "-still")
    assert main(["x", "--data_name=digits", f"--batch_size={n}", "--num_warmup_batches=0", "--num_batches=1",
                 f"--train_dir={still}", "--init_learning_rate=0"]) == 0
    def load(path):
        read = tf.train.load_checkpoint(str(path))
        return [read.get_tensor(f"v/cg/affine0/{v}").astype(np.float64) for v in ("weights", "biases")]
    w, b = load(still / "model.ckpt-1")
    states = {}, {}
    worst = 0.0
    for step in range(1, 5):
        before = loss(w, b, decay)
        g = gradients(w, b, decay)
        if clip is not None:
            g = [np.clip(part, -clip, clip) for part in g]
        w, b = (rule(state, v, d, step, rates[step - 1]) for state, v, d in zip(states, (w, b), g))
        for mine, theirs in zip((w, b), load(here / f"model.ckpt-{step}")):
            worst = max(worst, np.abs(mine - theirs).max())
    errors[name] = [worst, abs(before - json.loads(result.read_text())["total_loss"])]
print(json.dumps(errors))
"""


def test_steps_against_numpy(tf_env: Environment, tmp_path: Path) -> None:
    """Softmax regression on all digits at once, four steps of each optimizer and learning-rate schedule:
    weights after each step, and the loss printed for the last."""
    errors: dict[str, Any] = tf_env.evaluate(STEPS, tmp_path, timeout=240)
    for name, (weights, loss) in errors.items():
        limit = 3e-3 if name == "fp16" else 2e-5
        assert weights < limit, (name, weights)
        assert loss < limit, (name, loss)


@pytest.mark.parametrize(
    ("model", "batch", "epochs"),
    [pytest.param("trivial", 479, 120, marks=pytest.mark.long), ("lenet", 32, 15)],
)
def test_digits_are_learned(tf_env: Environment, tmp_path: Path, model: str, batch: int, epochs: int) -> None:
    code = """
import json, sys
from tf_cnn_benchmarks.cli import main
model, folder, batch, epochs = sys.argv[1:]
common = ["x", "--data_name=digits", f"--model={model}", f"--train_dir={folder}",
          f"--result_json={folder}.json",
          f"--batch_size={batch}"]
assert main([*common, f"--num_epochs={epochs}", "--init_learning_rate=0.1"]) == 0
assert main([*common, "--eval"]) == 0
print(json.dumps([json.loads(line) for line in open(folder + ".json")]))
"""
    trained, evaluated = tf_env.evaluate(code, model, tmp_path / "run", str(batch), str(epochs))
    assert trained["top_1_accuracy"] >= 0.95
    assert trained["global_step"] == 10 + -(-epochs * 1437 // batch), "the warm-up comes before the epochs"
    assert evaluated["examples"] == 360
    assert evaluated["top_1_accuracy"] >= (0.96 if model == "lenet" else 0.93)
    assert evaluated["top_5_accuracy"] >= 0.99


# Batches of 64 in epochs of 6400 images: rates after so many steps, without a flag.
OWN_RATES = {
    ("imagenet", "resnet50"): {
        0: 0, 250: 0.016, 500: 0.032, 3000: 0.032, 3001: 3.2e-3, 6001: 3.2e-4, 8001: 3.2e-5, 9001: 3.2e-6
    },
    ("imagenet", "official_resnet50"): {0: 0.025, 3000: 0.025, 3001: 2.5e-3, 9001: 2.5e-6},
    ("cifar10", "resnet20"): {0: 0.1, 8200: 0.1, 8201: 0.01, 12301: 0.001, 30001: 0.0002},
    ("cifar10", "densenet40_k12"): {0: 0.1, 15001: 0.01, 22501: 0.001, 30001: 0.0001},
    ("cifar10", "alexnet"): {9999: 0.1, 10000: 0.01, 20000: 0.001},
    **{("imagenet", name): {0: 0.005, 9001: 0.005} for name in ("alexnet", "vgg11", "lenet", "inception3")},
}  # fmt: skip
RATES = """
import json, sys
import tensorflow as tf
from tf_cnn_benchmarks.models import find_model
from tf_cnn_benchmarks.params import parse
from tf_cnn_benchmarks.schedule import learning_rate
v1 = tf.compat.v1
found = []
for data, name, flag, steps in json.loads(sys.argv[1]):
    params = parse(["x", f"--data_name={data}", f"--model={name}", *flag])
    with tf.Graph().as_default(), v1.Session() as session:
        step = v1.placeholder(tf.int64, [])
        rate = learning_rate(params, find_model(name, data), step, 64, 6400)
        found.append([float(session.run(rate, {step: number})) for number in steps])
print(json.dumps(found))
"""


def test_rates_that_no_flag_names(tf_env: Environment) -> None:
    """Those of the benchmark that users know; --resnet_base_lr is for the batch of 256 of the ResNets for
    ImageNet, as it is there, and for no other model."""
    base = "--resnet_base_lr=0.5"
    cases: list[tuple[str, str, list[str], dict[int, float]]] = [
        *((data, name, [], rates) for (data, name), rates in OWN_RATES.items()),
        ("imagenet", "resnet50", [base], {500: 0.125, 3001: 0.0125}),
        ("imagenet", "official_resnet50", [base], {0: 0.025}),
        ("cifar10", "resnet20", [base], {0: 0.1}),
    ]
    asked = [[data, name, flag, list(rates)] for data, name, flag, rates in cases]
    for case, found in zip(cases, tf_env.evaluate(RATES, json.dumps(asked)), strict=True):
        assert found == pytest.approx(list(case[3].values()), rel=1e-4), case
