"""tf_cnn_benchmarks' flags: names, defaults, what a wrong one is told. Nothing waits for TensorFlow."""

from __future__ import annotations

import tomllib

import pytest
from program_runner import PACKAGE, ROOT, Environment

DEFAULTS = {
    "model": "trivial",
    "batch_size": 0,
    "num_gpus": 1,
    "display_every": 10,
    "device": "gpu",
    "local_parameter_device": "gpu",
    "data_format": "NCHW",
    "data_dir": None,
    "data_name": "imagenet",
    "variable_update": "parameter_server",
    "all_reduce_spec": None,
    "optimizer": "sgd",
    "init_learning_rate": None,
    "momentum": 0.9,
    "weight_decay": 4e-5,
    "gradient_clip": None,
    "use_fp16": False,
    "fp16_loss_scale": None,
    "xla": False,
    "xla_compile": False,
    "forward_only": False,
    "eval": False,
    "print_training_accuracy": False,
    "num_inter_threads": 0,
    "tf_random_seed": 1234,
    "train_dir": None,
    "save_model_secs": 0,
    "trace_file": "",
}
BATCHES = {"resnet50": 64, "trivial": 32, "alexnet": 512, "vgg11": 64, "vgg16": 64, "vgg19": 64}


def test_defaults_are_those_users_know(env: Environment) -> None:
    code = """
import json, sys
from tf_cnn_benchmarks.cli import main
from tf_cnn_benchmarks.params import parse
from tf_cnn_benchmarks.models import find_model
params = vars(parse(["tf_cnn_benchmarks"])) | {"present": None, "notes": None}
batches = {name: find_model(name, "imagenet").batch_size for name in sys.argv[1:]}
print(json.dumps([params, batches, "tensorflow" in sys.modules]))
"""
    params, batches, tensorflow = env.evaluate(code, *BATCHES)
    assert {name: params[name] for name in DEFAULTS} == DEFAULTS
    assert batches == BATCHES
    assert not tensorflow


def test_boolean_and_negative_forms(env: Environment) -> None:
    code = """
import json
from tf_cnn_benchmarks.params import parse
line = "x --use_fp16 --noxla --xla_compile=true --eval=false --allow_growth --tf_random_seed -3 -model lenet"
params = parse(line.split())
names = ("use_fp16", "xla", "xla_compile", "eval", "allow_growth", "tf_random_seed", "model")
print(json.dumps([[getattr(params, n) for n in names], sorted(params.present)]))
"""
    values, given = env.evaluate(code)
    assert values == [True, False, True, False, True, -3, "lenet"]
    assert given == sorted(
        ["use_fp16", "xla", "xla_compile", "eval", "allow_growth", "tf_random_seed", "model"]
    )


def test_unknown_flag_names_the_nearest_and_all(env: Environment) -> None:
    message = env.benchmark("--bath_size=3").error()
    assert "'bath_size'" in message and "Did you mean batch_size?" in message
    assert all(name in message for name in DEFAULTS)


def test_unknown_model_names_the_nearest_and_all(env: Environment) -> None:
    message = env.benchmark("--model=resnet5O").error()
    assert "Did you mean resnet50?" in message
    for name in (
        "trivial",
        "lenet",
        "alexnet",
        "vgg11",
        "vgg16",
        "vgg19",
        "resnet101",
        "resnet152",
        "inception3",
    ):
        assert name in message
    assert "resnet110" not in message
    assert "resnet110" in env.benchmark("--model=nothing", "--data_name=cifar10").error()


