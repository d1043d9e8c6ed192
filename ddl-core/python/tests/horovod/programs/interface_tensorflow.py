"""What `horovod.tensorflow` and its Keras modules offer, compared with numpy or with one process.

With TF_USE_LEGACY_KERAS=1 tf_keras is what Horovod's modules for Keras are for.
"""

import os
import tempfile
import time
from pathlib import Path

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from _cases import run

LEGACY = os.environ["TF_USE_LEGACY_KERAS"] == "1"
if LEGACY:
    import horovod.tensorflow.keras as hvd_keras
    import horovod.tensorflow.keras.callbacks as callbacks
    import tf_keras as keras
else:
    import horovod.keras as hvd_keras
    import horovod.keras.callbacks as callbacks
    import keras

hvd.init()
hvd_keras.init()
RANK, SIZE = hvd.rank(), hvd.size()
assert SIZE == 2
OF_REDUCTIONS = (tf.uint8, tf.int8, tf.int32, tf.int64, tf.float16, tf.float32, tf.float64)


def filled(count, kind, value=None):
    return tf.cast(tf.fill((count, 2), RANK + 1 if value is None else value), kind)


def refused(words, call):
    """Asserts that a call ends with an error of these words."""
    try:
        call()
    except (RuntimeError, ValueError, tf.errors.InvalidArgumentError) as error:
        assert words in str(error), error
    else:
        raise AssertionError("accepted")


def who():
    @tf.function
    def by_operators():
        return [hvd.rank_op(), hvd.size_op(), hvd.local_rank_op(), hvd.local_size_op()]

    assert [int(number) for number in by_operators()] == [RANK, 2, RANK, 2]
    assert int(hvd.process_set_included_op()) == 1 and hvd.is_homogeneous()
    for module in (hvd, hvd_keras):
        assert (module.rank(), module.size(), module.local_rank(), module.local_size()) == (RANK, 2, RANK, 2)
        assert (module.cross_rank(), module.cross_size(), module.is_initialized()) == (0, 1, True)
        assert module.ddl_built() and module.mpi_built() and module.mpi_enabled()
        assert module.mpi_threads_supported() and module.global_process_set.size() == 2
        built = [module.gloo_built(), module.gloo_enabled(), module.nccl_built(), module.ccl_built()]
        assert not any([*built, module.cuda_built(), module.rocm_built()])


def reductions():
    wanted = {hvd.Sum: 3, hvd.Average: 1.5, hvd.Min: 1, hvd.Max: 2, hvd.Product: 2}
    for kind in OF_REDUCTIONS:
        for op, value in wanted.items():
            found = hvd.allreduce(filled(3, kind), op=op, name=f"{kind.name} {op}")
            expected = value if kind.is_floating else int(value)
            assert found.dtype == kind and (found.numpy() == expected).all(), (kind, op, found)
    assert (hvd.allreduce(filled(3, tf.float32), compression=hvd.Compression.fp16).numpy() == 1.5).all()
    rows = tf.IndexedSlices(filled(1, tf.float32), tf.constant([RANK]), (4, 2))
    assert len(hvd.allreduce(rows, op=hvd.Average, name="rows").indices) == 2
    orthogonal = tf.constant([1.0, 0.0] if RANK == 0 else [0.0, 2.0])
    np.testing.assert_allclose(hvd.allreduce(orthogonal, op=hvd.Adasum), [1, 2])
    grouped = hvd.grouped_allreduce([filled(2, tf.float32), filled(3, tf.float32)], op=hvd.Sum)
    assert [float(tf.reduce_max(part)) for part in grouped] == [3, 3]


