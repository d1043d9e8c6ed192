"""The project as a stranger gets it: a clone; and one hash over the files that a trial depends on."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from wmlce.util.errors import WmlceError

ROOT = Path(__file__).resolve().parents[2]
NAME = "ibm-wml-ce"
"""Name of the clone in the home folder of a system's user."""
_NOT_BUILT = {"docs", ".ci", "containers"}
_TESTS = {"conftest.py", "ci/test"}


def make(target: Path, *, uncommitted: bool) -> None:
    """Clone HEAD, without a way back; with `uncommitted` the files are those of the working tree."""
    shutil.rmtree(target, ignore_errors=True)
    _git("clone", "--quiet", "--no-hardlinks", "--no-tags", str(ROOT), str(target))
    _git("-C", str(target), "remote", "remove", "origin")
    if not uncommitted:
        return
    names = working_files()
    for name in names:
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.unlink(missing_ok=True)
        shutil.copy2(ROOT / name, copy, follow_symlinks=False)
    for name in _names(_git("-C", str(target), "ls-files", "-z")) - names:
        (target / name).unlink(missing_ok=True)


def needed_by_builds(name: str) -> bool:
    """Can this file change what ./ci/quickstart does? Tests and pages cannot."""
    path = PurePosixPath(name)
    if path.suffix == ".md" or name in _TESTS:
        return False
    return path.parts[0] not in _NOT_BUILT and "tests" not in path.parts[:-1]


def content_hash(select: Callable[[str], bool], *, uncommitted: bool) -> str:
    """Digest over names, modes and contents of the selected files of HEAD or of the working tree."""
    if uncommitted:
        names = sorted(working_files())
        hashes = _git("-C", str(ROOT), "hash-object", "--stdin-paths", stdin="\n".join(names).encode())
        entries = {
            name: f"{_mode(ROOT / name)} {digest}"
            for name, digest in zip(names, hashes.decode().split(), strict=True)
        }
    else:
        entries = {}
        for line in _git("-C", str(ROOT), "ls-tree", "-r", "-z", "HEAD").decode().split("\0"):
            if line:
                facts, _, name = line.partition("\t")
                mode, _, digest = facts.split()
                entries[name] = f"{mode} {digest}"
    chosen = [f"{name}\0{facts}\n" for name, facts in sorted(entries.items()) if select(name)]
    return hashlib.sha256("".join(chosen).encode()).hexdigest()[:16]


def head() -> str:
    """The commit, shortened."""
    return _git("-C", str(ROOT), "rev-parse", "--short", "HEAD").decode().strip()


def _mode(file: Path) -> str:
    return "120000" if file.is_symlink() else "100755" if os.access(file, os.X_OK) else "100644"


def working_files() -> set[str]:
    names = _names(_git("-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"))
    return {name for name in names if (ROOT / name).is_symlink() or (ROOT / name).is_file()}


def _names(listing: bytes) -> set[str]:
    return {os.fsdecode(name) for name in listing.split(b"\0") if name}


def _git(*arguments: str, stdin: bytes = b"") -> bytes:
    command = ["git", "-c", f"safe.directory={ROOT}", *arguments]
    run = subprocess.run(command, input=stdin, capture_output=True, timeout=300, check=False)
    if run.returncode != 0:
        raise WmlceError(
            f"git failed in {ROOT}: {' '.join(arguments[:4])}",
            detail=run.stderr.decode(errors="replace").splitlines()[-5:],
            remedy="ci/bare-machine works in a clone with at least one commit",
        )
    return run.stdout
