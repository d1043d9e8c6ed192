"""DDL with options of its own, and gradients that are computed, clipped and applied by hand."""

import os

os.environ["DDL_AUTO_INIT"] = "0"

import ddl
import digits
import tensorflow as tf

ddl.init("-mode r -timeout 60")
assert tf.Session and ddl.describe()["size"] == ddl.size()

images, labels = digits.load()
images, labels = ddl.shard((images[:1280], labels[:1280]))
x = tf.placeholder(tf.float32, [None, 64])
y = tf.placeholder(tf.int64, [None])
tf.set_random_seed(ddl.rank())
w = tf.get_variable("w", [64, 10], initializer=tf.contrib.layers.xavier_initializer())
b = tf.get_variable("b", [10], initializer=tf.zeros_initializer)
loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=tf.matmul(x, w) + b))
optimizer = tf.train.GradientDescentOptimizer(0.5)
grads_and_vars = optimizer.compute_gradients(loss)
clipped = [(tf.clip_by_value(g, -1.0, 1.0), v) for g, v in grads_and_vars if g is not None]
train_op = optimizer.apply_gradients(clipped)

losses = []
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for step in range(40):
        rows = slice(step * 16, step * 16 + 16)
        _, value = sess.run([train_op, loss], {x: images[rows], y: labels[rows]})
        losses.append(value)
    weights = sess.run({"w": w, "b": b})
digits.save(ddl.rank(), weights, losses)
