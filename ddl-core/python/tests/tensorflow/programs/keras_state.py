"""What all ranks must have alike in Keras: state at the start of `fit`, figures of `evaluate`, what a backup
restores."""

import shutil
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

RANK, SIZE = ddl.rank(), ddl.size()
FOLDER = Path(sys.argv[1])
LIBRARIES = (keras, tf_keras)


def same_everywhere(values, what):
    every = ddl.all_gather(np.asarray(values, np.float64).reshape(1, -1), name=what)
    rows = np.asarray(every).reshape(SIZE, -1)
    for row in rows[1:]:
        np.testing.assert_array_equal(row, rows[0], what)


def _layers(library):
    return [
        library.layers.Input((3,)),
        library.layers.Dense(4),
        library.layers.BatchNormalization(momentum=0.5),
        library.layers.Dense(1),
    ]


def _optimizers(library):
    kinds = [library.optimizers.Adam]
    return [*kinds, library.optimizers.legacy.Adam] if library is tf_keras else kinds


def _optimizer_values(optimizer):
    variables = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
    return [np.asarray(variable, np.float64).ravel() for variable in variables]


def fit_begins_with_all_state_of_rank_0():
    """Moving averages, the learning rate and the slots, which no gradient reaches; with no callback of the
    script's."""
    x, y = np.ones((8, 3), "f"), np.ones((8, 1), "f")
    for library in LIBRARIES:
        for kind in _optimizers(library):
            with ddl_tf.no_broadcast():
                model = library.Sequential(_layers(library))
                model.compile(kind(0.1 * (RANK + 1)), "mse")
                model.set_weights([np.full_like(weight, RANK + 1.0) for weight in model.get_weights()])
            seen = []

            class Spy(library.callbacks.Callback):
                def on_epoch_begin(self, epoch, logs=None):
                    rate = float(np.asarray(self.model.optimizer.learning_rate))
                    seen.append(np.concatenate([*(w.ravel() for w in self.model.get_weights()), [rate]]))  # noqa: B023

            model.fit(x, y, batch_size=4, epochs=1, verbose=0, callbacks=[Spy()])
            wanted = np.concatenate([np.ones_like(seen[0][:-1]), [0.1]])
            np.testing.assert_allclose(seen[0], wanted, rtol=1e-6, err_msg=f"{library.__name__} {kind}")
            same_everywhere(np.concatenate(_optimizer_values(model.optimizer)), "optimizer after fit")


