"""One run: build the graph, start it, train (or evaluate), report."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tf_cnn_benchmarks import __version__, report
from tf_cnn_benchmarks.all_reduce_spec import stands_for_nccl
from tf_cnn_benchmarks.backbone import backbone_values
from tf_cnn_benchmarks.benchmark_log import BenchmarkLog
from tf_cnn_benchmarks.checkpoint import Checkpoints, copies_from_first, first_copies, model_variables
from tf_cnn_benchmarks.cluster.server import open_session
from tf_cnn_benchmarks.cluster.spec import Cluster
from tf_cnn_benchmarks.datasets import Batch, Data, InputOptions, Shard, open_data
from tf_cnn_benchmarks.errors import BenchmarkError
from tf_cnn_benchmarks.evaluation import DEFAULT_BATCHES, EvaluationGraph, EvaluationTimes, Evaluator
from tf_cnn_benchmarks.freeze import frozen_session
from tf_cnn_benchmarks.loss_scale import LossScale
from tf_cnn_benchmarks.models import find_model
from tf_cnn_benchmarks.optimizers import make_optimizer
from tf_cnn_benchmarks.params import Params, flag_fields
from tf_cnn_benchmarks.schedule import learning_rate
from tf_cnn_benchmarks.session import Machine, find_machine, session_config
from tf_cnn_benchmarks.summaries import Events, summary_of
from tf_cnn_benchmarks.towers import Tower, build_tower
from tf_cnn_benchmarks.trace import StepRecorder, write_graph
from tf_cnn_benchmarks.training_loop import Between, Plan, Steps, TrainingLoop
from tf_cnn_benchmarks.variable_update import Pairs, VariableUpdate, clipped
from tf_cnn_benchmarks.workers import Workers

v1 = tf.compat.v1

DEFAULT_WARMUP = 10


def warmup_asked(params: Params) -> int:
    return DEFAULT_WARMUP if params.num_warmup_batches is None else params.num_warmup_batches


@dataclass
class Graph:
    """What was built. `steps` is what a training or --forward_only repeats; `evaluation` is there where the
    flags ask for one; `restart` starts copies of variables and the input from a given step on; `batches` are
    the input of `steps`. `model` holds the model's variables by name, of the first copy."""

    steps: Steps
    evaluation: EvaluationGraph | None
    global_step: Any
    start: Callable[[Any, int], None]
    restore_into: Checkpoints | None
    batches: list[Batch]
    model: dict[str, Any]
    loss_scale: LossScale


def run_benchmark(params: Params, workers: Workers) -> dict[str, Any]:
    """Runs, and returns what --result_json gets. What TensorFlow refuses becomes a BenchmarkError: its text
    is about data, memory or a peer, and the Python stack adds nothing."""
    v1.logging.set_verbosity(v1.logging.ERROR)
    try:
        return Benchmark(params, workers).run()
    except tf.errors.OpError as error:
        raise ended(error) from error


def ended(error: Any) -> BenchmarkError:
    """What the user is told of an error of TensorFlow's."""
    text = next((line.strip() for line in str(error.message).splitlines() if line.strip()), "no message")
    return BenchmarkError(f"TensorFlow ended the run ({type(error).__name__}): {text}")


