"""A Keras script made distributed by `import ddl`: handwritten digits, one program for 1 or many ranks.

Run it:  ddlrun -np 2 python keras_digits.py
"""

import argparse

import ddl  # the one line that makes it distributed
import keras
from sklearn.datasets import load_digits

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--batch", type=int, default=64, help="images of one step, over all ranks")
options = parser.parse_args()

images, labels = load_digits(return_X_y=True)
images = (images / 16.0).astype("float32").reshape(-1, 8, 8, 1)
# disjoint data: rank r trains on every size-th image; the last 297 images are kept for the test
train_images, train_labels = images[:1500][ddl.rank() :: ddl.size()], labels[:1500][ddl.rank() :: ddl.size()]
test_images, test_labels = images[1500:], labels[1500:]

model = keras.Sequential(
    [
        keras.layers.Input((8, 8, 1)),
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10),
    ]
)
model.compile(
    optimizer=keras.optimizers.Adam(2e-3),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
model.fit(
    train_images,
    train_labels,
    batch_size=max(1, options.batch // ddl.size()),
    epochs=options.epochs,
    callbacks=[ddl.DDLCallback(), ddl.DDLGlobalVariablesCallback()],
    verbose=2 if ddl.rank() == 0 else 0,
)
if ddl.rank() == 0:  # evaluation, logs and checkpoints belong to rank 0
    _, accuracy = model.evaluate(test_images, test_labels, verbose=0)
    print(f"ranks {ddl.size()}  test accuracy {accuracy:.3f}")
    if accuracy < 0.85:
        raise SystemExit("the model did not learn")