WRONG = [
    (["--model=resnet20"], "cifar10 and digits"),
    (["--model=vgg16", "--data_name=digits"], "lenet, resnet20, trivial"),
    (["--data_name=mnist"], "cifar10, digits, imagenet"),
    (["--variable_update=ring"], "ddl, distributed_all_reduce, distributed_replicated, horovod"),
    (["--variable_update=distributed_replicated"], "ddlrun -ps"),
    (["--variable_update=distributed_all_reduce"], "ddlrun -tf-config chief"),
    (["--controller_host=a:1"], "--job_name"),
    (["--trt_mode=FP16"], "--freeze_when_forward_only"),
    (["--debugger=cli"], "--trace_file"),
    (["--optimizer=sdg"], "Did you mean sgd?"),
    (["--batch_size=many"], "batch_size"),
    (["--batch_size=-1"], "at least 0"),
    (["--num_batches=0"], "at least 1"),
    (["--gradient_clip=nan"], "too small"),
    (["--xla=maybe"], "xla"),
    (["--num_batches=5", "--num_epochs=1"], "one of them"),
    (["--num_epochs=0"], "more than 0"),
    (["--eval", "--forward_only"], "exclude"),
    (["--xla", "--xla_compile"], "both"),
    (["--variable_update=ddl", "--num_gpus=2"], "one process per device"),
    (["--exchange_blocks=4"], "--variable_update=ddl"),
    (["--exchange_blocks=-1", "--variable_update=ddl"], "at least 0"),
    (["--exchange_blocks=4", "--variable_update=ddl", "--forward_only"], "training"),
    (["--all_reduce_spec=xring"], "replicated"),
    (["--all_reduce_spec=xring", "--variable_update=ddl"], "DDL_OPTIONS"),
    (["--all_reduce_spec=nccl/xring", "--variable_update=replicated"], "several hosts"),
    (["--all_reduce_spec=nccl#x", "--variable_update=replicated"], "'#x'"),
    (["--all_reduce_spec=rings", "--variable_update=replicated"], "pscpu, psgpu, xring"),
    (["--all_reduce_spec=pscpu:32k", "--variable_update=replicated"], "ends in a limit"),
    (["--all_reduce_spec=pscpu:8k:xring:4k:xring", "--variable_update=replicated"], "must rise"),
    (["--all_reduce_spec=pscpu#0", "--variable_update=replicated"], "'#0'"),
    (["--all_reduce_spec=pscpu:big:xring", "--variable_update=replicated"], "'big'"),
    (["--piecewise_learning_rate_schedule=0.1;10"], "LR0;E1;LR1"),
    (["--piecewise_learning_rate_schedule=0.1;10;0.2;5;0.3"], "rising"),
    (["--piecewise_learning_rate_schedule=0.1;5;0.2", "--init_learning_rate=1"], "exclude"),
    (["--num_epochs_per_decay=2", "--init_learning_rate=1"], "both"),
    (["--num_learning_rate_warmup_epochs=2"], "--init_learning_rate"),
    (["--fp16_loss_scale=8"], "--use_fp16"),
    (["--momentum=0.5"], "--optimizer=momentum"),
    (["--adam_beta1=0.5", "--optimizer=rmsprop"], "--optimizer=adam"),
    (["--save_model_secs=5"], "--train_dir"),
    (["--num_eval_batches=5"], "--eval"),
    (["--eval", "--print_training_accuracy"], "training"),
    (["--data_name=digits", "--data_dir=x"], "scikit-learn"),
    (["--network_topology=ring"], "dgx1, gcp_v100"),
    (["--variable_consistency=weak"], "relaxed, strong"),
    (["--trt_mode=FP8"], "FP16, FP32, INT8"),
    (["--resize_method=bicubik"], "Did you mean bicubic?"),
    (["--input_preprocessor=mine"], "official_models_imagenet"),
    (["--loss_type_to_report=loss"], "base_loss, total_loss"),
    (["--gpu_thread_mode=none"], "gpu_private"),
    (["--horovod_device=tpu"], "cpu, gpu"),
    (["--display_perf_ewma=1.5"], "at most 1"),
    (["--summary_verbosity=4"], "at most 3"),
    (["--gpu_memory_frac_for_testing=2"], "at most 1"),
    (["--gpu_indices=0,1"], "--num_gpus=1"),
    (["--gpu_indices=1,1", "--num_gpus=2"], "different devices"),
    (["--gpu_indices=a"], "0,1,3"),
    (["--freeze_when_forward_only"], "--forward_only"),
    (["--eval_during_training_every_n_steps=5", "--eval_during_training_every_n_epochs=1"], "one of them"),
    (["--eval_during_training_every_n_epochs=0"], "more than 0"),
    (["--eval_during_training_at_specified_steps=3,x"], "list of numbers"),
    (["--eval_during_training_at_specified_epochs=0"], "more than 0"),
    (["--eval_during_training_every_n_steps=5", "--forward_only"], "training"),
    (["--stop_at_top_1_accuracy=0.5"], "--eval_during_training"),
    (["--eval_batch_size=5"], "--eval"),
    (["--eval", "--num_eval_batches=5", "--num_eval_epochs=1"], "one of them"),
    (["--eval", "--num_eval_epochs=0"], "more than 0"),
    (["--eval_interval_secs=5"], "--eval"),
    (["--eval", "--eval_interval_secs=5"], "--train_dir"),
    (["--fp16_vars"], "--use_fp16"),
    (["--fp16_enable_auto_loss_scale"], "--use_fp16"),
    (["--use_fp16", "--fp16_inc_loss_scale_every_n=5"], "--fp16_enable_auto_loss_scale"),
    (["--resnet_base_lr=0.1", "--init_learning_rate=1"], "give one"),
    (["--save_summaries_steps=5", "--summary_verbosity=1"], "--train_dir"),
    (["--save_summaries_steps=5", "--train_dir=x"], "--summary_verbosity"),
    (["--eval", "--trace_file=x"], "--eval"),
    (["--eval", "--backbone_model_path=x"], "training"),
    (["resnet50"], "--name=value"),
]


