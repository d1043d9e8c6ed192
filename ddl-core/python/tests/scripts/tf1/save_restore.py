"""tf.train.Saver: the first rank saves; later it alone restores, and training goes on on all ranks."""

import os

import ddl
import digits
import tensorflow as tf

images, labels = digits.load()
path = os.path.join(os.environ["OUT"], "model.ckpt")
losses = []


def build():
    x = tf.placeholder(tf.float32, [None, 64], name="x")
    y = tf.placeholder(tf.int64, [None], name="y")
    w = tf.Variable(tf.truncated_normal([64, 10], stddev=0.1, seed=41 + ddl.rank()), name="w")
    b = tf.Variable(tf.zeros([10]), name="b")
    logits = tf.add(tf.matmul(x, w), b, name="logits")
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    train = tf.train.AdadeltaOptimizer(30.0).minimize(loss)
    return x, y, loss, train


def steps(sess, model, first, last):
    x, y, loss, train = model
    for step in range(first, last):
        rows = digits.part(step, ddl.rank(), ddl.size())
        losses.append(sess.run([train, loss], {x: images[rows], y: labels[rows]})[1])


with tf.Graph().as_default():
    model = build()
    saver = tf.train.Saver(max_to_keep=2)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        steps(sess, model, 0, 30)
        if ddl.rank() == 0:
            saver.save(sess, path, global_step=30)

tf.reset_default_graph()
model = build()
saver = tf.train.Saver()
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    if ddl.rank() == 0:
        saver.restore(sess, tf.train.latest_checkpoint(os.path.dirname(path)))
    steps(sess, model, 30, 60)
    weights = {v.op.name.replace("/", "."): sess.run(v) for v in tf.global_variables()}
    if ddl.rank() == 0:
        graph = tf.graph_util.convert_variables_to_constants(sess, sess.graph_def, ["logits"])
        tf.train.write_graph(graph, os.path.dirname(path), "frozen.pb", as_text=False)
digits.save(ddl.rank(), weights, losses)
