"""DDL in Keras 3 (on TensorFlow and PyTorch) and tf_keras: callbacks, gradient accumulation.

Under the launcher the optimizers average their gradients by themselves; see `ddl.tensorflow`.
"""

from ddl._updates import no_averaging
from ddl.keras._accumulation import accumulate_gradients
from ddl.keras._backup import DDLBackupAndRestore
from ddl.keras._callbacks import DDLCallback, DDLGlobalVariablesCallback
from ddl.keras._rank0 import DDLModelCheckpoint, on_rank_0
from ddl.keras._warmup import LearningRateWarmupCallback

#: The name it has in Horovod.
MetricAverageCallback = DDLCallback

__all__ = [
    "DDLBackupAndRestore",
    "DDLCallback",
    "DDLGlobalVariablesCallback",
    "DDLModelCheckpoint",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
    "accumulate_gradients",
    "no_averaging",
    "on_rank_0",
]
