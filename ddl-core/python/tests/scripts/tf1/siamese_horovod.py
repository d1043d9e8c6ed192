"""Twins that share variables, by Horovod: gradients clipped after averaging, and a broadcast by hand."""

import digits
import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf


def embed(x, dim=12):
    """One of the twins."""
    with tf.variable_scope("embed", reuse=tf.AUTO_REUSE, regularizer=tf.nn.l2_loss):
        w1 = tf.get_variable("w1", [64, 24], initializer=tf.random_normal_initializer(stddev=0.15))
        b1 = tf.get_variable("b1", [24], initializer=tf.zeros_initializer(), regularizer=None)
        w2 = tf.get_variable("w2", [24, dim], initializer=tf.random_normal_initializer(stddev=0.15))
    return tf.matmul(tf.nn.elu(tf.nn.bias_add(tf.matmul(x, w1), b1)), w2)


def contrastive_loss(a, b, same, margin=1.5):
    square = tf.reduce_sum(tf.squared_difference(a, b), axis=1)
    apart = tf.maximum(0.0, margin - tf.sqrt(square + 1e-6))
    return tf.reduce_mean(tf.where(same, square, tf.square(apart)))


hvd.init()
tf.set_random_seed(1234 + hvd.rank())
images, labels = digits.load()
partner = np.random.RandomState(2).permutation(1792)
# Every other pair is one of the same digit.
for i in range(0, 1792, 2):
    partner[i] = next(j for j in partner[i:].tolist() + partner.tolist() if labels[j] == labels[i])

left = tf.placeholder_with_default(np.zeros([1, 64], np.float32), [None, 64], name="left")
right = tf.placeholder(tf.float32, [None, 64], name="right")
same = tf.placeholder(tf.bool, [None], name="same")
data_loss = contrastive_loss(embed(left), embed(right), same)
assert len(tf.trainable_variables()) == 3
tf.add_to_collection(tf.GraphKeys.LOSSES, data_loss)
for term in tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES):
    tf.losses.add_loss(1e-4 * term)
loss = tf.losses.get_total_loss(add_regularization_losses=False)

opt = hvd.DistributedOptimizer(tf.train.MomentumOptimizer(0.1, 0.9))
grads_and_vars = opt.compute_gradients(loss)
for grad, var in grads_and_vars:
    tf.summary.histogram(var.op.name + "/gradient", grad)
capped = [(tf.clip_by_norm(grad, 0.2), var) for grad, var in grads_and_vars]
train_op = opt.apply_gradients(capped)
mean_loss = hvd.allreduce(data_loss, name="mean_loss")
bcast = hvd.broadcast_global_variables(0)

losses = []
sess = tf.Session(config=tf.ConfigProto(intra_op_parallelism_threads=1))
sess.run(tf.global_variables_initializer())
sess.run(bcast)
for step in range(56):
    rows = digits.part(step, hvd.rank(), hvd.size())
    twins = partner[rows]
    feed = {left: images[rows], right: images[twins], same: labels[rows] == labels[twins]}
    losses.append(sess.run([mean_loss, train_op], feed)[0])
weights = sess.run({name: tf.global_variables(f"embed/{name}")[0] for name in ("b1", "w1", "w2")})
digits.save(hvd.rank(), weights, losses)
