"""DDL in TensorFlow: collectives on tensors, averaged gradients, the same initial variables.

Under the launcher `import ddl` alone makes the optimizers of TF1, tf_keras and Keras 3 average their
gradients and all ranks start from rank 0's variables. What this module offers is for scripts that do more
by themselves.
"""

# Before the modules of this package: importing TensorFlow integrates DDL into it, which needs them whole.
import tensorflow as _tensorflow  # noqa: F401

# isort: split
from ddl import (
    DDLError,
    finalize,
    init,
    is_initialized,
    local_rank,
    local_size,
    num_hosts,
    rank,
    size,
)
from ddl.tensorflow._collectives import allreduce, allreduce_n, bcast
from ddl.tensorflow._gradients import DistributedGradientTape, grads_reduce
from ddl.tensorflow._library import operators
from ddl.tensorflow._variables import (
    broadcast_enabled,
    broadcast_variables,
    disable_broadcast,
    enable_broadcast,
    no_broadcast,
)

__all__ = [
    "DDLError",
    "DistributedGradientTape",
    "allreduce",
    "allreduce_n",
    "bcast",
    "broadcast_enabled",
    "broadcast_variables",
    "disable_broadcast",
    "enable_broadcast",
    "finalize",
    "grads_reduce",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "no_broadcast",
    "num_hosts",
    "operators",
    "rank",
    "size",
]
