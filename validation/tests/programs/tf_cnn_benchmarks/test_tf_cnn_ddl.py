"""tf_cnn_benchmarks on several ranks through DDL, started by the real mpirun."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from program_runner import Environment, Result

COMPARE = """
import json, sys
import numpy as np
import tensorflow as tf
reads = [tf.train.load_checkpoint(path) for path in sys.argv[1:]]
names = [sorted(r.get_variable_to_shape_map()) for r in reads]
assert all(n == names[0] for n in names), names
print(json.dumps([max(float(np.abs(reads[0].get_tensor(n) - r.get_tensor(n)).max()) for n in names[0])
                  for r in reads[1:]]))
"""


def train(env: Environment, ranks: int, folder: Path, *flags: str) -> tuple[Result, dict[str, Any]]:
    """A run on so many ranks with checkpoints and results in `folder`."""
    result = folder / "result.json"
    common = ["--data_name=digits", f"--train_dir={folder}", f"--result_json={result}", *flags]
    if ranks == 1:
        run = env.benchmark(*common)
    else:
        run = env.ranks(ranks, "-m", "tf_cnn_benchmarks", "--variable_update=ddl", *common)
    run.ok()
    return run, json.loads(result.read_text().splitlines()[-1])


@pytest.mark.parametrize(
    ("model", "batch", "flags"),
    [
        ("lenet", 48, ["--optimizer=momentum", "--num_epochs=3", "--init_learning_rate=0.005"]),
        pytest.param(
            "trivial",
            32,
            ["--optimizer=adam", "--num_epochs=2", "--init_learning_rate=0.01", "--gradient_clip=0.1"],
            marks=pytest.mark.long,
        ),
    ],
)
def test_ranks_equal_one_rank_with_the_same_global_batch(
    ddl_env: Environment, tmp_path: Path, model: str, batch: int, flags: list[str]
) -> None:
    """Weights, slots and step count to float tolerance; loss and accuracy as printed; and on the validation
    images too. The models have no batch normalisation, whose statistics are each rank's own."""
    results = {}
    for ranks in (1, 2):
        folder = tmp_path / str(ranks)
        folder.mkdir()
        same = [f"--model={model}", "--print_training_accuracy", "--display_every=20", *flags]
        run, results[ranks] = train(ddl_env, ranks, folder, *same, f"--batch_size={batch // ranks}")
        lines = run.out.splitlines()
        assert lines.count("Done warm up") == 1, "only rank 0 prints"
        results[ranks]["shown"] = [line.split("\t")[2:] for line in lines if "images/sec: " in line][:-1]
    one, two = results[1], results[2]
    assert two["ranks"] == 2 and two["batch_global"] == one["batch_global"] == batch
    (difference,) = ddl_env.evaluate(COMPARE, tmp_path / "1", tmp_path / "2")
    assert difference < 1e-4
    assert two["total_loss"] == pytest.approx(one["total_loss"], rel=1e-4)
    assert two["top_1_accuracy"] == one["top_1_accuracy"]
    assert len(one["shown"]) > 2
    for mine, theirs in zip(one["shown"], two["shown"], strict=True):
        assert [float(x) for x in mine] == pytest.approx([float(x) for x in theirs], abs=2e-3)
    if model != "lenet":
        return
    evaluated = [
        train(ddl_env, n, tmp_path / "1", f"--model={model}", "--eval", *flags[:1])[1] for n in (1, 2)
    ]
    assert evaluated[0]["examples"] == evaluated[1]["examples"] == 360
    assert evaluated[0]["top_1_accuracy"] == evaluated[1]["top_1_accuracy"]