def other_collectives():
    for kind in (*OF_REDUCTIONS, tf.uint16, tf.int16, tf.bool):
        gathered = hvd.allgather(filled(RANK + 1, kind), name=f"gather {kind.name}")
        assert gathered.shape == (3, 2) and gathered.dtype == kind
        assert (
            hvd.broadcast(filled(2, kind), 1, name=f"root {kind.name}").numpy()
            == np.array(2, kind.as_numpy_dtype)
        ).all()
    assert [len(part) for part in hvd.grouped_allgather([tf.ones(2), tf.ones(RANK + 1)])] == [4, 3]
    assert len(hvd.reducescatter(tf.range(5.0), op=hvd.Sum)) == (3 if RANK == 0 else 2)
    assert [float(part[0]) for part in hvd.grouped_reducescatter([tf.ones(4)], op=hvd.Sum)] == [2]
    received, _ = hvd.alltoall(tf.range(3.0) + 10.0 * RANK, splits=tf.constant([1, 2]))
    assert received.numpy().tolist() == ([0, 10] if RANK == 0 else [1, 2, 11, 12])
    assert hvd.broadcast_object({"rank": RANK}, 1) == {"rank": 1} and hvd.allgather_object(RANK) == [0, 1]
    variables = [tf.Variable([float(RANK)]), tf.Variable([RANK])]
    hvd.broadcast_variables(variables, root_rank=1)
    hvd.broadcast_([variables[0]], 1)
    assert [float(variable[0]) for variable in variables] == [1, 1]


def graphs_of_tensorflow_1():
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        send = hvd.broadcast_object_fn(root_rank=1, session=session)
        assert send({"rank": RANK}) == {"rank": 1}
        weight = v1.get_variable("weight", initializer=float(RANK))
        everywhere = hvd.broadcast_global_variables(1)
        optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0))
        step = optimizer.minimize(weight * (RANK + 1.0))
        session.run(v1.global_variables_initializer())
        session.run(everywhere)
        session.run(step)
        assert float(session.run(weight)) == 1 - 1.5


def tapes():
    for kind in (hvd.DistributedGradientTape, hvd.PartialDistributedGradientTape):
        weight = tf.Variable(1.0)
        with tf.GradientTape() as tape:
            loss = (RANK + 1.0) * weight
        assert float(kind(tape).gradient(loss, [weight])[0]) == 1.5, kind


def loop(optimizer, kind=tf.GradientTape, function=False):
    """Some updates of a weight by an optimizer, with a tape; the weight."""
    weight = tf.Variable(4.0)

    def step():
        with tf.GradientTape() as tape:
            loss = (RANK + 1.0) * weight**2
        if kind is not tf.GradientTape:
            tape = kind(tape)
        optimizer.apply_gradients(zip(tape.gradient(loss, [weight]), [weight], strict=True))

    step = tf.function(step) if function else step
    for _ in range(5):
        step()
    return float(weight)


def optimizers_with_a_tape():
    """Keras 3's average what they are given. Others do not, and ranks that drift apart are an error."""
    v1 = tf.compat.v1.train.GradientDescentOptimizer
    for make in (lambda: keras.optimizers.SGD(0.01), lambda: v1(0.01)):
        wanted = 4.0 * (1 - 0.01 * 3) ** 5
        for function in (False, True):
            averaged = loop(hvd.DistributedOptimizer(make()), hvd.DistributedGradientTape, function)
            np.testing.assert_allclose(averaged, wanted, rtol=1e-5)
            try:
                alone = loop(hvd.DistributedOptimizer(make()), function=function)
            except RuntimeError as error:
                assert "drifted apart" in str(error) and "averaged" in str(error), error
                assert LEGACY or isinstance(make(), v1)
            else:
                assert not LEGACY and not isinstance(make(), v1)
                np.testing.assert_allclose(alone, wanted, rtol=1e-5)


def optimizers():
    if LEGACY:
        accumulating = hvd_keras.DistributedOptimizer(
            keras.optimizers.legacy.SGD(1.0), backward_passes_per_step=2, average_aggregated_gradients=True
        )
        weight = tf.Variable(0.0)
        for _ in range(4):
            accumulating.minimize(lambda: (RANK + 1.0) * weight, [weight])
        assert float(weight) == -3, float(weight)
        return
    refused(
        "gradient_accumulation_steps=2",
        lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=2),
    )
    own, shared = keras.layers.Dense(1, use_bias=False), keras.layers.Dense(1, use_bias=False)
    for layer in (own, shared):
        layer.build((None, 1))
        layer.set_weights([np.zeros((1, 1))])
    partial = hvd_keras.PartialDistributedOptimizer(keras.optimizers.SGD(1.0), local_layers=own)
    weights = [own.kernel, shared.kernel]
    partial.apply_gradients([(tf.fill((1, 1), RANK + 1.0), weight) for weight in weights])
    # Gradients of layers of one rank are scaled as those of a sum.
    assert [float(weight.numpy()[0, 0]) for weight in weights] == [-(RANK + 1) / 2, -1.5]


