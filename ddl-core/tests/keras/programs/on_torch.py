"""Trains in Keras 3 on PyTorch, and saves the weights; the batch is the same whatever the number of ranks.

Arguments: the case, and the file for the weights, which rank 0 writes.
"""

import sys

import ddl
import keras
import numpy as np
import torch

CASE, FILE = sys.argv[1], sys.argv[2]
RANK, SIZE = ddl.rank(), ddl.size()
assert keras.backend.backend() == "torch"


def model_of(optimizer, rank_dependent=True):
    keras.utils.set_random_seed(5 + (RANK if rank_dependent else 0))
    model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
    model.compile(optimizer, "mse", metrics=["mae"])
    return model


x = np.random.default_rng(0).normal(size=(64, 6)).astype("f")
y = (x**2).sum(1, keepdims=True)
GLOBAL_BATCH = 16
# Rank r takes every SIZE-th element, so that the ranks' batches together are those of one rank.
own_x, own_y = x[RANK::SIZE], y[RANK::SIZE]
batch = GLOBAL_BATCH // SIZE
options = {"batch_size": batch, "shuffle": False, "verbose": 0}

if CASE == "fit":
    # Other initial weights on rank 1, and another learning rate, which fit makes those of rank 0.
    model = model_of(keras.optimizers.Adam(0.01 * (1 + RANK)))
    history = model.fit(own_x, own_y, epochs=3, callbacks=[ddl.DDLCallback()], **options).history
    figures = model.evaluate(own_x, own_y, batch_size=batch, verbose=0, callbacks=[ddl.DDLCallback()])
    every = ddl.all_gather(np.array([*figures, *history["loss"]]), name="figures").reshape(SIZE, -1)
    assert (every == every[0]).all(), every
elif CASE == "accumulate":
    model = model_of(ddl.accumulate_gradients(keras.optimizers.SGD(0.01, global_clipnorm=1.0), 2))
    calls = []

    class Count(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            calls.append(ddl.stats()["calls"])

    model.fit(own_x, own_y, epochs=2, callbacks=[Count()], **options)
    if SIZE > 1:
        steps = np.diff(calls)
        assert sorted(set(steps.tolist())) == [0, 1], steps
elif CASE == "loss_scale":
    model = model_of(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01), initial_scale=4.0))
    model.fit(own_x, own_y, epochs=2, **options)
elif CASE == "own_loop":
    model = model_of("sgd", rank_dependent=False)
    optimizer = keras.optimizers.SGD(0.05)
    for begin in range(0, len(own_x), batch):
        part = torch.from_numpy(own_x[begin : begin + batch]), torch.from_numpy(own_y[begin : begin + batch])
        model.zero_grad()
        loss = ((model(part[0]) - part[1].to(model.weights[0].value.device)) ** 2).mean()
        loss.backward()
        weights = model.trainable_weights
        with torch.no_grad():
            optimizer.apply([weight.value.grad for weight in weights], weights)
elif CASE == "backup":
    chain = [ddl.DDLBackupAndRestore(sys.argv[3])]
    whole = model_of(keras.optimizers.Adam(0.01), rank_dependent=False)
    whole.fit(own_x, own_y, epochs=4, **options)

    class Interrupt(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    first = model_of(keras.optimizers.Adam(0.01), rank_dependent=False)
    try:
        first.fit(own_x, own_y, epochs=4, callbacks=[*chain, Interrupt()], **options)
    except KeyboardInterrupt:
        pass
    ddl.barrier()
    model = model_of(keras.optimizers.Adam(0.5 + RANK))
    model.fit(own_x, own_y, epochs=4, callbacks=[ddl.DDLBackupAndRestore(sys.argv[3])], **options)
    for a, b in zip(whole.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
elif CASE == "different":
    model = model_of("sgd")
    weights = model.trainable_weights
    gradients = [None if RANK == 1 and i == 2 else torch.zeros_like(w.value) for i, w in enumerate(weights)]
    try:
        model.optimizer.apply(gradients, weights)
    except ddl.DDLError as error:
        assert "kernel" in str(error) and "no gradient on rank 1" in str(error), error
    else:
        raise AssertionError("accepted")
elif CASE == "no_averaging":
    model = model_of("sgd", rank_dependent=False)
    weights = model.trainable_weights
    before = weights[0].numpy().copy()
    with ddl.keras.no_averaging():
        model.optimizer.apply([torch.full_like(w.value, RANK + 1.0) for w in weights], weights)
    moved = float((before - weights[0].numpy()).mean())
    np.testing.assert_allclose(moved, 0.01 * (RANK + 1), rtol=1e-4)
else:
    raise SystemExit(f"no case {CASE}")

weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
if CASE not in ("no_averaging", "different"):
    every = ddl.all_gather(weights, name="weights").reshape(SIZE, -1)
    assert (every == every[0]).all(), "the ranks' weights differ"
if RANK == 0:
    np.save(FILE, weights)
print("passed", CASE, flush=True)
