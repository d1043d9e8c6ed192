"""Settings that TensorFlow reads from the environment."""

import os
import sys

from tf_cnn_benchmarks.params import Params

DEFAULT_GPU_THREADS = 2


def prepare_environment(params: Params) -> None:
    """To be called before the first import of TensorFlow; afterwards most would have no effect. What the user
    has set in the environment stays."""
    if "tensorflow" in sys.modules:
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_SYNC_ON_FINISH", "1" if params.sync_on_finish else "0")
    os.environ.setdefault("TF_GPU_THREAD_MODE", params.gpu_thread_mode)
    if params.gpu_thread_mode != "global":
        os.environ.setdefault("TF_GPU_THREAD_COUNT", str(params.per_gpu_thread_count or DEFAULT_GPU_THREADS))
    if params.xla:
        flags = os.environ.get("TF_XLA_FLAGS", "")
        os.environ["TF_XLA_FLAGS"] = f"{flags} --tf_xla_cpu_global_jit".strip()
