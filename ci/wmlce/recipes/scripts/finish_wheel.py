"""Finishes an installed wheel: DIST_INFO EDITS [--platform]

EDITS (JSON) names what the channel provides under another name, or not at all (null), so that the installed
metadata is true and `pip check` can be right. pip's note of where the wheel lay is removed. With --platform,
libraries that count on the machine's are led to those of the environment, and modules are compiled, with
names and dates that do not depend on the build.
"""

import compileall
import json
import os
import pathlib
import py_compile
import re
import subprocess
import sys

folder = pathlib.Path(sys.argv[1])
edits = json.loads(sys.argv[2])
platform = "--platform" in sys.argv[3:]
site = folder.parent


def correct_metadata() -> None:
    path = folder / "METADATA"
    head, gap, body = path.read_text(encoding="utf-8").partition("\n\n")
    lines = []
    for line in head.split("\n"):
        found = re.match(r"Requires-Dist:\s*([A-Za-z0-9._-]+)(.*)", line)
        name = re.sub(r"[-_.]+", "-", found[1]).lower() if found else None
        if found and name in edits:
            if edits[name] is not None:
                lines.append(f"Requires-Dist: {edits[name]}{found[2]}")
        else:
            lines.append(line)
    path.write_text("\n".join(lines) + gap + body, encoding="utf-8")


def ask(*command: object) -> list[str]:
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False
    ).stdout.split()


def relink() -> set[str]:
    """Lead libraries to the environment's own; the names (as in RECORD) of the changed files.

    Search paths that lead nowhere are left out at the same time: the shorter text then fits where the old one
    was, and patchelf need not move a large library's tables.
    """
    changed = set()
    library_folder = pathlib.Path(os.environ["PREFIX"], "lib")
    provided = {path.name for path in library_folder.glob("lib*.so*")}
    for line in (folder / "RECORD").read_text(encoding="utf-8").splitlines():
        name = line.split(",")[0]
        path = site / name
        if path.is_symlink() or not path.is_file() or path.open("rb").read(4) != b"\x7fELF":
            continue
        if not provided.intersection(ask("patchelf", "--print-needed", path)):
            continue
        given = ":".join(ask("patchelf", "--print-rpath", path)).split(":")
        kept = [entry for entry in given if os.path.isdir(entry.replace("$ORIGIN", str(path.parent)))]
        kept.append("$ORIGIN/" + os.path.relpath(library_folder, path.parent.resolve()))
        # a RUNPATH where there was none would end what the file inherits from its users' RPATH
        kind = [] if "(RUNPATH)" in ask("readelf", "-d", path) else ["--force-rpath"]
        subprocess.run(["patchelf", *kind, "--set-rpath", ":".join(dict.fromkeys(kept)), path], check=True)
        changed.add(name)
    return changed


correct_metadata()
(folder / "direct_url.json").unlink(missing_ok=True)
relinked = relink() if platform else set()
(folder / "INSTALLER").write_text("conda\n")
record = folder / "RECORD"
files = []
lines = []
for line in record.read_text(encoding="utf-8").splitlines():
    name = line.split(",")[0]
    if name.endswith(".dist-info/direct_url.json"):
        continue
    changed = name in relinked or name.endswith((".dist-info/METADATA", ".dist-info/INSTALLER"))
    files.append(name)
    lines.append(f"{name},," if changed else line)
record.write_text("\n".join(lines) + "\n", encoding="utf-8")
if platform:
    for name in files:
        if name.endswith(".py") and not name.startswith(".."):
            compileall.compile_file(
                site / name,
                quiet=2,
                stripdir=str(site),
                prependdir="",
                invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP,
            )
