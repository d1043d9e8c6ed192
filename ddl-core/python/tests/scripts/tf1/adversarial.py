"""Two networks against each other: two optimizers with var_list, in variable scopes, trained in turn."""

import ddl
import digits
import numpy as np
import tensorflow as tf

images, labels = digits.load()
classes = np.eye(10, dtype=np.float32)


def dense(x, units, seed, activation=None):
    initializer = tf.variance_scaling_initializer(seed=seed)
    return tf.layers.dense(x, units, activation=activation, kernel_initializer=initializer)


def generator(noise, label):
    with tf.variable_scope("generator"):
        hidden = dense(tf.concat([noise, label], axis=1), 32, 1, tf.nn.relu)
        return dense(hidden, 64, 2, tf.sigmoid)


def discriminator(image, label, reuse=False):
    with tf.variable_scope("discriminator", reuse=reuse):
        hidden = dense(tf.concat([image, label], axis=1), 32, 3, tf.nn.leaky_relu)
        return dense(hidden, 1, 4)


def cross_entropy(logits, target):
    targets = tf.fill(tf.shape(logits), target)
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=logits))


real = tf.placeholder(tf.float32, [None, 64])
condition = tf.placeholder(tf.float32, [None, 10])
z = tf.placeholder(tf.float32, [None, 8])
fake = generator(z, condition)
d_real = discriminator(real, condition)
d_fake = discriminator(fake, condition, reuse=True)
d_loss = cross_entropy(d_real, 0.9) + cross_entropy(d_fake, 0.0)
distance = tf.reduce_mean(tf.abs(real - fake))
g_loss = cross_entropy(d_fake, 1.0) + 20.0 * distance

t_vars = tf.trainable_variables()
d_vars = [var for var in t_vars if var.name.startswith("discriminator")]
g_vars = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope="generator")
assert len(d_vars) == len(g_vars) == 4, t_vars
d_optim = tf.train.AdamOptimizer(0.002, beta1=0.5).minimize(d_loss, var_list=d_vars)
g_optim = tf.train.AdamOptimizer(0.01, beta1=0.5).minimize(g_loss, var_list=g_vars)

noise = np.random.RandomState(9).uniform(-1, 1, [1792, 8]).astype(np.float32)
distances = []
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for step in range(56):
        rows = digits.part(step, ddl.rank(), ddl.size())
        feed = {real: images[rows], condition: classes[labels[rows]], z: noise[rows]}
        sess.run(d_optim, feed_dict=feed)
        _, value = sess.run([g_optim, distance], feed_dict=feed)
        distances.append(value)
    weights = {var.op.name.replace("/", "."): sess.run(var) for var in t_vars}
digits.save(ddl.rank(), weights, distances)
