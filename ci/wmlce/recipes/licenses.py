"""Licences of distributions as SPDX expressions."""

from __future__ import annotations

import re
from functools import lru_cache

_SPDX_OF_CLASSIFIER = {
    "Apache Software License": "Apache-2.0",
    "MIT License": "MIT",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "Python Software Foundation License": "PSF-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
    "zlib/libpng License": "Zlib",
    "GNU General Public License v2 (GPLv2)": "GPL-2.0-only",
    "GNU General Public License v2 or later (GPLv2+)": "GPL-2.0-or-later",
    "GNU General Public License v3 (GPLv3)": "GPL-3.0-only",
    "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
    "GNU Lesser General Public License v2 or later (LGPLv2+)": "LGPL-2.0-or-later",
}
_SPDX_OF_TEXT = {
    "apache 2.0": "Apache-2.0",
    "apache-2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache 2": "Apache-2.0",
    "apache": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "mit": "MIT",
    "mit license": "MIT",
    "the mit license": "MIT",
    "bsd": "BSD-3-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "bsd-3-clause": "BSD-3-Clause",
    "3-clause bsd license": "BSD-3-Clause",
    "new bsd": "BSD-3-Clause",
    "bsd-2-clause": "BSD-2-Clause",
    "simplified bsd": "BSD-2-Clause",
    "isc": "ISC",
    "psf": "PSF-2.0",
    "psf-2.0": "PSF-2.0",
    "mpl-2.0": "MPL-2.0",
}


@lru_cache(maxsize=1024)
def _spdx(text: str) -> str | None:
    return _SPDX_OF_TEXT.get(re.sub(r"\s+", " ", text.strip()).lower())


def spdx_license(expression: str | None, text: str | None, classifiers: list[str]) -> str | None:
    """An SPDX expression from METADATA's License-Expression, its classifiers or its License line; None if
    unclear.
    """
    if expression:
        return expression
    found = []
    for classifier in classifiers:
        if classifier.startswith("License ::"):
            name = classifier.rsplit(" :: ", 1)[1]
            if name in _SPDX_OF_CLASSIFIER:
                found.append(_SPDX_OF_CLASSIFIER[name])
    short = _spdx(text) if text and len(text) < 80 else None
    if short and (not found or short in ("BSD-2-Clause", "ISC") or len(found) > 1):
        return short
    return " OR ".join(dict.fromkeys(found)) or short
