"""What of the clone a release is made of: a commit, the version, the section of the changelog."""

from __future__ import annotations

import gzip
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from wmlce.util.errors import WmlceError
from wmlce.util.git import ask
from wmlce.util.layout import Layout

_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


@dataclass(frozen=True)
class Tree:
    """commit: the full hash. time: of the commit, in seconds: every time in a release is this one.
    changes: the section of CHANGELOG.md, without its heading.
    """

    version: str
    commit: str
    time: int
    changes: str

    @property
    def date(self) -> str:
        return datetime.fromtimestamp(self.time, UTC).isoformat(timespec="seconds")


def version(layout: Layout) -> str:
    """The file VERSION: the one place that says it."""
    path = layout.root / "VERSION"
    text = path.read_text().strip() if path.is_file() else ""
    if not _VERSION.fullmatch(text):
        raise WmlceError(f"VERSION holds {text!r}, which is not a version", remedy="correct the file VERSION")
    return text


def _git(layout: Layout, *arguments: str) -> bytes:
    done = ask(layout.root, *arguments)
    if done.returncode != 0:
        raise WmlceError(
            f"{layout.root} is not a clone with a commit, so nobody could say what a release was made of",
            detail=done.stderr.decode(errors="replace").splitlines()[-2:],
            remedy="make releases in a git clone",
        )
    return done.stdout


def read(layout: Layout) -> Tree:
    """The tree as it was committed; an error where files differ from the commit."""
    commit, time = _git(layout, "log", "-1", "--format=%H %ct").decode().split()
    status = _git(layout, "status", "--porcelain=v1", "--untracked-files=all").decode(errors="replace")
    if status:
        lines = status.splitlines()
        raise WmlceError(
            f"the tree is not the commit {commit[:12]}: {len(lines)} files are changed or not in git",
            detail=[*lines[:10], *([f"… and {len(lines) - 10} more"] if len(lines) > 10 else [])],
            remedy="commit them, or remove them (git stash --include-untracked)",
        )
    number = version(layout)
    return Tree(number, commit, int(time), _changes(layout, number))


def _changes(layout: Layout, number: str) -> str:
    path = layout.root / "CHANGELOG.md"
    text = path.read_text() if path.is_file() else ""
    section = re.search(
        rf"^## \[?{re.escape(number)}\]?(?: .*)?\n(?P<body>.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    if section is None or not section["body"].strip():
        raise WmlceError(
            f"CHANGELOG.md has no section '## {number}', of which the release notes are made",
            remedy="write what changed for users under that heading, and commit it",
        )
    return section["body"].strip()


def archive(layout: Layout, tree: Tree, target: Path) -> None:
    """The committed files as a gzipped tar archive: the same bytes each time."""
    prefix = f"{target.name.removesuffix('.tar.gz')}/"
    data = _git(layout, "archive", "--format=tar", f"--prefix={prefix}", tree.commit)
    part = target.with_name(f".{target.name}.part")
    with (
        part.open("wb") as stream,
        gzip.GzipFile(fileobj=stream, mode="wb", filename="", mtime=0, compresslevel=9) as packed,
    ):
        packed.write(data)
    os.replace(part, target)
