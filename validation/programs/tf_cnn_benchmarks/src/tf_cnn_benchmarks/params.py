"""The flags: names, types, defaults, help and what they act on.

A field of `Params` is a flag that acts. One place says everything about it, so that the help text, the list
of valid flags in an error and the program cannot disagree. What users' job files hold beyond them is in
`flags_without_effect.py`; what values are wrong together, in `checks.py`.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from absl import flags

from tf_cnn_benchmarks.checks import check_together
from tf_cnn_benchmarks.choices import (
    CIFAR10_FILES,
    EVALUATIONS,
    JOBS,
    OPTIMIZERS,
    PROTOCOLS,
    RESIZE_METHODS,
    VARIABLE_UPDATES,
)
from tf_cnn_benchmarks.errors import BenchmarkError, unknown
from tf_cnn_benchmarks.flags_without_effect import ACCEPTED, REFUSED, notes_or_error
from tf_cnn_benchmarks.models import MODELS, find_model, model_names


def _flag(
    default: Any,
    text: str,
    *,
    choices: Sequence[str] = (),
    least: float | None = None,
    most: float | None = None,
    only: str = "",
) -> Any:
    """`only` names what the flag acts on, where that is not every run; see `notes.py`."""
    metadata = {"help": text, "choices": tuple(choices), "least": least, "most": most, "only": only}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Params:
    """The flags of one run, checked. `given` holds the names of those the user wrote."""

    model: str = _flag("trivial", "Model to run: " + ", ".join(model_names()) + ".")
    data_name: str = _flag(
        None,
        "Data set; digits are scikit-learn's 8x8 grey images. Unset: cifar10 where --data_dir holds its "
        "batches, "
        "else imagenet.",
        choices=tuple(MODELS),
    )
    data_dir: str | None = _flag(
        None, "Folder of real input: ImageNet TFRecord shards or CIFAR-10 batches. Without: synthetic images."
    )

    input_preprocessor: str = _flag(
        "default",
        "How ImageNet's images are prepared: default, or official_models_imagenet (resized to 256 pixels "
        "before "
        "the central crop, the channels' means subtracted and not scaled).",
        choices=("default", "official_models_imagenet"),
        only="imagenet files",
    )
    resize_method: str = _flag(
        "bilinear",
        "How images get the model's size. crop takes a part of that size and needs images at least as large; "
        "round_robin takes the four other methods in turns along the batch.",
        choices=RESIZE_METHODS,
        only="imagenet files",
    )
    distortions: bool = _flag(
        False,
        "Augment the training images: ImageNet's colours (crops and mirroring are always random there), "
        "CIFAR-10's position and mirroring.",
        only="augmented files",
    )
    distort_color_in_yiq: bool = _flag(
        True, "With --distortions: change hue and saturation in YIQ, not in HSV.", only="imagenet files"
    )
    fuse_decode_and_crop: bool = _flag(
        True, "Decode only that part of a JPEG which is kept.", only="imagenet files"
    )
    ml_perf: bool = _flag(
        False,
        "Subtract the channels' means from ImageNet's images instead of scaling them to -1 to 1.",
        only="imagenet files",
    )
    datasets_use_prefetch: bool = _flag(True, "Prepare batches ahead of the step.", only="input")
    datasets_prefetch_buffer_size: int = _flag(
        1, "Batches prepared ahead, for each device.", least=1, only="input"
    )
    datasets_num_private_threads: int | None = _flag(
        None,
        "Threads of the input alone; 0: TensorFlow's common ones; unset: as --num_intra_threads.",
        least=0,
        only="input",
    )
    datasets_use_caching: bool = _flag(
        False, "Keep the encoded images in memory after they were read once.", only="imagenet files"
    )
    datasets_repeat_cached_sample: bool = _flag(
        False, "Read one image and repeat it without end: input that costs no reading.", only="imagenet files"
    )
    datasets_parallel_interleave_cycle_length: int | None = _flag(
        None, "Files read at the same time; unset: up to 8.", least=1, only="imagenet files"
    )
    datasets_sloppy_parallel_interleave: bool = _flag(
        False, "Take images from whichever file has one ready, in no fixed order.", only="imagenet files"
    )
    datasets_parallel_interleave_prefetch: int | None = _flag(
        None, "Images read ahead from each file.", least=1, only="imagenet files"
    )
    batch_group_size: int = _flag(1, "Batches that the input makes at once.", least=1, only="input")
    batch_size: int = _flag(0, "Images per device and step; 0 takes the model's own.", least=0)

    eval_batch_size: int = _flag(0, "Images per device and step of an evaluation; 0: --batch_size.", least=0)
    num_batches: int | None = _flag(
        None,
        "Steps to time, warm-up not counted; 100 if unset. What --train_dir holds counts: an interrupted "
        "training, started again, ends at the same step.",
        least=1,
    )
    num_epochs: float | None = _flag(
        None,
        "As many steps as see the data this often, instead of --num_batches.",
        least=0,
    )
    num_warmup_batches: int | None = _flag(
        None, "Steps before timing starts; 10 if unset. They train like any other step.", least=0
    )
    display_every: int = _flag(10, "Print a line every that many steps.", least=1)

    display_perf_ewma: float | None = _flag(
        None,
        "Print an exponentially weighted moving average of the speed, to which the newest step contributes "
        "this share; unset: the mean of all steps.",
        least=0,
        most=1,
    )
    num_gpus: int = _flag(1, "Devices this process uses; with --device=cpu, virtual CPU devices.", least=1)

    gpu_indices: str = _flag(
        "", "Which devices these are, such as 0,1,3, in the order of a ring; unset: the first --num_gpus."
    )
    device: str = _flag(
        "gpu", "Device the model runs on. Left unset on a machine without GPUs: cpu.", choices=("cpu", "gpu")
    )
    local_parameter_device: str = _flag(
        "gpu", "Device of the variables with --variable_update=parameter_server.", choices=("cpu", "gpu")
    )
    data_format: str = _flag("NCHW", "Layout of images. CPUs run NHWC.", choices=("NCHW", "NHWC"))
    variable_update: str = _flag(
        "parameter_server",
        "How variables are shared: parameter_server (one copy, the devices' mean gradient), replicated (a "
        "copy on each device, gradients all-reduced between the devices of this process), independent (a "
        "copy on each device, nothing shared), ddl and horovod (one process per device). Over several "
        "processes of --job_name: parameter_server (variables on the parameter servers), "
        "distributed_replicated (there, and a copy on each device), collective_all_reduce (TensorFlow's "
        "collectives between the workers), distributed_all_reduce (a controller runs all workers).",
        choices=VARIABLE_UPDATES,
    )
    all_reduce_spec: str | None = _flag(
        None,
        "With --variable_update=replicated, and the two all_reduce ones: pscpu (mean on the CPU), "
        "psgpu (on the first GPU), xring (ring "
        "over the devices), each with #N to cut the data into N shards; 'pscpu:32k:xring' takes pscpu for "
        "tensors up to 32 KiB and xring above.",
    )

    job_name: str = _flag(
        "", "What this process of a cluster is: ps, worker or controller; unset: see TF_CONFIG.", choices=JOBS
    )
    ps_hosts: str = _flag("", "host:port of the parameter servers, separated by commas.")
    worker_hosts: str = _flag("", "host:port of the workers, separated by commas.")
    controller_host: str | None = _flag(None, "host:port of the controller of distributed_all_reduce.")
    task_index: int = _flag(0, "Which of the tasks of --job_name this process is.", least=0)
    server_protocol: str = _flag("grpc", "How TensorFlow's servers talk to each other: grpc.")
    cross_replica_sync: bool = _flag(
        True,
        "With parameter servers: one update for all workers' mean gradient. Otherwise each worker updates "
        "the variables by itself.",
        only="servers",
    )
    gradient_repacking: int = _flag(
        0,
        "Pack the gradients into that many equal parts for the exchange; 0: one.",
        least=0,
        only="replicated",
    )
    compact_gradient_transfer: bool = _flag(
        True, "With --use_fp16, exchange gradients as float16.", only="replicated"
    )
    agg_small_grads_max_bytes: int = _flag(
        0,
        "Pack only gradients of at most that many bytes together and exchange larger ones singly; 0: pack "
        "all.",
        least=0,
        only="replicated",
    )
    agg_small_grads_max_group: int = _flag(
        10, "Gradients in such a pack at most.", least=1, only="replicated"
    )
    horovod_device: str = _flag(
        "",
        "Device of Horovod's all-reduce; unset: where the gradients are.",
        choices=("", "cpu", "gpu"),
        only="horovod",
    )
    optimizer: str = _flag("sgd", "Optimizer.", choices=OPTIMIZERS)
    init_learning_rate: float | None = _flag(None, "Learning rate; unset takes the model's own.", least=0)
    piecewise_learning_rate_schedule: str | None = _flag(
        None, "LR0;E1;LR1;...;En;LRn: rate LR0 up to epoch E1, LR1 up to E2, and so on."
    )
    num_epochs_per_decay: float = _flag(
        0.0, "Multiply the rate by --learning_rate_decay_factor after each that many epochs.", least=0
    )
    learning_rate_decay_factor: float = _flag(0.0, "See --num_epochs_per_decay.", least=0)
    minimum_learning_rate: float = _flag(0.0, "The decayed rate never falls below this.", least=0)

    resnet_base_lr: float | None = _flag(
        None,
        "Learning rate, for a global batch of 256, of the own schedule of ImageNet's resnet50, resnet101 and "
        "resnet152.",
        least=0,
        only="resnet",
    )
    compute_lr_on_cpu: bool = _flag(False, "Compute the learning rate on the CPU.")
    num_learning_rate_warmup_epochs: float = _flag(
        0.0,
        "Raise a given rate, or the first of a piecewise schedule, linearly from 0 over that many epochs.",
        least=0,
    )
    momentum: float = _flag(0.9, "Nesterov's momentum of --optimizer=momentum.", least=0)
    rmsprop_decay: float = _flag(0.9, "Decay of --optimizer=rmsprop.", least=0)
    rmsprop_momentum: float = _flag(0.9, "Momentum of --optimizer=rmsprop.", least=0)
    rmsprop_epsilon: float = _flag(1.0, "Epsilon of --optimizer=rmsprop.", least=0)
    adam_beta1: float = _flag(0.9, "Beta 1 of --optimizer=adam.", least=0)
    adam_beta2: float = _flag(0.999, "Beta 2 of --optimizer=adam.", least=0)
    adam_epsilon: float = _flag(1e-8, "Epsilon of --optimizer=adam.", least=0)
    weight_decay: float = _flag(
        4e-5,
        "Factor of half the sum of all squared trainable variables, but those of batch normalisation.",
        least=0,
    )

    single_l2_loss_op: bool = _flag(
        False, "Compute the weight decay's loss of all variables as one vector, not one by one."
    )
    loss_type_to_report: str = _flag(
        "total_loss",
        "Loss of the step lines: with the weight decay's part (total_loss) or without (base_loss).",
        choices=("base_loss", "total_loss"),
    )
    gradient_clip: float | None = _flag(None, "Clip each element of the mean gradient to +-this.", least=0)
    use_fp16: bool = _flag(False, "Compute in float16; variables and their gradients stay float32.")
    fp16_loss_scale: float | None = _flag(
        None,
        "Factor of the loss with --use_fp16, divided out of the gradients; unset: the model's own.",
        least=0,
    )

    fp16_vars: bool = _flag(
        False, "With --use_fp16: weights, biases and their gradients are float16 too. Trains worse."
    )
    fp16_enable_auto_loss_scale: bool = _flag(
        False,
        "With --use_fp16: halve the factor when a gradient is not finite, and leave that step's gradients "
        "out; "
        "double it after --fp16_inc_loss_scale_every_n good steps.",
    )
    fp16_inc_loss_scale_every_n: int = _flag(1000, "See --fp16_enable_auto_loss_scale.", least=1)
    xla: bool = _flag(False, "Let XLA cluster the graph.")
    xla_compile: bool = _flag(False, "Compile each device's whole model with XLA.")

    enable_optimizations: bool = _flag(True, "Let TensorFlow optimise the graph.")
    rewriter_config: str | None = _flag(
        None, "Settings of TensorFlow's graph optimisers: the text of a RewriterConfig."
    )
    forward_only: bool = _flag(False, "Only the forward pass.")
    freeze_when_forward_only: bool = _flag(
        False, "With --forward_only: make the variables constants of the graph before it runs."
    )
    eval: bool = _flag(False, "Evaluate the newest checkpoint of --train_dir (or, without, fresh variables).")
    eval_interval_secs: int = _flag(
        0,
        "With --eval: look for a newer checkpoint after that many seconds, again and again until the run is "
        "ended; 0: evaluate once.",
        least=0,
    )
    eval_during_training_every_n_steps: int | None = _flag(
        None, "Evaluate each time that many steps have been trained after warm-up, and at the end.", least=1
    )
    eval_during_training_every_n_epochs: float | None = _flag(
        None, "Evaluate each time that many epochs have been trained, and at the end.", least=0
    )
    eval_during_training_at_specified_steps: tuple[int, ...] = _flag(
        (), "Evaluate after these steps, such as 100,500, counted after warm-up, and at the end."
    )
    eval_during_training_at_specified_epochs: tuple[float, ...] = _flag(
        (), "Evaluate after these epochs, such as 0.5,2, and at the end."
    )
    stop_at_top_1_accuracy: float | None = _flag(
        None, "End the training once an evaluation reaches this accuracy.", least=0, most=1
    )
    num_eval_batches: int | None = _flag(
        None,
        "Steps of an evaluation; unset: with --eval --num_batches, else real data once, synthetic 100 steps.",
        least=1,
    )
    num_eval_epochs: float | None = _flag(
        None, "How often an evaluation goes through its data, instead of --num_eval_batches.", least=0
    )
    eval_dir: str = _flag(
        "/tmp/tf_cnn_benchmarks/eval",
        "Folder for the accuracies of evaluations, for TensorBoard. Written where the flag is given.",
    )
    print_training_accuracy: bool = _flag(False, "Add top-1 and top-5 accuracy to the step lines.")
    num_intra_threads: int | None = _flag(
        None, "Threads inside an operation; 0 or unset: the cores this process may use.", least=0
    )
    num_inter_threads: int = _flag(0, "Operations at once; 0: the cores this process may use.", least=0)

    use_numa_affinity: bool = _flag(
        False, "Have TensorFlow make a CPU device for each NUMA node, where it is built for that."
    )
    gpu_thread_mode: str = _flag(
        "gpu_private",
        "Threads that start the GPUs' work: each GPU's own, shared by the GPUs, or TensorFlow's common ones.",
        choices=("gpu_private", "gpu_shared", "global"),
        only="gpu",
    )
    per_gpu_thread_count: int = _flag(0, "Number of these threads; 0: 2.", least=0, only="gpu")
    sync_on_finish: bool = _flag(False, "Wait for the devices at the end of each step.", only="gpu")
    allow_growth: bool | None = _flag(None, "Take GPU memory as needed instead of all at once.", only="gpu")
    gpu_memory_frac_for_testing: float = _flag(
        0.0, "Share of each GPU's memory that this process may take; 0: all.", least=0, most=1, only="gpu"
    )
    use_unified_memory: bool | None = _flag(
        None, "Take memory that GPU and CPU share, more than the GPU has if need be.", only="gpu"
    )
    timestamped_allocator: bool = _flag(
        False, "Let freed GPU memory be used again before the kernels that used it are done.", only="gpu"
    )
    gpu_kt_max_interval: int = _flag(
        0, "With --timestamped_allocator: kernels between two tracked ones at most.", least=0, only="gpu"
    )
    gpu_kt_max_bytes: int = _flag(
        0, "With --timestamped_allocator: bytes between two tracked kernels at most.", least=0, only="gpu"
    )
    gpu_kt_max_pending: int = _flag(
        0, "With --timestamped_allocator: tracked kernels not done at most.", least=0, only="gpu"
    )
    force_gpu_compatible: bool = _flag(False, "Pin all memory of CPU tensors for the GPUs.", only="gpu")
    tf_random_seed: int = _flag(1234, "Seed of variables, order of data and augmentation.")
    exchange_blocks: int = _flag(
        0,
        "After the timed steps, measure what the exchange of gradients costs: so many blocks of steps with "
        "it and as many without, in turns, each a step or a quarter of a second long. Prints the share of "
        "the speed without it that is kept. With ddl and horovod. These steps are in no checkpoint.",
        least=0,
    )
    train_dir: str | None = _flag(None, "Folder of checkpoints; an existing one is continued.")
    save_model_secs: int = _flag(0, "Seconds between checkpoints; 0: only at the end.", least=0)
    save_model_steps: int | None = _flag(None, "Steps between checkpoints, counted after warm-up.", least=1)
    max_ckpts_to_keep: int = _flag(5, "Older checkpoints are removed.", least=1)

    backbone_model_path: str | None = _flag(
        None,
        "Checkpoint (or folder of some) whose variables a new training starts from; the classifier and what "
        "has another shape start afresh.",
    )
    save_summaries_steps: int = _flag(
        0, "Steps between summaries for TensorBoard in --train_dir; 0: none.", least=0
    )
    summary_verbosity: int = _flag(
        0,
        "What they hold: 1 the loss and learning rate, 2 also histograms of gradients, 3 also of variables.",
        least=0,
        most=3,
    )
    trace_file: str = _flag("", "Write a trace of one step to this file.")
    use_chrome_trace_format: bool = _flag(
        True,
        "The trace is for chrome://tracing and Perfetto; otherwise the text of a StepStats protocol buffer.",
    )
    tfprof_file: str | None = _flag(
        None, "Write a profile of one step, a ProfileProto for tfprof, to this file."
    )
    graph_file: str | None = _flag(
        None, "Write the graph as it was built to this file, as text if the name ends in txt."
    )
    partitioned_graph_file_prefix: str | None = _flag(
        None,
        "Write the graphs that the devices run, optimised and divided, to files of this name, to which the "
        "device's is added; as text if the name ends in txt.",
    )
    benchmark_log_dir: str | None = _flag(
        None, "Folder for benchmark_run.log and metric.log, which describe the run and its speed as JSON."
    )
    benchmark_test_id: str | None = _flag(None, "A name of the run in these and in --result_json.")
    result_json: str | None = _flag(
        None, "Append the run's results to this file (-: standard output), one line of JSON a run."
    )
    present: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    @property
    def training(self) -> bool:
        return not (self.eval or self.forward_only)

    @property
    def evaluated(self) -> bool:
        """Whether evaluations interrupt the training."""
        return any(getattr(self, name) for name in EVALUATIONS)

    def changed(self, name: str) -> bool:
        """Whether the user gave the flag another value than its default."""
        value: Any = getattr(self, name)
        return name in self.present and value != default_of(name)


def flag_fields() -> dict[str, dataclasses.Field[Any]]:
    """The flags that act."""
    return {f.name: f for f in dataclasses.fields(Params) if f.name not in ("present", "notes")}


def default_of(name: str) -> Any:
    """The value of a flag that nobody gave."""
    return flag_fields()[name].default


def define_flags() -> flags.FlagValues:
    """All flags in a set of their own: absl's global one holds those of every imported library."""
    untyped: Any = flags.FlagValues
    values: flags.FlagValues = untyped()
    types = typing.get_type_hints(Params)
    define: dict[type, Any] = {
        bool: flags.DEFINE_boolean,
        int: flags.DEFINE_integer,
        float: flags.DEFINE_float,
        str: flags.DEFINE_string,
    }
    for name, spec in flag_fields().items():
        text = spec.metadata["help"]
        if spec.metadata["choices"] and name not in (
            "variable_update",
            "input_preprocessor",
            "horovod_device",
            "job_name",
        ):
            text += f" One of {', '.join(spec.metadata['choices'])}."
        if typing.get_origin(types[name]) is tuple:
            flags.DEFINE_list(name, [], text, flag_values=values)
            continue
        kinds = typing.get_args(types[name]) or (types[name],)
        kind = next(k for k in kinds if k is not type(None))
        define[kind](name, spec.default, text, flag_values=values)
    for name, unused in (ACCEPTED | REFUSED).items():
        define[unused.kind](name, unused.default, unused.reason, flag_values=values)
    flags.DEFINE_boolean("help", False, "Show this text.", short_name="h", flag_values=values)
    return values


