"""DDL in Keras 3 (TensorFlow backend) and tf_keras: callbacks.

Under the launcher the optimizers average their gradients by themselves; see `ddl.tensorflow`.
"""

from ddl.keras._callbacks import DDLCallback, DDLGlobalVariablesCallback

__all__ = ["DDLCallback", "DDLGlobalVariablesCallback"]
