"""MonitoredTrainingSession with hooks and checkpoints: it trains, stops, and goes on from the checkpoint."""

import os

import ddl
import digits
import tensorflow as tf

images, labels = digits.load()
# Only the first rank writes checkpoints.
folder = os.path.join(os.environ["OUT"], "checkpoints") if ddl.rank() == 0 else None
losses = []


class Record(tf.train.SessionRunHook):
    """Feeds the batches and records the losses."""

    def __init__(self, model):
        self.model = model

    def before_run(self, run_context):
        step = len(losses)
        rows = digits.part(step, ddl.rank(), ddl.size())
        feed = {self.model["x"]: images[rows], self.model["y"]: labels[rows]}
        return tf.train.SessionRunArgs([self.model["loss"]], feed_dict=feed)

    def after_run(self, run_context, run_values):
        losses.append(run_values.results[0])

    def end(self, session):
        self.weights = session.run(tf.trainable_variables())


def build():
    tf.set_random_seed(7)
    x = tf.placeholder(tf.float32, [None, 64])
    y = tf.placeholder(tf.int64, [None])
    logits = tf.layers.dense(tf.layers.dense(x, 24, tf.nn.relu, name="hidden"), 10, name="out")
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    step = tf.train.get_or_create_global_step()
    train = tf.train.AdamOptimizer(0.01).minimize(loss, global_step=step)
    return {"x": x, "y": y, "loss": loss, "train": train}


def train(last_step):
    with tf.Graph().as_default():
        model = build()
        record = Record(model)
        hooks = [
            tf.train.StopAtStepHook(last_step=last_step),
            tf.train.NanTensorHook(model["loss"]),
            tf.train.LoggingTensorHook({"loss": model["loss"]}, every_n_iter=10),
            record,
        ]
        with tf.train.MonitoredTrainingSession(
            checkpoint_dir=folder,
            is_chief=True,
            hooks=hooks,
            save_checkpoint_steps=10,
            log_step_count_steps=10,
        ) as session:
            while not session.should_stop():
                session.run(model["train"])
        return record.weights


def main(_):
    train(20)
    weights = train(45)
    assert len(losses) == 45, len(losses)
    if ddl.rank() == 0:
        assert tf.train.latest_checkpoint(folder).endswith("-45")
    digits.save(ddl.rank(), {f"w{i}": value for i, value in enumerate(weights)}, losses)


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.INFO)
    tf.app.run(main)
