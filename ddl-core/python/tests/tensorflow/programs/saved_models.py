"""Trains models for three steps and saves them, or loads them and trains on for three.

    saved_models.py save|go_on alone|ddl|horovod FILES RESULTS

`alone` is a plain process, which imports neither DDL nor Horovod. Each rank takes its part of a batch. The
weights after six steps go to RESULTS, by library, optimizer and format.
"""

import os
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
import tf_keras

PHASE, BY, FILES, RESULTS = sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])
RANK, SIZE = 0, 1
LIBRARIES = {"keras": keras, "tf_keras": tf_keras}
if BY == "ddl":
    import ddl

    RANK, SIZE = ddl.rank(), ddl.size()
elif BY == "horovod":
    import horovod.tensorflow as hvd

    hvd.init()
    RANK, SIZE = hvd.rank(), hvd.size()
assert BY == "alone" or SIZE == 2
STEPS = 3
random = np.random.RandomState(1)
X, Y = random.randn(2 * STEPS, 16, 4).astype("f"), random.randn(2 * STEPS, 16, 2).astype("f")
SGD = {"learning_rate": 0.05, "momentum": 0.9, "nesterov": True}
OPTIMIZERS = {
    "SGD": SGD,
    **{
        name: {"learning_rate": 0.05}
        for name in ("Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax")
    },
    **{name: {"learning_rate": 0.05} for name in ("Nadam", "Ftrl", "Lion", "Adafactor")},
}
#: Of the other formats, with one optimizer: a model that has slots of two kinds.
FORMATS = {"keras": ("weights.h5",), "tf_keras": ("h5", "tf", "checkpoint")}


def horovods(library):
    """Horovod's module for a library."""
    if library is keras:
        import horovod.keras as module
    else:
        import horovod.tensorflow.keras as module
    return module


def network(library, name):
    """A compiled model; all begin with the same weights."""
    library.utils.set_random_seed(5)
    layers = library.layers
    # By its moving averages, as those of its parts are not those of a batch.
    normalization = layers.BatchNormalization(trainable=False)
    model = library.Sequential(
        [layers.Input((4,)), layers.Dense(5, activation="tanh"), normalization, layers.Dense(2)]
    )
    optimizer = getattr(library.optimizers, name)(**OPTIMIZERS[name])
    if BY == "horovod":
        optimizer = horovods(library).DistributedOptimizer(optimizer)
    model.compile(optimizer, "mse")
    return model


def load(library, file):
    """The model of a file, whose optimizer averages."""
    if BY == "horovod":
        return horovods(library).load_model(file)
    return library.models.load_model(file)


def train(model, first):
    """Some steps, each on this rank's part of a batch."""
    for step in range(first, first + STEPS):
        model.train_on_batch(X[step, RANK::SIZE], Y[step, RANK::SIZE])


def cases():
    for title, library in LIBRARIES.items():
        for name in OPTIMIZERS:
            if hasattr(library.optimizers, name):
                yield title, library, name, "keras"
        for form in FORMATS[title]:
            yield title, library, "Adam", form


def save(model, library, form, file):
    if form == "checkpoint":
        tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(file)
    elif form == "weights.h5":
        model.save_weights(file)
    elif form == "tf":
        model.save(file, save_format="tf")
    else:
        model.save(file)


def loaded(library, name, form, file):
    if form == "checkpoint":
        model = network(library, name)
        tf.train.Checkpoint(model=model, optimizer=model.optimizer).read(file)
        return model
    if form == "weights.h5":
        model = network(library, name)
        model.load_weights(file)
        return model
    return load(library, file)


def main():
    os.makedirs(FILES, exist_ok=True)
    results = {}
    for title, library, name, form in cases():
        file = str(FILES / f"{title}-{name}.{form}")
        if PHASE == "save":
            model = network(library, name)
            train(model, 0)
            if RANK == 0:
                save(model, library, form, file)
        else:
            model = loaded(library, name, form, file)
            train(model, STEPS)
        for number, weight in enumerate(model.get_weights()):
            results[f"{title}-{name}-{form}/{number}"] = weight
    np.savez(RESULTS / f"{PHASE}-rank{RANK}.npz", **results)


main()
