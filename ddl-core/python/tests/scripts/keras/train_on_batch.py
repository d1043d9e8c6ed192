"""A loop with train_on_batch and its like; the rate is set by hand, and weights go through a file."""

import os

import ddl
import digits
import numpy as np
from tensorflow import keras
from tensorflow.keras import backend as K
from tensorflow.keras.layers import Concatenate, Conv1D, Dense, Flatten, Input
from tensorflow.keras.models import Model

keras.utils.set_random_seed(100 + ddl.rank())
x = Input((8, 8))
branches = [Conv1D(6, width, padding="same", activation="relu")(x) for width in (2, 4)]
net = Flatten()(Concatenate()(branches))
model = Model(x, Dense(10, activation="softmax")(net))
model.compile(
    keras.optimizers.SGD(0.1, momentum=0.8, nesterov=True), "categorical_crossentropy", metrics=["accuracy"]
)

images, labels = digits.load()
images = images.reshape(-1, 8, 8)
targets = keras.utils.to_categorical(labels, 10)
path = os.path.join(os.environ["OUT"], "best.weights.h5")
losses = []
for step in range(48):
    rows = digits.part(step, ddl.rank(), ddl.size())
    loss, accuracy = model.train_on_batch(images[rows], targets[rows])
    losses.append(float(loss))
    if step == 30:
        rate = model.optimizer.learning_rate
        rate.assign(0.1 * float(K.eval(rate) if hasattr(K, "eval") else keras.ops.convert_to_numpy(rate)))
    if step == 40:
        # What rank 0 has written is read by all, after it is there.
        if ddl.rank() == 0:
            model.save_weights(path)
        ddl.barrier()
        model.load_weights(path)

loss, accuracy = model.test_on_batch(images[:500], targets[:500])
assert accuracy > 0.8, accuracy
assert np.mean(model.predict_on_batch(images[:500]).argmax(-1) == labels[:500]) > 0.8
weights = {f"w{i}": value for i, value in enumerate(model.get_weights())}
digits.save(ddl.rank(), weights, losses)
