"""Trains in Keras 3 on PyTorch; the batch is the same whatever the number of ranks.

Arguments: a folder, in which rank 0 writes the weights of each case, and the cases.
"""

import sys
from pathlib import Path

import ddl
import keras
import numpy as np
import torch

FOLDER, CASES = Path(sys.argv[1]), sys.argv[2:]
RANK, SIZE = ddl.rank(), ddl.size()
GLOBAL_BATCH = 16
BATCH = GLOBAL_BATCH // SIZE
OPTIONS = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
X = np.random.default_rng(0).normal(size=(64, 6)).astype("f")
Y = (X**2).sum(1, keepdims=True)
# Rank r takes every SIZE-th element, so that the ranks' batches together are those of one rank.
OWN_X, OWN_Y = X[RANK::SIZE], Y[RANK::SIZE]


def model_of(optimizer, rank_dependent=True):
    keras.utils.set_random_seed(5 + (RANK if rank_dependent else 0))
    model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
    model.compile(optimizer, "mse", metrics=["mae"])
    return model


def fit():
    # Other initial weights on rank 1, and another learning rate, which fit makes those of rank 0.
    model = model_of(keras.optimizers.Adam(0.01 * (1 + RANK)))
    history = model.fit(OWN_X, OWN_Y, epochs=3, callbacks=[ddl.DDLCallback()], **OPTIONS).history
    figures = model.evaluate(OWN_X, OWN_Y, batch_size=BATCH, verbose=0, callbacks=[ddl.DDLCallback()])
    every = ddl.all_gather(np.array([*figures, *history["loss"]]), name="figures").reshape(SIZE, -1)
    assert (every == every[0]).all(), every
    return model


def accumulate():
    model = model_of(ddl.accumulate_gradients(keras.optimizers.SGD(0.01, global_clipnorm=1.0), 2))
    calls = []

    class Count(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            calls.append(ddl.stats()["calls"])

    model.fit(OWN_X, OWN_Y, epochs=2, callbacks=[Count()], **OPTIONS)
    if SIZE > 1:
        steps = np.diff(calls)
        # Weights are compared after some of the updates, and between the two epochs of four batches.
        assert (steps[[1, 5]] == 0).all() and (steps[[0, 2, 4, 6]] > 0).all(), steps
    return model


def loss_scale():
    model = model_of(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01), initial_scale=4.0))
    model.fit(OWN_X, OWN_Y, epochs=2, **OPTIONS)
    return model


def on_batch():
    """The first batch begins with rank 0's weights, too."""
    model = model_of(keras.optimizers.SGD(0.05, momentum=0.9))
    for begin in range(0, len(OWN_X), BATCH):
        model.train_on_batch(OWN_X[begin : begin + BATCH], OWN_Y[begin : begin + BATCH])
    return model


def callbacks_in_any_form():
    def train(*arguments, **named):
        model = model_of(keras.optimizers.SGD(0.05))
        model.fit(OWN_X, OWN_Y, BATCH, 2, 0, *arguments, shuffle=False, **named)
        return model

    first = train(keras.callbacks.LambdaCallback())
    second = train([keras.callbacks.LambdaCallback()])
    third = train(callbacks=keras.callbacks.LambdaCallback())
    for other in (second, third):
        for one, two in zip(first.get_weights(), other.get_weights(), strict=True):
            np.testing.assert_array_equal(one, two)
    return first


def other_start():
    """Gradients of different weights do not belong together."""
    model = model_of("sgd")
    weights = model.trainable_weights
    try:
        model.optimizer.apply([torch.zeros_like(weight.value) for weight in weights], weights)
    except ddl.DDLError as error:
        assert "begin with different weights" in str(error) and "kernel (rank 1" in str(error), error
    else:
        raise AssertionError("accepted")


def drift():
    """A learning rate of one rank."""
    model = model_of(keras.optimizers.SGD(0.05))

    def harm(batch, logs=None):
        if RANK == 1 and batch == 2:
            model.optimizer.learning_rate = 0.01

    options = {**OPTIONS, "callbacks": [keras.callbacks.LambdaCallback(on_train_batch_end=harm)]}
    try:
        model.fit(OWN_X, OWN_Y, epochs=1, **options)
    except ddl.DDLError as error:
        assert "learning rate 0.05 on rank 0, 0.01 on rank 1" in str(error), error
    else:
        raise AssertionError("accepted")


def own_loop():
    model = model_of("sgd", rank_dependent=False)
    optimizer = keras.optimizers.SGD(0.05)
    for begin in range(0, len(OWN_X), BATCH):
        x, y = (torch.from_numpy(all_of_them[begin : begin + BATCH]) for all_of_them in (OWN_X, OWN_Y))
        model.zero_grad()
        loss = ((model(x) - y.to(model.weights[0].value.device)) ** 2).mean()
        loss.backward()
        weights = model.trainable_weights
        with torch.no_grad():
            optimizer.apply([weight.value.grad for weight in weights], weights)
    return model


def backup():
    folder = str(FOLDER / "backup")
    whole = model_of(keras.optimizers.Adam(0.01), rank_dependent=False)
    whole.fit(OWN_X, OWN_Y, epochs=4, **OPTIONS)

    class Interrupt(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    first = model_of(keras.optimizers.Adam(0.01), rank_dependent=False)
    chain = [ddl.DDLBackupAndRestore(folder), Interrupt()]
    try:
        first.fit(OWN_X, OWN_Y, epochs=4, callbacks=chain, **OPTIONS)
    except KeyboardInterrupt:
        pass
    ddl.barrier()
    model = model_of(keras.optimizers.Adam(0.5 + RANK))
    model.fit(OWN_X, OWN_Y, epochs=4, callbacks=[ddl.DDLBackupAndRestore(folder)], **OPTIONS)
    for a, b in zip(whole.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return model


def different():
    model = model_of("sgd")
    weights = model.trainable_weights
    gradients = [None if RANK == 1 and i == 2 else torch.zeros_like(w.value) for i, w in enumerate(weights)]
    try:
        model.optimizer.apply(gradients, weights)
    except ddl.DDLError as error:
        assert "kernel" in str(error) and "no gradient on rank 1" in str(error), error
    else:
        raise AssertionError("accepted")


def no_averaging():
    model = model_of("sgd", rank_dependent=False)
    weights = model.trainable_weights
    before = weights[0].numpy().copy()
    with ddl.keras.no_averaging():
        model.optimizer.apply([torch.full_like(w.value, RANK + 1.0) for w in weights], weights)
    moved = float((before - weights[0].numpy()).mean())
    np.testing.assert_allclose(moved, 0.01 * (RANK + 1), rtol=1e-4)
    for _ in range(10):  # the ranks differ by now, and are not compared
        model.optimizer.apply([torch.full_like(w.value, RANK + 1.0) for w in weights], weights)


assert keras.backend.backend() == "torch"
for case in CASES:
    trained = globals()[case]()
    if trained is not None:
        weights = np.concatenate([weight.ravel() for weight in trained.get_weights()])
        every = ddl.all_gather(weights, name="weights").reshape(SIZE, -1)
        assert (every == every[0]).all(), f"{case}: the ranks' weights differ"
        if RANK == 0:
            np.save(FOLDER / f"{case}-of{SIZE}.npy", weights)
    print("passed", case, flush=True)