def test_an_overflow_on_one_rank_is_left_out_on_all(ddl_env: Environment, tmp_path: Path) -> None:
    """With a factor of the loss that adapts, two ranks train as one does. Where rank 1's gradients overflow
    in every step, rank 0's weights stay as they are and its factor is halved too."""
    flags = ["--model=lenet", "--use_fp16", "--fp16_enable_auto_loss_scale", "--fp16_loss_scale=64",
             "--fp16_inc_loss_scale_every_n=4", "--num_batches=5", "--num_warmup_batches=1",
             "--save_model_steps=1", "--init_learning_rate=0.02"]  # fmt: skip
    results = []
    for ranks in (1, 2):
        (tmp_path / str(ranks)).mkdir()
        batch = f"--batch_size={32 // ranks}"
        results.append(train(ddl_env, ranks, tmp_path / str(ranks), batch, *flags)[1])
    assert [result["loss_scale"] for result in results] == [128, 128]
    (difference,) = ddl_env.evaluate(COMPARE, tmp_path / "1", tmp_path / "2")
    assert difference < 2e-3
    code = """
import os, sys
import ddl
from tf_cnn_benchmarks import benchmark
from tf_cnn_benchmarks.cli import main
if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
    plain = benchmark.build_tower
    def overflowing(*arguments, **options):
        tower = plain(*arguments, **options)
        tower.gradients = [(g * float("inf"), v) for g, v in tower.gradients]
        return tower
    benchmark.build_tower = overflowing
sys.exit(main(["x", "--data_name=digits", "--variable_update=ddl", *sys.argv[1:]]))
"""
    ddl_env.ranks(2, "-c", code, f"--train_dir={tmp_path / 'stuck'}", "--batch_size=16", *flags).ok()
    read = """
import json, sys
import tensorflow as tf
reads = [tf.train.load_checkpoint(f"{sys.argv[1]}/model.ckpt-{step}") for step in (2, 6)]
before, after = (read.get_tensor("v/cg/conv0/conv2d/kernel") for read in reads)
scales = [float(read.get_tensor("loss_scale")) for read in reads]
print(json.dumps([bool((before == after).all()), scales]))
"""
    assert ddl_env.evaluate(read, tmp_path / "stuck") == [True, [16.0, 1.0]]


def test_total_counts_all_ranks_and_ddl_describes_the_exchange(ddl_env: Environment, tmp_path: Path) -> None:
    flags = ["--model=resnet20", "--batch_size=8", "--num_batches=12", "--num_warmup_batches=2"]
    run, result = train(ddl_env, 2, tmp_path, *flags)
    assert "Batch size:  16 global\n             8 per device\n" in run.out
    assert "Variables:   ddl\n" in run.out
    total = float(run.out.rpartition("total images/sec: ")[2].split()[0])
    assert total == pytest.approx(2 * 12 * 8 / result["elapsed_seconds"], abs=0.006)
    assert result["ddl"]["size"] == 2
    assert "gradients of 59/59 variables" in result["ddl"]["last"]["call"], "one grouped all-reduce"


@pytest.mark.long
def test_what_the_exchange_costs_is_measured_and_changes_nothing(
    ddl_env: Environment, tmp_path: Path
) -> None:
    """Steps without exchange are made after all that counts, and they exchange nothing."""
    flags = ["--model=lenet", "--batch_size=8", "--num_batches=4", "--num_warmup_batches=1"]
    plain, compared = tmp_path / "plain", tmp_path / "compared"
    plain.mkdir()
    compared.mkdir()
    train(ddl_env, 2, plain, *flags)
    run, result = train(ddl_env, 2, compared, *flags, "--exchange_blocks=3")
    assert ddl_env.evaluate(COMPARE, plain, compared) == [0.0]
    assert result["global_step"] == 5
    cost = result["exchange_cost"]
    pairs = list(zip(cost["images_per_sec"], cost["images_per_sec_without"], strict=True))
    shares = sorted(with_it / without for with_it, without in pairs)
    assert len(shares) == 3 and cost["kept"] == pytest.approx(shares[1])
    assert f"speed kept with exchange: {cost['kept']:.3f} (median of 3 pairs of blocks" in run.out


@pytest.mark.long
def test_steps_without_exchange_exchange_nothing(ddl_env: Environment) -> None:
    """Of 3 pairs of blocks and a step of each kind before them, those with exchange are counted by DDL."""
    code = """
import json
import ddl
from tf_cnn_benchmarks.benchmark import run_benchmark
from tf_cnn_benchmarks.params import parse
from tf_cnn_benchmarks.workers import DdlWorkers

def exchanged(*flags):
    before = ddl.stats()["bytes"]
    common = ["x", "--model=lenet", "--data_name=digits", "--batch_size=8", "--num_warmup_batches=1"]
    result = run_benchmark(parse([*common, "--variable_update=ddl", *flags]), workers)
    return ddl.stats()["bytes"] - before, result.get("exchange_cost", {}).get("steps_of_a_block")

workers = DdlWorkers()
found = [exchanged("--num_batches=4", *more) for more in ([], ["--num_batches=5"], ["--exchange_blocks=3"])]
if workers.rank == 0:
    print(json.dumps(found))
"""
    out = ddl_env.ranks(2, "-c", code).ok().out
    (plain, _), (longer, _), (compared, steps) = json.loads(out.splitlines()[-1])
    gradients = longer - plain
    assert gradients > 10_000
    # and a few numbers that each block starts and ends with
    assert 0 <= compared - plain - (1 + 3 * steps) * gradients < 1000


