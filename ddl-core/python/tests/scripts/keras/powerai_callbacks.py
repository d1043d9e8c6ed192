"""PowerAI's form of a Keras script: two callbacks, the data split by hand, checkpoints of rank 0."""

import os

import ddl
import digits
import numpy as np
from tensorflow import keras
from tensorflow.keras.layers import Conv2D, Dense, Flatten, MaxPooling2D
from tensorflow.keras.models import Sequential

batch_size = digits.BATCH // ddl.size()
num_classes = 10
epochs = 8
img_rows, img_cols = 8, 8

x, y = digits.load()
x = x[: 7 * digits.BATCH].reshape(-1, digits.BATCH, img_rows, img_cols, 1)
y = keras.utils.to_categorical(y[: 7 * digits.BATCH], num_classes).reshape(-1, digits.BATCH, num_classes)
# This process's columns of each batch.
x_train = np.concatenate(list(np.array_split(x, ddl.size(), axis=1)[ddl.rank()]))
y_train = np.concatenate(list(np.array_split(y, ddl.size(), axis=1)[ddl.rank()]))
print("rank", ddl.rank(), "of", ddl.size(), "on", ddl.local_rank(), "has", x_train.shape[0], "train samples")

keras.utils.set_random_seed(50 + ddl.rank())
model = Sequential()
model.add(Conv2D(8, kernel_size=(3, 3), activation="relu", input_shape=(img_rows, img_cols, 1)))
model.add(MaxPooling2D(pool_size=(2, 2)))
model.add(Flatten())
model.add(Dense(num_classes, activation="softmax"))
model.compile(
    loss=keras.losses.categorical_crossentropy,
    optimizer=keras.optimizers.Adadelta(learning_rate=6.0),
    metrics=["accuracy"],
)

callbacks = list()
callbacks.append(ddl.DDLCallback())
callbacks.append(ddl.DDLGlobalVariablesCallback())
if ddl.rank() == 0:
    path = os.path.join(os.environ["OUT"], "weights.{epoch:02d}-{loss:.2f}.keras")
    callbacks.append(keras.callbacks.ModelCheckpoint(path, monitor="loss", save_best_only=True))
callbacks.append(keras.callbacks.LearningRateScheduler(lambda epoch, lr: lr * 0.95))
history = model.fit(
    x_train,
    y_train,
    batch_size=batch_size,
    epochs=epochs,
    verbose=1 if ddl.rank() == 0 else 0,
    shuffle=False,
    callbacks=callbacks,
)
assert history.history["accuracy"][-1] > 0.6, history.history
if ddl.rank() == 0:
    assert len([name for name in os.listdir(os.environ["OUT"]) if name.startswith("weights.")]) == epochs
weights = {f"w{i}": value for i, value in enumerate(model.get_weights())}
digits.save(ddl.rank(), weights, history.history["loss"])
