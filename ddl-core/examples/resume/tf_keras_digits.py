"""tf_keras (Keras 2): a training that goes on from its latest backup, with as many ranks as there are then.

    ddlrun -np 2 -max-restarts 3 -checkpoint-dir checkpoints python tf_keras_digits.py

It ends as a run that nothing happened to: to the bit with as many ranks as before, else up to rounding.
A backup is made at the end of each epoch, and a run that goes on repeats the epoch that was cut off.
"""

import argparse
import time
from pathlib import Path

import ddl
import numpy as np
import tensorflow as tf
import tf_keras
from sklearn.datasets import load_digits

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--batch", type=int, default=60, help="images of one step, over all ranks")
parser.add_argument(
    "--pause", type=float, default=0.0, help="seconds to wait in each step, to have time to look"
)
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
folder = Path(ddl.checkpoint_dir("checkpoints") or ".")

images, labels = load_digits(return_X_y=True)
images = (images / 16.0).astype("float32")


class Digits(tf_keras.utils.Sequence):
    """The rank's share of each batch. The data of a step follow from epoch and step alone: each epoch deals
    all images out anew, and the ranks that there are share each batch.
    """

    epoch = 0

    def __len__(self) -> int:
        return 1500 // options.batch

    def __getitem__(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        time.sleep(options.pause)
        order = np.random.default_rng([3, self.epoch]).permutation(1500)
        share = order[step * options.batch : (step + 1) * options.batch][ddl.rank() :: ddl.size()]
        return images[share], labels[share]


class Begin(tf_keras.callbacks.Callback):
    """Tells the data which epoch begins, also where that is not the first one."""

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        data.epoch = epoch
        if ddl.rank() == 0:
            again = f", started again after: {ddl.restart_reason()}" if ddl.restart_count() else ""
            print(f"epoch {epoch} on {ddl.size()} ranks{again}", flush=True)


tf_keras.utils.set_random_seed(1)  # the same beginning on all ranks
model = tf_keras.Sequential(
    [
        tf_keras.layers.Input((64,)),
        tf_keras.layers.Dense(32, activation="relu"),
        tf_keras.layers.Dense(10, dtype="float32"),
    ]
)
model.compile(
    # The learning rate belongs to the global batch, which stays the same however many ranks share it.
    optimizer=tf_keras.optimizers.SGD(0.05, momentum=0.9),
    loss=tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
ddl.per_rank_batch_size(options.batch)  # an error where the ranks cannot share the batch equally
data = Digits()
model.fit(
    data,
    epochs=options.epochs,
    shuffle=False,
    verbose=0,
    callbacks=[
        ddl.DDLCallback(),
        # Rank 0 writes and reads the backup, and all ranks go on from it. It stays to the very end: another
        # rank may still fail when this one is done.
        ddl.DDLBackupAndRestore(folder / "backup", delete_checkpoint=False),
        Begin(),
    ],
)
if ddl.rank() == 0:
    np.savez(folder / "weights.npz", *model.get_weights())
    predicted = np.argmax(model.predict(images[1500:], verbose=0), axis=1)
    print(f"ranks {ddl.size()}  test accuracy {np.mean(predicted == labels[1500:]):.3f}")
