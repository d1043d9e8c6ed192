"""Compiles the modules of an installed wheel: DIST_INFO. Names and dates do not depend on the build."""

import compileall
import pathlib
import py_compile
import sys

folder = pathlib.Path(sys.argv[1])
site = folder.parent
for line in (folder / "RECORD").read_text(encoding="utf-8").splitlines():
    name = line.split(",")[0]
    if name.endswith(".py") and not name.startswith(".."):
        compileall.compile_file(
            site / name,
            quiet=2,
            stripdir=str(site),
            prependdir="",
            invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP,
        )
