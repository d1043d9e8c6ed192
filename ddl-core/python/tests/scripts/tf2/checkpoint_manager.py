"""Summaries, and a CheckpointManager of rank 0, from whose last checkpoint all ranks go on."""

import os

import digits
import horovod.tensorflow as hvd
import tensorflow as tf

LOGDIR, MODEL_DIR = "logs", "ckpt"


class Experiment:
    """A model with what a checkpoint holds of it."""

    def __init__(self):
        tf.keras.utils.set_random_seed(100 + hvd.rank())
        self.net = tf.keras.Sequential(
            [tf.keras.layers.InputLayer((64,)), tf.keras.layers.Dense(28, "elu"), tf.keras.layers.Dense(10)]
        )
        self.optimizer = tf.keras.optimizers.Adamax(0.01, epsilon=1e-4)
        self.optimizer.build(self.net.trainable_variables)
        self.step = tf.Variable(0, dtype=tf.int64, name="step")
        self.ckpt = tf.train.Checkpoint(step=self.step, optimizer=self.optimizer, net=self.net)
        self.manager = tf.train.CheckpointManager(self.ckpt, MODEL_DIR, max_to_keep=2)

    def restore(self):
        if hvd.rank() == 0:
            self.ckpt.restore(self.manager.latest_checkpoint)
            print(f"Restored from {self.manager.latest_checkpoint}")
        optimizer_variables = self.optimizer.variables
        if callable(optimizer_variables):
            optimizer_variables = optimizer_variables()
        hvd.broadcast_variables([self.step, *self.net.variables, *optimizer_variables], root_rank=0)

    @tf.function
    def train_step(self, x, y):
        with tf.GradientTape() as tape:
            loss = tf.keras.losses.sparse_categorical_crossentropy(y, self.net(x), from_logits=True)
            loss = tf.reduce_mean(loss)
        tape = hvd.DistributedGradientTape(tape, device_dense="/cpu:0")
        variables = self.net.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        self.step.assign_add(1)
        return loss

    def train(self, until, writer):
        images, labels = digits.load()
        losses = []
        while self.step < until:
            rows = digits.part(int(self.step), hvd.rank(), hvd.size())
            loss = self.train_step(images[rows], labels[rows])
            losses.append(float(loss))
            with writer.as_default(step=self.step):
                tf.summary.scalar("loss", loss)
            if self.step % 10 == 0 and hvd.rank() == 0:
                self.manager.save(checkpoint_number=self.step)
        return losses


hvd.init()
writer = tf.summary.create_file_writer(LOGDIR) if hvd.rank() == 0 else tf.summary.create_noop_writer()
losses = []
for until in (20, 45):
    experiment = Experiment()
    experiment.restore()
    losses += experiment.train(until, writer)
assert len(losses) == 45, len(losses)
if hvd.rank() == 0:
    writer.flush()
    assert [os.path.basename(path) for path in experiment.manager.checkpoints] == ["ckpt-30", "ckpt-40"]
    assert tf.io.gfile.glob(f"{LOGDIR}/events*")
weights = {f"w{i}": value for i, value in enumerate(experiment.net.get_weights())}
digits.save(hvd.rank(), weights, losses)
