"""What the integration asks about the run as a whole."""

from __future__ import annotations

import ddl


def distributed() -> bool:
    """True when there is more than one rank, so that there is something to integrate at all.

    Asked at every call rather than once: a script may initialise DDL itself, after the frameworks were
    imported.
    """
    return bool(ddl.is_initialized()) and ddl.size() > 1
