"""wmlce: fetches, builds, tests, indexes, installs and verifies the conda channel of this distribution."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "2.0.0"
