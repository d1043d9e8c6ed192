"""A network of tf.contrib.slim with arg_scope, regularizers and slim's losses."""

import ddl
import digits
import tensorflow as tf
import tensorflow.contrib.slim as slim
from tensorflow.contrib import layers

images, labels = digits.load()


def lenet(inputs, is_training):
    with slim.arg_scope(
        [slim.conv2d, slim.fully_connected],
        weights_regularizer=slim.l2_regularizer(0.0005),
        weights_initializer=layers.xavier_initializer(seed=5),
        activation_fn=tf.nn.relu,
    ):
        net = slim.conv2d(inputs, 6, [3, 3], scope="conv1")
        net = slim.max_pool2d(net, [2, 2], scope="pool1")
        net = slim.repeat(net, 2, slim.conv2d, 8, [3, 3], scope="conv2")
        net = slim.flatten(net)
        net = slim.dropout(net, 1.0, is_training=is_training)
        net = slim.fully_connected(net, 24, scope="fc1")
        return slim.fully_connected(net, 10, activation_fn=None, scope="fc2")


x = tf.placeholder(tf.float32, [None, 64])
y = tf.placeholder(tf.int32, [None])
logits = lenet(tf.reshape(x, [-1, 8, 8, 1]), is_training=True)
slim.losses.sparse_softmax_cross_entropy(logits, y)
assert len(tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)) == 5
total_loss = slim.losses.get_total_loss()
train_op = slim.learning.create_train_op(total_loss, tf.train.MomentumOptimizer(0.05, 0.9))

names = {v.op.name for v in slim.get_model_variables()}
assert {"conv1/weights", "conv1/biases", "conv2/conv2_2/weights", "fc2/biases"} <= names, names
losses = []
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for step in range(40):
        rows = digits.part(step, ddl.rank(), ddl.size())
        losses.append(sess.run(train_op, {x: images[rows], y: labels[rows]}))
    values = sess.run(tf.trainable_variables())
digits.save(ddl.rank(), {f"w{i}": value for i, value in enumerate(values)}, losses)
