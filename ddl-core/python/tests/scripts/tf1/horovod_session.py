"""The form of Horovod's example for TensorFlow 1: DistributedOptimizer, hook, MonitoredTrainingSession."""

import os

import digits
import horovod.tensorflow as hvd
import tensorflow as tf

tf.logging.set_verbosity(tf.logging.INFO)


class Weights(tf.train.SessionRunHook):
    """Takes the weights when the training ends."""

    def end(self, session):
        self.values = session.run(tf.trainable_variables())


def main(_):
    hvd.init()
    images, labels = digits.load()
    with tf.name_scope("input"):
        image = tf.placeholder(tf.float32, [None, 64], name="image")
        label = tf.placeholder(tf.float32, [None], name="label")
    # other initial values on each rank, which the hook replaces
    tf.set_random_seed(hvd.rank())
    hidden = tf.layers.dense(image, 16, activation=tf.nn.relu)
    logits = tf.layers.dense(hidden, 10)
    loss = tf.losses.softmax_cross_entropy(tf.one_hot(tf.cast(label, tf.int32), 10), logits)

    opt = tf.train.RMSPropOptimizer(0.01 * 2)
    opt = hvd.DistributedOptimizer(opt)
    global_step = tf.train.get_or_create_global_step()
    train_op = opt.minimize(loss, global_step=global_step)

    weights = Weights()
    hooks = [
        weights,
        hvd.BroadcastGlobalVariablesHook(0),
        tf.train.StopAtStepHook(last_step=120),
        tf.train.LoggingTensorHook(tensors={"step": global_step, "loss": loss}, every_n_iter=10),
    ]
    config = tf.ConfigProto()
    config.gpu_options.allow_growth = True
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    checkpoint_dir = os.path.join(os.environ["OUT"], "checkpoints") if hvd.rank() == 0 else None
    losses = []
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=checkpoint_dir, hooks=hooks, config=config
    ) as mon_sess:
        while not mon_sess.should_stop():
            rows = digits.part(len(losses), hvd.rank(), hvd.size())
            _, value = mon_sess.run([train_op, loss], feed_dict={image: images[rows], label: labels[rows]})
            losses.append(value)
    digits.save(hvd.rank(), {f"w{i}": value for i, value in enumerate(weights.values)}, losses)


if __name__ == "__main__":
    tf.app.run()