@pytest.mark.parametrize(("flags", "says"), WRONG, ids=[" ".join(flags) for flags, _ in WRONG])
def test_wrong_flags_are_one_line(env: Environment, flags: list[str], says: str) -> None:
    assert says in env.benchmark(*flags, timeout=30).error()


def test_the_version_is_the_release() -> None:
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    assert project["version"] == (ROOT / "VERSION").read_text().strip()


def test_help_names_every_flag(env: Environment) -> None:
    out = env.benchmark("--help").ok().out
    assert all(f"  --{name}" in out for name in DEFAULTS)
    assert "[parameter_server]" in out and "[1234]" in out


def test_the_script_runs_from_anywhere(env: Environment) -> None:
    script = PACKAGE / "tf_cnn_benchmarks.py"
    assert env.python(script, "--help").ok().out == env.benchmark("--help").ok().out
    assert "Did you mean" in env.python(script, "--modell=x").error()


ABSENT = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if (name + ".").startswith(sys.argv[1] + "."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from tf_cnn_benchmarks.cli import main
sys.exit(main(["tf_cnn_benchmarks", *sys.argv[2:]]))
"""


@pytest.mark.parametrize(
    ("package", "update", "says"),
    [
        ("horovod", "horovod", ["conda install horovod", "--variable_update=ddl"]),
        ("ddl", "ddl", ["conda install ddl ddl-tensorflow"]),
        ("ddl.tensorflow", "ddl", ["conda install ddl-tensorflow"]),
    ],
)
def test_an_absent_package_is_named(ddl_env: Environment, package: str, update: str, says: list[str]) -> None:
    """As in an environment without the package: every import of it fails."""
    run = ddl_env.python("-c", ABSENT, package, f"--variable_update={update}", "--num_batches=1")
    message = run.error()
    assert all(part in message for part in [*says, f"No module named '{package}"])


def test_what_this_machine_lacks_is_named(tf_env: Environment) -> None:
    absent, parameters, folder = tf_env.benchmarks(
        ["--device=gpu", "--num_batches=1", "--num_warmup_batches=0"],
        ["--device=cpu", "--local_parameter_device=gpu", "--num_batches=1", "--num_warmup_batches=0"],
        ["--data_dir=/no/such/folder"],
    )
    assert "/no/such/folder" in folder.error()
    code = "import json, tensorflow as tf; print(json.dumps(len(tf.config.list_physical_devices('GPU'))))"
    if tf_env.evaluate(code):
        pytest.skip("this machine has a GPU, so nothing is said about its absence")
    assert "--device=cpu" in absent.error()
    assert "--local_parameter_device=cpu" in parameters.error()


def test_processes_that_share_nothing_may_not_share_a_folder(env: Environment) -> None:
    message = env.benchmark(
        "--train_dir=/tmp/unused",
        "--variable_update=replicated",
        OMPI_COMM_WORLD_RANK="0",
        OMPI_COMM_WORLD_SIZE="2",
    ).error()
    assert "--variable_update=ddl" in message
    other = env.benchmark("--no_such_flag", OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="2")
    assert other.rc != 0 and not other.err, "an error of all ranks is told by rank 0 alone"
