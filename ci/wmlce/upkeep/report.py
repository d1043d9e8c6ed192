"""The report of an update: facts for scripts, and a page in Markdown of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from wmlce.builder.plan import Plan
from wmlce.builder.store import Store
from wmlce.sources.model import read_source_lock
from wmlce.upkeep.advisories import Advisories
from wmlce.upkeep.edits import versions
from wmlce.upkeep.state import State
from wmlce.upkeep.worktree import Worktree
from wmlce.util.layout import Layout
from wmlce.util.progress import clock
from wmlce.util.templates import rendered

_TIMED = ("look", "sources", "resolve", "build", "verify")
_STAGES = {
    "sources": "its archive",
    "resolve": "resolving",
    "build": "building or its test",
    "verify": "the channel's checks",
}


def moved(layout: Layout, state: State) -> list[dict[str, Any]]:
    """What moved in the tree as it is now, and to which version: pip may have chosen another one."""
    wheels = versions(layout)
    sources = {(entry.package, entry.archive): entry.version for entry in read_source_lock(layout)}
    rows = []
    for move in (move for group in state.active() for move in group):
        now = wheels.get(move.package) if move.wheel else sources.get((move.package, move.origin))
        if now is not None and now != move.old:
            rows.append({"id": move.id, "package": move.package, "from": move.origin, "old": move.old,
                          "new": now, "wheel": move.wheel, "recipes": list(move.recipes)})  # fmt: skip
    return rows


def facts(
    tree: Worktree | None,
    state: State,
    advisories: Advisories,
    because: Mapping[str, list[str]],
    changed: Sequence[str],
    *,
    plan: Plan | None = None,
    dry_run: bool = False,
) -> dict[str, Any]:
    """because: by move, the recipes that are built again. changed: all of those."""
    rows = moved(tree.layout, state) if tree is not None else []
    held = [asdict(item) for item in state.held]
    updated = {row["id"] for row in rows}
    if tree is not None:
        held += [
            {"package": move.package, "origin": move.origin, "version": move.old, "newest": move.new,
             "reasons": ["pip chooses no newer one for what needs it"]}
            for group in state.active() for move in group if move.id not in updated
        ]  # fmt: skip
    for row in rows:
        row["rebuilt"] = because.get(row["id"], [])
    if plan is not None and not dry_run:
        after = {name: plan.content_hash(name) for name in plan.order}
        for row in rows:
            row["bytes_before"] = _size(plan, row["recipes"], state.before)
            row["bytes_after"] = _size(plan, row["recipes"], after)
    closed, remaining = _advisories(tree, state, advisories) if tree is not None else ([], [])
    document: dict[str, Any] = {
        "day": state.day,
        "dry_run": dry_run,
        "moved": rows,
        "along": _along(tree.layout, state) if tree is not None else [],
        "broken": [asdict(item) for item in state.broken],
        "held": held,
        "rebuilt": sorted(changed),
        "findings": state.findings,
        "closed": closed,
        "remaining": remaining,
        "seconds": {name: round(state.seconds[name], 1) for name in _TIMED if name in state.seconds},
        "verified": state.verified is not None and state.verify and not state.findings,
    }
    if tree is not None and not dry_run:
        document |= {
            "branch": tree.branch,
            "worktree": str(tree.layout.root),
            "base": tree.base,
            "commit": state.commit or None,
            "take": tree.take() if state.commit else [],
            "drop": tree.drop(),
        }
    return document


def _size(plan: Plan, recipes: Sequence[str], hashes: Mapping[str, str]) -> int | None:
    """Bytes of the packages of these recipes; None where the cache has not all of them."""
    store = Store(plan.layout)
    total = 0
    for name in recipes:
        packages = store.find(name, hashes[name]) if name in hashes else None
        if packages is None:
            return None
        total += sum(package.size for package in packages)
    return total


def _along(layout: Layout, state: State) -> list[dict[str, Any]]:
    """Wheels that changed, came or went because of the moves, without being one."""
    now = versions(layout)
    requested = {move.package for group in state.groups for move in group if move.wheel}
    names = sorted((state.wheels_before.keys() | now.keys()) - requested)
    return [
        {"package": name, "old": state.wheels_before.get(name), "new": now.get(name)}
        for name in names
        if state.wheels_before.get(name) != now.get(name)
    ]


def _advisories(
    tree: Worktree, state: State, advisories: Advisories
) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The advisories on versions before the update: closed by it, and remaining."""
    wheels = versions(tree.layout)
    versions_by_package: list[tuple[str | None, str, str, str | None]] = [
        (None, name, was, wheels.get(name)) for name, was in state.wheels_before.items()
    ]
    before = {
        (move.package, move.origin): move.old for group in state.groups for move in group if not move.wheel
    }
    for entry in read_source_lock(tree.layout):
        was = before.get((entry.package, entry.archive), entry.version)
        versions_by_package.append((entry.suite, entry.package, was, entry.version))
    closed: list[dict[str, str]] = []
    remaining: list[dict[str, str]] = []
    for suite, package, was, is_now in versions_by_package:
        then = {item.id: item for item in advisories.of(package, suite, was)}
        still = {item.id for item in advisories.of(package, suite, is_now)} if is_now else set()
        for name, item in sorted(then.items()):
            row = {"id": name, "package": package, "version": is_now or was, "summary": item.summary}
            (remaining if name in still else closed).append(row)
    return closed, remaining


def page(facts: Mapping[str, Any]) -> str:
    """The report in Markdown."""
    filters: dict[str, Callable[..., str]] = {"cell": _cell, "clock": clock, "mb": _megabytes}
    return rendered("wmlce.upkeep", "update.md.j2", filters, stages=_STAGES, **facts)


def _cell(text: str) -> str:
    """Text for a cell of a table."""
    return " ".join(text.split()).replace("|", "/")


def _megabytes(value: int | None) -> str:
    return "?" if value is None else f"{value / 1e6:.2f} MB" if value < 1e7 else f"{value / 1e6:.0f} MB"