def help_text() -> str:
    """All flags, one paragraph each, with their defaults."""
    title = "Trains an image-classification model and prints how many images a second it reaches."
    lines = [title, "", "Flags:"]
    defined = define_flags()
    for name in flag_fields():
        default = default_of(name)
        shown_default = "" if default in (None, "", ()) else f" [{default}]"
        lines += [f"  --{name}{shown_default}", f"      {defined[name].help}"]
    for title, unused in (
        ("Accepted flags that change nothing:", ACCEPTED),
        ("Flags that are refused:", REFUSED),
    ):
        lines += ["", title]
        for name, flag in unused.items():
            lines += [f"  --{name}", f"      {flag.reason[0].upper()}{flag.reason[1:]}."]
    return "\n".join(lines)


def parse(argv: Sequence[str]) -> Params | None:
    """The flags of `argv` (program name first), checked; None when help was asked for."""
    values = define_flags()
    names = [*flag_fields(), *ACCEPTED, *REFUSED]
    try:
        rest = values(list(argv))
    except flags.UnrecognizedFlagError as error:
        raise unknown("flag", error.flagname, names) from None
    except flags.Error as error:
        raise BenchmarkError(" ".join(str(error).split())) from None
    if values["help"].value:
        return None
    if len(rest) > 1:
        raise BenchmarkError(f"'{rest[1]}' is not a flag; flags are written --name=value, see --help")
    values_by_flag: dict[str, Any] = {name: _value(name, values[name].value) for name in flag_fields()}
    values_by_flag["data_name"] = values_by_flag["data_name"] or _guess_data(values_by_flag["data_dir"])
    present = frozenset(name for name in values_by_flag if values[name].present)
    notes = notes_or_error({name: values[name].value for name in (*ACCEPTED, *REFUSED)})
    params = Params(**values_by_flag, present=present, notes=tuple(notes))
    _check_each(params)
    check_together(params)
    return params


