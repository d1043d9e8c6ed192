"""A worker of parameter servers: parameter_server and distributed_replicated over processes.

Each worker builds its own graph over the same variables. Worker 0, the chief, sets the variables, restores
and saves them, evaluates and prints.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf

from tf_cnn_benchmarks.backbone import backbone_values
from tf_cnn_benchmarks.benchmark import (
    Benchmark,
    Graph,
    ended,
    loaders,
    restarter,
    start_input,
)
from tf_cnn_benchmarks.checkpoint import first_copies, model_variables
from tf_cnn_benchmarks.cluster import peers
from tf_cnn_benchmarks.cluster.placement import FIRST, Placement
from tf_cnn_benchmarks.cluster.served_loop import ServedLoop
from tf_cnn_benchmarks.cluster.served_steps import (
    AsyncGraph,
    AsyncStepper,
    Job,
    Stepper,
    Superseded,
    SyncGraph,
    SyncStepper,
    missing_ps,
)
from tf_cnn_benchmarks.cluster.served_variables import ServedVariables
from tf_cnn_benchmarks.cluster.server import (
    farewell,
    open_session,
    served_tasks,
    session_limits,
    start_server,
)
from tf_cnn_benchmarks.cluster.shared_state import SharedState
from tf_cnn_benchmarks.cluster.spec import PS, WORKER, Cluster, task_device
from tf_cnn_benchmarks.cluster.workers import ClusterWorkers
from tf_cnn_benchmarks.errors import BenchmarkError
from tf_cnn_benchmarks.evaluation import EvaluationGraph
from tf_cnn_benchmarks.loss_scale import LossScale
from tf_cnn_benchmarks.optimizers import make_optimizer
from tf_cnn_benchmarks.params import Params
from tf_cnn_benchmarks.schedule import learning_rate
from tf_cnn_benchmarks.summaries import summary_of
from tf_cnn_benchmarks.towers import Tower
from tf_cnn_benchmarks.training_loop import Between, Steps
from tf_cnn_benchmarks.variable_update import Pairs, clipped
from tf_cnn_benchmarks.workers import OneProcess, Workers

v1 = tf.compat.v1

LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.FailedPreconditionError,
    tf.errors.NotFoundError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
)
"""What TensorFlow says when a server has gone, or has come back without its variables."""
MOST_FAILURES = 5
"""So often in a row, without a step between, the way back is tried."""
LOOK_MS = 120_000


@dataclass
class ServedGraph(Graph):
    """See Graph. `initialized`: whether each variable has a value. `job`, `begun`: see SharedState."""

    state: SharedState
    sync: SyncGraph | None
    alone: AsyncGraph | None
    initialized: Any
    first: Any
    local: Any
    refresh: Any
    job: Any
    begun: Any
    over: Any
    set_job: tuple[Any, Any]
    set_over: tuple[Any, Any]
    clear: Any
    ring_all: Any
    loads: dict[str, Any] = field(default_factory=dict)


class ServedBenchmark(Benchmark):
    """One worker's run."""

    def __init__(self, params: Params, cluster: Cluster) -> None:
        self._tasks = cluster
        self._job: Job | None = None
        self._entered = False
        super().__init__(
            params, ClusterWorkers(cluster), cluster=cluster, home=task_device(WORKER, cluster.index)
        )
        if not params.cross_replica_sync:
            self._update_batch = self._batch
        if not cluster.leads:
            self._evaluator = None
        self._server = start_server(cluster, super()._session_config(), params.server_protocol)
        self._target = self._server.target

    def _evaluating(self) -> Workers:
        return OneProcess()

    def _session_config(self) -> Any:
        return session_limits(super()._session_config(), [f"/job:{PS}", str(self._home)])

    # The graph

    def _build(self) -> ServedGraph:
        params, cluster = self._params, self._tasks
        placement = Placement(len(cluster.ps))
        devices = [f"{self._home}{device}" for device in self._machine.devices]
        copied = params.variable_update == "distributed_replicated"
        with tf.device(FIRST):
            global_step = v1.get_variable(
                "global_step", [], tf.int64, initializer=v1.zeros_initializer(), trainable=False,
                use_resource=True,
            )  # fmt: skip
            scale = LossScale(params, self._model)
        batches, inputs = self._inputs(training=True, device_batch=self._device_batch)
        variables = ServedVariables(placement, devices, copied=copied)
        towers = variables.build(self._tower(inputs, training=True, scale=scale.factor))
        model = model_variables()
        measures = self._measures(towers)
        state = SharedState(self._workers.size)
        sync, alone = None, None
        if params.cross_replica_sync:
            sync = self._sync_graph(variables, towers, global_step, scale, measures, state)
        else:
            alone = self._async_graph(variables, towers, global_step, scale, measures, state)
        evaluation = None
        if self._evaluator is not None:
            others, eval_inputs = self._inputs(training=False, device_batch=self._eval_device_batch)
            evaluated = variables.build_evaluation(self._tower(eval_inputs, training=False))
            evaluation = EvaluationGraph(self._measures(evaluated), restarter(others))
        new_job, new_over = v1.placeholder(tf.int64, [3]), v1.placeholder(tf.int64, [])
        return ServedGraph(
            steps=Steps(None, measures, None, None),
            evaluation=evaluation,
            global_step=global_step,
            start=lambda session, done: start_input(session, batches, done),
            restore_into=self._checkpoints(),
            batches=batches,
            model=model,
            loss_scale=scale,
            state=state,
            sync=sync,
            alone=alone,
            initialized=tf.stack([_is_initialized(v) for v in v1.global_variables()]),
            first=tf.group(v1.global_variables_initializer()),
            local=tf.group(v1.local_variables_initializer()),
            refresh=tf.group(variables.refresh()),
            job=state.job.read(),
            begun=state.begun.read(),
            over=state.over.read(),
            set_job=(new_job, state.job.write(new_job)),
            set_over=(new_over, state.over.write(new_over)),
            clear=tf.group(
                [*state.clear(), state.begun.write(global_step.read_value()), state.over.write(0)]
            ),
            ring_all=tf.group([bell.ring() for bell in state.releases[1:]]),
            loads=loaders(first_copies()) if cluster.leads else {},
        )

    def _sync_graph(
        self,
        variables: ServedVariables,
        towers: list[Tower],
        global_step: Any,
        scale: LossScale,
        measures: Any,
        state: SharedState,
    ) -> SyncGraph:
        cluster = self._tasks
        pairs = variables.mean_pairs(towers)
        mark = v1.placeholder(tf.int64, [2])
        averages = variables.averages(towers) if cluster.leads else []
        laid = state.lay_down(cluster.index, mark, pairs, measures, averages)
        applied, mean_measures, summary, marks, arrived = None, None, None, None, None
        if cluster.leads:
            with tf.device(FIRST):
                number = global_step.read_value() + 1
            with tf.control_dependencies([state.begun.write(number)]):
                means = state.mean_pairs(pairs)
                applied, rate = self._applied(means, global_step, scale)
            after = self._step_made(applied, global_step)
            with tf.control_dependencies([after]):
                released = [bell.ring() for bell in state.releases[1:]]
            applied = tf.group([after, *released, *variables.refresh([after])])
            mean_measures = state.measures()
            if self._params.save_summaries_steps:
                summary = summary_of(
                    self._params.summary_verbosity,
                    self._params.loss_type_to_report,
                    mean_measures[0],
                    rate,
                    means,
                )
            marks = state.read_marks()
            with tf.control_dependencies([state.arrivals.heard()]):
                arrived = state.read_marks()
        look, heard = (self._look(variables, global_step, state, ring) for ring in (False, True))
        return SyncGraph(mark, laid, marks, arrived, applied, mean_measures, look, heard, summary)

    def _look(self, variables: ServedVariables, global_step: Any, state: SharedState, ring: bool) -> Any:
        """[job, step count], and then copies of what the masters were not before that; with `ring` after
        worker 0 has rung."""
        with tf.control_dependencies([state.releases[self._tasks.index].heard()] if ring else []):
            job = state.job.read()
            with tf.device(FIRST):
                done = global_step.read_value()
        refreshed = variables.refresh([done])
        with tf.control_dependencies(refreshed), tf.device("/cpu:0"):
            return [tf.identity(job), tf.identity(done)]

    def _async_graph(
        self,
        variables: ServedVariables,
        towers: list[Tower],
        global_step: Any,
        scale: LossScale,
        measures: Any,
        state: SharedState,
    ) -> AsyncGraph:
        pairs = variables.mean_pairs(towers)
        averages = variables.averages(towers) if self._tasks.leads else []
        applied, rate = self._applied(pairs, global_step, scale)
        summary = None
        if self._params.save_summaries_steps and self._tasks.leads:
            summary = summary_of(
                self._params.summary_verbosity, self._params.loss_type_to_report, measures[0], rate, pairs
            )
        after = self._step_made([*applied, *averages], global_step)
        with tf.control_dependencies([after, *variables.refresh([after])]):
            job = state.job.read()
            with tf.device(FIRST):
                done = global_step.read_value()
        return AsyncGraph([done, job, measures], summary)

    def _applied(self, pairs: Pairs, global_step: Any, scale: LossScale) -> tuple[list[Any], Any]:
        """The operators that change the variables by these gradients, and the learning rate."""
        params = self._params
        with tf.device("/cpu:0"):
            with tf.device(FIRST):
                step = global_step.read_value()
            rate = learning_rate(params, self._model, step, self._update_batch, self._examples)
        optimizer = make_optimizer(params, rate, use_locking=not params.cross_replica_sync)

        def apply() -> list[Any]:
            return [optimizer.apply_gradients(clipped(pairs, params.gradient_clip))]

        with tf.device(FIRST):
            return scale.apply([g for g, _ in pairs], apply), rate

    @staticmethod
    def _step_made(operations: list[Any], global_step: Any) -> Any:
        with tf.control_dependencies(operations), tf.device(FIRST):
            return global_step.assign_add(1, read_value=False)

    # Running

    def _run_graph(self, graph: Any, built: Graph, between: Between) -> dict[str, Any]:
        """Makes sessions until the training is over: each time a server was lost, or worker 0 has set the
        variables anew, another."""
        assert isinstance(built, ServedGraph)
        loop = ServedLoop(
            self._params,
            self._print,
            between,
            self._batch,
            self._update_batch,
            self._tasks,
            each=self._each,
            uncounted=self._warmup_of_all(),
        )
        failures, steps_before = 0, -1
        while True:
            peers.await_tasks(self._tasks, served_tasks(self._tasks))
            session = open_session(self._target, graph, self._session_config())
            try:
                result = self._trained(session, built, loop)
                served = served_tasks(self._tasks)
                farewell(self._tasks, self._target, str(self._home), self._tasks.index, served)
                return result
            except Superseded:
                peers.say(f"{self._tasks.task}: worker 0 has restored the variables; continuing from there")
            except LOST as error:
                failures = failures + 1 if loop.steps_made == steps_before else 1
                steps_before = loop.steps_made
                self._lost(error, failures)

    def _lost(self, error: Any, failures: int) -> None:
        """Says what was lost; BenchmarkError where there is no way back."""
        gone = [index for _, index in missing_ps(self._tasks)]
        named = re.search(r"/job:ps/replica:0/task:(\d+)", str(error))
        if not gone and named:
            gone = [int(named[1])]
        if not gone and (failures > MOST_FAILURES or self._params.train_dir is None):
            raise ended(error) from error
        who = ", ".join(self._tasks.named(PS, i) for i in gone if i < len(self._tasks.ps)) or "a server"
        kind = type(error).__name__
        if failures > MOST_FAILURES:
            text = " ".join(str(error.message).split())[:300]
            raise BenchmarkError(f"no step was made in {failures} sessions ({kind}: {text})") from error
        if self._params.train_dir is None:
            raise BenchmarkError(
                f"{who} was lost ({kind}), and with it variables of the model; with --train_dir (on all "
                "workers) and --save_model_steps the training would go on from a checkpoint"
            ) from error
        peers.say(f"{self._tasks.task} has lost {who} ({kind}); waits for it to come back")

    def _trained(self, session: Any, built: ServedGraph, loop: ServedLoop) -> dict[str, Any]:
        done = self._lead(session, built) if self._tasks.leads else self._follow(session, built)
        again, self._entered = self._entered, True
        assert self._job is not None
        session.run(built.refresh)
        built.start(session, done if self._params.cross_replica_sync else done // self._workers.size)
        stepper = self._stepper(session, built)
        if not self._tasks.leads:
            loop.follow(stepper, done, self._job)
            self._await_end(session, built)
            return {}
        evaluate = None
        if built.evaluation is not None:
            evaluation = built.evaluation

            def evaluate(step: int) -> dict[str, Any]:
                return self._evaluated(session, evaluation, step, loop.between.log)

        loop.between = replace(loop.between, checkpoints=built.restore_into, evaluate=evaluate)
        result = loop.lead(session, stepper, done, self._job, again=again)
        if built.loss_scale.adapts:
            result["loss_scale"] = float(session.run(built.loss_scale.factor))
        # Nobody makes another step, and those who wait for one learn that none comes.
        self._set_job(session, built, replace(self._job, end=int(result["global_step"])))
        session.run(built.set_over[1], {built.set_over[0]: self._job.generation})
        session.run(built.ring_all)
        return result

    def _stepper(self, session: Any, built: ServedGraph) -> Stepper:
        assert self._job is not None
        if built.sync is not None:
            return SyncStepper(session, built.sync, self._tasks, self._job)
        assert built.alone is not None
        return AsyncStepper(session, built.alone, self._job)

    # Worker 0

    def _lead(self, session: Any, built: ServedGraph) -> int:
        """Variables to go on with: what the servers hold, or the newest checkpoint, or fresh ones. Returns
        the finished steps."""
        session.run(built.local)
        held = self._run_or_none(session, built.initialized)
        old = self._run_or_none(session, built.job)
        if held is None:
            held = np.zeros(1, bool)
        if old is not None and old[0] and held.all():
            step, begun = (int(x) for x in session.run([built.global_step, built.begun]))
            if step == begun or not self._params.cross_replica_sync:
                self._job = Job(*(int(x) for x in old))
                self._print(f"Going on at step {step} with the variables of the parameter servers")
                session.run(built.ring_all)
                return step
        anew = self._entered or held.any()
        newest = built.restore_into.newest() if built.restore_into else None
        if anew and newest is None and self._params.train_dir is None:
            raise BenchmarkError(
                "the parameter servers hold only a part of the variables, of a run before; start them again, "
                "or give --train_dir, from which the training continues"
            )
        if anew:
            # What is computed from here on with variables of before counts for nothing.
            session.run(built.set_job[1], {built.set_job[0]: [0, 0, 0]})
        session.run(built.first)

        def set_value(name: str, value: Any) -> None:
            _, placeholder, assign = built.loads[name]
            session.run(assign, {placeholder: value})

        if newest is not None:
            assert built.restore_into is not None
            built.restore_into.restore(session, newest, set_value)
            self._print(f"Restored {newest}")
        elif self._params.backbone_model_path is not None:
            for name, value in backbone_values(self._params.backbone_model_path, built.model).items():
                set_value(name, value)
            self._print(f"Backbone from {self._params.backbone_model_path}")
        if anew and newest is None:
            self._print("There is no checkpoint yet; the training starts over")
        done = int(session.run(built.global_step))
        session.run(built.clear)
        job = self._job
        if job is None and old is not None and old[2]:
            job = Job(*(int(x) for x in old))
        generation = time.time_ns()
        if job is None:
            timed_from, end = self._ends(done)
            job = Job(generation, timed_from, end)
        self._set_job(session, built, replace(job, generation=generation))
        return done

    def _set_job(self, session: Any, built: ServedGraph, job: Job) -> None:
        self._job = job
        placeholder, assign = built.set_job
        session.run(assign, {placeholder: [job.generation, job.timed_from, job.end]})

    def _ends(self, done: int) -> tuple[int, int]:
        """The steps of the step count after which the clock runs, and after which the training ends. Without
        cross_replica_sync the workers' steps are counted one by one."""
        end = max(done, (self._warmup + self._timed_steps()) * self._each)
        if end == done:
            self._say_that_nothing_is_left(done)
        return done + min(self._warmup_of_all(), max(0, end - done - 1)), end

    @property
    def _each(self) -> int:
        """By how much the step count grows while each worker makes one step."""
        return 1 if self._params.cross_replica_sync else self._workers.size

    def _warmup_of_all(self) -> int:
        return self._warmup * self._each

    # The other workers

    def _follow(self, session: Any, built: ServedGraph) -> int:
        """Waits until worker 0 has set the variables; returns the finished steps."""
        session.run(built.local)
        waiting = peers.Waiting(self._tasks, "set the variables")
        while True:
            job = self._run_or_none(session, built.job)
            if job is not None and job[0]:
                held = self._run_or_none(session, [built.initialized, built.global_step])
                if held is not None and held[0].all():
                    self._job = Job(*(int(x) for x in job))
                    return int(held[1])
            waiting.tick([(WORKER, 0)])
            time.sleep(peers.POLL_S)

    def _await_end(self, session: Any, built: ServedGraph) -> None:
        """Wait until worker 0 has written the last checkpoint.

        Were a server lost before, the training would go on from the one before; Superseded where it does.
        """
        assert self._job is not None
        waiting = peers.Waiting(self._tasks, "end the training")
        while True:
            job, over = session.run([built.job, built.over], options=v1.RunOptions(timeout_in_ms=LOOK_MS))
            if int(job[0]) != self._job.generation:
                raise Superseded
            if int(over) == self._job.generation:
                return
            waiting.tick([(WORKER, 0)])
            time.sleep(peers.POLL_S)

    @staticmethod
    def _run_or_none(session: Any, fetches: Any) -> Any:
        """None where a variable has no value yet."""
        try:
            return session.run(fetches, options=v1.RunOptions(timeout_in_ms=LOOK_MS))
        except (tf.errors.FailedPreconditionError, tf.errors.NotFoundError):
            return None


def _is_initialized(variable: Any) -> Any:
    with tf.device(variable.device):
        return tf.raw_ops.VarIsInitializedOp(resource=variable.handle)
