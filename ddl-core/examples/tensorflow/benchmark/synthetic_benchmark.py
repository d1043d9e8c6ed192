"""Measures how many images a second DDL trains in Keras, on generated images.

Run it:  ddlrun -np 2 python synthetic_benchmark.py
"""

import argparse
import timeit

import ddl  # the line that makes it distributed: same start, averaged gradients
import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", default="ResNet50", help="a name of tf.keras.applications")
parser.add_argument("--batch-size", type=int, default=32, help="images of one step and rank")
parser.add_argument("--num-warmup-batches", type=int, default=10, help="steps before the clock starts")
parser.add_argument("--num-batches-per-iter", type=int, default=10, help="steps of one measurement")
parser.add_argument("--num-iters", type=int, default=10, help="measurements")
options = parser.parse_args()

network = getattr(tf.keras.applications, options.model, None)
if not callable(network):
    raise SystemExit(f"--model={options.model}: tf.keras.applications has no model of this name")
model = network(weights=None)
model.compile(optimizer=tf.keras.optimizers.SGD(0.01), loss="sparse_categorical_crossentropy")
images = np.random.default_rng(ddl.rank()).random((options.batch_size, *model.input_shape[1:]), "f")
labels = np.random.default_rng(ddl.rank()).integers(model.output_shape[-1], size=options.batch_size)


def step() -> None:
    model.train_on_batch(images, labels)


def log(text: str) -> None:
    if ddl.rank() == 0:
        print(text, flush=True)


log(f"Model: {options.model}\nBatch size: {options.batch_size}\nNumber of ranks: {ddl.size()}")
timeit.timeit(step, number=options.num_warmup_batches)
rates = []
for iteration in range(options.num_iters):
    seconds = timeit.timeit(step, number=options.num_batches_per_iter)
    rates.append(options.batch_size * options.num_batches_per_iter / seconds)
    log(f"Iter #{iteration}: {rates[-1]:.1f} img/sec per rank")
log(f"Total img/sec on {ddl.size()} rank(s): {ddl.size() * np.mean(rates):.1f}")