def _value(name: str, value: Any) -> Any:
    """Lists hold numbers, and names of devices may be written large."""
    kind = typing.get_type_hints(Params)[name]
    if typing.get_origin(kind) is tuple:
        number = typing.get_args(kind)[0]
        try:
            return tuple(number(part) for part in value)
        except ValueError:
            raise BenchmarkError(
                f"--{name}={','.join(value)} is not a list of numbers such as 2,5,9"
            ) from None
    return value.lower() if name in ("device", "local_parameter_device") else value


def _guess_data(folder: str | None) -> str:
    """The data set whose files are in the folder."""
    if folder is not None and any(path for pattern in CIFAR10_FILES for path in Path(folder).glob(pattern)):
        return "cifar10"
    return "imagenet"


def _check_each(params: Params) -> None:
    """What can be said of each value by itself."""
    if params.server_protocol not in PROTOCOLS:
        raise BenchmarkError(
            f"--server_protocol={params.server_protocol}: this TensorFlow has been built with grpc alone, "
            "without the transports over verbs, GPUDirect or MPI; use --variable_update=ddl over those"
        )
    find_model(params.model, params.data_name)
    for name, spec in flag_fields().items():
        value, metadata = getattr(params, name), spec.metadata
        if metadata["choices"] and value not in metadata["choices"]:
            raise unknown(f"value of --{name}", str(value), metadata["choices"])
        if metadata["least"] is not None and value is not None and not value >= metadata["least"]:
            raise BenchmarkError(f"--{name}={value} is too small: at least {metadata['least']}")
        if metadata["most"] is not None and value is not None and not value <= metadata["most"]:
            raise BenchmarkError(f"--{name}={value} is too large: at most {metadata['most']}")
