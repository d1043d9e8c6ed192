"""Deletes files of an installed wheel, and forgets them in pip's record: DIST_INFO PATTERN..."""

import pathlib
import sys

folder = pathlib.Path(sys.argv[1])
gone = set()
for pattern in sys.argv[2:]:
    found = [path for path in folder.parent.glob(pattern) if path.is_file()]
    if not found:
        sys.exit(f"leave_out: no file matches {pattern}")
    gone.update(found)
record = folder / "RECORD"
names = {path.relative_to(folder.parent).as_posix() for path in gone}
lines = record.read_text(encoding="utf-8").splitlines()
record.write_text("".join(f"{line}\n" for line in lines if line.split(",")[0] not in names))
for path in gone:
    path.unlink()
