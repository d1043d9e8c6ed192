"""PowerAI 4: ddl_MDR.so is loaded as operators of TensorFlow, and the script calls each by hand."""

import os
import sys

import digits
import tensorflow as tf

# Then $DDL_TENSORFLOW_HOME or the like; the environment is here where Python is.
ddl = tf.load_op_library(os.path.join(sys.prefix, "ddl-tensorflow/lib/ddl_MDR.so"))

with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as init_session:
    # The number of accelerators of a host, which the launcher knows better.
    rank, size, gpu = init_session.run(ddl.init(-1, mode="-mode p -timeout 60"))[:3]

images, labels = digits.load()
x = tf.placeholder(tf.float32, [None, 64])
y = tf.placeholder(tf.float32, [None, 10])


def weight_variable(shape):
    return tf.Variable(tf.truncated_normal(shape, stddev=0.1, seed=5 + int(rank)))


def bias_variable(shape):
    return tf.Variable(tf.constant(0.1, shape=shape))


W_fc1 = weight_variable([64, 24])
b_fc1 = bias_variable([24])
h_fc1 = tf.nn.relu(tf.matmul(x, W_fc1) + b_fc1)
W_fc2 = weight_variable([24, 10])
b_fc2 = bias_variable([10])
y_conv = tf.nn.softmax(tf.matmul(h_fc1, W_fc2) + b_fc2)
cross_entropy = tf.reduce_mean(-tf.reduce_sum(y * tf.log(tf.clip_by_value(y_conv, 1e-8, 1.0)), [1]))

optimizer = tf.train.AdamOptimizer(1e-2)
grads_and_vars = optimizer.compute_gradients(cross_entropy)
grads, variables = zip(*grads_and_vars, strict=True)
# The gradients of all variables in one call; the operator averages.
grads_and_vars = list(zip(ddl.all_reduce_n(grads, op="avg"), variables, strict=True))
objective = optimizer.apply_gradients(grads_and_vars, name="TrainOp")
# TensorFlow would run operators of one step in any order, and all ranks must broadcast in the same one.
broadcasts = [variable.assign(ddl.bcast(variable)) for variable in tf.trainable_variables()]
correct = tf.equal(tf.argmax(y_conv, 1), tf.argmax(y, 1))
accuracy = tf.reduce_mean(tf.cast(correct, tf.float32))
one_hot = tf.one_hot(labels, 10).eval(session=tf.Session())

losses = []
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for broadcast in broadcasts:
        sess.run(broadcast)
    for i in range(56):
        rows = digits.part(i, rank, size)
        _, loss = sess.run([objective, cross_entropy], feed_dict={x: images[rows], y: one_hot[rows]})
        losses.append(loss)
        if i % 20 == 0 and rank == 0:
            print("step", i, "training accuracy", accuracy.eval({x: images[rows], y: one_hot[rows]}))
    weights = sess.run({"W1": W_fc1, "b1": b_fc1, "W2": W_fc2, "b2": b_fc2})
digits.save(rank, weights, losses)
