"""Deletes what other versions of Python would load of an installed wheel, and its lines of RECORD."""

import pathlib
import re
import sys
import sysconfig

MODULE = re.compile(r"\.(cpython-\d+[a-z]*-[^./]+)\.so$")

folder = pathlib.Path(sys.argv[1])
suffix = sysconfig.get_config_var("EXT_SUFFIX")
record = folder / "RECORD"
left, gone, own = [], [], 0
for line in record.read_text(encoding="utf-8").splitlines():
    name = line.split(",")[0]
    if not MODULE.search(name):
        left.append(line)
    elif name.endswith(suffix):
        left.append(line)
        own += 1
    else:
        gone.append(folder.parent / name)
if not gone or not own:
    sys.exit(f"one_python: {own} modules for {suffix}, {len(gone)} for other versions of Python")
record.write_text("".join(f"{line}\n" for line in left))
for path in gone:
    path.unlink()
