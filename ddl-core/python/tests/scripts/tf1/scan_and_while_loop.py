"""A recurrent network by hand: tf.scan, tf.while_loop with a TensorArray, and tf.cond on the step."""

import ddl
import digits
import tensorflow as tf

images, labels = digits.load()
tf.set_random_seed(77)
x = tf.placeholder(tf.float32, [None, 8, 8])
y = tf.placeholder(tf.int32, [None])
UNITS = 20


def weight(name, shape, scale):
    return tf.get_variable(
        name, shape, initializer=tf.truncated_normal_initializer(stddev=scale, seed=len(name))
    )


w_in, w_state = weight("w_in", [8, 2 * UNITS], 0.3), weight("w_state_", [UNITS, 2 * UNITS], 0.2)
w_out, bias = (
    weight("w_out__", [2 * UNITS, 10], 0.3),
    tf.get_variable("bias", [2 * UNITS], initializer=tf.zeros_initializer),
)


def cell(state, row):
    """A gate between the old state and the new."""
    gate, value = tf.split(tf.matmul(row, w_in) + tf.matmul(state, w_state) + bias, 2, axis=1)
    gate = tf.sigmoid(gate)
    return gate * state + (1.0 - gate) * tf.tanh(value)


rows_first = tf.transpose(x, [1, 0, 2])
zero_state = tf.zeros([tf.shape(x)[0], UNITS])
states = tf.scan(cell, rows_first, initializer=zero_state)

backwards = tf.TensorArray(tf.float32, size=8, element_shape=[None, UNITS])


def body(t, state, array):
    state = cell(state, rows_first[7 - t])
    return t + 1, state, array.write(t, state)


_, _, backwards = tf.while_loop(
    lambda t, *_: t < 8,
    body,
    [tf.constant(0), zero_state, backwards],
    swap_memory=True,
    parallel_iterations=4,
)
both = tf.concat([states[-1], backwards.stack()[-1]], axis=1)
logits = tf.einsum("bu,uc->bc", both, w_out)
loss = tf.losses.sparse_softmax_cross_entropy(y, logits)

global_step = tf.Variable(0, trainable=False, name="global_step")
rate = tf.cond(global_step < 20, lambda: tf.constant(0.1), lambda: tf.constant(0.05))
train_op = tf.train.MomentumOptimizer(rate, momentum=0.9, use_nesterov=True).minimize(loss, global_step)

losses = []
with tf.Session() as sess:
    sess.run(tf.initialize_all_variables())
    for _ in range(56):
        batch = digits.part(len(losses), ddl.rank(), ddl.size())
        _, value = sess.run([train_op, loss], {x: images[batch].reshape(-1, 8, 8), y: labels[batch]})
        losses.append(value)
    assert sess.run(global_step) == 56
    values = sess.run(tf.trainable_variables())
digits.save(
    ddl.rank(), {v.op.name: value for v, value in zip(tf.trainable_variables(), values, strict=True)}, losses
)