def test_a_checkpoint_of_rank_0_continues_on_all(ddl_env: Environment, tmp_path: Path) -> None:
    """Rank 1 has no checkpoint folder of its own: what rank 0 restores must reach it."""
    flags = ["--model=lenet", "--optimizer=momentum", "--num_warmup_batches=1"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    train(ddl_env, 1, whole, *flags, "--batch_size=32", "--num_batches=9")
    train(ddl_env, 1, parts, *flags, "--batch_size=32", "--num_batches=3")
    run, result = train(ddl_env, 2, parts, *flags, "--batch_size=16", "--num_batches=9")
    assert "Restored" in run.out and result["global_step"] == 10
    (difference,) = ddl_env.evaluate(COMPARE, whole, parts)
    assert difference < 1e-4


@pytest.mark.long
def test_ranks_start_equal_though_they_draw_different_numbers(ddl_env: Environment) -> None:
    """Variables that differed before are rank 0's on all ranks once training may begin."""
    code = """
import json
import ddl
import numpy as np
from tf_cnn_benchmarks import benchmark
from tf_cnn_benchmarks.params import parse
from tf_cnn_benchmarks.workers import DdlWorkers

def spread(values):
    return float(np.abs(ddl.allreduce(values, op="max") - ddl.allreduce(values, op="min")).max())

v1 = benchmark.v1
workers = DdlWorkers()
run = benchmark.Benchmark(
    parse(["x", "--model=resnet20", "--data_name=cifar10", "--variable_update=ddl", "--optimizer=momentum"]),
    workers)
with benchmark.tf.Graph().as_default():
    v1.set_random_seed(5 + workers.rank)
    noise = benchmark.tf.random.uniform([4])
    built = run._build()
    variables = v1.global_variables()
    # Each variable gets the rank added right after it is initialised.
    with benchmark.tf.control_dependencies([run._first]):
        changed = [v.assign_add(benchmark.tf.fill(v.shape, benchmark.tf.cast(workers.rank, v.dtype)))
                   for v in variables]
        run._first = benchmark.tf.group(*changed)
    with v1.Session() as session:
        session.run(run._first)
        before = spread(session.run(variables[1]))
        drawn = spread(session.run(noise))
        run._initialize(session, built)
        after = max(spread(np.atleast_1d(value)) for value in session.run(variables))
if workers.rank == 0:
    print(json.dumps([before, drawn, after, len(variables)]))
"""
    out = ddl_env.ranks(2, "-c", code).ok().out
    before, drawn, after, variables = json.loads(out.splitlines()[-1])
    assert before == 1.0 and drawn > 0
    assert after == 0.0
    # 19 convolutions with scale, offset and weights, a classifier, their slots, averages and the step count.
    assert variables == 2 * (19 * 3 + 2) + 19 * 2 + 1


def test_an_error_ends_all_ranks_and_is_said(ddl_env: Environment, tmp_path: Path) -> None:
    flags = ["-m", "tf_cnn_benchmarks", "--variable_update=ddl", "--num_batches=2"]
    missing = ddl_env.ranks(2, *flags, "--data_dir=/no/such/folder", timeout=60)
    assert missing.rc != 0 and "Traceback" not in missing.err
    assert "rank 0: --data_dir=/no/such/folder is not a folder on this host" in missing.err
    unknown = ddl_env.ranks(2, *flags, "--nun_batches=3", timeout=30)
    assert unknown.rc != 0
    assert unknown.err.count("Did you mean num_batches?") == 1


def test_a_rank_that_fails_alone_does_not_leave_the_other_waiting(ddl_env: Environment) -> None:
    code = """
import os, sys
from tf_cnn_benchmarks.cli import main
alone = ["--data_dir=/only/rank/1/misses/this"] if os.environ["OMPI_COMM_WORLD_RANK"] == "1" else []
sys.exit(main(["x", "--data_name=cifar10", "--model=lenet", "--variable_update=ddl", *alone]))
"""
    run = ddl_env.ranks(2, "-c", code, timeout=60)
    assert run.rc != 0
    assert "rank 1: --data_dir=/only/rank/1/misses/this" in run.err


@pytest.mark.long
def test_processes_without_ddl_are_warned_of(ddl_env: Environment) -> None:
    flags = ["--data_name=digits", "--num_batches=2", "--variable_update=parameter_server"]
    run = ddl_env.ranks(2, "-m", "tf_cnn_benchmarks", *flags).ok()
    assert run.err.count("2 processes were started") == 1
    assert run.out.count("total images/sec") == 2
