"""The same as keras_digits.py in tf_keras (Keras 2), with a tf.data pipeline and a model to serve.

Run it:  ddlrun -np 2 python tf_keras_digits.py --folder results
"""

import argparse
from pathlib import Path

import ddl  # 1. the line that makes it distributed: same start, averaged gradients
import tensorflow as tf
import tf_keras
from sklearn.datasets import load_digits

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--batch", type=int, default=64, help="images of one step, over all ranks")
parser.add_argument("--rate", type=float, default=0.05, help="learning rate of a single process")
parser.add_argument("--folder", type=Path, help="for checkpoints, logs and the model to serve")
parser.add_argument("--device", choices=("cpu", "gpu"), help="what computes; a GPU where there is one")
parser.add_argument("--use_fp16", action="store_true", help="compute in float16, with the loss scaled")
options = parser.parse_args()
gpus = tf.config.list_physical_devices("GPU")
if options.device == "gpu" and not gpus:
    raise SystemExit("--device=gpu: TensorFlow sees no GPU; install powerai-gpu, or use --device=cpu")
if options.device == "cpu":
    tf.config.set_visible_devices([], "GPU")
if options.use_fp16:  # weights stay float32, and the optimizer scales the loss by a factor that it adapts
    tf_keras.mixed_precision.set_global_policy("mixed_float16")
tf_keras.utils.set_random_seed(1 + ddl.rank())

images, labels = load_digits(return_X_y=True)
images = (images / 16.0).astype("float32").reshape(-1, 8, 8, 1)
# 2. disjoint data: cut before shuffling, in the same order on all ranks
dataset = tf.data.Dataset.from_tensor_slices((images[:1500], labels[:1500]))
batch = ddl.per_rank_batch_size(options.batch)
dataset = ddl.shard(dataset).cache().shuffle(1500, seed=ddl.rank()).batch(batch, drop_remainder=True)

layers = tf_keras.layers
model = tf_keras.Sequential(
    [
        layers.Conv2D(16, 3, activation="relu", input_shape=(8, 8, 1)),
        layers.Conv2D(32, 3, activation="relu"),
        layers.Flatten(),
        layers.Dropout(0.2),
        layers.Dense(10, dtype="float32"),
    ]
)
model.compile(
    optimizer=tf_keras.optimizers.SGD(options.rate, momentum=0.9),
    loss=tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
# 3. the learning rate times the number of ranks, reached during two epochs
callbacks = [ddl.DDLCallback(), ddl.LearningRateWarmupCallback(options.rate, warmup_epochs=2)]
if options.folder is not None:
    # 4. checkpoints and logs are written by rank 0 alone
    if ddl.rank() == 0:
        options.folder.mkdir(parents=True, exist_ok=True)
    callbacks += [
        ddl.DDLModelCheckpoint(options.folder / "digits.keras", monitor="loss", save_best_only=True),
        ddl.on_rank_0(tf_keras.callbacks.CSVLogger(str(options.folder / "digits.csv"))),
    ]
model.fit(
    dataset,
    epochs=options.epochs,
    callbacks=[*callbacks, ddl.DDLGlobalVariablesCallback()],
    verbose=2 if ddl.rank() == 0 else 0,
)
if options.folder is not None:
    ddl.tensorflow.export_model(model, options.folder / "servable" / "1")
if ddl.rank() == 0:
    _, accuracy = model.evaluate(images[1500:], labels[1500:], verbose=0)
    print(f"ranks {ddl.size()}  test accuracy {accuracy:.3f}")
    if accuracy < 0.8:
        raise SystemExit("the model did not learn")
