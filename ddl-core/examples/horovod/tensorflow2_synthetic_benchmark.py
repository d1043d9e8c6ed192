"""Measures how many images a second Horovod trains in TensorFlow 2, on generated images.

Run it:  ddlrun -np 2 python tensorflow2_synthetic_benchmark.py
"""

import argparse
import os
import timeit

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", default="ResNet50", help="a name of tf.keras.applications")
parser.add_argument("--batch-size", type=int, default=32, help="images of one step and rank")
parser.add_argument("--num-warmup-batches", type=int, default=10, help="steps before the clock starts")
parser.add_argument("--num-batches-per-iter", type=int, default=10, help="steps of one measurement")
parser.add_argument("--num-iters", type=int, default=10, help="measurements")
parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as float16")
parser.add_argument("--eager", action="store_true", help="run every operation at once, without a graph")
parser.add_argument("--no-cuda", action="store_true", help="compute on processors")
options = parser.parse_args()

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if options.no_cuda:
    tf.config.set_visible_devices([], "GPU")
elif gpus:  # each rank has a GPU of its own; ddlrun says which
    own_gpu = gpus[int(os.environ.get("DDL_LOCAL_GPU", hvd.local_rank()))]
    tf.config.set_visible_devices(own_gpu, "GPU")
    tf.config.experimental.set_memory_growth(own_gpu, True)
device = "CPU" if options.no_cuda or not gpus else "GPU"

network = getattr(tf.keras.applications, options.model, None)
if not callable(network):
    raise SystemExit(f"--model={options.model}: tf.keras.applications has no model of this name")
model = network(weights=None)
optimizer = tf.keras.optimizers.SGD(0.01)
cross_entropy = tf.keras.losses.SparseCategoricalCrossentropy()
compression = hvd.Compression.fp16 if options.fp16_allreduce else hvd.Compression.none
images = tf.random.uniform([options.batch_size, *model.input_shape[1:]])
labels = tf.random.uniform([options.batch_size], maxval=model.output_shape[-1], dtype=tf.int64)


def train_one_batch() -> None:
    with tf.GradientTape() as tape:
        loss = cross_entropy(labels, model(images, training=True))
    distributed = hvd.DistributedGradientTape(tape, compression=compression)
    gradients = distributed.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))


def log(text: str) -> None:
    if hvd.rank() == 0:
        print(text, flush=True)


step = train_one_batch if options.eager else tf.function(train_one_batch)
log(f"Model: {options.model}\nBatch size: {options.batch_size}\nNumber of {device}s: {hvd.size()}")
log("Running warmup...")
step()  # makes the optimizer's variables
hvd.broadcast_variables(model.variables, root_rank=0)
hvd.broadcast_variables(optimizer.variables, root_rank=0)
timeit.timeit(step, number=max(0, options.num_warmup_batches - 1))

log("Running benchmark...")
rates = []
for iteration in range(options.num_iters):
    seconds = timeit.timeit(step, number=options.num_batches_per_iter)
    rates.append(options.batch_size * options.num_batches_per_iter / seconds)
    log(f"Iter #{iteration}: {rates[-1]:.1f} img/sec per {device}")
mean, interval = np.mean(rates), 1.96 * np.std(rates)
log(f"Img/sec per {device}: {mean:.1f} +-{interval:.1f}")
log(f"Total img/sec on {hvd.size()} {device}(s): {hvd.size() * mean:.1f} +-{hvd.size() * interval:.1f}")
hvd.shutdown()
