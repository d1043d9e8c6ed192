"""Warm-up, then a staircase of LearningRateScheduleCallback, as Horovod's ResNet-50 has it."""

import argparse

import digits
import horovod.tensorflow.keras as hvd
from tensorflow import keras

parser = argparse.ArgumentParser()
parser.add_argument("--base-lr", type=float, default=0.05, help="learning rate for a single process")
parser.add_argument("--warmup-epochs", type=int, default=2)
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--wd", type=float, default=5e-5, help="weight decay")
parser.add_argument("--fp16-allreduce", action="store_true")
args = parser.parse_args(["--epochs", "7", "--fp16-allreduce"])

hvd.init()
keras.utils.set_random_seed(17)
compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
initial_lr = args.base_lr * hvd.size()
images, labels = digits.shard(hvd.rank(), hvd.size(), steps=8)
regularizer = keras.regularizers.l2(args.wd)
model = keras.Sequential(
    [
        keras.layers.Input(shape=(64,)),
        keras.layers.Dense(32, kernel_regularizer=regularizer, name="fc1"),
        keras.layers.LeakyReLU(),
        keras.layers.Dense(10, activation="softmax", kernel_regularizer=regularizer, name="fc2"),
    ]
)
opt = keras.optimizers.SGD(learning_rate=initial_lr, momentum=args.momentum)
model.compile(
    optimizer=hvd.DistributedOptimizer(opt, compression=compression),
    loss="sparse_categorical_crossentropy",
    metrics=["accuracy", "sparse_top_k_categorical_accuracy"],
)


def schedule(multiplier, start, end=None):
    return hvd.callbacks.LearningRateScheduleCallback(
        initial_lr=initial_lr, multiplier=multiplier, start_epoch=start, end_epoch=end
    )


callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(
        initial_lr=initial_lr, warmup_epochs=args.warmup_epochs, steps_per_epoch=8, verbose=1
    ),
    schedule(1.0, args.warmup_epochs, 4),
    schedule(1e-1, 4, 6),
    schedule(lambda epoch: 1e-2, 6),
]
fitted = model.fit(
    images,
    labels,
    batch_size=digits.BATCH // hvd.size(),
    shuffle=False,
    callbacks=callbacks,
    epochs=args.epochs,
    verbose=0,
)
rates = [float(rate) / initial_lr for rate in fitted.history["lr"]]
for epoch, factor in {1: 1.0, 3: 1.0, 4: 1.0, 5: 0.1, 6: 0.01}.items():
    assert abs(rates[epoch] - factor) < 1e-5, rates
weights = {f"w{i}": value for i, value in enumerate(model.get_weights())}
digits.save(hvd.rank(), weights, fitted.history["loss"])
