"""One run: build the graph, start it, train (or evaluate), report."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tf_cnn_benchmarks import __version__, report
from tf_cnn_benchmarks.checkpoint import Checkpoints, copies_from_first, first_copies
from tf_cnn_benchmarks.datasets import Data, Shard, open_data
from tf_cnn_benchmarks.errors import BenchmarkError
from tf_cnn_benchmarks.exchange_cost import compare
from tf_cnn_benchmarks.models import find_model
from tf_cnn_benchmarks.optimizers import make_optimizer
from tf_cnn_benchmarks.params import Params
from tf_cnn_benchmarks.schedule import learning_rate
from tf_cnn_benchmarks.session import find_machine, session_config
from tf_cnn_benchmarks.statistics import speed, total_speed
from tf_cnn_benchmarks.towers import Tower, build_tower
from tf_cnn_benchmarks.trace import traced_run
from tf_cnn_benchmarks.variable_update import DEFAULT_SPEC, VariableUpdate
from tf_cnn_benchmarks.workers import Workers

v1 = tf.compat.v1

DEFAULT_BATCHES = 100
DEFAULT_WARMUP = 10


@dataclass
class Graph:
    """What is run. `step` does a step's work; `measures` is [loss, top-1, top-5, images], the
    loss a mean and the others counts, of the batch that `step` works on when both are fetched together.
    `step_alone` is a step without the exchange between ranks, None where nobody asks what that costs."""

    step: Any
    step_alone: Any | None
    measures: Any
    global_step: Any
    start: Callable[[Any, int], None]
    restore_into: Checkpoints | None


@dataclass(frozen=True)
class Plan:
    """Steps of this run: `warmup` untimed ones, then `timed` ones."""

    warmup: int
    timed: int


def run_benchmark(params: Params, workers: Workers) -> dict[str, Any]:
    """Runs, and returns what --result_json gets. What TensorFlow refuses becomes a BenchmarkError: its text
    is about data, memory or a peer, and the Python stack adds nothing."""
    v1.logging.set_verbosity(v1.logging.ERROR)
    try:
        return Benchmark(params, workers).run()
    except tf.errors.OpError as error:
        text = next((line.strip() for line in str(error.message).splitlines() if line.strip()), "no message")
        raise BenchmarkError(f"TensorFlow ended the run ({type(error).__name__}): {text}") from error


class Benchmark:
    """A run with the given flags as one of the `workers`."""

    def __init__(self, params: Params, workers: Workers) -> None:
        self._params = params
        self._workers = workers
        self._model = find_model(params.model, params.data_name)
        self._machine = find_machine(params, workers)
        self._data: Data = open_data(params.data_name, params.data_dir)
        self._device_batch = params.batch_size or self._model.batch_size
        self._batch = self._device_batch * params.num_gpus
        self._global_batch = self._batch * workers.size
        self._examples = self._data.examples(training=not params.eval)
        self._exchange: dict[str, Any] = {}
        self._print = report.Printer(sys.stdout, silent=workers.rank != 0)

    def run(self) -> dict[str, Any]:
        """The whole run; returns what --result_json gets."""
        if self._workers.rank == 0:
            for note in self._machine.notes:
                print(f"tf_cnn_benchmarks: {note}", file=sys.stderr, flush=True)
        self._print(*self._setup_lines())
        self._print(f"Generating {self._mode()} model")
        graph = tf.Graph()
        with graph.as_default():
            # Ranks draw different random numbers (dropout, crops); variables are made equal below.
            v1.set_random_seed(self._params.tf_random_seed + self._workers.rank)
            built = self._build()
            config = session_config(self._params, self._machine, self._workers)
            graph.finalize()
            with v1.Session(graph=graph, config=config) as session:
                if not self._params.eval:
                    self._print("Initializing graph")
                done = self._initialize(session, built)
                if self._params.eval:
                    result = self._evaluate(session, built)
                else:
                    result = self._train(session, built, done)
        result = {**self._description(), **result}
        if self._params.result_json and self._workers.rank == 0:
            report.write_json(Path(self._params.result_json), result)
        return result

    # The graph

    def _build(self) -> Graph:
        params, workers = self._params, self._workers
        global_step = v1.get_variable(
            "global_step",
            [],
            tf.int64,
            initializer=v1.zeros_initializer(),
            trainable=False,
            use_resource=True,
        )
        batches, inputs = self._inputs()
        update = VariableUpdate(params, self._machine.devices, self._machine.parameter_device, workers)

        def tower(number: int) -> Tower:
            images, labels = inputs[number]
            return build_tower(
                params,
                self._model,
                images,
                labels,
                classes=self._data.classes,
                data_format=self._machine.data_format,
            )

        towers = update.build(tower)
        measures = self._measures(towers)
        # A forward pass is run by fetching its results: TensorFlow drops what only control edges lead to.
        step, alone = measures, None
        if params.training:
            step, alone = self._training_steps(update, towers, global_step)
        checkpoints = None
        if params.train_dir is not None and workers.rank == 0:
            checkpoints = Checkpoints(
                Path(params.train_dir),
                seconds=params.save_model_secs,
                steps=params.save_model_steps or 0,
                keep=params.max_ckpts_to_keep,
            )
        start = self._starter(batches, update.shared)
        return Graph(step, alone, measures, global_step, start, checkpoints)

    def _inputs(self) -> tuple[list[Any], list[tuple[Any, Any]]]:
        """The batches and each device's (images, labels)."""
        params, machine = self._params, self._machine
        shard = Shard(self._workers.rank, self._workers.size, self._batch)
        options: dict[str, Any] = {
            "training": not params.eval,
            "seed": params.tf_random_seed,
            "threads": machine.intra_threads,
        }
        size = self._model.image_size
        if self._data.synthetic:
            batches = []
            for d, device in enumerate(machine.devices):
                own = Shard(shard.rank * len(machine.devices) + d, 0, self._device_batch)
                with tf.device(device):
                    batches.append(self._data.batches(own, size, **options))
            return batches, [(b.images, b.labels) for b in batches]
        with tf.device("/cpu:0"):
            batch = self._data.batches(shard, size, **options)
            images = tf.split(batch.images, params.num_gpus)
            labels = tf.split(batch.labels, params.num_gpus)
        return [batch], list(zip(images, labels, strict=True))

    def _training_steps(
        self, update: VariableUpdate, towers: list[Tower], global_step: Any
    ) -> tuple[Any, Any | None]:
        """The step, and with --exchange_blocks one without the exchange between ranks."""
        params = self._params
        step = global_step.read_value()
        rate = learning_rate(params, self._model, step, self._global_batch, self._examples)
        # The copies of one optimizer's slots go by variable; one optimizer serves them all.
        optimizer = make_optimizer(params, rate)

        def build(exchange: bool) -> Any:
            operations = [op for t in towers for op in t.update_ops]
            for device, pairs in update.updates(towers, exchange=exchange):
                with tf.device(device if not update.shared else None):
                    operations.append(optimizer.apply_gradients(pairs))
            with tf.control_dependencies(operations):
                return global_step.assign_add(1, read_value=False)

        trained = build(exchange=True)
        if not params.exchange_blocks:
            return trained, None
        with self._workers.no_averaging():
            return trained, build(exchange=False)

    def _measures(self, towers: list[Tower]) -> Any:
        with tf.device("/cpu:0"):
            loss = tf.add_n([t.loss for t in towers]) / len(towers)
            counts = [tf.add_n([getattr(t, name) for t in towers]) for name in ("top1", "top5", "counted")]
            return tf.stack([loss, *counts])

    def _starter(self, batches: list[Any], shared: bool) -> Callable[[Any, int], None]:
        """Makes the function that starts copies of variables and inputs from a given step on."""
        copies = [] if shared else copies_from_first()

        def start(session: Any, done: int) -> None:
            session.run(copies)
            for batch in batches:
                if batch.initializer is not None:
                    session.run(batch.initializer, {**batch.feed, batch.start_step: done})

        operations = [v1.global_variables_initializer(), v1.local_variables_initializer()]
        self._first = tf.group(*operations)
        self._loads = _loaders(first_copies())
        return start

    # Running

    def _initialize(self, session: Any, built: Graph) -> int:
        """Fresh variables or the newest checkpoint's, equal on all ranks; returns the finished steps."""
        session.run(self._first)
        newest = built.restore_into.newest() if built.restore_into else None
        if built.restore_into is not None:
            if newest is not None:
                built.restore_into.restore(session, newest)
                self._print(f"Restored {newest}")
            elif self._params.eval:
                raise BenchmarkError(
                    f"--eval: --train_dir={self._params.train_dir} holds no checkpoint; train with it first"
                )
        if self._workers.size > 1:
            # In an order that all ranks share. Only rank 0 needs to see the checkpoint's folder.
            for name, (read, placeholder, assign) in self._loads.items():
                value = self._workers.broadcast(session.run(read), name)
                session.run(assign, {placeholder: value})
        done = int(session.run(built.global_step))
        built.start(session, 0 if self._params.eval else done)
        return done

    def _plan(self, done: int) -> Plan:
        params = self._params
        warmup = DEFAULT_WARMUP if params.num_warmup_batches is None else params.num_warmup_batches
        if params.num_epochs is None:
            return Plan(warmup, params.num_batches or DEFAULT_BATCHES)
        left = self._steps_of_epochs() - (done if params.training else 0)
        if left <= 0:
            raise BenchmarkError(
                f"--train_dir={params.train_dir} has {done} steps, which is --num_epochs={params.num_epochs} "
                "already; give more epochs"
            )
        warmup = min(warmup, left - 1)
        return Plan(warmup, left - warmup)

    def _steps_of_epochs(self) -> int:
        epochs = self._params.num_epochs or 0.0
        return max(1, int(np.ceil(epochs * self._examples / self._global_batch - 1e-9)))

    def _train(self, session: Any, built: Graph, done: int) -> dict[str, Any]:
        params, plan = self._params, self._plan(done)
        step = session.make_callable(built.step)
        measured = session.make_callable([built.step, built.measures])
        if params.trace_file and not plan.warmup:
            raise BenchmarkError("--trace_file records the last warm-up step; let there be at least one")
        self._print("Running warm up")
        for i in range(plan.warmup):
            last = i == plan.warmup - 1
            if last and params.trace_file and self._workers.rank == 0:
                traced_run(session, [built.step, built.measures], Path(params.trace_file))
            elif last or i == 0:
                # Both forms of the step must be compiled and their memory allocated before the clock runs.
                measured()
            else:
                step()
            done += 1
            self._save(session, built, done)
        self._print("Done warm up", report.header_line(accuracy=params.print_training_accuracy))
        times: list[float] = []
        measures: np.ndarray[Any, Any] | None = None
        aside = 0.0
        first = begun = time.perf_counter()
        for i in range(1, plan.timed + 1):
            shown = i == 1 or i % params.display_every == 0 or i == plan.timed
            values = measured()[1] if shown else step()
            done += 1
            times.append(time.perf_counter() - begun)
            if i == plan.timed:
                # Before anything else is exchanged, so that it tells about the gradients.
                self._exchange = self._workers.describe()
            if shown:
                measures = self._workers.mean(np.asarray(values, np.float64), "measures")
                if i == 1 or i % params.display_every == 0:
                    self._show(i, times, measures)
            aside += self._save(session, built, done)
            begun = time.perf_counter()
        elapsed = time.perf_counter() - first - aside
        total = total_speed(self._workers.size, plan.timed, self._batch, elapsed)
        self._print(*report.total_lines(total))
        if built.restore_into is not None and params.training:
            built.restore_into.save(session, done)
        cost = {}
        if built.step_alone is not None:
            # Without exchange the ranks' variables drift apart; nothing but speeds is taken from here on.
            alone = session.make_callable(built.step_alone)
            compared = compare(self._workers, step, alone, params.exchange_blocks, self._batch)
            self._print(report.exchange_line(compared))
            cost = {"exchange_cost": compared.as_json()}
        assert measures is not None
        own = speed(times, self._batch)
        return {
            "images_per_sec": total,
            "elapsed_seconds": elapsed,
            "steps": plan.timed,
            "warmup_steps": plan.warmup,
            "global_step": done,
            "rank_images_per_sec": own.mean,
            "rank_images_per_sec_uncertainty": own.uncertainty,
            "rank_images_per_sec_jitter": own.jitter,
            "step_seconds": times,
            **cost,
            "total_loss": float(measures[0]),
            "top_1_accuracy": float(measures[1] / measures[3]),
            "top_5_accuracy": float(measures[2] / measures[3]),
        }

    def _save(self, session: Any, built: Graph, done: int) -> float:
        if built.restore_into is None or not self._params.training:
            return 0.0
        return built.restore_into.after_step(session, done)

    def _show(self, step: int, times: list[float], measures: Any) -> None:
        loss, top1, top5, images = (float(x) for x in measures)
        accuracy = (top1 / images, top5 / images) if self._params.print_training_accuracy else None
        self._print(report.step_line(step, speed(times, self._batch), loss, accuracy))

    def _evaluate(self, session: Any, built: Graph) -> dict[str, Any]:
        params = self._params
        limit = params.num_eval_batches
        if limit is None and self._data.synthetic:
            limit = params.num_batches or DEFAULT_BATCHES
        run = session.make_callable(built.measures)
        sums = np.zeros(3)
        steps = 0
        begun = time.perf_counter()
        while limit is None or steps < limit:
            try:
                sums += np.asarray(run(), np.float64)[1:]
            except tf.errors.OutOfRangeError:
                break
            steps += 1
            if steps % params.display_every == 0 and sums[2]:
                now = time.perf_counter()
                self._print(f"{steps}\t{steps * self._batch / (now - begun):.1f} examples/sec")
        elapsed = time.perf_counter() - begun
        top1, top5, images = self._workers.mean(sums, "evaluation") * self._workers.size
        if not images:
            raise BenchmarkError(f"--eval: there is no image to evaluate in {params.data_dir}")
        total = images / elapsed
        self._print(report.accuracy_line(top1 / images, top5 / images, round(images)))
        self._print(*report.total_lines(total))
        return {
            "images_per_sec": total,
            "elapsed_seconds": elapsed,
            "steps": steps,
            "top_1_accuracy": float(top1 / images),
            "top_5_accuracy": float(top5 / images),
            "examples": round(images),
        }

    # Reporting

    def _mode(self) -> str:
        if self._params.eval:
            return "evaluation"
        return "forward-only" if self._params.forward_only else "training"

    def _setup_lines(self) -> list[str]:
        params = self._params
        if params.num_epochs is not None:
            batches = self._steps_of_epochs()
        elif params.eval and not (self._data.synthetic or params.num_eval_batches):
            batches = -(-self._examples // self._global_batch)
        else:
            batches = params.num_eval_batches or params.num_batches or DEFAULT_BATCHES
        spec = params.all_reduce_spec or DEFAULT_SPEC
        epochs = params.num_epochs or batches * self._global_batch / self._examples
        return report.setup_lines(
            tensorflow=tf.__version__,
            model=params.model,
            dataset=self._data.title,
            mode=self._mode(),
            global_batch=self._global_batch,
            device_batch=self._device_batch,
            num_batches=batches,
            num_epochs=epochs,
            devices=self._machine.devices,
            data_format=self._machine.data_format,
            optimizer=params.optimizer,
            variables=params.variable_update,
            all_reduce=spec if params.variable_update == "replicated" else None,
        )

    def _description(self) -> dict[str, Any]:
        params, machine = self._params, self._machine
        return {
            "version": __version__,
            "tensorflow": tf.__version__,
            "model": params.model,
            "dataset": self._data.title,
            "mode": self._mode(),
            "variable_update": params.variable_update,
            "optimizer": params.optimizer,
            "ranks": self._workers.size,
            "devices": machine.devices,
            "data_format": machine.data_format,
            "use_fp16": params.use_fp16,
            "batch_per_device": self._device_batch,
            "batch_global": self._global_batch,
            "intra_threads": machine.intra_threads,
            "inter_threads": machine.inter_threads,
            "ddl": self._exchange,
        }


def _loaders(variables: dict[str, Any]) -> dict[str, tuple[Any, Any, Any]]:
    """For each variable: a tensor to read it, a placeholder, and the operator that takes the placeholder."""
    loaders = {}
    for name, variable in sorted(variables.items()):
        placeholder = v1.placeholder(variable.dtype, variable.shape)
        assign = variable.assign(placeholder, read_value=False)
        loaders[name] = (variable.read_value(), placeholder, assign)
    return loaders
