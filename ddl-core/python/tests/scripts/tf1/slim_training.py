"""A training with slim.learning.train, which goes on from its checkpoint. All ranks name the folder."""

import os

import ddl
import digits
import tensorflow as tf
import tensorflow.contrib.slim as slim

images, labels = digits.load()
logdir = os.path.join(os.environ["OUT"], "logs")


class Saver(tf.train.Saver):
    """Fails where a rank other than 0 writes."""

    def save(self, *args, **kwargs):
        assert ddl.rank() == 0, "rank 1 saves"
        return super().save(*args, **kwargs)


def train(steps):
    """Train until the step counter is steps; return the last loss."""
    with tf.Graph().as_default():
        counter = tf.train.get_or_create_global_step()
        rows = digits.BATCH // ddl.size()
        start = (counter * digits.BATCH) % (1792 - digits.BATCH + 1) + ddl.rank() * rows
        batch = start + tf.range(rows, dtype=tf.int64)
        logits = slim.fully_connected(
            tf.gather(images, batch), 10, activation_fn=None, weights_initializer=tf.zeros_initializer()
        )
        slim.losses.sparse_softmax_cross_entropy(logits, tf.gather(labels, batch))
        loss = slim.losses.get_total_loss()
        train_op = slim.learning.create_train_op(loss, tf.train.GradientDescentOptimizer(0.5))
        tf.summary.scalar("loss", loss)
        return slim.learning.train(train_op, logdir, number_of_steps=steps, saver=Saver())


losses = [train(steps) for steps in range(1, 40, 4)]
train(37)  # has nothing to do
ddl.barrier()
reader = tf.train.NewCheckpointReader(tf.train.latest_checkpoint(logdir))
assert reader.get_tensor("global_step") == 37
assert os.path.isfile(os.path.join(logdir, "graph.pbtxt"))
weights = {name: reader.get_tensor(f"fully_connected/{name}") for name in ("weights", "biases")}
digits.save(ddl.rank(), weights, losses)
