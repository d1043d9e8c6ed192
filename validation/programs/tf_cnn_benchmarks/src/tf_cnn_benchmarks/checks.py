"""Flags that contradict each other, found before TensorFlow starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tf_cnn_benchmarks.all_reduce_spec import parse_spec
from tf_cnn_benchmarks.choices import EVALUATIONS, OPTIMIZERS, REPLICATED, WITH_RANKS
from tf_cnn_benchmarks.cluster.spec import cluster_of_flags
from tf_cnn_benchmarks.errors import BenchmarkError
from tf_cnn_benchmarks.piecewise import parse_piecewise

if TYPE_CHECKING:
    from tf_cnn_benchmarks.params import Params

OF_TRAINING = (
    "backbone_model_path",
    "exchange_blocks",
    "fp16_enable_auto_loss_scale",
    "gradient_clip",
    "print_training_accuracy",
    "save_model_secs",
    "save_model_steps",
    "save_summaries_steps",
    *EVALUATIONS,
)
LARGEST_INDEX = 1023


def check_together(params: Params) -> None:
    """BenchmarkError for flags that are right by themselves and wrong together."""
    _check_length(params)
    _check_devices(params)
    _check_mode(params)
    _check_evaluation(params)
    _check_float16(params)
    _check_learning_rate(params)
    _check_files(params)
    cluster_of_flags(params)
    if params.xla and params.xla_compile:
        raise BenchmarkError("--xla and --xla_compile both compile the graph; give one of them")
    if params.data_name == "digits" and params.data_dir:
        raise BenchmarkError("--data_name=digits comes with scikit-learn; leave --data_dir out")
    for optimizer in OPTIMIZERS:
        for name in sorted(params.present):
            belongs = name == optimizer or name.startswith(optimizer + "_")
            if belongs and params.changed(name) and optimizer != params.optimizer:
                raise BenchmarkError(f"--{name} needs --optimizer={optimizer}, not {params.optimizer}")


def parse_indices(text: str, count: int) -> list[int]:
    """The device numbers of --gpu_indices; the first `count` where it is empty."""
    if not text:
        return list(range(count))
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) <= LARGEST_INDEX for part in parts):
        raise BenchmarkError(f"--gpu_indices={text} is not a list of device numbers such as 0,1,3")
    indices = [int(part) for part in parts]
    if len(set(indices)) != len(indices) or len(indices) != count:
        raise BenchmarkError(
            f"--gpu_indices={text} must name as many different devices as --num_gpus={count} says"
        )
    return indices


def _check_length(params: Params) -> None:
    if params.num_batches is not None and params.num_epochs is not None:
        raise BenchmarkError("--num_batches and --num_epochs both say how long to train; give one of them")
    if params.num_epochs == 0:
        raise BenchmarkError("--num_epochs=0.0 trains nothing; give more than 0")
    if params.eval and params.num_epochs is not None:
        raise BenchmarkError("--num_epochs belongs to training; --eval passes over real data once")


def _check_devices(params: Params) -> None:
    parse_indices(params.gpu_indices, params.num_gpus)
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
        if params.variable_update not in REPLICATED:
            raise BenchmarkError(
                "--all_reduce_spec chooses how --variable_update=replicated combines gradients inside a "
                f"process; {params.variable_update} has no such choice"
                + (" here (see DDL_OPTIONS=-mode)" if params.variable_update == "ddl" else "")
            )
        parse_spec(params.all_reduce_spec)


def _check_mode(params: Params) -> None:
    if params.eval and params.forward_only:
        raise BenchmarkError("--eval and --forward_only exclude each other; give one of them")
    if params.freeze_when_forward_only and not params.forward_only:
        raise BenchmarkError(
            "--freeze_when_forward_only needs --forward_only; training changes the variables"
        )
    if params.eval:
        for name in ("trace_file", "tfprof_file", "partitioned_graph_file_prefix"):
            if getattr(params, name):
                raise BenchmarkError(f"--{name} records a warm-up step, which --eval does not have")
    if not params.training:
        for name in OF_TRAINING:
            if params.changed(name):
                mode = "eval" if params.eval else "forward_only"
                raise BenchmarkError(f"--{name} belongs to training and has no meaning with --{mode}")


def _check_evaluation(params: Params) -> None:
    rules = [name for name in EVALUATIONS if getattr(params, name)]
    if len(rules) > 1:
        raise BenchmarkError(f"--{rules[0]} and --{rules[1]} both say when to evaluate; give one of them")
    if params.eval_during_training_every_n_epochs == 0:
        raise BenchmarkError(
            "--eval_during_training_every_n_epochs=0.0 is not a valid interval; give more than 0"
        )
    for name in EVALUATIONS[2:]:
        if any(not value > 0 for value in getattr(params, name)):
            raise BenchmarkError(f"--{name}: training has begun after step or epoch 0; give more than 0")
    if params.stop_at_top_1_accuracy is not None and not params.evaluated:
        raise BenchmarkError(
            "--stop_at_top_1_accuracy needs evaluations: give --eval_during_training_every_n_steps or "
            "another "
            "of the --eval_during_training flags"
        )
    for name in ("num_eval_batches", "num_eval_epochs", "eval_batch_size"):
        if params.changed(name) and not (params.eval or params.evaluated):
            raise BenchmarkError(f"--{name} needs --eval or one of the --eval_during_training flags")
    if params.num_eval_batches is not None and params.num_eval_epochs is not None:
        raise BenchmarkError("--num_eval_batches and --num_eval_epochs both say how much; give one of them")
    if params.num_eval_epochs == 0:
        raise BenchmarkError("--num_eval_epochs=0.0 evaluates nothing; give more than 0")
    if params.eval_interval_secs and not params.eval:
        raise BenchmarkError("--eval_interval_secs needs --eval; see --eval_during_training_every_n_steps")
    if params.eval_interval_secs and params.train_dir is None:
        raise BenchmarkError("--eval_interval_secs needs --train_dir, the folder where checkpoints appear")


def _check_float16(params: Params) -> None:
    for name in ("fp16_loss_scale", "fp16_vars", "fp16_enable_auto_loss_scale"):
        if params.changed(name) and not params.use_fp16:
            raise BenchmarkError(f"--{name} needs --use_fp16")
    if params.fp16_loss_scale == 0:
        raise BenchmarkError("--fp16_loss_scale=0.0 would remove the gradients; give a positive factor")
    if params.changed("fp16_inc_loss_scale_every_n") and not params.fp16_enable_auto_loss_scale:
        raise BenchmarkError("--fp16_inc_loss_scale_every_n needs --fp16_enable_auto_loss_scale")


def _check_learning_rate(params: Params) -> None:
    others = (
        "init_learning_rate",
        "num_epochs_per_decay",
        "learning_rate_decay_factor",
        "minimum_learning_rate",
    )
    if params.piecewise_learning_rate_schedule is not None:
        for name in (*others, "resnet_base_lr"):
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
    elif params.resnet_base_lr is not None:
        raise BenchmarkError(
            "--resnet_base_lr is for the model's own schedule, which --init_learning_rate replaces; give one"
        )
    if params.minimum_learning_rate and not params.num_epochs_per_decay:
        raise BenchmarkError("--minimum_learning_rate needs --num_epochs_per_decay")


def _check_files(params: Params) -> None:
    if params.train_dir is None:
        for name in ("save_model_secs", "save_model_steps", "max_ckpts_to_keep"):
            if params.changed(name):
                raise BenchmarkError(f"--{name} needs --train_dir, the folder for the checkpoints")
        if params.save_summaries_steps and params.summary_verbosity:
            raise BenchmarkError("--save_summaries_steps needs --train_dir, the folder for the summaries")
    if params.save_model_secs and params.save_model_steps:
        raise BenchmarkError("--save_model_secs and --save_model_steps exclude each other; give one of them")
    if params.training and bool(params.save_summaries_steps) != bool(params.summary_verbosity):
        raise BenchmarkError(
            "--save_summaries_steps (how often) and --summary_verbosity (what) go together; give both"
        )
