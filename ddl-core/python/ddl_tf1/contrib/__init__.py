"""The part of tf.contrib that scripts use most, written anew on tf.compat.v1.

Variables have the names that contrib gave them, so that checkpoints of that time can be restored.
"""

from __future__ import annotations

import importlib
from typing import Any

from ddl_tf1._facade import missing

_PARTS = ("data", "framework", "layers", "learn", "lookup", "losses", "metrics", "rnn", "slim", "training")
#: What is part of TensorFlow today.
_OF_TENSORFLOW = {
    "autograph": "autograph",
    "checkpoint": "train",
    "cluster_resolver": "distribute.cluster_resolver",
    "distributions": "distributions",
    "feature_column": "feature_column",
    "lite": "lite",
    "stateless": "random",
    "tpu": "tpu",
    "util": "",
}
_GONE = {
    "crf": "write the loss with tf.scan",
    "cudnn_rnn": "use tf.keras.layers.CuDNNLSTM or CuDNNGRU",
    "distribute": "use ddlrun and `import ddl`",
    "eager": "its names are in tf: tf.enable_eager_execution, tf.GradientTape",
    "estimator": "train in tf.train.MonitoredTrainingSession, or use tf.keras",
    "gan": "train both networks in your own loop",
    "graph_editor": "use tf.graph_util and tf.import_graph_def",
    "image": "use tf.image; for rotations, tf.raw_ops.ImageProjectiveTransformV3",
    "lms": "`import lms.tensorflow`: Large Model Support (docs/train/large-models.md)",
    "mixed_precision": "use tf.train.experimental.enable_mixed_precision_graph_rewrite",
    "nccl": "`import ddl` averages gradients; ddl.tensorflow.allreduce sums tensors",
    "opt": "use the optimizers of tf.train or tf.keras.optimizers",
    "predictor": "use tf.saved_model.load in a tf.Session",
    "quantize": "quantize the trained model with tf.lite.TFLiteConverter",
    "seq2seq": "write decoder and attention with tf.keras.layers.Attention and tf.while_loop",
    "summary": "use tf.summary.FileWriter and tf.summary.scalar",
    "tensorboard": "`from tensorboard.plugins import projector`",
    "tensorrt": "use tensorflow.python.compiler.tensorrt.trt_convert; TensorFlow must be built with TensorRT",
}


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return importlib.import_module(f"ddl_tf1.contrib.{name}")
    if name == "keras":
        from ddl_tf1 import _modules

        return _modules.root("keras")
    if name in _OF_TENSORFLOW:
        import tensorflow.compat.v1 as tf

        value: Any = tf
        for part in filter(None, _OF_TENSORFLOW[name].split(".")):
            value = getattr(value, part)
        return value
    raise AttributeError(missing("tensorflow.contrib", name, _GONE))


def __dir__() -> list[str]:
    return sorted([*_PARTS, *_OF_TENSORFLOW, "keras"])