class Benchmark:
    """A run with the given flags as one of the `workers`.

    `cluster` is what the header tells of the tasks of a run over TensorFlow's servers. The session is one of
    the server `target`; what the graph says nothing else of is on the task `home`; `graph_key` finds the
    collectives in it.
    """

    def __init__(
        self,
        params: Params,
        workers: Workers,
        *,
        cluster: Cluster | None = None,
        target: str = "",
        home: str | None = None,
        graph_key: int = 0,
    ) -> None:
        self._cluster = cluster
        self._target = target
        self._home = home
        self._graph_key = graph_key
        self._params = params
        self._workers = workers
        self._model = find_model(params.model, params.data_name)
        self._machine = self._find_machine()
        self._data: Data = open_data(params.data_name, params.data_dir)
        batch = (params.eval_batch_size if params.eval else 0) or params.batch_size
        self._device_batch = batch or self._model.batch_size
        self._batch = self._device_batch * len(self._machine.devices)
        self._global_batch = self._batch * workers.size
        self._update_batch = self._global_batch
        # Whole groups, lest the clock starts within one.
        self._warmup = -(-warmup_asked(params) // params.batch_group_size) * params.batch_group_size
        self._examples = self._data.examples(training=not params.eval)
        self._print = report.Printer(sys.stdout, silent=workers.rank != 0)
        self._evaluator = self._make_evaluator() if params.eval or params.evaluated else None
        self._events_of_evaluation: Events | None = None

    def _find_machine(self) -> Machine:
        return find_machine(self._params, self._workers)

    def _evaluating(self) -> Workers:
        """The workers that share an evaluation."""
        return self._workers

    def _make_evaluator(self) -> Evaluator:
        params = self._params
        self._eval_device_batch = params.eval_batch_size or params.batch_size or self._model.batch_size
        return Evaluator(
            params,
            self._evaluating(),
            self._print,
            batch=self._eval_device_batch * len(self._machine.devices),
            examples=self._data.examples(training=False),
            synthetic=self._data.synthetic,
        )

    def run(self) -> dict[str, Any]:
        """The whole run; returns what --result_json gets."""
        params = self._params
        if self._workers.rank == 0:
            for note in self._machine.notes:
                print(f"tf_cnn_benchmarks: {note}", file=sys.stderr, flush=True)
        self._print(*self._setup_lines())
        log = self._benchmark_log()
        self._print(*(f"Generating {kind} model" for kind in self._models()))
        graph = tf.Graph()
        with graph.as_default(), tf.device(self._home):
            # Ranks draw different random numbers (dropout, crops); variables are made equal below.
            v1.set_random_seed(params.tf_random_seed + self._workers.rank)
            built = self._build()
            between = self._between(log)
            graph.finalize()
            self._announce(graph)
            result = self._run_graph(graph, built, between)
        result = {**self._description(), **result}
        if params.result_json and self._workers.rank == 0:
            report.write_json(Path(params.result_json), result)
        return result

    def _announce(self, graph: Any) -> None:
        """The lines before the first step, and --graph_file."""
        params = self._params
        if not params.eval:
            self._print("Initializing graph")
            if self._warmup != warmup_asked(params):
                self._print(f"Round up warm up steps to {self._warmup} to match batch_group_size")
        if params.graph_file and self._workers.rank == 0:
            write_graph(params.graph_file, graph, self._print)

    def _session_config(self) -> Any:
        return session_config(self._params, self._machine, self._workers)

    def _run_graph(self, graph: Any, built: Graph, between: Between) -> dict[str, Any]:
        """Runs what was built."""
        config = self._session_config()
        with self._session(graph, config) as session:
            if self._params.eval:
                return self._evaluate(session, built)
            return self._train(session, built, between, config)

    def _session(self, graph: Any, config: Any) -> Any:
        if self._cluster is None:
            return v1.Session(graph=graph, config=config)
        return nullcontext(open_session(self._target, graph, config))

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
        scale = LossScale(params, self._model)
        batches, inputs = self._inputs(training=not params.eval, device_batch=self._device_batch)
        update = VariableUpdate(params, self._machine.devices, self._machine.parameter_device, workers)
        towers = update.build(self._tower(inputs, training=params.training, scale=scale.factor))
        model = model_variables()
        measures = self._measures(towers)
        # A forward pass is run by fetching its results: TensorFlow drops what only control edges lead to.
        steps = Steps(measures, measures, None, None)
        if params.training:
            steps = self._training_steps(update, towers, global_step, scale, measures)
        evaluation = None
        if params.eval:
            evaluation = EvaluationGraph(measures, restarter(batches))
        elif self._evaluator is not None:
            others, eval_inputs = self._inputs(training=False, device_batch=self._eval_device_batch)
            evaluated = update.build_evaluation(self._tower(eval_inputs, training=False))
            evaluation = EvaluationGraph(self._measures(evaluated), restarter(others))
        start = self._starter(batches, update.shared)
        return Graph(steps, evaluation, global_step, start, self._checkpoints(), batches, model, scale)

    def _checkpoints(self) -> Checkpoints | None:
        """The checkpoints of --train_dir, on the one rank that keeps them."""
        params = self._params
        if params.train_dir is None or self._workers.rank != 0:
            return None
        return Checkpoints(
            Path(params.train_dir),
            seconds=params.save_model_secs,
            steps=params.save_model_steps or 0,
            keep=params.max_ckpts_to_keep,
            uncounted=self._warmup_of_all(),
        )

    def _tower(
        self, inputs: list[tuple[Any, Any]], *, training: bool, scale: Any = 1.0
    ) -> Callable[[int], Tower]:
        """Makes the function that builds the model on the device of a number."""

        def tower(number: int) -> Tower:
            images, labels = inputs[number]
            return build_tower(
                self._params,
                self._model,
                images,
                labels,
                classes=self._data.classes,
                data_format=self._machine.data_format,
                training=training,
                scale=scale,
            )

        return tower

    def _inputs(self, *, training: bool, device_batch: int) -> tuple[list[Batch], list[tuple[Any, Any]]]:
        """The batches and each device's (images, labels)."""
        workers = self._workers if training else self._evaluating()
        shard = Shard(workers.rank, workers.size, device_batch * len(self._machine.devices))
        return self._inputs_of(shard, self._machine.devices, "/cpu:0", training=training)

    def _inputs_of(
        self, shard: Shard, devices: list[str], reader: str, *, training: bool
    ) -> tuple[list[Batch], list[tuple[Any, Any]]]:
        """The input of these devices of one host; real images are read on the device `reader` of it."""
        params = self._params
        options: dict[str, Any] = {
            "training": training,
            "seed": params.tf_random_seed,
            "threads": self._machine.intra_threads,
            "options": input_options(params),
        }
        size = self._model.image_size
        if self._data.synthetic:
            batches = []
            for d, device in enumerate(devices):
                device_shard = Shard(shard.rank * len(devices) + d, 0, shard.batch // len(devices))
                with tf.device(device):
                    batches.append(self._data.batches(device_shard, size, **options))
            return batches, [(b.images, b.labels) for b in batches]
        with tf.device(reader):
            batch = self._data.batches(shard, size, **options)
            images = tf.split(batch.images, len(devices))
            labels = tf.split(batch.labels, len(devices))
        return [batch], list(zip(images, labels, strict=True))

    def _training_steps(
        self,
        update: VariableUpdate,
        towers: list[Tower],
        global_step: Any,
        scale: LossScale,
        measures: Any,
    ) -> Steps:
        """The step, with --exchange_blocks also one without the exchange between ranks."""
        params = self._params
        with tf.device("/cpu:0" if params.compute_lr_on_cpu else None):
            step = global_step.read_value()
            rate = learning_rate(params, self._model, step, self._update_batch, self._examples)
        # The copies of one optimizer's slots go by variable; one optimizer serves them all.
        optimizer = make_optimizer(params, rate)

        def build(exchange: bool) -> tuple[Any, Pairs]:
            updates = update.updates(towers, scale=scale.factor, exchange=exchange)

            def apply() -> list[Any]:
                applied = []
                for device, pairs in updates:
                    with tf.device(device if not update.shared else None):
                        applied.append(optimizer.apply_gradients(clipped(pairs, params.gradient_clip)))
                return applied

            exchanged = [g for _, pairs in updates for g, _ in pairs]
            # Inside a condition the gradients are new tensors, which DDL would not know as exchanged ones.
            taken = nullcontext() if exchange and not scale.adapts else self._workers.no_averaging()
            with taken:
                operations = [op for t in towers for op in t.update_ops] + scale.apply(exchanged, apply)
            with tf.control_dependencies(operations):
                return global_step.assign_add(1, read_value=False), updates[0][1]

        trained, pairs = build(exchange=True)
        alone = build(exchange=False)[0] if params.exchange_blocks else None
        summary = None
        if params.save_summaries_steps and self._workers.rank == 0:
            summary = summary_of(
                params.summary_verbosity, params.loss_type_to_report, measures[0], rate, pairs
            )
        return Steps(trained, measures, alone, summary)

    def _measures(self, towers: list[Tower]) -> Any:
        with tf.device("/cpu:0"):
            loss = tf.add_n([t.loss for t in towers]) / len(towers)
            counts = [tf.add_n([getattr(t, name) for t in towers]) for name in ("top1", "top5", "counted")]
            return tf.stack([loss, *counts])

    def _starter(self, batches: list[Batch], shared: bool) -> Callable[[Any, int], None]:
        """Makes the function that starts copies of variables and inputs from a given step on."""
        copies = [] if shared else copies_from_first()

        def start(session: Any, done: int) -> None:
            session.run(copies)
            start_input(session, batches, done)

        operations = [v1.global_variables_initializer(), v1.local_variables_initializer()]
        self._first = tf.group(*operations)
        self._loads = loaders(first_copies())
        return start

    # Running

    def _initialize(self, session: Any, built: Graph) -> int:
        """Fresh variables or the newest checkpoint's, equal on all ranks; returns the finished steps."""
        session.run(self._first)
        newest = built.restore_into.newest() if built.restore_into else None
        if built.restore_into is not None and self._params.eval and newest is None:
            raise BenchmarkError(
                f"--eval: --train_dir={self._params.train_dir} holds no checkpoint; train with it first"
            )
        if self._workers.rank == 0 and newest is None and self._params.backbone_model_path is not None:
            for name, value in backbone_values(self._params.backbone_model_path, built.model).items():
                self._set(session, name, value)
            self._print(f"Backbone from {self._params.backbone_model_path}")
        return self._load(session, built, newest)

    def _load(self, session: Any, built: Graph, checkpoint: str | None) -> int:
        """The variables of that checkpoint, or as they are on rank 0, equal on all ranks."""
        if checkpoint is not None:
            assert built.restore_into is not None
            built.restore_into.restore(
                session, checkpoint, lambda name, value: self._set(session, name, value)
            )
            self._print(
                f"Successfully loaded model from {checkpoint}."
                if self._params.eval
                else f"Restored {checkpoint}"
            )
        # Only rank 0 needs to see the checkpoint's folder.
        self._equalize(session, self._loads)
        done = int(session.run(built.global_step))
        built.start(session, 0 if self._params.eval else done)
        return done

    def _equalize(self, session: Any, names: Iterable[str]) -> None:
        """Gives all ranks rank 0's values, in an order that they share."""
        if self._workers.size > 1:
            for name in names:
                self._set(session, name, self._workers.broadcast(session.run(self._loads[name][0]), name))

    def _set(self, session: Any, name: str, value: Any) -> None:
        _, placeholder, assign = self._loads[name]
        session.run(assign, {placeholder: value})

    def _warmup_of_all(self) -> int:
        """The warm-up of the training in steps of the step count."""
        return self._warmup

    def _plan(self, done: int) -> Plan:
        """A training ends at the same step however often it is interrupted."""
        if not self._params.training:
            return Plan(self._warmup, self._timed_steps(), 0)
        remaining = max(0, self._warmup + self._timed_steps() - done)
        if not remaining:
            self._say_that_nothing_is_left(done)
        warmup = min(self._warmup, max(0, remaining - 1))
        return Plan(warmup, remaining - warmup, self._warmup)

    def _say_that_nothing_is_left(self, done: int) -> None:
        params = self._params
        if self._workers.rank:
            return
        flag = "num_batches" if params.num_epochs is None else "num_epochs"
        length = self._timed_steps() if params.num_epochs is None else params.num_epochs
        print(
            f"tf_cnn_benchmarks: --train_dir={params.train_dir} has {done} steps, with which "
            f"--{flag}={length} is reached; nothing is left to train",
            file=sys.stderr,
            flush=True,
        )

    def _timed_steps(self) -> int:
        """--num_batches, or as many as --num_epochs are."""
        params = self._params
        if params.num_epochs is None:
            return params.num_batches or DEFAULT_BATCHES
        return max(1, int(np.ceil(params.num_epochs * self._examples / self._global_batch - 1e-9)))

    def _between(self, log: BenchmarkLog | None) -> Between:
        """The files of rank 0 that are written between steps."""
        params, first = self._params, self._workers.rank == 0
        events = None
        if first and params.training and params.save_summaries_steps:
            events = Events(Path(params.train_dir or "."), "train_dir")
        if first and self._evaluator is not None and "eval_dir" in params.present:
            self._events_of_evaluation = Events(Path(params.eval_dir), "eval_dir")
        recorder = StepRecorder(params, self._print) if first and StepRecorder.flags_given(params) else None
        times = EvaluationTimes(params, self._examples / self._update_batch, self._warmup_of_all())
        return Between(None, events, log, recorder, None, times)

    def _train(self, session: Any, built: Graph, between: Between, config: Any) -> dict[str, Any]:
        params = self._params
        done = self._initialize(session, built)
        plan = self._plan(done)
        if not self._warmup and (files := StepRecorder.flags_given(params)):
            raise BenchmarkError(f"--{files[0]} records a warm-up step; let there be at least one")
        if params.freeze_when_forward_only:
            session, measures, batches = frozen_session(session, config, built.steps.measures, built.batches)
            start_input(session, batches, done)
            built.steps = Steps(measures, measures, None, None)
        evaluate = None
        if built.evaluation is not None:
            graph = built.evaluation
            averages = [n for n, v in built.model.items() if not v.trainable]

            def evaluate(step: int) -> dict[str, Any]:
                # As a checkpoint of now would be evaluated; each rank had averages of its own images.
                self._equalize(session, averages)
                return self._evaluated(session, graph, step, between.log)

        checkpoints = built.restore_into if params.training else None
        between = replace(between, checkpoints=checkpoints, evaluate=evaluate)
        loop = TrainingLoop(
            params,
            self._workers,
            self._print,
            session,
            built.steps,
            between,
            self._batch,
            self._graph_key,
        )
        result = loop.run(plan, done)
        if built.loss_scale.adapts:
            result["loss_scale"] = float(session.run(built.loss_scale.factor))
        return result

    def _evaluated(
        self, session: Any, graph: EvaluationGraph, step: int, log: BenchmarkLog | None
    ) -> dict[str, Any]:
        """Evaluates after `step` steps, and files the accuracies where the flags say so."""
        assert self._evaluator is not None
        result = self._evaluator.evaluate(session, graph)
        top1, top5 = result["top_1_accuracy"], result["top_5_accuracy"]
        if self._events_of_evaluation is not None:
            values = {"eval/Accuracy@1": top1, "eval/Accuracy@5": top5}
            self._events_of_evaluation.scalars(values, step)
        if log is not None:
            log.metric("eval_top_1_accuracy", top1, step)
            log.metric("eval_top_5_accuracy", top5, step)
            log.metric("eval_average_examples_per_sec", result["images_per_sec"], step)
        return result

    def _evaluate(self, session: Any, built: Graph) -> dict[str, Any]:
        """--eval: of one checkpoint, or with --eval_interval_secs of each that appears, until the run is
        ended."""
        assert built.evaluation is not None
        interval = self._params.eval_interval_secs
        log = BenchmarkLog(Path(self._params.benchmark_log_dir or "")) if self._logs() else None
        if interval:
            session.run(self._first)
        last: str | None = None
        while True:
            if not interval:
                step = self._initialize(session, built)
            else:
                newest = self._await_checkpoint(built, last, interval)
                # The other ranks need not see the folder.
                step = self._load(session, built, newest)
                last = newest
            result = self._evaluated(session, built.evaluation, step, log)
            self._print(*report.total_lines(result["images_per_sec"]))
            if not interval:
                return result

    def _await_checkpoint(self, built: Graph, last: str | None, interval: int) -> str | None:
        """Rank 0: the next checkpoint after `last`, looked for every `interval` seconds; the others wait for
        it."""
        waited = False
        while True:
            newest = built.restore_into.newest() if built.restore_into is not None else None
            appeared = newest is not None and newest != last
            if self._workers.mean(np.asarray([float(appeared)]), "checkpoint")[0]:
                return newest
            if not waited:
                self._print(f"Checkpoint not found in {self._params.train_dir}")
            waited = True
            time.sleep(interval)

    def _logs(self) -> bool:
        return self._params.benchmark_log_dir is not None and self._workers.rank == 0

    def _benchmark_log(self) -> BenchmarkLog | None:
        """Begun with the description of this run."""
        params = self._params
        if not self._logs():
            return None
        log = BenchmarkLog(Path(params.benchmark_log_dir or ""))
        log.run(
            model=self._model.title,
            dataset=self._data.title,
            tensorflow=tf.__version__,
            test_id=params.benchmark_test_id,
            flags={name: getattr(params, name) for name in flag_fields()},
        )
        return log

    # Reporting

    def _mode(self) -> str:
        if self._params.eval:
            return "evaluation"
        if self._params.forward_only:
            return "forward only"
        return "training + evaluation" if self._params.evaluated else "training"

    def _models(self) -> list[str]:
        """The kinds of model that the graph holds."""
        if self._params.eval:
            return ["evaluation"]
        return ["training", "evaluation"] if self._evaluator is not None else ["training"]

    def _setup_lines(self) -> list[str]:
        params = self._params
        batches = self._timed_steps()
        spec = params.all_reduce_spec
        if params.eval:
            assert self._evaluator is not None
            batches = self._evaluator.steps
        return report.setup_lines(
            tensorflow=tf.__version__,
            model=self._model.title,
            dataset=self._data.title,
            mode=self._mode(),
            single_session=params.variable_update == "distributed_all_reduce",
            batch_group=params.batch_group_size,
            global_batch=self._global_batch,
            device_batch=self._device_batch,
            num_batches=batches,
            num_epochs=batches * self._global_batch / self._examples,
            devices=self._shown_devices(),
            data_format=self._machine.data_format,
            rewriter_config=params.rewriter_config,
            optimizer=params.optimizer,
            variables=params.variable_update,
            all_reduce=(stands_for_nccl(spec) or spec) if spec else None,
            horovod_device=params.horovod_device if params.variable_update == "horovod" else None,
            numa_bind=params.use_numa_affinity,
            cluster=self._cluster.jobs if self._cluster is not None else None,
            sync=params.cross_replica_sync,
        )

    def _shown_devices(self) -> list[str]:
        """With Horovod, those of all ranks."""
        devices = self._machine.devices
        if self._params.variable_update != "horovod":
            return devices
        kind = devices[0].strip("/").partition(":")[0]
        return [f"horovod/{kind}:{rank}" for rank in range(self._workers.size)]

    def _description(self) -> dict[str, Any]:
        params, machine = self._params, self._machine
        tasks: dict[str, Any] = {}
        if self._cluster is not None:
            tasks = {"cluster": self._cluster.jobs, "cross_replica_sync": params.cross_replica_sync}
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
            "ddl": {},
            **tasks,
            **({"test_id": params.benchmark_test_id} if params.benchmark_test_id is not None else {}),
        }


def input_options(params: Params) -> InputOptions:
    """What the flags say about real input."""
    return InputOptions(
        input_preprocessor=params.input_preprocessor,
        resize_method=params.resize_method,
        distortions=params.distortions,
        distort_color_in_yiq=params.distort_color_in_yiq,
        fuse_decode_and_crop=params.fuse_decode_and_crop,
        ml_perf=params.ml_perf,
        prefetch=params.datasets_prefetch_buffer_size if params.datasets_use_prefetch else 0,
        private_threads=params.datasets_num_private_threads,
        use_caching=params.datasets_use_caching,
        repeat_cached_sample=params.datasets_repeat_cached_sample,
        cycle_length=params.datasets_parallel_interleave_cycle_length,
        sloppy=params.datasets_sloppy_parallel_interleave,
        interleave_prefetch=params.datasets_parallel_interleave_prefetch,
        batch_group_size=params.batch_group_size,
    )


def start_input(session: Any, batches: Iterable[Batch], done: int) -> None:
    """Starts the input of the step after `done` steps."""
    for batch in batches:
        if batch.initializer is not None:
            session.run(batch.initializer, {**batch.feed, batch.start_step: done})


def restarter(batches: list[Batch]) -> Callable[[Any], None]:
    return lambda session: start_input(session, batches, 0)


def loaders(variables: dict[str, Any]) -> dict[str, tuple[Any, Any, Any]]:
    """For each variable: a tensor to read it, a placeholder, and the operator that takes the placeholder."""
    loaders = {}
    for name, variable in sorted(variables.items()):
        placeholder = v1.placeholder(variable.dtype, variable.shape)
        with tf.device(variable.device):
            assign = variable.assign(placeholder, read_value=False)
        loaders[name] = (variable.read_value(), placeholder, assign)
    return loaders
