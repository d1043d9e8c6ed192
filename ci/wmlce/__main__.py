"""`python -m wmlce` is the command `wmlce`, for places where the entry point is not on PATH."""

from __future__ import annotations

from wmlce.cli.main import main

if __name__ == "__main__":
    main()
