"""pip, with those of the user's settings that say how files are fetched: which index, proxy, certificate.

Others would put files elsewhere (target, prefix, user), none at all (dry-run), or choose other ones
(constraint). ci/bootstrap.sh runs this by its path, with the pip that came with Python: only the standard
library and pip are here, and of pip a method that it has had since 10. ci/tests/test_bootstrap_settings.py
tries it.

    python -I ci/wmlce/sources/own_pip.py COMMAND...
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from pip._internal.cli.main import main
from pip._internal.cli.parser import ConfigOptionParser

KEPT = frozenset(
    (
        *("index-url", "pypi-url", "extra-index-url", "no-index", "find-links", "trusted-host"),
        *("proxy", "cert", "client-cert", "keyring-provider", "no-input", "use-feature", "use-deprecated"),
        *("timeout", "default-timeout", "retries", "resume-retries", "cache-dir", "no-cache-dir"),
        *("disable-pip-version-check", "log"),
    )
)
_settings = ConfigOptionParser._get_ordered_configuration_items


def _kept(parser: ConfigOptionParser) -> Iterator[tuple[str, Any]]:
    """The settings, out of variables and files, that pip takes for one of its commands."""
    settings = [(name, value) for name, value in _settings(parser) if name in KEPT]
    values = dict(settings)
    without = str(values.get("no-index", "")).lower() in ("1", "true", "yes", "on", "y", "t")
    nowhere = not {"find-links", "--find-links"} & {*values, *sys.argv}
    if __name__ == "__main__" and without and nowhere and parser.get_option("--no-index"):
        sys.exit(
            "ERROR: pip may use no index (PIP_NO_INDEX, or no-index in pip.conf) and has no find-links: "
            "allow it one, or name a folder of wheels (PIP_FIND_LINKS)"
        )
    return iter(settings)


def heed_only_kept() -> None:
    """From here on pip, in this process, takes no other settings."""
    ConfigOptionParser._get_ordered_configuration_items = _kept  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    heed_only_kept()
    sys.exit(main(sys.argv[1:]))
