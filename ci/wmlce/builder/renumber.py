"""Raising the build numbers of what has changed since the last release."""

from __future__ import annotations

from wmlce.builder.build_numbers import LockedNumber, read, write
from wmlce.builder.plan import Plan
from wmlce.util.layout import Layout


def lock(layout: Layout, plan: Plan) -> list[str]:
    """Give every recipe that would make something else than at the last release a greater number, unless its
    version or its own number does; returns what changed, in words.
    """
    before = read(layout)
    after: dict[str, LockedNumber] = {}
    changes = []
    for name in plan.order:
        outputs = plan.recipes.by_name[name].outputs
        versions = {output.name: output.version for output in outputs}
        recipe_number = outputs[0].number + plan.revision(name)
        content = plan.fingerprint(name)
        added = 0
        old = before.get(name)
        if old is not None and old.goes_on(versions):
            added = old.added if old.content == content else max(old.added, old.number + 1 - recipe_number)
        after[name] = LockedNumber(
            versions=versions, number=recipe_number + added, added=added, content=content
        )
        if old is None or (old.versions, old.number) != (versions, recipe_number + added):
            was = f"{old.number} -> " if old is not None else ""
            changes.append(f"{name} {outputs[0].version}: {was}{recipe_number + added}")
    if after != before:
        write(layout, after)
    return changes
