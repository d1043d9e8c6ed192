"""The networks of tf_cnn_benchmarks that the validation trains, how much of them, and the command for it."""

from __future__ import annotations

import re

_CIFAR10_MODEL = re.compile(r"resnet(20|32|44|56|110)(_v2)?|densenet\d+_k\d+")
#: Images a rank and step that train in reasonable time on one core; a GPU's user gives his own.
CPU_BATCH = {"trivial": 32, "lenet": 32, "resnet20": 32, "alexnet": 16, "resnet50": 4, "vgg16": 2}
_OTHER_BATCH = 4
#: What programs train on; --device of tf_cnn_benchmarks.
DEVICES = ("cpu", "gpu")


def data_of(model: str) -> str:
    """The data that a model is made for."""
    return "cifar10" if _CIFAR10_MODEL.fullmatch(model) else "imagenet"


def cpu_batch(model: str) -> int:
    """Images a rank and step, on one core."""
    return CPU_BATCH.get(model, _OTHER_BATCH)


def program_words(
    model: str, data: str, batch: int, steps: int, warmup: int, device: str, variable_update: str
) -> list[str]:
    """The words after `python`. batch: images a rank and step; steps and warmup: numbers of steps."""
    return [
        *("-m", "tf_cnn_benchmarks"),
        f"--model={model}",
        f"--data_name={data}",
        f"--batch_size={batch}",
        f"--num_batches={steps}",
        f"--num_warmup_batches={warmup}",
        f"--device={device}",
        f"--variable_update={variable_update}",
    ]
