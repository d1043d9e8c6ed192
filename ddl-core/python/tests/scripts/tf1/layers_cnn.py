"""A convolutional network of tf.layers with flags, tf.app.run, logs and summaries."""

import os

import ddl
import digits
import tensorflow as tf

flags = tf.app.flags
flags.DEFINE_float("learning_rate", 0.05, "Rate.")
flags.DEFINE_integer("steps", 30, "Steps.")
FLAGS = flags.FLAGS


def network(features):
    net = tf.reshape(features, [-1, 8, 8, 1])
    net = tf.layers.conv2d(
        net,
        filters=8,
        kernel_size=[3, 3],
        padding="same",
        activation=tf.nn.relu,
        kernel_initializer=tf.truncated_normal_initializer(stddev=0.2, seed=1),
        name="conv1",
    )
    net = tf.layers.max_pooling2d(net, pool_size=[2, 2], strides=2)
    net = tf.layers.flatten(net)
    net = tf.layers.dropout(net, rate=0.0, training=True)
    return tf.layers.dense(net, 10, kernel_initializer=tf.glorot_uniform_initializer(seed=2), name="logits")


def main(_):
    images, labels = digits.load()
    x = tf.placeholder(tf.float32, [None, 64], name="x")
    y = tf.placeholder(tf.int32, [None], name="y")
    loss = tf.losses.sparse_softmax_cross_entropy(labels=y, logits=network(x))
    global_step = tf.train.get_or_create_global_step()
    optimizer = tf.train.MomentumOptimizer(FLAGS.learning_rate, momentum=0.9, use_nesterov=True)
    train_op = optimizer.minimize(loss, global_step=global_step)
    tf.summary.scalar("loss", loss)
    summaries = tf.summary.merge_all()
    config = tf.ConfigProto(allow_soft_placement=True, gpu_options=tf.GPUOptions(allow_growth=True))
    losses = []
    with tf.Session(config=config) as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        writer = tf.summary.FileWriter(os.path.join(os.environ["OUT"], f"logs{ddl.rank()}"), sess.graph)
        for step in range(FLAGS.steps):
            rows = digits.part(step, ddl.rank(), ddl.size())
            feed = {x: images[rows], y: labels[rows]}
            _, value, text, number = sess.run([train_op, loss, summaries, global_step], feed)
            writer.add_summary(text, number)
            losses.append(value)
            tf.logging.info("step %d: %f", number, value)
        writer.close()
        weights = {v.op.name.replace("/", "."): sess.run(v) for v in tf.trainable_variables()}
    assert set(weights) == {"conv1.kernel", "conv1.bias", "logits.kernel", "logits.bias"}, weights
    digits.save(ddl.rank(), weights, losses)


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.INFO)
    tf.app.run()
