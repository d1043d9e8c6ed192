"""Cells of tf.nn.rnn_cell and tf.contrib.rnn in dynamic_rnn, with gradients clipped by their global norm."""

import ddl
import digits
import tensorflow as tf
from tensorflow.contrib import rnn

images, labels = digits.load()
x = tf.placeholder(tf.float32, [None, 64])
y = tf.placeholder(tf.int64, [None])
rows_of_images = tf.reshape(x, [-1, 8, 8])
initializer = tf.random_uniform_initializer(-0.3, 0.3, seed=21)
with tf.variable_scope("rnn", initializer=initializer):
    cells = [tf.nn.rnn_cell.LSTMCell(16), rnn.GRUCell(12)]
    cells[0] = rnn.DropoutWrapper(cells[0], output_keep_prob=1.0)
    stacked = rnn.MultiRNNCell(cells)
    state = stacked.zero_state(tf.shape(x)[0], tf.float32)
    outputs, _ = tf.nn.dynamic_rnn(stacked, rows_of_images, initial_state=state, dtype=tf.float32)
last = tf.transpose(outputs, [1, 0, 2])[-1]
logits = tf.layers.dense(last, 10, kernel_initializer=initializer)
loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))

optimizer = tf.train.AdamOptimizer(0.02)
gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
gradients, norm = tf.clip_by_global_norm(gradients, 1.0)
train_op = optimizer.apply_gradients(zip(gradients, variables, strict=True))
names = {v.op.name for v in tf.trainable_variables()}
assert "rnn/rnn/multi_rnn_cell/cell_0/lstm_cell/kernel" in names, names

losses = []
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for step in range(80):
        rows = digits.part(step, ddl.rank(), ddl.size())
        _, value = sess.run([train_op, loss], feed_dict={x: images[rows], y: labels[rows]})
        losses.append(value)
    values = sess.run(tf.trainable_variables())
digits.save(ddl.rank(), {f"w{i}": value for i, value in enumerate(values)}, losses)
