"""What scripts call by themselves: disjoint data, learning rate, accumulation, checkpoints on rank 0."""

import os
import sys
from pathlib import Path

import _cases
import ddl
import ddl.tensorflow as ddl_tf
import keras
import numpy as np
import tensorflow as tf
import tf_keras
from _cases import refused

v1 = tf.compat.v1
RANK, SIZE = ddl.rank(), ddl.size()
FOLDER = Path(sys.argv[1])


def gathered(numbers, what):
    """The numbers of all ranks, which must be as many everywhere."""
    counts = ddl.all_gather(np.array([len(numbers)], np.int64), name=f"count of {what}")
    assert len(set(counts.ravel().tolist())) == 1, (what, counts)
    return ddl.all_gather(np.asarray(numbers, np.int64), name=what)


def datasets_are_cut_evenly():
    """Disjoint, together everything (but the rest), and equally long: known length, unknown and infinite."""
    elements = 4 * SIZE + SIZE - 1
    known = tf.data.Dataset.range(elements)
    unknown = known.filter(lambda x: x >= 0)
    assert int(unknown.cardinality()) == tf.data.UNKNOWN_CARDINALITY
    for name, dataset in (("known", known), ("unknown", unknown)):
        parts = gathered(list(ddl.shard(dataset).as_numpy_iterator()), name)
        assert sorted(parts.ravel().tolist()) == list(range(elements // SIZE * SIZE)), parts
        np.testing.assert_array_equal(parts[RANK], range(RANK, elements // SIZE * SIZE, SIZE))
    filled = gathered(list(ddl.shard(known, "repeat").as_numpy_iterator()), "filled")
    whole = -(-elements // SIZE) * SIZE
    assert sorted(filled.ravel().tolist()) == sorted(i % elements for i in range(whole)), filled
    assert len(known) == elements and len(ddl.shard(known)) == elements // SIZE
    endless = ddl.shard(known.repeat()).take(5)
    wanted = [(RANK + SIZE * i) % elements for i in range(5)]
    np.testing.assert_array_equal(list(endless.as_numpy_iterator()), wanted)
    if SIZE > 1:
        refused(ValueError, ["unknown length", "assert_cardinality"], lambda: ddl.shard(unknown, "repeat"))
        refused(ValueError, ["too few", str(SIZE)], lambda: ddl.shard(known.take(1)))


def datasets_of_any_structure():
    """Elements that are nested, of different lengths, or sparse, of unknown number."""
    texts = tf.data.Dataset.from_generator(
        lambda: (({"words": np.arange(i), "sparse": tf.sparse.eye(i + 1)}, i) for i in range(2 * SIZE + 1)),
        output_signature=(
            {
                "words": tf.TensorSpec([None], tf.int64),
                "sparse": tf.SparseTensorSpec([None, None], tf.float32),
            },
            tf.TensorSpec([], tf.int64),
        ),
    )
    seen = list(ddl.shard(texts))
    assert [int(label) for _, label in seen] == [RANK, RANK + SIZE][: len(seen)] or SIZE == 1, seen
    assert len(seen) == (2 if SIZE > 1 else 3)
    for features, label in seen:
        np.testing.assert_array_equal(features["words"], np.arange(int(label)))
        np.testing.assert_array_equal(
            tf.sparse.to_dense(features["sparse"]), np.eye(int(label) + 1, dtype="f")
        )


def arrays_are_cut_evenly():
    """Arrays and structures of arrays; a batch size for each rank."""
    x, y = np.arange(10 * SIZE + 1) * 2, np.arange(10 * SIZE + 1)
    part = ddl.shard({"x": x, "y": [y]})
    np.testing.assert_array_equal(part["x"], 2 * part["y"][0])
    if SIZE > 1:
        every = gathered(part["y"][0], "arrays")
        assert sorted(every.ravel().tolist()) == list(range(10 * SIZE))
        assert gathered(ddl.shard(y, "repeat"), "filled arrays").size == 11 * SIZE
    refused(ValueError, ["different lengths"], lambda: ddl.shard((x, y[1:])))
    refused(ValueError, ["remainder", "'fill'"], lambda: ddl.shard(x, "fill"))
    assert ddl.per_rank_batch_size(12 * SIZE) == 12
    if SIZE > 1:
        refused(ValueError, ["multiple of"], lambda: ddl.per_rank_batch_size(12 * SIZE + 1))


def learning_rate_in_graphs():
    """A straight line to size() times the rate."""
    for step, wanted in ((0, 0.1), (5, 0.1 * (1 + (SIZE - 1) / 2)), (10, 0.1 * SIZE), (99, 0.1 * SIZE)):
        np.testing.assert_allclose(ddl_tf.warmup_learning_rate(0.1, step, 10), wanted, rtol=1e-6)
    np.testing.assert_allclose(ddl_tf.warmup_learning_rate(0.1, 0, 0), 0.1 * SIZE, rtol=1e-6)
    with tf.Graph().as_default(), v1.Session() as session:
        step = v1.train.get_or_create_global_step()
        rate = ddl_tf.warmup_learning_rate(0.5, step, 4, multiplier=3)
        with ddl_tf.no_broadcast():
            session.run(v1.global_variables_initializer())
        assert session.run(rate) == 0.5
        session.run(step.assign(2))
        assert session.run(rate) == 1.0
    refused(ValueError, ["warmup_steps", "-1"], lambda: ddl_tf.warmup_learning_rate(0.1, 0, -1))


def _model(library):
    library.utils.set_random_seed(RANK)
    shape = {"input_shape": (3,)} if library is tf_keras else {}
    return library.Sequential([library.layers.Dense(1, **shape)])


def learning_rate_in_fit():
    """Rises batch by batch during the first epochs, then is left to others; also when training goes on."""
    optimizers = (
        (keras, lambda: keras.optimizers.SGD(7.0)),
        (keras, lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(7.0), initial_scale=2.0)),
        (tf_keras, lambda: tf_keras.optimizers.SGD(7.0)),
        (tf_keras, lambda: tf_keras.optimizers.legacy.SGD(7.0)),
    )
    x, y = np.ones((8, 3), "f"), np.ones((8, 1), "f")
    for library, make in optimizers:
        model = _model(library)
        model.compile(make(), "mse")
        seen = []

        class Spy(library.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None):
                seen.append(float(np.asarray(self.model.optimizer.learning_rate)))  # noqa: B023

        class Later(library.callbacks.Callback):
            def on_epoch_begin(self, epoch, logs=None):
                if epoch >= 3:
                    self.model.optimizer.learning_rate = 0.25

        warmup = ddl.LearningRateWarmupCallback(1e-3, warmup_epochs=2, multiplier=5)
        model.fit(x, y, batch_size=2, epochs=4, verbose=0, callbacks=[warmup, Later(), Spy()])
        wanted = [1e-3 * (1 + 4 * min(i / 8, 1.0)) for i in range(12)] + [0.25] * 4
        np.testing.assert_allclose(seen, wanted, rtol=1e-5)
        seen.clear()
        default = ddl.LearningRateWarmupCallback(1e-3, warmup_epochs=2)
        model.fit(x, y, batch_size=4, initial_epoch=1, epochs=3, verbose=0, callbacks=[default, Spy()])
        rates = [1e-3 * (1 + (SIZE - 1) * part) for part in (0.5, 0.75, 1.0, 1.0)]
        np.testing.assert_allclose(seen, rates, rtol=1e-5)
        seen.clear()
        at_once = ddl.LearningRateWarmupCallback(1e-3, warmup_epochs=0)
        model.fit(x, y, batch_size=8, epochs=1, verbose=0, callbacks=[at_once, Spy()])
        np.testing.assert_allclose(seen, [1e-3 * SIZE], rtol=1e-5)
        schedule = library.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
        kinds = [library.optimizers.SGD, *([tf_keras.optimizers.legacy.SGD] if library is tf_keras else [])]
        for kind in kinds:
            model.compile(kind(schedule), "mse")
            refused(
                ValueError,
                ["schedule", "compile with a number"],
                lambda: model.fit(x, y, verbose=0, callbacks=[ddl.LearningRateWarmupCallback(0.1)]),  # noqa: B023
            )


def checkpoints_on_rank_0():
    """DDLModelCheckpoint and on_rank_0 write one set of files, by the metrics of all ranks."""
    own = FOLDER / f"checkpoints{RANK}"
    for library in (keras, tf_keras):
        model = _model(library)
        model.compile("sgd", "mse")
        x, y = np.ones((8, 3), "f") * (RANK + 1), np.full((8, 1), 2.0, "f")
        name = library.__name__
        chain = [
            ddl.DDLCallback(),
            ddl.DDLModelCheckpoint(own / f"{name}.keras", monitor="loss", save_best_only=True),
            ddl.DDLModelCheckpoint(
                own / f"{name}.{{epoch}}-{{batch}}.weights.h5", save_weights_only=True, save_freq=2
            ),
            ddl.on_rank_0(library.callbacks.CSVLogger(str(own / f"{name}.csv"))),
        ]
        if RANK == 0:
            own.mkdir(exist_ok=True)
        history = model.fit(x, y, batch_size=2, epochs=2, verbose=0, callbacks=chain).history["loss"]
        if RANK != 0:
            continue
        files = sorted(file.name for file in own.iterdir() if file.name.startswith(f"{name}."))
        assert f"{name}.keras" in files and f"{name}.csv" in files and len(files) > 2, files
        lines = (own / f"{name}.csv").read_text().splitlines()
        np.testing.assert_allclose([float(line.split(",")[1]) for line in lines[1:]], history)
        with ddl_tf.no_broadcast():
            loaded = library.models.load_model(own / f"{name}.keras")
            if min(history) == history[-1]:
                for a, b in zip(loaded.get_weights(), model.get_weights(), strict=True):
                    np.testing.assert_array_equal(a, b)
            loaded.load_weights(own / next(file for file in files if file.endswith(".weights.h5")))
    ddl.barrier()
    assert own.exists() == (RANK == 0)


def accumulation_communicates_once_a_step():
    """Counted by DDL itself; and wrong uses are refused."""
    x, y = np.ones((24, 3), "f"), np.ones((24, 1), "f")

    def reductions(library, optimizer):
        model = _model(library)
        model.compile(optimizer, "mse")
        model.fit(x[:2], y[:2], batch_size=2, verbose=0)  # one batch; the first, which broadcasts
        counts = []
        # What fit broadcasts at its beginning does not count.
        count = library.callbacks.LambdaCallback(
            on_epoch_begin=lambda *_: counts.append(ddl.stats()["calls"]),
            on_epoch_end=lambda *_: counts.append(ddl.stats()["calls"]),
        )
        model.fit(x, y, batch_size=2, epochs=1, verbose=0, callbacks=[count])
        return counts[1] - counts[0], model

    plain = reductions(keras, keras.optimizers.SGD(0.1))[0]
    own = reductions(keras, keras.optimizers.SGD(0.1, gradient_accumulation_steps=4))[0]
    for kinds in (
        (keras, ddl.accumulate_gradients(keras.optimizers.SGD(0.1), 4)),
        (tf_keras, ddl.accumulate_gradients(tf_keras.optimizers.SGD(0.1), 4)),
        (tf_keras, ddl.accumulate_gradients(tf_keras.optimizers.legacy.SGD(0.1), 4)),
    ):
        calls, model = reductions(*kinds)
        if SIZE > 1:
            assert plain == 12 and own == calls == 3, (plain, own, calls)
        np.testing.assert_array_equal(
            ddl.allreduce(model.get_weights()[0].astype("d"), "avg"), model.get_weights()[0]
        )
    assert ddl.accumulate_gradients(keras.optimizers.SGD(0.1), 1).gradient_accumulation_steps is None
    refused(ValueError, ["0", "1 or more"], lambda: ddl.accumulate_gradients(keras.optimizers.SGD(0.1), 0))
    refused(
        ValueError,
        ["accumulates already"],
        lambda: ddl.accumulate_gradients(keras.optimizers.SGD(0.1, gradient_accumulation_steps=2), 2),
    )
    accumulator = ddl_tf.GradientAccumulator(2, lambda pairs: None)
    a, b = tf.Variable([1.0], name="a", trainable=False), tf.Variable([1.0], name="b", trainable=False)
    accumulator.apply_gradients([(tf.ones([1]), a)])
    refused(ValueError, ["b:0", "a:0"], lambda: accumulator.apply_gradients([(tf.ones([1]), b)]))


def accumulation_with_loss_scaling():
    """A batch that overflows on one rank: the whole step is skipped on all ranks, and the scale goes down."""
    for library, make in ((keras, keras.optimizers.LossScaleOptimizer), (tf_keras, None)):
        if library is keras:
            optimizer = make(ddl.accumulate_gradients(keras.optimizers.SGD(1.0), 2), initial_scale=2.0)
        else:
            scaling = tf_keras.mixed_precision.LossScaleOptimizer(
                tf_keras.optimizers.SGD(1.0), initial_scale=2.0
            )
            optimizer = ddl.accumulate_gradients(scaling, 2)
        variable = tf.Variable([0.0], name="weight")

        @tf.function
        def step(gradient, optimizer=optimizer, variable=variable):
            if hasattr(optimizer, "get_unscaled_gradients"):
                gradient = optimizer.get_unscaled_gradients([gradient])[0]
            optimizer.apply_gradients([(gradient, variable)])

        for gradient in (2.0 * (RANK + 1), 4.0 * (RANK + 1)):
            step(tf.constant([gradient]))
        np.testing.assert_allclose(variable, [-1.5 * ((SIZE - 1) / 2 + 1)], rtol=1e-6)
        before = variable.numpy()
        step(tf.constant([np.inf if RANK == SIZE - 1 else 1.0]))
        step(tf.constant([1.0]))
        after = ddl.all_gather(variable.numpy(), name="after the overflow")
        assert np.isfinite(after).all() and (after == after[0]).all()
        if library is tf_keras:
            np.testing.assert_array_equal(variable, before)


def sparse_gradients_by_environment():
    """DDL_SPARSE_AS_DENSE makes the optimizers take dense gradients; the sums are the same."""
    table = tf.Variable(tf.zeros([4, 2]), name="table", trainable=False)
    slices = tf.IndexedSlices(tf.ones([2, 2]) * (RANK + 1.0), tf.constant([RANK % 4, 3]), [4, 2])
    sparse = ddl_tf.grads_reduce([(slices, table)])[0][0]
    assert isinstance(sparse, tf.IndexedSlices)
    os.environ["DDL_SPARSE_AS_DENSE"] = "1"
    try:
        dense = ddl_tf.grads_reduce([(slices, table)])[0][0]
        assert isinstance(dense, tf.IndexedSlices) == (SIZE == 1)
        os.environ["DDL_SPARSE_AS_DENSE"] = "yes"
        if SIZE > 1:
            refused(ValueError, ["'yes'", "0 or 1"], lambda: ddl_tf.grads_reduce([(slices, table)]))
    finally:
        del os.environ["DDL_SPARSE_AS_DENSE"]
    np.testing.assert_allclose(tf.convert_to_tensor(sparse), tf.convert_to_tensor(dense), rtol=1e-6)


_cases.run(
    [
        datasets_are_cut_evenly,
        datasets_of_any_structure,
        arrays_are_cut_evenly,
        learning_rate_in_graphs,
        learning_rate_in_fit,
        checkpoints_on_rank_0,
        accumulation_communicates_once_a_step,
        accumulation_with_loss_scaling,
        sparse_gradients_by_environment,
    ]
)
