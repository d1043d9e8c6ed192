"""DDL in Keras 3 (TensorFlow backend) and tf_keras: callbacks, gradient accumulation.

Under the launcher the optimizers average their gradients by themselves; see `ddl.tensorflow`.
"""

from ddl.keras._accumulation import accumulate_gradients
from ddl.keras._callbacks import DDLCallback, DDLGlobalVariablesCallback
from ddl.keras._rank0 import DDLModelCheckpoint, on_rank_0
from ddl.keras._warmup import LearningRateWarmupCallback

__all__ = [
    "DDLCallback",
    "DDLGlobalVariablesCallback",
    "DDLModelCheckpoint",
    "LearningRateWarmupCallback",
    "accumulate_gradients",
    "on_rank_0",
]
