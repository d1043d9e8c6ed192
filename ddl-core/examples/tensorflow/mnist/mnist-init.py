"""Handwritten digits in the style of TensorFlow 1, with DDL's options given by the script, and its operators.

Run it:  ddlrun -np 2 --no_ddloptions python mnist-init.py --ddl_options="-mode b:2"
"""

import argparse
import os

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument(
    "--ddl_options", help="as in DDL_OPTIONS, for example: -mode b:4x2 on 2 hosts with 4 ranks"
)
parser.add_argument("--data_dir", help="has MNIST's idx files; without it, digits of scikit-learn")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--batch_size", type=int, default=64, help="images of one step, over all ranks")
parser.add_argument("--learning_rate", type=float, default=0.05, help="for one process")
options = parser.parse_args()

os.environ["DDL_AUTO_INIT"] = "0"  # 1. not by `import ddl`, as the options come from here
import ddl  # noqa: E402
import ddl.tensorflow  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402
from wml_ce_commands import mnist  # noqa: E402

ddl.init(options.ddl_options)
if ddl.rank() == 0:
    print(f"DDL with {options.ddl_options or 'its defaults'}: {ddl.size()} rank(s)", flush=True)

data = mnist.load(options.data_dir)
# 2. disjoint data
images, labels = ddl.shard((data.train_images, data.train_labels))
batch = ddl.per_rank_batch_size(options.batch_size)

tf.disable_eager_execution()
tf.set_random_seed(1 + ddl.rank())
pictures = tf.placeholder(tf.float32, [None, *images.shape[1:]])
digits = tf.placeholder(tf.int64, [None])
flat = tf.reshape(pictures, [-1, int(np.prod(images.shape[1:]))])
kernel1 = tf.get_variable("kernel1", [flat.shape[1], 64])
kernel2 = tf.get_variable("kernel2", [64, 10])
scores = tf.matmul(tf.nn.relu(tf.matmul(flat, kernel1)), kernel2)
loss = tf.losses.sparse_softmax_cross_entropy(digits, scores)
correct = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(scores, axis=1), digits), tf.float32))
optimizer = tf.train.MomentumOptimizer(options.learning_rate * ddl.size() ** 0.5, 0.9)
slopes, variables = zip(*optimizer.compute_gradients(loss), strict=True)
# 3. averaged gradients, in one operation
train = optimizer.apply_gradients(
    zip(ddl.tensorflow.allreduce_n(list(slopes), op="avg"), variables, strict=True)
)
# 4. the same start, from rank 0
start = [variable.assign(ddl.tensorflow.bcast(variable)) for variable in variables]

random = np.random.default_rng(ddl.rank())
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(start)
    for step in range(1, options.steps + 1):
        chosen = random.choice(len(images), batch, replace=False)
        value, _ = session.run([loss, train], {pictures: images[chosen], digits: labels[chosen]})
        if step % 50 == 0 and ddl.rank() == 0:
            print(f"step {step} loss {value:.3f}", flush=True)
    if ddl.rank() == 0:  # 5. evaluated once
        accuracy = session.run(correct, {pictures: data.test_images, digits: data.test_labels})
        print(f"ranks {ddl.size()}  test accuracy {accuracy:.3f}")
        if accuracy < 0.8:
            raise SystemExit("the model did not learn")
