"""Puts links to files of an installed wheel into the environment's lib/: SITE_PACKAGES PATTERN...

Frameworks find a library inside site-packages, by search paths that their wheels bring; everybody else looks
into lib/. The library itself is there once.
"""

import os
import pathlib
import sys

site = pathlib.Path(sys.argv[1])
library_folder = pathlib.Path(os.environ["PREFIX"], "lib")
for pattern in sys.argv[2:]:
    found = sorted(path for path in site.glob(pattern) if path.is_file())
    if not found:
        sys.exit(f"link: no file matches {pattern}")
    for path in found:
        (library_folder / path.name).symlink_to(os.path.relpath(path, library_folder))
