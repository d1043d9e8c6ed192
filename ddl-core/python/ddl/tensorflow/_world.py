"""What the integration asks about the run as a whole."""

from __future__ import annotations

import ddl

_has_others = False


def distributed() -> bool:
    """True when there is more than one rank, so that there is something to integrate at all.

    Asked at every call rather than once: a script may initialise DDL itself, after the frameworks were
    imported. Only the answer "yes" is remembered: DDL answers a question when the collective that is under
    way has ended, for which a training step must not wait.
    """
    global _has_others
    if not _has_others:
        _has_others = bool(ddl.is_initialized()) and ddl.size() > 1
    return _has_others
