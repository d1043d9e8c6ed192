"""What `import ddl` does to TensorFlow under a launcher."""

from __future__ import annotations

from ddl.tensorflow import _devices, _optimizers, _session, _variables

_integrated = False


def integrate() -> None:
    """Hooks devices, variables, sessions, and TensorFlow's own optimizers, once."""
    global _integrated
    if _integrated:
        return
    _integrated = True
    _devices.integrate()
    _variables.integrate()
    _session.integrate()
    _optimizers.integrate()
    _optimizers_of_keras()


def _optimizers_of_keras() -> None:
    """Those of tensorflow.python.keras, which TensorFlow still has for its own use, and scripts import."""
    from tensorflow.python.keras.optimizer_v2 import optimizer_v2

    from ddl._updates import hook_overrides
    from ddl.keras._tf_keras import hook_apply_gradients

    hook_overrides(optimizer_v2.OptimizerV2, "apply_gradients", hook_apply_gradients)
