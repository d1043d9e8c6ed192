"""Handwritten digits in the style of TensorFlow 1. DDL takes its mode from DDL_OPTIONS, which ddlrun sets.

Run it:  ddlrun -np 2 python mnist-env.py
    or:  ddlrun -np 2 -mode r:2 python mnist-env.py
"""

import argparse

import ddl  # 1. the line that makes it distributed: same start, averaged gradients
import numpy as np
import tensorflow.compat.v1 as tf
from wml_ce_commands import mnist

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data_dir", help="has MNIST's idx files; without it, digits of scikit-learn")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--batch_size", type=int, default=64, help="images of one step, over all ranks")
parser.add_argument("--learning_rate", type=float, default=0.05, help="for one process")
options = parser.parse_args()

data = mnist.load(options.data_dir)
# 2. disjoint data
images, labels = ddl.shard((data.train_images, data.train_labels))
batch = ddl.per_rank_batch_size(options.batch_size)

tf.disable_eager_execution()
tf.set_random_seed(1 + ddl.rank())
pictures = tf.placeholder(tf.float32, [None, *images.shape[1:]])
digits = tf.placeholder(tf.int64, [None])
kernel = tf.get_variable("kernel", [3, 3, 1, 16])
features = tf.nn.relu(tf.nn.conv2d(pictures, kernel, strides=2, padding="SAME"))
flat = tf.reshape(features, [-1, int(np.prod(features.shape[1:]))])
weights = tf.get_variable("weights", [flat.shape[1], 10])
bias = tf.get_variable("bias", [10], initializer=tf.zeros_initializer())
scores = tf.matmul(flat, weights) + bias
loss = tf.losses.sparse_softmax_cross_entropy(digits, scores)
correct = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(scores, axis=1), digits), tf.float32))
# 3. the learning rate of many ranks
optimizer = tf.train.MomentumOptimizer(options.learning_rate * ddl.size() ** 0.5, 0.9)
train = optimizer.minimize(loss)

random = np.random.default_rng(ddl.rank())
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for step in range(1, options.steps + 1):
        chosen = random.choice(len(images), batch, replace=False)
        value, _ = session.run([loss, train], {pictures: images[chosen], digits: labels[chosen]})
        if step % 50 == 0 and ddl.rank() == 0:
            print(f"step {step} loss {value:.3f}", flush=True)
    if ddl.rank() == 0:  # 4. evaluated once
        accuracy = session.run(correct, {pictures: data.test_images, digits: data.test_labels})
        print(f"ranks {ddl.size()}  test accuracy {accuracy:.3f}")
        if accuracy < 0.8:
            raise SystemExit("the model did not learn")
