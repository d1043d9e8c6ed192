"""The flags: names, types, defaults, help and the checks that need no TensorFlow.

A field of `Params` is a flag. One place says everything about it, so that the help text, the list of valid
flags in an error and the program cannot disagree.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from absl import flags

from tf_cnn_benchmarks.all_reduce_spec import parse_spec
from tf_cnn_benchmarks.errors import BenchmarkError, unknown
from tf_cnn_benchmarks.models import MODELS, find_model, model_names

OPTIMIZERS = ("momentum", "sgd", "rmsprop", "adam")
VARIABLE_UPDATES = ("parameter_server", "replicated", "independent", "ddl", "horovod")
WITH_RANKS = ("ddl", "horovod")
WITHOUT_SUPPORT = {
    "distributed_replicated": "parameter servers across processes are not provided",
    "distributed_all_reduce": "the gRPC all-reduce across processes is not provided",
    "collective_all_reduce": "the gRPC collectives across processes are not provided",
}


def _flag(default: Any, text: str, *, choices: Sequence[str] = (), least: float | None = None) -> Any:
    return field(default=default, metadata={"help": text, "choices": tuple(choices), "least": least})


@dataclass(frozen=True)
class Params:
    """The flags of one run, checked. `given` holds the names of those the user wrote."""

    model: str = _flag("trivial", "Model to run: " + ", ".join(model_names()) + ".")
    data_name: str = _flag(
        "imagenet", "Data set; digits are scikit-learn's 8x8 grey images.", choices=tuple(MODELS)
    )
    data_dir: str | None = _flag(
        None, "Folder of real input: ImageNet TFRecord shards or CIFAR-10 batches. Without: synthetic images."
    )
    batch_size: int = _flag(0, "Images per device and step; 0 takes the model's own.", least=0)
    num_batches: int | None = _flag(None, "Steps to time, warm-up not counted; 100 if unset.", least=1)
    num_epochs: float | None = _flag(
        None,
        "Train until the data has been seen this often; warm-up and what --train_dir holds count.",
        least=0,
    )
    num_warmup_batches: int | None = _flag(
        None, "Steps before timing starts; 10 if unset. They train like any other step.", least=0
    )
    display_every: int = _flag(10, "Print a line every that many steps.", least=1)
    num_gpus: int = _flag(1, "Devices this process uses; with --device=cpu, virtual CPU devices.", least=1)
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
        "copy on each device, nothing shared), ddl and horovod (one process per device).",
        choices=VARIABLE_UPDATES,
    )
    all_reduce_spec: str | None = _flag(
        None,
        "With --variable_update=replicated: pscpu (mean on the CPU), psgpu (on the first GPU), xring (ring "
        "over the devices), each with #N to cut the data into N shards; 'pscpu:32k:xring' takes pscpu for "
        "tensors up to 32 KiB and xring above.",
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
    num_learning_rate_warmup_epochs: float = _flag(
        0.0, "Raise the rate linearly from 0 over that many epochs.", least=0
    )
    momentum: float = _flag(0.9, "Momentum of --optimizer=momentum.", least=0)
    rmsprop_decay: float = _flag(0.9, "Decay of --optimizer=rmsprop.", least=0)
    rmsprop_momentum: float = _flag(0.9, "Momentum of --optimizer=rmsprop.", least=0)
    rmsprop_epsilon: float = _flag(1.0, "Epsilon of --optimizer=rmsprop.", least=0)
    adam_beta1: float = _flag(0.9, "Beta 1 of --optimizer=adam.", least=0)
    adam_beta2: float = _flag(0.999, "Beta 2 of --optimizer=adam.", least=0)
    adam_epsilon: float = _flag(1e-8, "Epsilon of --optimizer=adam.", least=0)
    weight_decay: float = _flag(4e-5, "Factor of half the sum of all squared trainable variables.", least=0)
    gradient_clip: float | None = _flag(None, "Clip each element of the mean gradient to +-this.", least=0)
    use_fp16: bool = _flag(False, "Compute in float16; variables and their gradients stay float32.")
    fp16_loss_scale: float | None = _flag(
        None,
        "Factor of the loss with --use_fp16, divided out of the gradients; unset: the model's own.",
        least=0,
    )
    xla: bool = _flag(False, "Let XLA cluster the graph.")
    xla_compile: bool = _flag(False, "Compile each device's whole model with XLA.")
    forward_only: bool = _flag(False, "Only the forward pass.")
    eval: bool = _flag(False, "Evaluate the newest checkpoint of --train_dir (or, without, fresh variables).")
    num_eval_batches: int | None = _flag(
        None, "Steps of --eval; unset: real data once, synthetic --num_batches.", least=1
    )
    print_training_accuracy: bool = _flag(False, "Add top-1 and top-5 accuracy to the step lines.")
    num_intra_threads: int | None = _flag(
        None, "Threads inside an operation; 0 or unset: the cores this process may use.", least=0
    )
    num_inter_threads: int = _flag(0, "Operations at once; 0: the cores this process may use.", least=0)
    allow_growth: bool | None = _flag(None, "Take GPU memory as needed instead of all at once.")
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
    save_model_steps: int | None = _flag(None, "Steps between checkpoints.", least=1)
    max_ckpts_to_keep: int = _flag(5, "Older checkpoints are removed.", least=1)
    trace_file: str | None = _flag(None, "Write a Chrome trace of one step to this file.")
    result_json: str | None = _flag(None, "Append the run's results to this file, one line of JSON a run.")
    job_name: str | None = _flag(None, "Not provided: parameter servers across processes.")
    ps_hosts: str | None = _flag(None, "Not provided: parameter servers across processes.")
    worker_hosts: str | None = _flag(None, "Not provided: parameter servers across processes.")
    task_index: int | None = _flag(None, "Not provided: parameter servers across processes.")
    given: frozenset[str] = frozenset()

    @property
    def training(self) -> bool:
        return not (self.eval or self.forward_only)


def _fields() -> dict[str, dataclasses.Field[Any]]:
    return {f.name: f for f in dataclasses.fields(Params) if f.name != "given"}


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
    for name, spec in _fields().items():
        kinds = typing.get_args(types[name]) or (types[name],)
        kind = next(k for k in kinds if k is not type(None))
        text = spec.metadata["help"]
        if spec.metadata["choices"] and name != "variable_update":
            text += f" One of {', '.join(spec.metadata['choices'])}."
        define[kind](name, spec.default, text, flag_values=values)
    flags.DEFINE_boolean("help", False, "Show this text.", short_name="h", flag_values=values)
    return values


def help_text() -> str:
    """All flags, one paragraph each, with their defaults."""
    title = "Trains an image-classification model and prints how many images a second it reaches."
    lines = [title, "", "Flags:"]
    for name, spec in _fields().items():
        default = "" if spec.default is None else f" [{spec.default}]"
        lines += [f"  --{name}{default}", f"      {define_flags()[name].help}"]
    return "\n".join(lines)


def parse(argv: Sequence[str]) -> Params | None:
    """The flags of `argv` (program name first), checked; None when help was asked for."""
    values = define_flags()
    try:
        rest = values(list(argv))
    except flags.UnrecognizedFlagError as error:
        raise unknown("flag", error.flagname, _fields()) from None
    except flags.Error as error:
        raise BenchmarkError(" ".join(str(error).split())) from None
    if values["help"].value:
        return None
    if len(rest) > 1:
        raise BenchmarkError(f"'{rest[1]}' is not a flag; flags are written --name=value, see --help")
    given = {name for name in _fields() if values[name].present}
    found: dict[str, Any] = {name: values[name].value for name in _fields()}
    params = Params(**found, given=frozenset(given))
    check(params)
    return params


def check(params: Params) -> None:
    """Everything that can be refused before TensorFlow starts."""
    for name in ("job_name", "ps_hosts", "worker_hosts", "task_index"):
        if getattr(params, name) is not None:
            raise BenchmarkError(
                f"--{name}: parameter servers across processes are not provided; start one process per "
                "device with `ddlrun -H host1,host2 tf_cnn_benchmarks --variable_update=ddl ...`"
            )
    if reason := WITHOUT_SUPPORT.get(params.variable_update):
        raise BenchmarkError(
            f"--variable_update={params.variable_update}: {reason}; use --variable_update=ddl under ddlrun"
        )
    for name, spec in _fields().items():
        value, choices, least = getattr(params, name), spec.metadata["choices"], spec.metadata["least"]
        if choices and value not in choices:
            raise unknown(f"value of --{name}", str(value), choices)
        if least is not None and value is not None and not value >= least:
            raise BenchmarkError(f"--{name}={value} is too small: at least {least}")
    find_model(params.model, params.data_name)
    _check_together(params)


def _check_together(params: Params) -> None:
    if params.num_batches is not None and params.num_epochs is not None:
        raise BenchmarkError("--num_batches and --num_epochs both say how long to train; give one of them")
    if params.num_epochs == 0:
        raise BenchmarkError("--num_epochs=0.0 trains nothing; give more than 0")
    if params.eval and params.forward_only:
        raise BenchmarkError("--eval and --forward_only exclude each other; give one of them")
    if params.eval and params.num_epochs is not None:
        raise BenchmarkError("--num_epochs belongs to training; --eval passes over real data once")
    if params.xla and params.xla_compile:
        raise BenchmarkError("--xla and --xla_compile both compile the graph; give one of them")
    if params.data_name == "digits" and params.data_dir:
        raise BenchmarkError("--data_name=digits comes with scikit-learn; leave --data_dir out")
    if params.variable_update in WITH_RANKS and params.num_gpus != 1:
        raise BenchmarkError(
            f"--variable_update={params.variable_update} runs one process per device: leave --num_gpus at 1 "
            f"and start {params.num_gpus} ranks, for example `ddlrun -H localhost:{params.num_gpus} ...`"
        )
    if params.exchange_blocks and params.variable_update not in WITH_RANKS:
        raise BenchmarkError(
            f"--exchange_blocks measures the exchange between ranks, which {params.variable_update} has not; "
            "start ranks by ddlrun with --variable_update=ddl"
        )
    if params.all_reduce_spec is not None:
        if params.variable_update != "replicated":
            raise BenchmarkError(
                "--all_reduce_spec chooses how --variable_update=replicated combines gradients inside a "
                f"process; {params.variable_update} has no such choice"
                + (" here (see DDL_OPTIONS=-mode)" if params.variable_update == "ddl" else "")
            )
        parse_spec(params.all_reduce_spec)
    if params.fp16_loss_scale is not None and not params.use_fp16:
        raise BenchmarkError("--fp16_loss_scale needs --use_fp16")
    if params.fp16_loss_scale == 0:
        raise BenchmarkError("--fp16_loss_scale=0.0 would remove the gradients; give a positive factor")
    _check_learning_rate(params)
    if params.train_dir is None:
        for name in ("save_model_secs", "save_model_steps", "max_ckpts_to_keep"):
            if name in params.given and getattr(params, name):
                raise BenchmarkError(f"--{name} needs --train_dir, the folder for the checkpoints")
    if params.save_model_secs and params.save_model_steps:
        raise BenchmarkError("--save_model_secs and --save_model_steps exclude each other; give one of them")
    if not params.training:
        of_training = ("save_model_secs", "save_model_steps", "print_training_accuracy", "gradient_clip")
        for name in (*of_training, "exchange_blocks"):
            if name in params.given and getattr(params, name):
                mode = "eval" if params.eval else "forward_only"
                raise BenchmarkError(f"--{name} belongs to training and has no meaning with --{mode}")
    if params.num_eval_batches is not None and not params.eval:
        raise BenchmarkError("--num_eval_batches needs --eval")
    for optimizer in OPTIMIZERS:
        for name in sorted(params.given):
            if (name == optimizer or name.startswith(optimizer + "_")) and optimizer != params.optimizer:
                raise BenchmarkError(f"--{name} needs --optimizer={optimizer}, not {params.optimizer}")


def _check_learning_rate(params: Params) -> None:
    if params.piecewise_learning_rate_schedule is not None:
        for name in (
            "init_learning_rate",
            "num_epochs_per_decay",
            "learning_rate_decay_factor",
            "minimum_learning_rate",
            "num_learning_rate_warmup_epochs",
        ):
            if getattr(params, name):
                raise BenchmarkError(f"--{name} and --piecewise_learning_rate_schedule exclude each other")
        parse_piecewise(params.piecewise_learning_rate_schedule)
        return
    decay = ("num_epochs_per_decay", "learning_rate_decay_factor")
    if any(getattr(params, name) for name in decay) and not all(getattr(params, name) for name in decay):
        raise BenchmarkError("--num_epochs_per_decay and --learning_rate_decay_factor go together; give both")
    if params.init_learning_rate is None:
        for name in (*decay, "minimum_learning_rate", "num_learning_rate_warmup_epochs"):
            if getattr(params, name):
                raise BenchmarkError(f"--{name} needs --init_learning_rate, the rate it starts from")
    if params.minimum_learning_rate and not params.num_epochs_per_decay:
        raise BenchmarkError("--minimum_learning_rate needs --num_epochs_per_decay")


def parse_piecewise(text: str) -> tuple[list[float], list[float]]:
    """Rates (n + 1) and the epochs (n, rising) between them, of 'LR0;E1;LR1;...;En;LRn'."""
    try:
        numbers = [float(part) for part in text.split(";")]
    except ValueError:
        numbers = []
    rates, epochs = numbers[0::2], numbers[1::2]
    if len(numbers) % 2 == 0 or any(b <= a for a, b in zip([0.0, *epochs], epochs, strict=False)):
        raise BenchmarkError(
            f"--piecewise_learning_rate_schedule='{text}' is not LR0;E1;LR1;...;En;LRn with rising epochs, "
            "such as 0.3;10;0.2;25;0.1"
        )
    return rates, epochs
