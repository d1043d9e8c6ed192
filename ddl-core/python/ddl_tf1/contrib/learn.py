"""tf.contrib.learn, of which only the place of the digits is left."""

from __future__ import annotations

from ddl_tf1 import mnist as _mnist
from ddl_tf1._facade import getattr_of

read_data_sets = _mnist.read_data_sets


class datasets:
    """The data sets."""

    class mnist:
        """The digits of MNIST."""

        read_data_sets = staticmethod(_mnist.read_data_sets)


_TRAIN = "train in tf.train.MonitoredTrainingSession, or use tf.keras"
__getattr__ = getattr_of(
    "tensorflow.contrib.learn",
    dict.fromkeys(
        ("DNNClassifier", "DNNRegressor", "Estimator", "Experiment", "LinearClassifier", "RunConfig"), _TRAIN
    ),
)
