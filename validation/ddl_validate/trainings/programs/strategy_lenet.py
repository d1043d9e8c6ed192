"""LeNet by a strategy of TensorFlow's own, in the cluster that TF_CONFIG describes.

Started by ddlrun: ddlrun -np 2 -tf-config worker python strategy_lenet.py --strategy multi_worker
                   ddlrun -np 3 -ps 1 -tf-config chief python strategy_lenet.py --strategy parameter_server
"""

from __future__ import annotations

import os

# tf.distribute works with Keras 2: Keras 3 refuses these two strategies.
os.environ["TF_USE_LEGACY_KERAS"] = "1"

from collections.abc import Callable, Iterator
from typing import Any

import digits
import tensorflow as tf
import tf_keras


def lenet() -> Any:
    """The network of tf_cnn_benchmarks: 61 706 parameters."""
    return tf_keras.Sequential(
        [
            tf_keras.layers.Input((digits.PIXELS, digits.PIXELS, 1)),
            tf_keras.layers.Conv2D(6, 5, activation="relu"),
            tf_keras.layers.MaxPool2D(2),
            tf_keras.layers.Conv2D(16, 5, activation="relu"),
            tf_keras.layers.MaxPool2D(2),
            tf_keras.layers.Conv2D(120, 5, activation="relu"),
            tf_keras.layers.Flatten(),
            tf_keras.layers.Dense(84, activation="relu"),
            tf_keras.layers.Dense(digits.CLASSES),
        ]
    )


class Training:
    """The model and one step of it, made in the strategy's scope."""

    def __init__(self, strategy: Any, schedule: digits.Schedule, workers: int) -> None:
        self.strategy = strategy
        self._global_batch = schedule.batch * workers
        with strategy.scope():
            self.model = lenet()
            self._optimizer = tf_keras.optimizers.SGD(schedule.rate, momentum=digits.MOMENTUM, nesterov=True)
        self._images, self._labels = digits.load(training=False)

    def step(self, iterator: Any) -> None:
        """Inside a tf.function: every replica trains on one batch, and gradients are added up."""

        def replica(inputs: tuple[Any, Any]) -> None:
            images, labels = inputs
            with tf.GradientTape() as tape:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                    labels, self.model(images, training=True)
                )
                loss = tf.reduce_sum(losses) / self._global_batch
            gradients = tape.gradient(loss, self.model.trainable_variables)
            self._optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))

        self.strategy.run(replica, args=(next(iterator),))

    def accuracy(self) -> float:
        predicted = self.model(self._images, training=False).numpy().argmax(1)
        return float((predicted == self._labels).mean())


def dataset(schedule: digits.Schedule, worker: int, workers: int) -> Any:
    """A worker's batches of all epochs, and more of the same for those that take the steps of slower ones."""

    def generate() -> Iterator[tuple[Any, Any]]:
        epoch = 0
        while True:
            yield from digits.batches(schedule, worker, workers, epoch)
            epoch += 1

    signature = (
        tf.TensorSpec((schedule.batch, digits.PIXELS, digits.PIXELS, 1), tf.float32),
        tf.TensorSpec((schedule.batch,), tf.int64),
    )
    return tf.data.Dataset.from_generator(generate, output_signature=signature)


def multi_worker(schedule: digits.Schedule, tell: Callable[[str], None] = digits.tell_at_once) -> None:
    """Synchronous: the workers average their gradients by TensorFlow's collectives."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    resolver = strategy.cluster_resolver
    # a chief, where there is one, is a worker too, the first
    later = resolver.task_type == "worker" and "chief" in resolver.cluster_spec().jobs
    worker, workers = resolver.task_id + later, strategy.num_replicas_in_sync
    training = Training(strategy, schedule, workers)
    batches = iter(
        strategy.distribute_datasets_from_function(lambda _: dataset(schedule, worker, workers).prefetch(2))
    )
    step = tf.function(training.step)

    def steps(epoch: int) -> int:
        count = schedule.steps(workers)
        for _ in range(count):
            step(batches)
        return int(count * schedule.batch * workers)

    digits.Clock(worker == 0, tell).train_epochs(schedule.epochs, steps, training.accuracy)


def parameter_server(schedule: digits.Schedule) -> None:
    """Asynchronous: the coordinator hands out steps, and the workers update the variables of the servers."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        tf.distribute.Server(
            resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
        ).join()
        return
    workers = resolver.cluster_spec().num_tasks("worker")
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    # each step is one worker's, and its gradient is that of its own batch
    training = Training(strategy, schedule, 1)
    # which worker makes a dataset is not told to it: each takes batches of all images, by its own chance
    arrays = digits.load(training=True)
    batches = iter(
        coordinator.create_per_worker_dataset(
            lambda: strategy.distribute_datasets_from_function(lambda _: shuffled(arrays, schedule.batch))
        )
    )
    step = tf.function(training.step)

    def steps(epoch: int) -> int:
        count = schedule.steps(workers) * workers
        for _ in range(count):
            coordinator.schedule(step, args=(batches,))
        coordinator.join()
        return int(count * schedule.batch)

    digits.Clock(True).train_epochs(schedule.epochs, steps, training.accuracy)


def shuffled(arrays: tuple[Any, Any], batch: int) -> Any:
    """Batches of all images in an order of its own, without end."""
    data = tf.data.Dataset.from_tensor_slices(arrays).shuffle(len(arrays[1]))
    return data.repeat().batch(batch, drop_remainder=True).prefetch(2)


def main() -> None:
    parser = digits.parser(__doc__)
    ways = {"multi_worker": multi_worker, "parameter_server": parameter_server}
    parser.add_argument("--strategy", choices=tuple(ways), required=True)
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    ways[options.strategy](digits.schedule_of(options))


if __name__ == "__main__":
    main()
