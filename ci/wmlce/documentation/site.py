"""build/site: the documentation for a browser, without a server and a network."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from wmlce.util.errors import WmlceError
from wmlce.util.files import disk_errors, remove_tree, scratch_beside, write_json
from wmlce.util.git import ask
from wmlce.util.layout import Layout

NAME = "site"
START = "index.html"
_RECORD = "site.json"
_LIMIT_S = 900.0


@dataclass(frozen=True)
class Site:
    """A site, and the tree that it describes."""

    folder: Path
    version: str
    """Content of the file VERSION."""
    commit: str | None
    """Commit of the tree; None if its files differed from one, or if it is no clone."""


def build(layout: Layout, output: Path, say: Callable[[str], None]) -> Site:
    """Make the site in the folder output, in place of an older one. Broken links are errors."""
    if output.exists() and not (output / _RECORD).is_file():
        raise WmlceError(f"{output} exists and is no site", remedy="name another folder, or remove it")
    if importlib.util.find_spec("mkdocs") is None:
        raise WmlceError("the tools of the documentation are not installed", remedy="run ci/docs")
    commit, time = _commit(layout.root)
    say(f"making the site in {layout.display(output)}")
    with disk_errors(f"making {output}"), scratch_beside(output) as scratch:
        fresh = scratch / NAME
        _mkdocs(layout, fresh, time)
        # lists addresses for search engines, of which a folder has none
        for unused in fresh.glob("sitemap.xml*"):
            unused.unlink()
        site = Site(output, (layout.root / "VERSION").read_text().strip(), commit)
        write_json(fresh / _RECORD, {key: asdict(site)[key] for key in ("version", "commit")})
        if output.exists():
            os.rename(output, scratch / "older")
        os.rename(fresh, output)
    return site


def find(layout: Layout) -> Site | None:
    """The site in build/site; None if there is none, or one of another version than the clone's."""
    folder = layout.build / NAME
    try:
        record = json.loads((folder / _RECORD).read_text())
        site = Site(folder, record["version"], record["commit"])
        version = (layout.root / "VERSION").read_text().strip()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return site if site.version == version else None


def copy(site: Site, target: Path) -> None:
    """Put a copy of the site into the folder target, in place of an older one."""
    remove_tree(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(site.folder, target)


def _commit(root: Path) -> tuple[str | None, int]:
    """The commit of a tree without changes, and the time of the last commit; 0 if it is no clone."""
    last = ask(root, "log", "-1", "--format=%H %ct")
    if last.returncode != 0:
        return None, 0
    commit, time = last.stdout.decode().split()
    status = ask(root, "status", "--porcelain=v1", "--untracked-files=all")
    return (None if status.returncode != 0 or status.stdout else commit), int(time)


def _mkdocs(layout: Layout, folder: Path, time: int) -> None:
    command = [sys.executable, "-I", "-m", "mkdocs", "build", "--strict", "--config-file", "mkdocs.yml"]
    command += ["--site-dir", str(folder)]
    # equal trees give equal sites
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(time), "NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"}
    try:
        done = subprocess.run(
            command,
            cwd=layout.root,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise WmlceError(
            f"mkdocs did not end within {_LIMIT_S:.0f} s", remedy="see what holds it, and run it again"
        ) from error
    if done.returncode != 0:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        # a warning may name pages in the lines that follow
        problems = [line for line in lines if line.startswith(("WARNING", "ERROR", "  - "))]
        raise WmlceError(
            "the documentation has errors",
            detail=(problems or lines[-20:])[:20],
            remedy="correct the pages or comments that are named, and run it again",
        )
