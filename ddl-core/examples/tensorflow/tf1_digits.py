"""A TF1 script with three graphs: one trains on all ranks, rank 0 evaluates with one, and one is served.

Run it:  ddlrun -np 2 python tf1_digits.py --folder results
"""

import argparse
import tempfile
from pathlib import Path

import ddl
import ddl.tensorflow
import numpy as np
import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=160)
parser.add_argument("--batch", type=int, default=64, help="images of one step, over all ranks")
parser.add_argument("--rate", type=float, default=0.1, help="learning rate of a single process")
parser.add_argument("--folder", type=Path, help="for checkpoints and the model to serve")
parser.add_argument("--device", choices=("cpu", "gpu"), help="what computes; a GPU where there is one")
parser.add_argument("--use_fp16", action="store_true", help="compute in float16, with the loss scaled")
options = parser.parse_args()
if options.device == "gpu" and not tf.config.list_physical_devices("GPU"):
    raise SystemExit("--device=gpu: TensorFlow sees no GPU; install powerai-gpu, or use --device=cpu")
config = tf.ConfigProto(device_count={"GPU": 0} if options.device == "cpu" else {})
SCALE = 128.0 if options.use_fp16 else 1.0  # keeps gradients that float16 would lose
scratch = tempfile.TemporaryDirectory()
folder = options.folder or Path(scratch.name)

images, labels = load_digits(return_X_y=True)
images = (images / 16.0).astype("float32")
mine, mine_labels = ddl.shard((images[:1500], labels[:1500]))
batch = ddl.per_rank_batch_size(options.batch)


def inference() -> tuple[dict, dict]:
    """The base graph: without a loss, an optimizer, or anything of DDL."""
    pictures = tf.placeholder(tf.float32, [None, 64], name="pictures")
    kernel1 = tf.get_variable("kernel1", [64, 48])
    bias1 = tf.get_variable("bias1", [48], initializer=tf.zeros_initializer())
    kernel2 = tf.get_variable("kernel2", [48, 10])
    kind = tf.float16 if options.use_fp16 else tf.float32  # the weights themselves stay float32
    hidden = tf.nn.relu(tf.matmul(tf.cast(pictures, kind), tf.cast(kernel1, kind)) + tf.cast(bias1, kind))
    scores = tf.cast(tf.matmul(hidden, tf.cast(kernel2, kind)), tf.float32)
    return {"pictures": pictures}, {"scores": scores, "digit": tf.argmax(scores, axis=1)}


def evaluate(checkpoint: str) -> float:
    """A graph of its own on rank 0 alone, where nothing may be broadcast."""
    with ddl.no_broadcast(), tf.Graph().as_default(), tf.Session(config=config) as session:
        inputs, outputs = inference()
        tf.train.Saver().restore(session, checkpoint)
        predicted = session.run(outputs["digit"], {inputs["pictures"]: images[1500:]})
        return float(np.mean(predicted == labels[1500:]))


accuracy = 0.0
with tf.Graph().as_default(), tf.Session(config=config) as session:
    tf.set_random_seed(1 + ddl.rank())
    inputs, outputs = inference()
    digits = tf.placeholder(tf.int64, [None])
    loss = tf.losses.sparse_softmax_cross_entropy(digits, outputs["scores"])
    step = tf.train.get_or_create_global_step()
    rate = ddl.tensorflow.warmup_learning_rate(options.rate, step, options.steps // 5)
    optimizer = tf.train.MomentumOptimizer(rate, 0.9)
    gradients = optimizer.compute_gradients(loss * SCALE)  # averaged over the ranks
    unscaled = [(slope / SCALE, weight) for slope, weight in gradients]
    train = optimizer.apply_gradients(unscaled, global_step=step)
    saver = tf.train.Saver()
    session.run(tf.global_variables_initializer())
    random = np.random.default_rng(ddl.rank())
    for index in range(options.steps):
        chosen = random.choice(len(mine), batch, replace=False)
        values = {inputs["pictures"]: mine[chosen], digits: mine_labels[chosen]}
        value, _ = session.run([loss, train], values)
        if ddl.rank() == 0 and (index + 1) % 40 == 0:
            accuracy = evaluate(saver.save(session, str(folder / "model.ckpt"), global_step=index + 1))
            print(f"step {index + 1} loss {value:.3f} accuracy {accuracy:.3f}", flush=True)
    ddl.tensorflow.export_graph(inference, session, folder / "servable" / "1")
if ddl.rank() == 0:
    print(f"ranks {ddl.size()}  test accuracy {accuracy:.3f}")
    if accuracy < 0.8:
        raise SystemExit("the model did not learn")
