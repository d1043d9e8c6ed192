"""Writes other versions of dependencies into an installed wheel's metadata: DIST_INFO REQUIREMENT...

A wheel may name one exact version where others work too; where two distributions need the same library, one
version has to serve both, and `pip check` then needs metadata that say so.
"""

import pathlib
import re
import sys

path = pathlib.Path(sys.argv[1], "METADATA")
head, gap, body = path.read_text(encoding="utf-8").partition("\n\n")
lines = head.split("\n")
for wanted in sys.argv[2:]:
    name = re.split(r"[^A-Za-z0-9._-]", wanted, maxsplit=1)[0]
    pattern = re.compile(rf"Requires-Dist:\s*{re.escape(name)}(?![A-Za-z0-9._-])[^;]*(;.*)?$", re.IGNORECASE)
    found = 0
    for number, line in enumerate(lines):
        if match := pattern.match(line):
            lines[number] = " ".join(filter(None, [f"Requires-Dist: {wanted}", match[1]]))
            found += 1
    if not found:
        sys.exit(f"require: {path} has no requirement of {name}")
path.write_text("\n".join(lines) + gap + body, encoding="utf-8")
