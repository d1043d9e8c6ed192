"""The branch of an update, and the folder in the cache where it is made: a worktree of git of its own, so
that the user's tree, its build/ and its channel stay as they are.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from wmlce.util.errors import WmlceError
from wmlce.util.git import ask
from wmlce.util.layout import Layout


class BadBranch(WmlceError):
    """git does not take this for the name of a branch."""


def git(root: Path, *arguments: str) -> str:
    """What git answers in `root`; an error where it fails."""
    answer = ask(root, *arguments)
    if answer.returncode != 0:
        raise WmlceError(
            f"git {arguments[0]} failed in {root}",
            detail=answer.stderr.decode(errors="replace").splitlines()[-5:],
            remedy="do what git says, then run the command again",
        )
    return os.fsdecode(answer.stdout)


def _says(root: Path, *arguments: str) -> str | None:
    """Run git; None if it fails."""
    try:
        return git(root, *arguments)
    except WmlceError:
        return None


def check_name(layout: Layout, branch: str) -> None:
    """An error unless git takes this name."""
    if branch.startswith("-") or _says(layout.root, "check-ref-format", f"refs/heads/{branch}") is None:
        raise BadBranch(f"{branch!r} is not a valid branch name", remedy="see git help check-ref-format")


def require_ready(layout: Layout) -> None:
    """The clone is one of git, its recipes are committed, and git knows who commits."""
    top = _says(layout.root, "rev-parse", "--show-toplevel")
    if top is None or Path(top.rstrip("\n")).resolve() != layout.root:
        raise WmlceError(
            f"{layout.root} is not a git clone", remedy="update in a clone, not in an unpacked archive"
        )
    changed = changed_recipes(layout.root)
    if changed:
        more = [f"… and {len(changed) - 10} more"] if len(changed) > 10 else []
        raise WmlceError(
            "recipes/ has changes that are not committed, and an update starts from what is committed",
            detail=[*changed[:10], *more],
            remedy="commit them, or put them away: git stash --include-untracked -- recipes",
        )
    if _says(layout.root, "var", "GIT_COMMITTER_IDENT") is None:
        raise WmlceError(
            "git does not know who commits", remedy="git config user.name NAME && git config user.email MAIL"
        )


def changed_recipes(root: Path) -> list[str]:
    """Files below recipes/ that are not as HEAD has them."""
    status = ("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all", "--", "recipes")
    return sorted(entry[3:] for entry in git(root, *status).split("\0") if entry)


def head(root: Path) -> str:
    return git(root, "rev-parse", "HEAD").strip()


@dataclass(frozen=True)
class Worktree:
    """An update's branch.

    layout: of the worktree, with the cache of the clone that it is of
    base:   the commit that the update starts from
    """

    layout: Layout
    branch: str
    base: str

    def reset(self) -> None:
        """recipes/ as the base has it."""
        git(self.layout.root, "checkout", "--quiet", self.base, "--", "recipes")

    def tree(self) -> str:
        """Git's digest of recipes/ as it is now."""
        git(self.layout.root, "add", "--all", "--", "recipes")
        return git(self.layout.root, "write-tree").strip()

    def commit(self, message: str) -> str | None:
        """Commit recipes/; None if it is as the base has it. A signature is the business of who merges."""
        git(self.layout.root, "add", "--all", "--", "recipes")
        if _says(self.layout.root, "diff", "--cached", "--quiet") is not None:
            return None
        git(self.layout.root, "-c", "commit.gpgSign=false", "commit", "--quiet", "--message", message)
        return head(self.layout.root)

    def take(self) -> list[str]:
        """The command that takes the update into the clone's branch."""
        return [f"git merge {self.branch}"]

    def drop(self) -> list[str]:
        """The command that removes it."""
        return [f"git worktree remove --force {self.layout.root} && git branch -D {self.branch}"]


def folder_of(layout: Layout, branch: str) -> Path:
    return layout.cache / "updates" / branch


def find(layout: Layout, branch: str) -> Worktree | None:
    """The worktree of a branch, which an earlier call has made; an error where something else is there."""
    folder = folder_of(layout, branch)
    if not (folder / ".git").exists():
        if folder.exists() and any(folder.iterdir()):
            raise WmlceError(f"{folder} is in the way", remedy="remove it, or name another --branch")
        # of a worktree that somebody deleted
        git(layout.root, "worktree", "prune")
        if _says(layout.root, "rev-parse", "--verify", "--quiet", f"refs/heads/{branch}") is not None:
            raise WmlceError(
                f"there is a branch {branch} already, and no worktree of an update of it in {folder}",
                remedy=f"merge or delete it (git branch -D {branch}), or name another --branch",
            )
        return None
    ours = _common(layout.root)
    if ours is None or _common(folder) != ours:
        raise WmlceError(
            f"{folder} is the worktree of another clone, with the same cache",
            remedy="name another --branch",
        )
    if (_says(folder, "symbolic-ref", "--short", "HEAD") or "").strip() != branch:
        raise WmlceError(
            f"{folder} is on another branch than {branch}", remedy=f"git -C {folder} switch {branch}"
        )
    return Worktree(Layout(folder, layout.cache), branch, _base(folder))


def create(layout: Layout, branch: str) -> Worktree:
    """A worktree of HEAD on a new branch."""
    folder = folder_of(layout, branch)
    folder.parent.mkdir(parents=True, exist_ok=True)
    base = head(layout.root)
    git(layout.root, "worktree", "add", "--quiet", "-b", branch, str(folder), base)
    _note_base(folder, base)
    return Worktree(Layout(folder.resolve(), layout.cache), branch, base)


def _common(root: Path) -> Path | None:
    """The repository that a clone and its worktrees share."""
    answer = _says(root, "rev-parse", "--path-format=absolute", "--git-common-dir")
    return Path(answer.rstrip("\n")).resolve() if answer else None


def _base_file(folder: Path) -> Path:
    return folder / "build" / "update" / "base"


def _note_base(folder: Path, base: str) -> None:
    file = _base_file(folder)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(base)


def _base(folder: Path) -> str:
    """The commit that an update started from: where it was killed before that was noted, HEAD still is it."""
    file = _base_file(folder)
    return (file.read_text().strip() if file.is_file() else "") or head(folder)


@contextmanager
def of_head(layout: Layout) -> Iterator[Worktree]:
    """A worktree of HEAD without a branch, for a look at what an update would do; it goes away."""
    with tempfile.TemporaryDirectory(prefix="wmlce-update-") as scratch:
        folder = Path(scratch).resolve() / "tree"
        git(layout.root, "worktree", "add", "--quiet", "--detach", str(folder), "HEAD")
        try:
            yield Worktree(Layout(folder, layout.cache), "", head(folder))
        finally:
            git(layout.root, "worktree", "remove", "--force", str(folder))
