"""What is to be built, in which order, and under which content hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import networkx as nx

from wmlce.builder import build_numbers, build_root
from wmlce.recipes import name_map
from wmlce.recipes.model import Output, Recipe
from wmlce.recipes.recipe_set import RecipeSet
from wmlce.sources.model import LockedArtifact
from wmlce.sources.store import SourceLock
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout
from wmlce.util.platform import require_locked
from wmlce.util.project_files import tree_hash

_SALT = "6"
"""Changed when the tool itself starts to build differently from the same recipe."""

_COMPILED_EFFORT = 10
"""How much longer a recipe takes than one that repacks a wheel, roughly: for the order of building alone."""


@dataclass(frozen=True)
class Needs:
    """Recipes whose packages another one needs: to be built, to be installed, and for its tests."""

    build: set[str]
    run: set[str]
    test: set[str]


@dataclass(frozen=True)
class Digests:
    """Hashes of a recipe, ten hex digits each.

    Attributes:
        fingerprint: Covers everything that decides what it builds, without added build numbers.
        content: The fingerprint's content, with added build numbers.
        installed: Covers its packages with everything that is installed with them.
        fingerprint_installed: The content of `installed`, without added build numbers.
        tested: Covers everything that its tests have seen.
    """

    fingerprint: str
    content: str
    installed: str
    fingerprint_installed: str
    tested: str


@dataclass(frozen=True)
class RecipeSources:
    """A recipe's sources by kind: locked files, and files or folders of the project itself."""

    locked: list[LockedArtifact]
    project: list[Path]


