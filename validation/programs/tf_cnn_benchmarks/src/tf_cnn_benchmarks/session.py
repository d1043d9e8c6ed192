"""Devices and the TensorFlow session."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from google.protobuf import text_format

from tf_cnn_benchmarks.all_reduce_spec import stands_for_nccl
from tf_cnn_benchmarks.checks import parse_indices
from tf_cnn_benchmarks.cores import threads
from tf_cnn_benchmarks.errors import BenchmarkError
from tf_cnn_benchmarks.notes import notes as notes_of
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
    gpus = len(tf.config.list_physical_devices("GPU"))
    for name in ("device", "local_parameter_device", "horovod_device"):
        if name in params.present and getattr(params, name) == "gpu" and not gpus:
            raise BenchmarkError(f"--{name}=gpu: TensorFlow sees no GPU on this host; use --{name}=cpu")
    kind = params.device if gpus else "cpu"
    indices = parse_indices(params.gpu_indices, params.num_gpus)
    if kind == "gpu" and max(indices) >= gpus:
        which = (
            f"--gpu_indices={params.gpu_indices}" if params.gpu_indices else f"--num_gpus={params.num_gpus}"
        )
        raise BenchmarkError(f"{which}, but TensorFlow sees {gpus} GPU(s) on this host")
    notes = []
    data_format = params.data_format
    if kind == "cpu" and data_format == "NCHW":
        data_format = "NHWC"
        if "data_format" in params.present:
            notes.append("--data_format=NCHW is for GPUs; on the CPU the model runs as NHWC")
    notes += notes_of(params, device=kind)
    if params.all_reduce_spec and (instead := stands_for_nccl(params.all_reduce_spec)):
        notes.append(
            f"--all_reduce_spec={params.all_reduce_spec}: TensorFlow has no NCCL operators here; {instead} "
            "is taken instead"
        )
    parameter_kind = params.local_parameter_device if gpus else "cpu"
    return Machine(
        devices=[f"/{kind}:{i}" for i in indices],
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
        config.device_count["CPU"] = 1 + max(int(device.rpartition(":")[2]) for device in machine.devices)
        config.device_count["GPU"] = 0
    else:
        _set_gpu_options(config.gpu_options, params)
        # `import ddl` gives each rank its own GPU; Horovod leaves that to the program.
        if params.variable_update == "horovod" and len(tf.config.list_physical_devices("GPU")) > 1:
            device = os.environ.get("DDL_LOCAL_GPU") or str(workers.local_rank)  # ddlrun tells it
            config.gpu_options.visible_device_list = device
    config.experimental.use_numa_affinity = params.use_numa_affinity
    options = config.graph_options
    if params.xla:
        options.optimizer_options.global_jit_level = v1.OptimizerOptions.ON_1
    if not params.enable_optimizations:
        options.optimizer_options.opt_level = v1.OptimizerOptions.L0
        options.rewrite_options.disable_meta_optimizer = True
    if params.rewriter_config is not None:
        try:
            text_format.Merge(params.rewriter_config, options.rewrite_options)
        except text_format.ParseError as error:
            raise BenchmarkError(
                f"--rewriter_config is not a RewriterConfig in text format ({error}); write for example "
                "'constant_folding: OFF'"
            ) from None
    return config


def _set_gpu_options(options: Any, params: Params) -> None:
    """Memory of the GPUs."""
    if params.allow_growth is not None:
        options.allow_growth = params.allow_growth
    if params.gpu_memory_frac_for_testing:
        options.per_process_gpu_memory_fraction = params.gpu_memory_frac_for_testing
    options.force_gpu_compatible = params.force_gpu_compatible
    more = options.experimental
    if params.use_unified_memory is not None:
        more.use_unified_memory = params.use_unified_memory
    more.timestamped_allocator = params.timestamped_allocator
    more.kernel_tracker_max_interval = params.gpu_kt_max_interval
    more.kernel_tracker_max_bytes = params.gpu_kt_max_bytes
    more.kernel_tracker_max_pending = params.gpu_kt_max_pending
