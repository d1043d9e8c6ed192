"""Keras of 2018: fit_generator, callbacks, lr=, np_utils, and the session that Keras uses."""

import os

import ddl
import digits
import keras
import keras.backend as K
import numpy as np
import tensorflow as tf
from keras.backend.tensorflow_backend import set_session
from keras.callbacks import Callback, EarlyStopping, LearningRateScheduler, ModelCheckpoint
from keras.layers import Activation, Conv2D, Flatten, MaxPooling2D
from keras.layers.core import Dense, Dropout
from keras.models import Sequential, load_model
from keras.optimizers import SGD
from keras.utils import np_utils

config = tf.ConfigProto()
config.gpu_options.allow_growth = True
set_session(tf.Session(config=config))

assert keras.__version__ == "2.2.4" and not tf.executing_eagerly()
images, labels = digits.load()
images = images.reshape(-1, 8, 8, 1)
targets = np_utils.to_categorical(labels, 10)


def batches():
    step = 0
    while True:
        rows = digits.part(step, ddl.rank(), ddl.size())
        yield images[rows], targets[rows]
        step += 1


class Losses(Callback):
    """Records the losses."""

    def on_train_begin(self, logs=None):
        self.losses = []

    def on_batch_end(self, batch, logs=None):
        self.losses.append(logs.get("loss"))


def uniform(seed):
    return keras.initializers.RandomUniform(-0.2, 0.2, seed=seed)


model = Sequential()
model.add(Conv2D(6, (3, 3), padding="same", input_shape=(8, 8, 1), kernel_initializer=uniform(1)))
model.add(Activation("relu"))
model.add(MaxPooling2D(pool_size=(2, 2)))
model.add(Flatten())
model.add(Dense(24, activation="relu", kernel_initializer=uniform(2)))
model.add(Dropout(0.0))
model.add(Dense(10, activation="softmax", kernel_initializer=uniform(3)))
sgd = SGD(lr=0.1, decay=1e-4, momentum=0.9, nesterov=True)
model.compile(loss="categorical_crossentropy", optimizer=sgd, metrics=["accuracy"])

path = os.path.join(os.environ["OUT"], f"model{ddl.rank()}.h5")
history = Losses()
callbacks = [
    ddl.DDLCallback(),
    history,
    LearningRateScheduler(lambda epoch: 0.1 * 0.9**epoch),
    EarlyStopping(monitor="val_loss", patience=5),
    ModelCheckpoint(path, save_best_only=False),
]
fitted = model.fit_generator(
    batches(),
    steps_per_epoch=20,
    epochs=3,
    verbose=0,
    callbacks=callbacks,
    validation_data=(images[1700:], targets[1700:]),
)
assert len(fitted.history["loss"]) == 3, fitted.history
assert abs(K.get_value(model.optimizer.lr) - 0.1 * 0.81) < 1e-6
loss, accuracy = model.evaluate(images, targets, verbose=0)
assert accuracy > 0.8, accuracy
scores = model.predict_generator(batches(), steps=2)
assert scores.shape == (2 * digits.BATCH // ddl.size(), 10)
assert np.mean(model.predict_classes(images) == labels) > 0.8
again = load_model(path)
np.testing.assert_allclose(again.predict(images[:8]), model.predict(images[:8]), atol=1e-6)
weights = {f"w{i}": value for i, value in enumerate(model.get_weights())}
digits.save(ddl.rank(), weights, history.losses)