def what_is_of_tensorflow_1():
    """Refused in eager execution."""
    refused("hvd.broadcast_variables", lambda: hvd_keras.broadcast_global_variables(0))
    refused("hvd.broadcast_variables", lambda: hvd.broadcast_global_variables(0))
    refused("eager execution", hvd.broadcast_object_fn)
    descent = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    refused("write op=hvd.Average", lambda: hvd.DistributedOptimizer(descent, op=hvd.Adasum))
    refused("bfloat16", lambda: hvd.allreduce(tf.ones(1, tf.bfloat16)))


def collectives_of_keras():
    assert float(hvd_keras.allreduce(np.array([RANK + 1.0], "f"), op=hvd_keras.Average)[0]) == 1.5
    assert len(hvd_keras.allgather(np.ones((RANK + 1, 2), "f"))) == 3
    assert float(hvd_keras.broadcast(np.array([float(RANK)], "f"), 1)[0]) == 1
    assert len(hvd_keras.reducescatter(np.ones(4, "f"))) == 2
    halves = hvd_keras.allreduce(np.ones(2, "f"), op=hvd_keras.Sum, compression=hvd_keras.Compression.fp16)
    np.testing.assert_array_equal(halves, [2, 2])
    if not LEGACY:
        orthogonal = np.array([1, 0] if RANK == 0 else [0, 2], "f")
        np.testing.assert_allclose(hvd_keras.allreduce(orthogonal, op=hvd_keras.Adasum), [1, 2])


def callbacks_of_keras():
    keras.utils.set_random_seed(RANK)
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile(hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.01, momentum=0.9)), "mse")
    used = [
        callbacks.BroadcastGlobalVariablesCallback(0),
        callbacks.MetricAverageCallback(),
        callbacks.LearningRateWarmupCallback(0.02, warmup_epochs=1),
        callbacks.LearningRateScheduleCallback(0.02, start_epoch=1, multiplier=lambda epoch: 0.5),
    ]
    x = np.random.RandomState(RANK).rand(32, 2)
    losses = model.fit(x, x.sum(1), epochs=3, verbose=0, callbacks=used).history["loss"]
    assert hvd.allgather_object(losses)[0] == losses
    weights = hvd.allgather_object(model.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)


def synchronized_batch_normalization():
    batch = np.random.RandomState(3).randn(8, 4, 4, 3).astype("f")
    layer, alone = hvd.SyncBatchNormalization(), keras.layers.BatchNormalization()
    part, whole = tf.constant(batch[4 * RANK :][:4]), tf.constant(batch)
    for _ in range(2):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([part, whole])
            found, wanted = layer(part, training=True), alone(whole, training=True)
            losses = tf.reduce_sum(found**3), tf.reduce_sum(wanted**3)
        np.testing.assert_allclose(found, wanted[4 * RANK :][:4], atol=1e-5)
        gradients = tape.gradient(losses[0], part), tape.gradient(losses[1], whole)
        np.testing.assert_allclose(gradients[0], gradients[1][4 * RANK :][:4], atol=2e-4)
    np.testing.assert_allclose(layer.moving_mean, alone.moving_mean, atol=1e-6)
    np.testing.assert_allclose(layer.moving_variance, alone.moving_variance, rtol=2e-2)


def sets_of_ranks():
    for module in (hvd, hvd_keras) if LEGACY else (hvd,):
        alone = module.add_process_set(module.ProcessSet([1]))
        if alone.included():
            assert float(hvd.allreduce(tf.ones(1), op=hvd.Sum, process_set=alone, name="alone")[0]) == 1
        assert module.remove_process_set(alone)


def timeline_of_a_while():
    for module in (hvd, hvd_keras):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "timeline.json")
            module.start_timeline(str(file))
            for step in range(20):  # It begins and is written in the background.
                hvd.allreduce(tf.ones(2), name=f"step {step}")
            module.stop_timeline()
            end = time.monotonic() + 30
            while RANK == 0 and "DDL_ALLREDUCE" not in file.read_text():
                assert time.monotonic() < end, file.read_text()[:500]
                time.sleep(0.05)


