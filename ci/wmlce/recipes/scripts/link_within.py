"""Puts links to libraries of other packages where an installed wheel has its own: SITE_PACKAGES FILE=PLACE...

Both are below site-packages. The wheel's own copies are left out, so that each library is there once.
"""

import os
import pathlib
import sys

site = pathlib.Path(sys.argv[1])
for wanted in sys.argv[2:]:
    file, _, place = wanted.partition("=")
    if not (site / file).is_file():
        sys.exit(f"link_within: there is no {file}")
    link = site / place
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(site / file, link.parent))
