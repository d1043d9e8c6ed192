"""Which files of the clone a recipe may use: those that git knows or would add, so that no build output
slips in.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from wmlce.util.errors import WmlceError
from wmlce.util.files import sha256_file
from wmlce.util.git import ask

_NEVER = {"__pycache__", ".git", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}


def listed_files(root: Path, path: Path) -> list[Path]:
    """Files under `path` (or `path` itself), sorted; without git (a release tarball) every file but
    caches.
    """
    if not path.exists():
        raise WmlceError(f"{path} does not exist", remedy="correct the recipe's `source: path:`")
    if path.is_file():
        return [path]
    if (root / ".git").exists():
        try:
            options = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"]
            answer = ask(root, *options, "--", str(path.relative_to(root)), limit_s=120)
        except WmlceError:
            answer = None
        if answer is not None and answer.returncode == 0:
            names = {os.fsdecode(name) for name in answer.stdout.split(b"\0") if name}
            files = [root / name for name in names]
            return sorted(file for file in files if file.is_symlink() or file.is_file())
    files = []
    for folder, folders, files_here in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in _NEVER)
        files += [Path(folder) / name for name in files_here if not name.endswith(".pyc")]
    return sorted(files)


def file_state(file: Path) -> str:
    """What counts of one file: where a link leads, or the executable bit and the digest of the content."""
    if file.is_symlink():
        return f"link\0{os.readlink(file)}"
    return f"{int(os.access(file, os.X_OK))}\0{sha256_file(file)}"


@functools.cache
def tree_state(root: Path, path: Path) -> Mapping[Path, str]:
    """The state of each listed file under `path`, as it was at the first call of this process."""
    return {file: file_state(file) for file in listed_files(root, path)}


def tree_hash(root: Path, path: Path) -> str:
    """Digest of names, executable bits and contents of the listed files under `path`."""
    digest = hashlib.sha256()
    for file, state in tree_state(root, path).items():
        name = file.relative_to(path) if file != path else Path(file.name)
        digest.update(f"{name}\0{state}\n".encode())
    return digest.hexdigest()
