"""The form of Horovod's example for Keras of that time."""

import os

import digits
import horovod.keras as hvd
import keras
import numpy as np
import tensorflow as tf
from keras import backend as K
from keras.layers import Dense
from keras.models import Sequential

hvd.init()
config = tf.ConfigProto()
config.gpu_options.allow_growth = True
config.gpu_options.visible_device_list = str(hvd.local_rank())
K.set_session(tf.Session(config=config))
tf.set_random_seed(hvd.rank())

images, labels = digits.load()
targets = keras.utils.to_categorical(labels, 10)
index = np.concatenate([np.arange(1792)[digits.part(step, hvd.rank(), hvd.size())] for step in range(40)])

model = Sequential()
model.add(Dense(24, activation="relu", input_shape=(64,)))
model.add(Dense(10, activation="softmax"))
opt = keras.optimizers.Adadelta(1.0 * hvd.size())
opt = hvd.DistributedOptimizer(opt)
model.compile(loss=keras.losses.categorical_crossentropy, optimizer=opt, metrics=["accuracy"])
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=1.0 * hvd.size(), warmup_epochs=2, verbose=0),
]
fitted = model.fit(
    images[index],
    targets[index],
    batch_size=digits.BATCH // hvd.size(),
    shuffle=False,
    callbacks=callbacks,
    epochs=6,
    verbose=0,
)
score = model.evaluate(images, targets, verbose=0)
assert score[1] > 0.8, score

# The file has the optimizer's state, with which each rank goes on.
path = os.path.join(os.environ["OUT"], f"model{hvd.rank()}.h5")
model.save(path)
again = hvd.load_model(path)
state, loaded = model.optimizer.get_weights(), again.optimizer.get_weights()
assert len(state) == len(loaded) > 8 and any(np.abs(value).max() > 0 for value in state[1:])
for a, b in zip(state, loaded, strict=True):
    np.testing.assert_array_equal(a, b)
again.fit(images[index], targets[index], batch_size=digits.BATCH // hvd.size(), shuffle=False, verbose=0)
assert type(again.optimizer).__module__ == type(model.optimizer).__module__
assert again.evaluate(images, targets, verbose=0)[0] < score[0]
model = again
weights = {f"w{i}": value for i, value in enumerate(model.get_weights())}
digits.save(hvd.rank(), weights, fitted.history["loss"])
