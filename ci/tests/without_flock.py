"""A file system without flock, such as Lustre mounted without it: a library that refuses the call."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def library_without_flock(folder: Path, code: str) -> Path:
    """For LD_PRELOAD; code: of errno"""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("this machine has no C compiler")
    folder.mkdir(parents=True, exist_ok=True)
    source, library = folder / "flock.c", folder / "flock.so"
    source.write_text(
        "#include <errno.h>\n"
        f"int flock(int file, int operation) {{ (void)file; (void)operation; errno = {code}; return -1; }}\n"
    )
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
    return library
