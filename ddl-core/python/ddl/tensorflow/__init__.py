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
from ddl._updates import no_averaging
from ddl.tensorflow._accumulation import GradientAccumulator
from ddl.tensorflow._collectives import allreduce, allreduce_n, bcast
from ddl.tensorflow._data import per_rank_batch_size, shard
from ddl.tensorflow._export import check_servable, export_graph, export_model
from ddl.tensorflow._gradients import DistributedGradientTape, clip_by_global_norm, grads_reduce
from ddl.tensorflow._learning_rate import warmup_learning_rate
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
    "GradientAccumulator",
    "allreduce",
    "allreduce_n",
    "bcast",
    "broadcast_enabled",
    "broadcast_variables",
    "check_servable",
    "clip_by_global_norm",
    "disable_broadcast",
    "enable_broadcast",
    "export_graph",
    "export_model",
    "finalize",
    "grads_reduce",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "no_averaging",
    "no_broadcast",
    "num_hosts",
    "operators",
    "per_rank_batch_size",
    "rank",
    "shard",
    "size",
    "warmup_learning_rate",
]
