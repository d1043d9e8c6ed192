"""What Debian has fixed: the patches that the build scripts apply, and none that they leave out."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from tree import ROOT
from wmlce.sources import debian_fixes
from wmlce.sources.model import read_source_lock, role
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout

LAYOUT = Layout.locate(ROOT)
SOURCES = {
    source.package: (source, file)
    for source in read_source_lock(LAYOUT)
    for file in source.files
    if role(file.name) == "debian.tar"
}


def test_the_lock_file_is_of_the_locked_sources() -> None:
    locked = {item.package: item for item in debian_fixes.read(ROOT)}
    assert {name: source.version for name, (source, _) in SOURCES.items()} == {
        name: item.version for name, item in locked.items()
    }
    assert {"python", "libexpat", "openssl"} <= {n for item in locked.values() for n in item.packages}


@pytest.mark.parametrize("package", sorted(SOURCES))
def test_the_patches_are_those_that_the_build_script_applies(package: str, tmp_path: Path) -> None:
    """The script itself is run down to its last patch, with a `patch` that notes its input."""
    source, file = SOURCES[package]
    archive = LAYOUT.cache / "sources" / file.sha256 / file.name
    script = (ROOT / f"recipes/{source.recipes[0]}/build.sh").read_text()
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    lines = script.splitlines()
    last = max(n for n, line in enumerate(lines) if line.lstrip().startswith("patch "))
    head = [line for line in lines[: last + 2] if last and not line.startswith("./configure")]
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "patch").write_text('#!/bin/sh\nreadlink /proc/self/fd/0 >>"$NOTED"\n')
    (tools / "patch").chmod(0o755)
    noted = tmp_path / "noted"
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "NOTED": str(noted)}
    text = "\n".join(line for line in head if not line.startswith(("cmake", "export")))
    subprocess.run(["bash", "-c", text], cwd=tmp_path, env=environment, check=True, timeout=60)
    start = f"{tmp_path}/debian/patches/"
    applied = [line.removeprefix(start) for line in noted.read_text().splitlines()]
    computed = debian_fixes.of_source(archive, script, "build.sh")
    assert list(computed) == applied
    locked = next(item for item in debian_fixes.read(ROOT) if item.package == package)
    assert locked.patches == computed, "recipes changed: wmlce lock sources"


def test_a_script_in_another_form_is_refused() -> None:
    with pytest.raises(WmlceError, match=r"build\.sh applies patches in a way that is not understood"):
        debian_fixes.applied("for name in a b; do\n  patch -p1 <$name\ndone\n", "a\nb\n", "build.sh")