def evaluate_averages_where_it_is_asked_to():
    """All forms of a result; without DDLCallback each rank has its own."""
    x, y = np.zeros((4, 3), "f"), np.full((4, 1), float(RANK), "f")
    for library in LIBRARIES:
        model = library.Sequential([library.layers.Input((3,)), library.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=["mae"])
        own = model.evaluate(x, y, verbose=0)
        np.testing.assert_allclose(own, [RANK**2, RANK], atol=1e-6)
        wanted = np.array([np.mean([r**2 for r in range(SIZE)]), np.mean(range(SIZE))])
        averaged = model.evaluate(x, y, verbose=0, callbacks=[ddl.DDLCallback()])
        assert isinstance(averaged, list)
        np.testing.assert_allclose(averaged, wanted, atol=1e-6)
        named = model.evaluate(x, y, verbose=0, callbacks=[ddl.DDLCallback()], return_dict=True)
        np.testing.assert_allclose([named["loss"], named["mae"]], wanted, atol=1e-6)
        model.compile("sgd", "mse")
        single = model.evaluate(x, y, verbose=0, callbacks=[ddl.DDLCallback()])
        np.testing.assert_allclose(single, wanted[0], atol=1e-6)
        # Those of a validation within fit are averaged once, at the end of the epoch.
        history = model.fit(
            x, y, validation_data=(x, y), epochs=1, verbose=0, callbacks=[ddl.DDLCallback()]
        ).history
        same_everywhere(history["val_loss"], "validation")


class Interrupted(Exception):
    """What ends a training in these tests."""


def _train(library, kind, folder, end, more=()):
    """Six epochs with a backup, interrupted at the beginning of epoch `end`; returns the epochs that
    began."""
    x = np.arange(48, dtype="f").reshape(16, 3)[RANK::SIZE] / 48
    y = x.sum(1, keepdims=True) ** 2
    library.utils.set_random_seed(7)
    with ddl_tf.no_broadcast():
        model = library.Sequential(_layers(library))
        model.compile(kind(0.05), "mse")
    if folder is not None and end is None:
        # A new process: nothing but the backup makes these right.
        with ddl_tf.no_broadcast():
            model.set_weights([np.full_like(weight, 3.0 + RANK) for weight in model.get_weights()])
    epochs = []

    class Spy(library.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == end:
                raise Interrupted
            epochs.append(epoch)

    chain = [Spy(), *([ddl.DDLBackupAndRestore(folder)] if folder else []), *more]
    try:
        model.fit(x, y, batch_size=4, epochs=6, shuffle=False, verbose=0, callbacks=chain)
    except Interrupted:
        pass
    return epochs, model


def a_backup_restores_all_ranks():
    """An interrupted and resumed training ends as one that was not interrupted, bit by bit nearly."""
    for library in LIBRARIES:
        for kind in _optimizers(library):
            folder = FOLDER / f"backup-{library.__name__}-{kind.__module__.split('.')[-2]}"
            _, whole = _train(library, kind, None, None)
            epochs, _ = _train(library, kind, folder, 4)
            assert epochs == [0, 1, 2, 3], epochs
            ddl.barrier()
            assert folder.exists()
            epochs, resumed = _train(library, kind, folder, None)
            assert epochs == [4, 5], (library.__name__, epochs)
            # Moving averages go on from rank 0's, on the others too, which had their own.
            pairs = zip(whole.weights, resumed.weights, strict=True)
            for a, b in ((a, b) for a, b in pairs if RANK == 0 or a.trainable):
                a, b = np.asarray(a), np.asarray(b)
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=f"{library.__name__} {kind}")
            same_everywhere(np.concatenate(_optimizer_values(resumed.optimizer)), "optimizer of the resumed")
            ddl.barrier()
            assert not folder.exists() or not any(folder.iterdir())  # the training came to its end


def a_backup_that_rank_0_cannot_read():
    """Every rank ends with an error, none waits."""
    folder = FOLDER / "broken"
    if RANK == 0:
        folder.mkdir()
        (folder / "latest.weights.h5").write_bytes(b"not hdf5")
        (folder / "training_metadata.json").write_text('{"epoch": 2, "batch": 0}')
    ddl.barrier()
    kinds, words = (Exception, []) if RANK == 0 else (ddl.DDLError, ["rank 0 cannot restore"])
    refused(kinds, words, lambda: _train(keras, keras.optimizers.Adam, folder, None))
    ddl.barrier()
    if RANK == 0:
        shutil.rmtree(folder)


def a_backup_on_rank_0_alone_is_refused():
    for library in LIBRARIES:
        backup = library.callbacks.BackupAndRestore(str(FOLDER / "alone"))
        refused(TypeError, ["DDLBackupAndRestore"], lambda: ddl.on_rank_0(backup))  # noqa: B023


def a_lowered_rate_stays_behind_the_warm_up():
    """In a second fit, and in a new process that goes on at a later epoch."""
    x, y = np.ones((8, 3), "f"), np.ones((8, 1), "f")
    for library in LIBRARIES:
        for kind in [
            library.optimizers.SGD,
            *([tf_keras.optimizers.legacy.SGD] if library is tf_keras else []),
        ]:
            model = library.Sequential([library.layers.Input((3,)), library.layers.Dense(1)])
            model.compile(kind(0.5), "mse")
            warmup = ddl.LearningRateWarmupCallback(1e-3, warmup_epochs=1, multiplier=4)
            model.fit(x, y, epochs=2, verbose=0, callbacks=[warmup])
            rate = float(np.asarray(model.optimizer.learning_rate))
            np.testing.assert_allclose(rate, 4e-3, rtol=1e-6)
            model.optimizer.learning_rate = 1e-5
            model.fit(x, y, epochs=1, verbose=0, callbacks=[warmup])
            np.testing.assert_allclose(float(np.asarray(model.optimizer.learning_rate)), 1e-5, rtol=1e-6)
            other = ddl.LearningRateWarmupCallback(1e-3, warmup_epochs=1, multiplier=4)
            model.fit(x, y, initial_epoch=3, epochs=4, verbose=0, callbacks=[other])
            np.testing.assert_allclose(float(np.asarray(model.optimizer.learning_rate)), 1e-5, rtol=1e-6)


def data_dealt_out_anew_in_every_epoch():
    """Disjoint and complete in each epoch, other elements in the next, whatever seed the script has set by
    rank."""
    tf.random.set_seed(1000 + RANK)
    elements = 12 * SIZE
    whole = np.arange(elements)
    parts = {
        "dataset": ddl.shard(tf.data.Dataset.range(elements), reshuffle=5),
        "array": ddl.shard(whole, reshuffle=5),
        "rest": ddl.shard(np.arange(elements + SIZE - 1), reshuffle=5),
    }
    for name, part in parts.items():
        epochs = [np.array(list(part.as_numpy_iterator())) for _ in range(2)]
        for epoch in epochs:
            assert len(epoch) == 12, (name, epoch)
            every = ddl.all_gather(np.asarray(epoch, np.int64), name=name).ravel().tolist()
            if name != "rest":
                assert sorted(every) == list(range(elements)), (name, every)
            assert len(set(every)) == elements, (name, every)
        assert epochs[0].tolist() != epochs[1].tolist(), name
        if SIZE > 1:
            assert set(epochs[0]) != set(epochs[1]), name
    pair = ddl.shard({"x": whole, "y": [whole * 2]}, reshuffle=1)
    for element in pair.take(3):
        assert int(element["y"][0]) == 2 * int(element["x"])
    unknown = tf.data.Dataset.range(8).filter(lambda x: x >= 0)
    refused(ValueError, ["reshuffle", "length"], lambda: ddl.shard(unknown, reshuffle=1))
    tf.random.set_seed(3)
    a = float(tf.random.uniform([]))
    tf.random.set_seed(3)
    ddl.shard(whole, reshuffle=5)
    assert float(tf.random.uniform([])) == a  # the script's own random numbers are as they were


def clipped_behind_the_average():
    """As a single process with the whole batch clips; clipping first gives another result."""
    gradients = [np.array([3.0, 4.0], "f") * (r + 1) * (-1) ** r for r in range(SIZE)]
    weight = tf.Variable([0.0, 0.0])
    pairs, norm = ddl_tf.clip_by_global_norm([(tf.constant(gradients[RANK]), weight)], 0.5)
    mean = np.mean(gradients, axis=0)
    length = np.linalg.norm(mean)
    np.testing.assert_allclose(norm, length, rtol=1e-6)
    np.testing.assert_allclose(pairs[0][0], mean * min(1, 0.5 / length), rtol=1e-6)
    variable = tf.Variable([1.0, 1.0])
    optimizer = tf_keras.optimizers.SGD(1.0)
    optimizer.apply_gradients([(pairs[0][0], variable)])
    np.testing.assert_allclose(variable, 1 - mean * min(1, 0.5 / length), rtol=1e-6)


_cases.run(
    [
        fit_begins_with_all_state_of_rank_0,
        evaluate_averages_where_it_is_asked_to,
        a_backup_restores_all_ranks,
        a_backup_that_rank_0_cannot_read,
        a_backup_on_rank_0_alone_is_refused,
        a_lowered_rate_stays_behind_the_warm_up,
        data_dealt_out_anew_in_every_epoch,
        clipped_behind_the_average,
    ]
)
