"""Devices and the TensorFlow session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tf_cnn_benchmarks.cores import threads
from tf_cnn_benchmarks.errors import BenchmarkError
from tf_cnn_benchmarks.params import Params
from tf_cnn_benchmarks.workers import Workers

v1 = tf.compat.v1


@dataclass(frozen=True)
class Machine:
    """What the model runs on. `notes` tells the user where a default could not be kept."""

    devices: list[str]
    parameter_device: str
    data_format: str
    intra_threads: int
    inter_threads: int
    notes: list[str]


def find_machine(params: Params, workers: Workers) -> Machine:
    """Devices, layout and threads for these flags; BenchmarkError when a device the user asked
    for is missing."""
    notes: list[str] = []
    gpus = len(tf.config.list_physical_devices("GPU"))
    for name in ("device", "local_parameter_device"):
        if name in params.given and getattr(params, name) == "gpu" and not gpus:
            raise BenchmarkError(f"--{name}=gpu: TensorFlow sees no GPU on this host; use --{name}=cpu")
    kind = params.device if gpus else "cpu"
    if kind == "gpu" and params.num_gpus > gpus:
        raise BenchmarkError(f"--num_gpus={params.num_gpus}, but TensorFlow sees {gpus} GPU(s) on this host")
    data_format = params.data_format
    if kind == "cpu" and data_format == "NCHW":
        data_format = "NHWC"
        if "data_format" in params.given:
            notes.append("--data_format=NCHW is for GPUs; on the CPU the model runs as NHWC")
    if kind == "cpu" and params.allow_growth is not None:
        notes.append("--allow_growth concerns GPU memory; it has no effect with --device=cpu")
    parameter_kind = params.local_parameter_device if gpus else "cpu"
    return Machine(
        devices=[f"/{kind}:{i}" for i in range(params.num_gpus)],
        parameter_device=f"/{parameter_kind}:0",
        data_format=data_format,
        intra_threads=threads(params.num_intra_threads, workers.local_size),
        inter_threads=threads(params.num_inter_threads, workers.local_size),
        notes=notes,
    )


def session_config(params: Params, machine: Machine, workers: Workers) -> Any:
    """The ConfigProto."""
    config = v1.ConfigProto(
        intra_op_parallelism_threads=machine.intra_threads,
        inter_op_parallelism_threads=machine.inter_threads,
        allow_soft_placement=True,
    )
    if machine.devices[0].startswith("/cpu"):
        config.device_count["CPU"] = len(machine.devices)
        config.device_count["GPU"] = 0
    else:
        if params.allow_growth is not None:
            config.gpu_options.allow_growth = params.allow_growth
        # `import ddl` gives each rank its own GPU; Horovod leaves that to the program.
        if params.variable_update == "horovod" and len(tf.config.list_physical_devices("GPU")) > 1:
            config.gpu_options.visible_device_list = str(workers.local_rank)
    if params.xla:
        config.graph_options.optimizer_options.global_jit_level = v1.OptimizerOptions.ON_1
    return config
