"""What `import ddl` does to TensorFlow under a launcher."""

from __future__ import annotations

from ddl.tensorflow import _devices, _optimizers, _session, _variables

_integrated = False


def integrate() -> None:
    """Hooks devices, variables, sessions, and TF1's optimizers, once."""
    global _integrated
    if _integrated:
        return
    _integrated = True
    _devices.integrate()
    _variables.integrate()
    _session.integrate()
    _optimizers.integrate()
