"""`wmlce update`: move what is newer, build and check it, on a branch of its own; put back what fails."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from wmlce.builder.plan import Plan
from wmlce.builder.store import Store
from wmlce.channel import published, verify
from wmlce.channel import update as channel_update
from wmlce.channel.verify.check import Check
from wmlce.upkeep import edits, moves, outdated, report, state, trials, worktree
from wmlce.upkeep.advisories import Advisories
from wmlce.upkeep.moves import Group
from wmlce.upkeep.outdated import Standing
from wmlce.upkeep.resolve import Resolver, plan_of
from wmlce.upkeep.state import Broken, State
from wmlce.upkeep.worktree import Worktree
from wmlce.util.errors import WmlceError
from wmlce.util.files import remove_tree
from wmlce.util.host import cpu_count
from wmlce.util.layout import Layout
from wmlce.util.locks import file_lock
from wmlce.util.progress import Progress


@dataclass(frozen=True)
class Request:
    """What is asked for. packages: all when empty. hold: what stays. verify: check the channel, too?"""

    branch: str
    packages: list[str] = field(default_factory=list)
    hold: list[str] = field(default_factory=list)
    verify: bool = True
    dry_run: bool = False


def default_branch() -> str:
    return f"update-{date.today().isoformat()}"


def run(layout: Layout, request: Request, advisories: Advisories, progress: Progress) -> dict[str, object]:
    """The facts of the report; `report.page` tells them."""
    worktree.check_name(layout, request.branch)
    if request.dry_run:
        return _dry_run(layout, request, advisories, progress)
    worktree.require_ready(layout)
    with file_lock(
        layout.locks / f"update-{request.branch.replace('/', '-')}.lock",
        f"the update {request.branch}",
        say=progress.say,
    ):
        tree = worktree.find(layout, request.branch)
        saved = state.read(tree.layout) if tree is not None else None
        if saved is None:
            saved = _look(layout, request, progress)
            if not saved.groups:
                return report.facts(None, saved, advisories, {}, [])
        _require_same(saved, request)
        if tree is None:
            tree = worktree.create(layout, request.branch)
            saved.write(tree.layout)
        return _Update(tree, saved, advisories, progress).run()


def _require_same(saved: State, request: Request) -> None:
    if (saved.packages, saved.hold, saved.verify) == (request.packages, request.hold, request.verify):
        return
    arguments = [*saved.packages, *(f"--hold {name}" for name in saved.hold)]
    arguments += [] if saved.verify else ["--no-verify"]
    raise WmlceError(
        f"the update {request.branch} was started with other arguments: {' '.join(arguments) or 'none'}",
        remedy="continue with those, name another --branch, or drop it first (docs/cluster/update.md)",
    )


def _look(layout: Layout, request: Request, progress: Progress) -> State:
    """What is newer, and what of it is to move."""
    survey = State(request.packages, request.hold, request.verify, [], [], day=date.today().isoformat())
    outdated.require_known(layout, [*request.packages, *request.hold])
    with survey.timed("look"):
        items = standings(layout, request.packages, progress)
        survey.groups, survey.held = moves.choose(items, request.packages, request.hold)
    count = sum(len(group) for group in survey.groups)
    progress.say(f"{count} packages to move, {len(survey.held)} held back")
    return survey


def standings(layout: Layout, packages: Sequence[str], progress: Progress) -> list[Standing]:
    """How the packages stand, and those that hold them or that they hold."""
    none = Advisories(None)
    items = outdated.find(layout, packages, none, progress.say)
    names = {item.package for item in items}
    while packages:
        moving = [item.package for item in items if item.wheel and item.moves]
        more = outdated.bound_together(layout, moving) - names
        if not more:
            break
        names |= more
        # only those that move can be bound to others in turn
        items += [
            item
            for item in outdated.find(layout, sorted(more), none, progress.say)
            if item.wheel and item.moves
        ]
    unknown = [item for item in items if item.problem]
    for item in unknown:
        progress.say(f"{item.package} {item.version} is not looked at: {item.problem}")
    return items


def _dry_run(
    layout: Layout, request: Request, advisories: Advisories, progress: Progress
) -> dict[str, object]:
    """The same plan in a worktree that goes away."""
    survey = _look(layout, request, progress)
    if not survey.groups:
        return report.facts(None, survey, advisories, {}, [], dry_run=True)
    with worktree.of_head(layout) as tree:
        return _Update(tree, survey, advisories, progress, dry_run=True).run()


class _Update:
    def __init__(
        self,
        tree: Worktree,
        initial: State,
        advisories: Advisories,
        progress: Progress,
        *,
        dry_run: bool = False,
    ) -> None:
        self.tree = tree
        self.layout: Layout = tree.layout
        self.state = initial
        self.advisories = advisories
        self.progress = progress
        self.dry_run = dry_run

    def run(self) -> dict[str, object]:
        if self.state.commit is not None:
            self.progress.say(f"the update {self.tree.branch} is finished already")
            return self._facts()
        self._note_base()
        self._renew()
        with self.state.timed("resolve"):
            self._resolve(self.state.active())
        if self.dry_run:
            return self._facts()
        self._tell_plan()
        while True:
            with self.state.timed("build"):
                self._build()
            with self.state.timed("verify"):
                if self._verified():
                    break
        self.state.commit = self.tree.commit(self._message()) or ""
        self.state.write(self.layout)
        return self._facts()

    def _note_base(self) -> None:
        """What the base's recipes make, before anything is changed."""
        if self.state.before:
            return
        self.tree.reset()
        plan = plan_of(self.layout)
        self.state.before = {name: plan.content_hash(name) for name in plan.order}
        self.state.wheels_before = edits.versions(self.layout)
        self._save()

    def _save(self) -> None:
        if not self.dry_run:
            self.state.write(self.layout)

    def _renew(self) -> None:
        """Ask the archives for the sources that move."""
        if self.state.renewed:
            return
        self.tree.reset()
        pending = [move for group in self.state.groups for move in group]
        with self.state.timed("sources"):
            fresh, failed = edits.renew_sources(self.layout, pending, self.progress.say)
        self.state.fresh = fresh
        for group in self.state.groups:
            for move in group:
                if move.id in failed:
                    self._put_back(group, "sources", trials.refusal(failed[move.id]))
        self.state.renewed = True
        self._save()

    def _put_back(self, group: Group, stage: str, why: str, log: Path | None = None) -> None:
        titles = ", ".join(move.title() for move in group)
        self.progress.say(f"PUT BACK {titles}: {why}")
        self.state.broken.append(Broken(group, stage, why, str(log) if log else None))
        self._save()

    def _resolver(self) -> Resolver:
        gone = [move.package for broken in self.state.broken for move in broken.moves if move.wheel]
        return Resolver(self.tree, self.state.fresh, [*gone, *self.state.hold], self.progress.say)

    def _resolve(self, groups: Sequence[Group]) -> None:
        """The tree with these; those that do not go with them are put back."""
        answer = self._resolver().resolve(groups)
        for group, error in answer.refused:
            self._put_back(group, "resolve", trials.refusal(error))

    def _tell_plan(self) -> None:
        plan = plan_of(self.layout)
        store = Store(self.layout)
        todo = [name for name in plan.order if not store.lists(name, plan.content_hash(name))]
        listing = ", ".join(todo[:12]) + (f" and {len(todo) - 12} more" if len(todo) > 12 else "")
        self.progress.say(f"{len(todo)} recipes to build" + (f": {listing}" if todo else ""))

    def _build(self) -> None:
        """Build until everything is built; put back what fails."""
        while failures := trials.build(self.layout, self.progress, cpu_count()):
            active = self.state.active()
            plan = plan_of(self.layout)
            done: list[Group] = []
            for failure in failures:
                suspects = trials.suspects(plan, active, failure.recipe or "")
                if any(group in done for group in suspects):
                    continue  # it may be for the same reason: the next build tells
                done += self._find_culprits(failure, suspects, [g for g in active if g not in done])
            self._resolve(self.state.active())

    def _find_culprits(
        self, failure: WmlceError, suspects: Sequence[Group], active: Sequence[Group]
    ) -> list[Group]:
        """Put back because of which move a recipe fails: the first suspect without which it is built, or all
        where none is alone.
        """
        log = trials.keep_log(self.layout, failure, len(self.state.broken) + 1)
        why = trials.reason(failure)
        if not suspects:
            raise WmlceError(
                f"recipe '{failure.recipe}' fails for reasons unrelated to this update",
                detail=failure.detail,
                log=log,
                remedy=f"fix it in the clone first (wmlce channel build {failure.recipe}), then drop this "
                "update and start it again",
            )
        culprits = list(suspects)
        if len(suspects) > 1:
            for group in suspects:
                rest = [other for other in active if other != group]
                self._resolver().resolve(rest)
                if not self._fails(failure.recipe or ""):
                    culprits = [group]
                    break
        for group in culprits:
            self._put_back(group, "build", why, log)
        return culprits

    def _fails(self, recipe: str) -> bool:
        plan = plan_of(self.layout)
        if recipe not in plan.recipes.by_name:
            return False  # a dependency that only the move brought
        return bool(trials.build(self.layout, self.progress, cpu_count(), [recipe]))

    def _verified(self) -> bool:
        """Publish the worktree's channel and check it; False if a move was put back because of it."""
        now = self.tree.tree()
        if self.state.verified == now and published.is_channel(self.layout.channel):
            return True
        # of a channel with moves that were put back its builds would stay
        remove_tree(self.layout.channel)
        channel_update.update(self.layout, self.progress, [], jobs=cpu_count())
        self.state.findings = []
        if self.state.verify:
            checks = verify.run(self.layout, None, self.progress.say)
            blamed = self._blame(checks)
            for group, why in blamed:
                self._put_back(group, "verify", why, self.layout.channel / "verify.json")
            if blamed:
                self._resolve(self.state.active())
                return False
            self.state.findings = [
                f"{check.name}: {finding}" for check in checks for finding in check.findings
            ]
        self.state.verified = now
        self._save()
        return True

    def _blame(self, checks: Sequence[Check]) -> list[tuple[Group, str]]:
        """Groups whose packages the findings name."""
        plan = plan_of(self.layout)
        blamed: dict[Group, str] = {}
        for check in checks:
            for finding in check.findings:
                for group in self.state.active():
                    if group not in blamed and _names(finding, plan, group):
                        blamed[group] = f"{check.name}: {finding}"
        return list(blamed.items())

    def _message(self) -> str:
        """The commit's message: what moved."""
        lines = [
            f"{item['package']} {item['old']} -> {item['new']}"
            for item in report.moved(self.layout, self.state)
        ]
        return "\n".join([f"Move {len(lines)} packages to newer versions", "", *lines]) + "\n"

    def _facts(self) -> dict[str, object]:
        plan = plan_of(self.layout)
        changed = [name for name in plan.order if plan.content_hash(name) != self.state.before.get(name)]
        return report.facts(
            self.tree, self.state, self.advisories, _because(plan, changed, self.state.active()), changed,
            plan=plan, dry_run=self.dry_run,
        )  # fmt: skip


def _names(finding: str, plan: Plan, group: Group) -> bool:
    """Does a finding name a package of a group?"""
    names = {
        output.name
        for move in group
        for recipe in move.recipes
        if recipe in plan.recipes.by_name
        for output in plan.recipes.by_name[recipe].outputs
    }
    return any(re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.]|-[a-z])", finding) for name in names)


def _because(plan: Plan, changed: Sequence[str], groups: Sequence[Group]) -> Mapping[str, list[str]]:
    """By move, the changed recipes that it is of, or that need it."""
    causes = {}
    for group in groups:
        for move in group:
            names: set[str] = set()
            for recipe in move.recipes:
                if recipe in plan.graph:
                    names |= {recipe, *plan.dependents(recipe)}
            causes[move.id] = sorted(names & set(changed))
    return causes
