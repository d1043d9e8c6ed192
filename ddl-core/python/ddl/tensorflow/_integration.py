"""What `import ddl` does to TensorFlow under a launcher."""

from __future__ import annotations

from ddl.tensorflow import _devices, _drift, _optimizers, _session, _variables

_integrated = False


def integrate() -> None:
    """Hooks devices, variables, sessions, TF1's optimizers, and calls of functions, once."""
    global _integrated
    if _integrated:
        return
    _integrated = True
    _devices.integrate()
    _variables.integrate()
    _session.integrate()
    _optimizers.integrate()
    _drift.integrate()
