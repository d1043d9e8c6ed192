"""Settings that TensorFlow reads once, when it is imported."""

import os
import sys

from tf_cnn_benchmarks.params import Params


def prepare_environment(params: Params) -> None:
    """To be called before the first import of TensorFlow; afterwards it would have no effect."""
    if "tensorflow" in sys.modules:
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if params.xla:
        flags = os.environ.get("TF_XLA_FLAGS", "")
        os.environ["TF_XLA_FLAGS"] = f"{flags} --tf_xla_cpu_global_jit".strip()