class Plan:
    """The recipes needed for `requested` (all when empty, and of the variants only those of `variant`), as a
    graph whose edges point to what must be built first.
    """

    def __init__(
        self,
        layout: Layout,
        recipes: RecipeSet,
        lock: SourceLock,
        requested: Sequence[str] = (),
        *,
        variant: str | None = None,
    ) -> None:
        self.layout = layout
        self.recipes = recipes
        self.lock = lock
        require_locked(lock.by_file)
        self.root = build_root.read(layout)
        named = {recipes.find(name, variant).name for name in requested}
        self.requested = sorted(named or {*recipes.of(None), *(recipes.of(variant) if variant else ())})
        self.graph: nx.DiGraph[str] = nx.DiGraph()
        self._needs: dict[str, Needs] = {}
        self._add(self.requested)
        self._numbers = build_numbers.read(layout)
        self._sources: dict[str, RecipeSources] = {}
        self._files: dict[str, dict[str, Path]] = {}

    def _add(self, names: Sequence[str]) -> None:
        todo = list(names)
        while todo:
            name = todo.pop()
            if self.graph.has_node(name) and self.graph.nodes[name].get("done"):
                continue
            recipe = self.recipes.by_name[name]
            self.graph.add_node(name, done=True)
            needs = self._needs[name] = Needs(
                *(
                    {
                        self._maker(recipe, dependency)
                        for output in recipe.outputs
                        for dependency in dependencies(output)
                    }
                    - {name}
                    for dependencies in (
                        Output.build_dependencies,
                        Output.run_dependencies,
                        Output.test_dependencies,
                    )
                )
            )
            for other in sorted(needs.build | needs.run | needs.test):
                self.graph.add_edge(name, other)
                todo.append(other)

    def _maker(self, recipe: Recipe, dependency: str) -> str:
        other = self.recipes.maker(dependency, recipe.variant_name)
        if other is None:
            raise WmlceError(
                f"recipe '{recipe.name}' needs the package '{dependency}', which no recipe makes "
                f"({recipe.where})",
                remedy=self._similar(dependency),
                recipe=recipe.name,
            )
        return other.name

    def _similar(self, name: str) -> str:
        import difflib

        close = difflib.get_close_matches(name, sorted(self.recipes.by_output), 3)
        hint = f"did you mean {', '.join(close)}? Otherwise add" if close else "add"
        return f"{hint} recipes/{name}/recipe.yaml, or the distribution to recipes/wheels.yaml"

    @cached_property
    def order(self) -> list[str]:
        """Recipe names, each after everything that it needs; of those possible the one first after which
        the longest way is left: with some cores less is left for the end, when there is nothing beside it.
        """
        try:
            cycle = nx.find_cycle(self.graph)
        except nx.NetworkXNoCycle:
            pass
        else:
            names = [edge[0] for edge in cycle] + [cycle[0][0]]
            raise WmlceError(
                f"the recipes need each other in a circle: {' -> '.join(names)}",
                remedy="remove one of these requirements (build, host, run or test)",
                recipe=names[0],
            )
        remaining = self.longest_way(
            lambda name: 1 if self.recipes.by_name[name].generated else _COMPILED_EFFORT
        )
        return list(
            nx.lexicographical_topological_sort(
                self.graph.reverse(copy=False), key=lambda name: (-remaining[name], name)
            )
        )

    def longest_way(self, effort: Callable[[str], float]) -> dict[str, float]:
        """By recipe: its effort and that of what can only be built after it, on the longest way."""
        remaining: dict[str, float] = {}
        for name in nx.topological_sort(self.graph):  # what needs others comes before these
            remaining[name] = effort(name) + max(
                (remaining[other] for other in self.graph.predecessors(name)), default=0
            )
        return remaining

    def requirements(self, name: str) -> set[str]:
        """Recipes that must be built before `name`, directly."""
        return set(self.graph.successors(name))

    def all_requirements(self, name: str) -> set[str]:
        """Recipes that must be built before `name`, directly or not."""
        return set(nx.descendants(self.graph, name))

    def build_requirements(self, name: str) -> set[str]:
        """Recipes whose packages a build of `name` can take something from: exactly those that its content
        hash is made of.
        """
        return self._build_requirements[name]

    @cached_property
    def _build_requirements(self) -> dict[str, set[str]]:
        build_needs: dict[str, set[str]] = {}
        installed: dict[str, set[str]] = {}
        for name in self.order:
            needs = self._needs[name]
            build_needs[name] = set().union(*(installed[other] for other in needs.build))
            installed[name] = (
                {name} | build_needs[name] | set().union(*(installed[other] for other in needs.run))
            )
        return build_needs

    def dependents(self, name: str) -> set[str]:
        """Recipes that can only be built after `name`, directly or not."""
        return set(nx.ancestors(self.graph, name))

    def sources(self, name: str) -> RecipeSources:
        """The recipe's sources; a source that is neither locked nor part of the project is an error."""
        if name in self._sources:
            return self._sources[name]
        recipe = self.recipes.by_name[name]
        locked: list[LockedArtifact] = []
        project: list[Path] = []
        root = self.layout.root
        for entry in recipe.source_entries():
            text = entry.get("path")
            if text is None:
                raise WmlceError(
                    f"recipe '{name}' has a source that is not a path: "
                    f"{json.dumps(dict(entry), default=str)[:120]}",
                    remedy="lock it (wmlce lock sources) and use `path: ../../build/sources/FILE`",
                    recipe=name,
                )
            path = Path(_normal(recipe.folder / text))
            if path.is_relative_to(self.layout.sources):
                locked.append(self.lock.require(str(path.relative_to(self.layout.sources)), name))
            elif path.is_relative_to(recipe.folder):
                if not recipe.generated and not path.exists():
                    raise _missing(recipe, text)
            elif path.is_relative_to(root):
                if not path.exists():
                    raise _missing(recipe, text)
                project.append(path)
            else:
                raise WmlceError(
                    f"recipe '{name}' uses a source outside the project: {text}",
                    remedy="only build/sources, the recipe's own folder and the project's files can be used",
                    recipe=name,
                )
        self._sources[name] = RecipeSources(locked, project)
        return self._sources[name]

    def recipe_files(self, name: str) -> dict[str, Path]:
        """The files beside a recipe, as they were when this was first asked."""
        if name not in self._files:
            self._files[name] = self.recipes.recipe_files(self.recipes.by_name[name])
        return self._files[name]

    def revision(self, name: str) -> int:
        """What the revisions of a recipe's Debian sources add to its build number."""
        return build_numbers.of_sources(self.sources(name).locked)

    def number(self, name: str) -> int:
        """The build number of a recipe's packages."""
        recipe = self.recipes.by_name[name]
        locked = self._numbers.get(name)
        versions = {output.name: output.version for output in recipe.outputs}
        added = locked.added if locked and locked.goes_on(versions) else 0
        return recipe.outputs[0].number + self.revision(name) + added

    def content_hash(self, name: str) -> str:
        """Ten hex digits over everything that decides what the recipe builds, its build number included."""
        return self._digests[name].content

    def fingerprint(self, name: str) -> str:
        """Return the content hash without the build numbers that the tool adds."""
        return self._digests[name].fingerprint

    def test_hash(self, name: str) -> str:
        """Ten hex digits over all that the tests of its packages see: the packages, what is installed with
        them, and what the tests ask for. What is only installed with a package changes nothing in it: it is
        tested again, and not built again.
        """
        return self._digests[name].tested

    @cached_property
    def _digests(self) -> dict[str, Digests]:
        """Threads that ask at once may each work it out."""
        digests: dict[str, Digests] = {}
        for name in self.order:  # in this order, so that deep graphs need no deep recursion
            needs = self._needs[name]
            fingerprint = self._hash(
                name, {other: digests[other].fingerprint_installed for other in needs.build}
            )
            built_with = {other: digests[other].installed for other in needs.build}
            content = _digest([fingerprint, self.number(name), built_with])
            run_with = {other: digests[other].installed for other in needs.run}
            digests[name] = Digests(
                fingerprint,
                content,
                installed=_digest([content, run_with]),
                fingerprint_installed=_digest(
                    [fingerprint, {other: digests[other].fingerprint_installed for other in needs.run}]
                ),
                tested=_digest(
                    [content, run_with, {other: digests[other].installed for other in needs.test}]
                ),
            )
        return digests

    def _hash(self, name: str, needs: Mapping[str, str]) -> str:
        recipe = self.recipes.by_name[name]
        sources = self.sources(name)
        root = self.layout.root
        facts: dict[str, Any] = {
            "salt": [_SALT, version("py-rattler-build"), version("zstandard")],
            "root": self.root.digest,
            "outputs": [name_map.stated(output, self.recipes.names) for output in recipe.outputs],
            "files": {
                key: name_map.file_hash(root, path, self.recipes.names)
                for key, path in self.recipe_files(name).items()
            },
            "scripts": dict(recipe.extra_files),
            "locked": sorted((item.file.name, item.file.sha256) for item in sources.locked),
            "project": {str(path.relative_to(root)): tree_hash(root, path) for path in sources.project},
            "needs": dict(needs),
        }
        return _digest(facts)

    def describe(self) -> Mapping[str, Mapping[str, Any]]:
        """By recipe, in the order of building: its content hash and the recipes that it needs."""
        return {
            name: {"hash": self.content_hash(name), "needs": sorted(self.requirements(name))}
            for name in self.order
        }


def _digest(facts: Any) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:10]


def _normal(path: Path) -> str:
    import os

    return os.path.normpath(path)


def _missing(recipe: Recipe, text: str) -> WmlceError:
    return WmlceError(
        f"recipe '{recipe.name}' uses the source {text}, which does not exist ({recipe.where})",
        remedy="correct `source: path:` in the recipe",
        recipe=recipe.name,
    )
