"""A training with tf.train.Supervisor, as TensorFlow had it before MonitoredTrainingSession."""

import os

import ddl
import digits
import tensorflow as tf

images, labels = digits.load()
logdir = os.environ["OUT"] if ddl.rank() == 0 else None

with tf.Graph().as_default():
    x = tf.placeholder(tf.float32, [None, 64])
    y = tf.placeholder(tf.int64, [None])
    w = tf.get_variable("w", [64, 10], initializer=tf.random_normal_initializer(stddev=0.05, seed=11))
    b = tf.get_variable("b", [10], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=tf.matmul(x, w) + b)
    )
    global_step = tf.Variable(0, name="global_step", trainable=False)
    train_op = tf.train.FtrlOptimizer(0.2).minimize(loss, global_step=global_step)
    tf.summary.scalar("loss", loss)

    sv = tf.train.Supervisor(logdir=logdir, global_step=global_step, summary_op=None, save_model_secs=0)
    losses = []
    with sv.managed_session() as sess:
        while not sv.should_stop() and sess.run(global_step) < 60:
            rows = digits.part(len(losses), ddl.rank(), ddl.size())
            feed = {x: images[rows], y: labels[rows]}
            losses.append(sess.run([train_op, loss], feed_dict=feed)[1])
        weights = sess.run({"w": w, "b": b})
        if logdir is not None:
            sv.saver.save(sess, sv.save_path, global_step=global_step)
            assert tf.train.latest_checkpoint(logdir).endswith("-60")
    sv.stop()
digits.save(ddl.rank(), weights, losses)
