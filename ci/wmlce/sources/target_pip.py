"""pip for another Python or another machine than the one that runs it.

pip's options (`--python-version`, `--platform`) choose files, but it evaluates the markers of requirements
(`; python_version < "3.12"`) for the Python that runs it. Here they hold for the target. This sets a function
of a module that pip does not promise to keep: the tool environment holds one exact pip
(ci/requirements.lock), and ci/tests/test_plan.py tries it. `unearth` finds files, and resolves nothing.

    python -m wmlce.sources.target_pip MARKERS COMMAND...     (MARKERS: a JSON file)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pip._internal.cli.main import main
from pip._vendor.packaging import markers

from wmlce.sources import own_pip


def run(environment: markers.Environment, arguments: list[str]) -> int:
    """pip's exit code. environment: values of markers, such as python_version"""
    markers.default_environment = lambda: environment.copy()
    own_pip.heed_only_kept()
    return main(arguments)


if __name__ == "__main__":
    sys.exit(run(json.loads(Path(sys.argv[1]).read_text()), sys.argv[2:]))
