"""What an update writes into recipes/: versions of roots and recipes, and the lock files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import networkx as nx
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from wmlce.recipes.wheel_lock import config_path, lock_path, read_wheel_lock
from wmlce.sources import relock, relock_wheels
from wmlce.sources.drift import upstream
from wmlce.sources.model import LockedSource, read_source_lock
from wmlce.upkeep.moves import Move
from wmlce.upkeep.worktree import Worktree
from wmlce.util.errors import WmlceError
from wmlce.util.files import write_atomic
from wmlce.util.layout import Layout

Say = Callable[[str], None]


def with_root(text: str, name: str, old: str, new: str) -> str:
    """wheels.yaml with another version of a root: on its line, and where the rules of that package repeat the
    old one (a constraint, a test). Comments stay.
    """
    line = re.compile(
        rf"(?m)^(?P<head>\s+-\s+[\"']?(?P<name>[A-Za-z0-9._-]+)(?:\[[^]]*\])?==){re.escape(old)}(?![\w.+!-])"
    )
    matches = [match for match in line.finditer(text) if canonicalize_name(match["name"]) == name]
    if len(matches) != 1:
        raise WmlceError(
            f"recipes/wheels.yaml has no line `- {name}=={old}` among its roots",
            remedy=f"write the root as {name}==VERSION, or move it by hand",
        )
    text = f"{text[: matches[0].end('head')]}{new}{text[matches[0].end() :]}"
    start, end = _rules(text, name)
    public_old, public_new = old.partition("+")[0], new.partition("+")[0]
    word = re.compile(rf"(?<![\w.+-]){re.escape(public_old)}(?![\w+-]|\.\w)")
    return text[:start] + word.sub(public_new, text[start:end]) + text[end:]


def _rules(text: str, name: str) -> tuple[int, int]:
    """Where the rules of a package stand: below `packages:`, down to the next name at the same depth."""
    head = re.search(r"(?m)^packages:[ \t]*$", text)
    if head is None:
        return len(text), len(text)
    keys = [
        match for match in re.finditer(r"(?m)^ {2}([A-Za-z0-9._-]+):", text) if match.start() > head.end()
    ]
    after = re.compile(r"(?m)^\S").search(text, head.end())
    limit = after.start() if after else len(text)
    keys = [match for match in keys if match.start() < limit]
    for match, following in zip(keys, [*keys[1:], None], strict=True):
        if canonicalize_name(match[1]) == name:
            return match.end(), following.start() if following else limit
    return len(text), len(text)


def with_version(text: str, old: str, new: str) -> str:
    """A recipe.yaml with another version, where it is the value of a key `version`."""
    key = r"(?m)^(\s*[\"']?version[\"']?:\s*[\"']?)"
    line = re.compile(rf"{key}{re.escape(old)}(?=[\"']?,?\s*(?:#.*)?$)")
    return line.sub(lambda match: match[1] + new, text)


def renew_sources(
    layout: Layout, moves: Sequence[Move], say: Say
) -> tuple[dict[str, LockedSource], dict[str, WmlceError]]:
    """By move what its archive has now, or why that cannot be had."""
    entries = {(entry.package, entry.archive): entry for entry in read_source_lock(layout)}
    chosen = [move for move in moves if not move.wheel]
    answers = relock.renew(layout, [entries[move.package, move.origin] for move in chosen], say)
    renewed, failed = {}, {}
    for move, answer in zip(chosen, answers, strict=True):
        if isinstance(answer, WmlceError):
            failed[move.id] = answer
        else:
            renewed[move.id] = answer
    return renewed, failed


def write_sources(tree: Worktree, moves: Iterable[Move], fresh: Mapping[str, LockedSource]) -> None:
    """Lock the sources of `moves` as renewed, in a tree that is as its base; recipes follow."""
    layout = tree.layout
    entries = read_source_lock(layout)
    changed = False
    for move in moves:
        if move.wheel:
            continue
        old = next(
            entry for entry in entries if (entry.package, entry.archive) == (move.package, move.origin)
        )
        new = fresh[move.id]
        entries[entries.index(old)] = new
        changed = True
        relock.follow_in_recipes(layout, old, new)
        before, after = upstream(old.version), upstream(new.version)
        for recipe in new.recipes if before != after else ():
            path = layout.recipes / recipe / "recipe.yaml"
            if path.is_file():
                write_atomic(path, with_version(path.read_text(), before, after))
    if changed:
        relock.write(layout, entries)


def write_wheels(tree: Worktree, moves: Iterable[Move], loose: Iterable[str], say: Say) -> None:
    """Resolve with the roots of `moves` at their new versions. What pip has chosen stays, but for `moves` and
    for `loose`. The answer to the same question is kept for the next time.
    """
    layout = tree.layout
    chosen = {canonicalize_name(move.package): move for move in moves if move.wheel}
    if not chosen:
        return
    path = config_path(layout)
    text = path.read_text()
    for name, move in chosen.items():
        if move.root:
            text = with_root(text, name, move.old, move.new)
    write_atomic(path, text)
    locked = read_wheel_lock(layout)
    roots = {canonicalize_name(Requirement(root).name) for root in locked.roots}
    free = {canonicalize_name(name) for name in loose}
    constraints = []
    for wheel in locked.packages:
        name = canonicalize_name(wheel.name)
        if name not in roots and (name in chosen or name not in free):
            constraints.append(f"{wheel.name}{'>=' if name in chosen else '=='}{wheel.version}")
    key = hashlib.sha256(json.dumps([text, constraints]).encode()).hexdigest()[:16]
    saved = layout.build / "update" / "resolved" / f"{key}.yaml"
    if saved.is_file():
        write_atomic(lock_path(layout), saved.read_text())
        return
    relock_wheels.lock(layout, say, constraints)
    write_atomic(saved, lock_path(layout).read_text())


def dependencies(layout: Layout, names: Iterable[str]) -> set[str]:
    """Wheels that these need, directly or not, as they are locked."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    for wheel in read_wheel_lock(layout).packages:
        name = canonicalize_name(wheel.name)
        graph.add_edges_from((name, canonicalize_name(Requirement(text).name)) for text in wheel.requires)
    starts = graph.nodes & {canonicalize_name(name) for name in names}
    return set().union(*(nx.descendants(graph, name) for name in starts))


def versions(layout: Layout) -> dict[str, str]:
    """The locked versions of wheels, by name."""
    return {canonicalize_name(wheel.name): wheel.version for wheel in read_wheel_lock(layout).packages}
