"""Ranks that drift apart in sessions of TensorFlow 1, and trainings in which nothing drifts.

Argument: ref or resource, the kind of variables.
"""

import os
import sys

os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": "1"}
os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import numpy as np
import tensorflow as tf
import tf_keras
from _cases import run

v1 = tf.compat.v1
v1.disable_v2_behavior()
if sys.argv[1] == "resource":
    v1.enable_resource_variables()
hvd.init()
RANK = hvd.rank()
X, Y = np.random.RandomState(RANK).randn(2, 40, 8, 4).astype("f4")


def by_optimizer(optimizer, loss):
    return hvd.DistributedOptimizer(optimizer).minimize(loss)


def by_hand(optimizer, loss):
    """As tf_cnn_benchmarks does, with clipping behind."""
    gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
    averaged = [hvd.allreduce(gradient, op=hvd.Average) for gradient in gradients]
    clipped, _ = tf.clip_by_global_norm(averaged, 5.0)
    return optimizer.apply_gradients(list(zip(clipped, variables, strict=True)))


def by_keras(optimizer, loss):
    del optimizer
    wrapped = hvd_keras.DistributedOptimizer(tf_keras.optimizers.legacy.SGD(0.05))
    return wrapped.get_updates(loss, v1.trainable_variables())


def by_several_passes(optimizer, loss):
    return hvd.DistributedOptimizer(optimizer, backward_passes_per_step=2).minimize(loss)


# Keras has no reference variables.
WAYS = (by_optimizer, by_hand, by_keras)[: 3 if sys.argv[1] == "resource" else 2]


def train(update, harm=None, broadcast=True, steps=30, seed=0):
    """Steps on batches of each rank. harm: called before each step with session, variables, step."""
    with tf.Graph().as_default():
        v1.set_random_seed(seed)
        x, y = v1.placeholder(tf.float32, [None, 4]), v1.placeholder(tf.float32, [None, 4])
        hidden = v1.layers.dense(x, 6, tf.nn.relu)
        loss = tf.reduce_mean(tf.square(v1.layers.dense(hidden, 4) - y))
        step = update(v1.train.MomentumOptimizer(0.05, 0.9), loss)
        first = v1.trainable_variables()[0]
        value = v1.placeholder(tf.float32, first.shape)
        assign = v1.assign(first, value)
        with v1.Session() as session:
            session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
            if broadcast:
                session.run(hvd.broadcast_global_variables(0))
            for number in range(steps):
                if harm is not None and RANK == 1 and number == harm:
                    session.run(assign, {value: np.ones(first.shape.as_list())})
                session.run(step, {x: X[number % 40], y: Y[number % 40]})


def drifts(*args, **kwargs):
    try:
        train(*args, **kwargs)
    except RuntimeError as error:
        assert "[ERROR DDL-1-7] the ranks have drifted apart: weights differ" in str(error), error
        assert "dense/kernel" in str(error), error
    else:
        raise AssertionError("not noticed")


def nothing_drifts():
    for update in WAYS:
        train(update)


def a_weight_is_set_on_one_rank():
    for update in WAYS:
        drifts(update, harm=5)


def missing_broadcast():
    for update in WAYS:
        drifts(update, broadcast=False, seed=RANK)


def nothing_is_averaged():
    """Warned of where variables are broadcast; it may be meant."""

    def plain(optimizer, loss):
        return optimizer.minimize(loss)

    train(plain)


def a_rank_trains_a_probe_alone():
    """Beside an update that averages, on one rank."""

    def both(optimizer, loss):
        probe = v1.get_variable("probe", [], initializer=v1.zeros_initializer())
        alone = v1.train.GradientDescentOptimizer(0.1).minimize(tf.square(probe - 1.0), var_list=[probe])
        main = hvd.DistributedOptimizer(optimizer).minimize(loss)
        return [main, alone] if RANK == 0 else main

    train(both)


def local_variables():
    """Behind an all-reduce in the forward pass."""

    def update(optimizer, loss):
        local = v1.get_variable("local", [4], initializer=v1.constant_initializer(RANK + 1.0))
        wrapped = hvd.DistributedOptimizer(optimizer, scale_local_gradients=False)
        wrapped.register_local_var(local)
        return wrapped.minimize(hvd.allreduce(loss, op=hvd.Average) + tf.reduce_mean(tf.square(local)))

    train(update, steps=10)


def a_monitored_session():
    """A hook of the user sets a weight on one rank; checkpoints, summaries and the hook of Horovod go on."""

    class Harm(v1.train.SessionRunHook):
        runs = 0

        def after_run(self, run_context, run_values):
            del run_values
            self.runs += 1
            if RANK == 1 and self.runs == 5:
                run_context.session.run("harm")

    for harmed in (False, True):
        with tf.Graph().as_default():
            x = v1.placeholder(tf.float32, [None, 4])
            loss = tf.reduce_mean(tf.square(v1.layers.dense(x, 4)))
            count = v1.train.get_or_create_global_step()
            step = hvd.DistributedOptimizer(v1.train.AdamOptimizer(0.01)).minimize(loss, global_step=count)
            weight = v1.trainable_variables()[0]
            with tf.control_dependencies([v1.assign(weight, tf.zeros_like(weight)).op]):
                tf.no_op(name="harm")
            hooks = [hvd.BroadcastGlobalVariablesHook(0), v1.train.StopAtStepHook(last_step=24)]
            hooks += [Harm()] if harmed else []
            try:
                with v1.train.MonitoredTrainingSession(hooks=hooks) as session:
                    while not session.should_stop():
                        session.run(step, {x: X[0]})
            except RuntimeError as error:
                assert harmed and "the ranks have drifted apart" in str(error), error
            else:
                assert not harmed, "not noticed"


def other_ranks_may_differ():
    """What a process set of one rank averages is not compared."""
    sets = [hvd.add_process_set([rank]) for rank in range(hvd.size())]

    def update(optimizer, loss):
        return hvd.DistributedOptimizer(optimizer, process_set=sets[RANK]).minimize(loss)

    train(update, broadcast=False, seed=RANK)
    for each in sets:
        hvd.remove_process_set(each)


def updates_of_several_passes():
    """They are made in a branch."""
    train(by_several_passes)
    drifts(by_several_passes, harm=5)


def control_flow_v2():
    """It has branches in functions, and no reference variables."""
    if sys.argv[1] == "resource":
        v1.enable_control_flow_v2()
        for update in (*WAYS, by_several_passes):
            train(update)
            drifts(update, harm=5)
        v1.disable_control_flow_v2()


CASES = (nothing_drifts, a_weight_is_set_on_one_rank, missing_broadcast, a_monitored_session)
CASES += (nothing_is_averaged, a_rank_trains_a_probe_alone, local_variables, other_ranks_may_differ)
CASES += (updates_of_several_passes, control_flow_v2)
run(CASES)