def elastic_with_the_same_ranks():
    import horovod.tensorflow.elastic as elastic

    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.1)
    state = elastic.TensorFlowKerasState(model, optimizer, epoch=0)
    epochs = []

    @elastic.run
    def train(state):
        while state.epoch < 3:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(model(tf.fill((2, 2), RANK + 1.0)))
            gradients = hvd.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            epochs.append(state.epoch)
            state.epoch += 1
            state.commit()

    train(state)
    assert epochs == [0, 1, 2]


def goes_on_behind_a_join():
    for epoch in range(2):
        for step in range(4 if RANK == 0 else 2):
            hvd.allreduce(tf.ones(2), name=f"step {step}")
        assert int(hvd.join()) == 0, epoch
        for _ in range(3):
            assert hvd.allreduce(tf.ones(3), op=hvd.Sum).numpy().tolist() == [2.0] * 3


def drift_behind_a_join():
    """Ranks that have made other numbers of updates compare after the same ones again."""
    weight, optimizer = tf.Variable([1.0, 2.0]), keras.optimizers.SGD(0.01)

    def train(updates):
        for _ in range(updates):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum((RANK + 1.0) * weight)
            gradients = hvd.DistributedGradientTape(tape).gradient(loss, [weight])
            optimizer.apply_gradients(zip(gradients, [weight], strict=True))

    train(10 + 3 * RANK)
    last = int(hvd.join())
    assert last == 1
    hvd.broadcast_variables([weight], root_rank=last)
    train(20 + 3 * RANK)
    assert int(hvd.join()) == last
    refused("after hvd.join, broadcast the weights", lambda: train(5))


def joins_in_graphs():
    """Of a function and of a session. Rank 1 has more data. (What is constant is reduced once.)"""
    ones = tf.Variable([1.0, 1.0])

    @tf.function
    def step():
        return hvd.allreduce(ones + 0.0, op=hvd.Sum)

    @tf.function
    def join():
        return hvd.join()

    for _ in range(2):
        sums = [float(step()[0]) for _ in range(2 + RANK)]
        assert sums == [2, 2, 1][: len(sums)], sums
        assert int(join()) == 1
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [2])
        summed, joined = hvd.allreduce(x, op=hvd.Sum), hvd.join()
        for _ in range(2):
            sums = [session.run(summed, {x: [1, 1]})[0] for _ in range(2 + RANK)]
            assert sums == [2, 2, 1][: len(sums)], sums
            assert session.run(joined) == 1
        assert session.run(summed, {x: [1, 1]})[0] == 2


def traces_differ():
    """Calls without a name, also of a tape and of the backward pass: ranks run other traces of a function."""
    weight = tf.Variable([[1.0], [2.0]])

    @tf.function(reduce_retracing=True)
    def step(x):
        if x.shape[0] is None:  # another number of operators, and other scopes
            x = tf.identity(x) + tf.zeros_like(x)
        with tf.GradientTape() as tape:
            loss = hvd.allreduce(tf.reduce_sum(x @ weight), op=hvd.Sum)
            loss *= tf.cond(tf.reduce_sum(x) > 0, lambda: hvd.allreduce(tf.reduce_sum(x)), lambda: 0.0)
        gradient = hvd.DistributedGradientTape(tape).gradient(loss, [weight])[0]
        return gradient, hvd.allreduce(gradient + weight, op=hvd.Sum)

    wanted = step(tf.ones((2, 2)))
    # Rank 0 has relaxed the shape in its second step, rank 1 has not.
    step(tf.ones((3 - RANK, 2)))
    for one, other in zip(step(tf.ones((2, 2))), wanted, strict=True):
        np.testing.assert_allclose(one, other)
    traces = hvd.allgather_object(step.experimental_get_tracing_count())
    assert traces == [2, 1], traces


run(
    [
        *(
            who,
            reductions,
            other_collectives,
            graphs_of_tensorflow_1,
            tapes,
            optimizers_with_a_tape,
            optimizers,
        ),
        *(
            what_is_of_tensorflow_1,
            collectives_of_keras,
            callbacks_of_keras,
            synchronized_batch_normalization,
            sets_of_ranks,
            timeline_of_a_while,
        ),
        *(elastic_with_the_same_ranks, goes_on_behind_a_join, drift_behind_a_join, traces_differ),
        joins_in_graphs,
    ]
)
hvd_keras.shutdown()
assert not hvd.is_initialized()
hvd.shutdown()
