"""tf.train.exponential_decay, ExponentialMovingAverage and HParams."""

import ddl
import digits
import tensorflow as tf

hparams = tf.contrib.training.HParams(rate=0.5, decay_steps=10, average=0.9)
hparams.parse("rate=0.4")
images, labels = digits.load()

x = tf.placeholder(tf.float32, [None, 64])
y = tf.placeholder(tf.int64, [None])
w = tf.get_variable(
    "w",
    [64, 10],
    initializer=tf.truncated_normal_initializer(stddev=0.1, seed=31),
    regularizer=tf.contrib.layers.l2_regularizer(1e-3),
)
logits = tf.matmul(x, w)
loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
loss += tf.add_n(tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES))
step = tf.train.get_or_create_global_step()
rate = tf.train.exponential_decay(hparams.rate, step, hparams.decay_steps, 0.8, staircase=True)
train = tf.train.GradientDescentOptimizer(rate).minimize(loss, global_step=step)
ema = tf.train.ExponentialMovingAverage(hparams.average, num_updates=step)
with tf.control_dependencies([train]):
    train_op = ema.apply(tf.trainable_variables())

losses = []
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for number in range(60):
        rows = digits.part(number, ddl.rank(), ddl.size())
        _, value = sess.run([train_op, loss], {x: images[rows], y: labels[rows]})
        losses.append(value)
    assert abs(sess.run(rate) - 0.4 * 0.8**6) < 1e-6
    weights = sess.run({"w": w, "average": ema.average(w)})
assert ema.average_name(w) == "w/ExponentialMovingAverage"
digits.save(ddl.rank(), weights, losses)
