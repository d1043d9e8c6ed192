"""Horovod with the callbacks that most scripts have: broadcast, average, plateau, checkpoints of rank 0."""

import argparse
import os

import digits
import horovod.tensorflow.keras as hvd
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras.layers import Dense
from tensorflow.keras.models import Sequential
from tensorflow.keras.utils import to_categorical

parser = argparse.ArgumentParser(description="Keras MNIST example")
parser.add_argument("--batch-size", type=int, default=digits.BATCH)
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--base-lr", type=float, default=0.5)
parser.add_argument("--checkpoint-format", default="checkpoint-{epoch}.keras")
args = parser.parse_args()

hvd.init()
gpus = tf.config.experimental.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
if gpus:
    tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")
tf.random.set_seed(42)
keras.utils.set_random_seed(42)

num_classes = 10
x_train, y_train = digits.shard(hvd.rank(), hvd.size(), steps=7)
x_test, y_test = digits.load()
y_train = to_categorical(y_train, num_classes)
y_test = to_categorical(y_test, num_classes)

model = Sequential()
model.add(Dense(32, activation="relu", input_shape=(64,)))
model.add(Dense(num_classes, activation="softmax"))
opt = hvd.DistributedOptimizer(keras.optimizers.SGD(args.base_lr))
model.compile(loss=keras.losses.categorical_crossentropy, optimizer=opt, metrics=["accuracy"])

callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=1, min_delta=0.6, factor=0.5, verbose=1),
]
if hvd.rank() == 0:
    path = os.path.join(os.environ["OUT"], args.checkpoint_format)
    callbacks.append(keras.callbacks.ModelCheckpoint(path))
history = model.fit(
    x_train,
    y_train,
    batch_size=args.batch_size // hvd.size(),
    shuffle=False,
    callbacks=callbacks,
    epochs=args.epochs,
    verbose=1 if hvd.rank() == 0 else 0,
    validation_data=(x_test, y_test),
)
score = model.evaluate(x_test, y_test, verbose=0)
print("Test loss:", score[0], "Test accuracy:", score[1])
assert score[1] > 0.7, score
if hvd.rank() == 0:
    saved = keras.models.load_model(path.format(epoch=args.epochs))
    assert abs(saved.evaluate(x_test, y_test, verbose=0)[0] - score[0]) < 1e-5
weights = {f"w{i}": value for i, value in enumerate(model.get_weights())}
digits.save(hvd.rank(), weights, history.history["loss"])
