"""Building the channel: every recipe in its own process, in the order of the graph, results into the cache.

What a build can see is exactly what its content hash covers: a scratch tree with the recipe's files, its
locked sources and the project files that git lists, and a channel with the packages that it needs and no
others. Its tests also see what is installed with its packages; where only that has changed, the packages are
tested again.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rattler_build

from wmlce.builder import build_root, estimate, result, sandbox
from wmlce.builder.confined import Confined
from wmlce.builder.late_sources import LateSources
from wmlce.builder.log_excerpt import log_excerpt
from wmlce.builder.plan import Plan
from wmlce.builder.repack import finish
from wmlce.builder.source_date import of_package
from wmlce.builder.store import PackageFile, Store
from wmlce.builder.workspace import Workspaces
from wmlce.envs.clone import check_target
from wmlce.recipes import name_map
from wmlce.recipes.model import Recipe, for_build
from wmlce.sources import drift
from wmlce.sources.model import LockedArtifact
from wmlce.util.errors import OutOfSpace, WmlceError
from wmlce.util.files import disk_errors, link_or_copy, remove_tree, write_atomic
from wmlce.util.host import cpu_count
from wmlce.util.layout import Layout
from wmlce.util.locks import file_lock
from wmlce.util.platform import of_this_machine
from wmlce.util.progress import Progress, clock
from wmlce.util.project_files import file_state, tree_state

_PLACE = "/build"
"""Where a build's folder is inside the build root: the same on every host, and so in what is built."""

_CCACHE = {
    "CCACHE_DIR": "/ccache",
    "CCACHE_MAXSIZE": "500M",
    "CMAKE_C_COMPILER_LAUNCHER": "ccache",
    "CMAKE_CXX_COMPILER_LAUNCHER": "ccache",
}
_TOOLS = "/tools"
_LONG = "python"
"""Compiled after much else that is compiled: the sources of what needs it have minutes to arrive."""

_WORKER = Path(__file__).with_name("worker.py")

_NICENESS = 10
_NICE = ("nice", "-n", str(_NICENESS))
"""Prefix for a build that yields the cores to one on which more time depends."""


@dataclass(frozen=True)
class Built:
    """Outcome for one recipe: its packages, and whether they were built now or were there.

    again: they were there, and have been tested again
    steps: of one that was built or tested now, what each took, in seconds
    started: seconds since the start of the command
    """

    packages: list[PackageFile]
    fresh: bool
    seconds: float
    steps: Mapping[str, float] = field(default_factory=dict)
    started: float = 0.0
    again: bool = False


class Builder:
    """Builds what of a plan is not finished yet."""

    def __init__(
        self,
        layout: Layout,
        plan: Plan,
        progress: Progress,
        *,
        jobs: int,
        keep_going: bool = False,
        force: Iterable[str] = (),
    ) -> None:
        """force: recipes that are built even if they are finished."""
        self.layout = layout
        self.plan = plan
        self.progress = progress
        self.jobs = max(1, jobs)
        self.keep_going = keep_going
        self.force = set(force)
        self.store = Store(layout, progress.say)
        self.results: dict[str, Built] = {}
        self.failures: list[WmlceError] = []
        """The errors of the recipes that could not be built, after `run`."""
        self.phases: list[tuple[str, float, float]] = []
        """What there is beside the builds: name, start, and seconds; times as of `Built`."""
        self._workspaces = Workspaces(layout.work)
        self._stop = threading.Event()
        self._processes: set[Confined] = set()
        self._untested: set[str] = set()
        """Recipes whose packages are built, but not tested with what is installed with them now."""
        self._urgency: Mapping[str, float] = {}
        self._patient: set[str] = set()
        """Recipes that are built beside one that more time depends on."""
        self._late: LateSources | None = None
        self._root = build_root.folder_of(layout, plan.root)
        self._lock = threading.Lock()

    def run(self) -> dict[str, Built]:
        """Build everything; raises the first failure after the builds already running have ended."""
        check_target(self.layout.root, "a clone")
        check_target(self.layout.cache, "the cache (WMLCE_CACHE)")
        order = self.plan.order
        hashes = {name: self.plan.content_hash(name) for name in order if name not in self.force}
        for name, packages in self.store.find_all(hashes).items():
            if self.plan.test_hash(name) in self.store.tested(name, hashes[name]):
                self.results[name] = Built(packages, False, 0.0)
            else:
                self._untested.add(name)
        todo = [name for name in order if name not in self.results]
        if not todo:
            return self.results
        built_before = len(self.results)
        again = f"{len(self._untested)} to test again, " if self._untested else ""
        self.progress.say(
            f"{len(todo) - len(self._untested)} packages to build, {again}{built_before} already built, "
            f"{self.jobs} at a time"
        )
        self._clean_work()
        sandbox.require_early(self._root)
        # a locked source that is missing or wrong shows before time is spent on building, or soon after
        required: dict[str, LockedArtifact] = {}
        for name in todo:
            for item in self._locked(name):
                required[item.file.sha256] = item
        if not self._root.is_dir():
            required |= {item.file.sha256: item for item in self.plan.root.artifacts}
        self.plan.lock.tell_size(required.values(), self.progress.say)
        late = self._late_sources(todo)
        later = {item.file.sha256 for items in late.values() for item in items}
        with self.measured("fetch"):
            early = [item for digest, item in required.items() if digest not in later]
            self.plan.lock.fetch(early, self.progress.say)
        with self.measured("build root"):
            self._root = build_root.make(self.layout, self.plan.root, self.plan.lock, self.progress.say)
            sandbox.require(self._root)
        # what most time depends on comes first: otherwise a core is idle at the end, beside a late build
        record = estimate.recorded_times(self.layout)
        times = {name: estimate.usual(record, self._timed(name)) for name in order}
        self._urgency = self.plan.longest_way(times.__getitem__)
        todo.sort(key=lambda name: self._urgency[name], reverse=True)
        previous = self._catch_signals()
        try:
            with self.progress.showing(len(todo), self._left(todo, times)):
                self._late = LateSources(self.plan.lock, late, self.progress.say)
                self._build_all(todo, self._late)
        finally:
            self.stop()
            for number, handler in previous.items():
                signal.signal(number, handler)
            took = {
                self._timed(name): built.seconds
                for name, built in self.results.items()
                if built.fresh or built.again
            }
            estimate.keep(self.layout, took, self.progress.say)
        return self.results

    def _late_sources(self, todo: Sequence[str]) -> dict[str, list[LockedArtifact]]:
        """By recipe, the sources that can be fetched while others are built. Debian's are not among them:
        where another revision is taken, all is planned anew.
        """
        if _LONG not in todo or self.plan.lock.settings.offline:
            return {}
        late = {name for name in todo if _LONG in self.plan.all_requirements(name)}
        # a wheel may also be the source of something else: ca-certificates takes that of certifi
        early = {item.file.sha256 for name in todo if name not in late for item in self._locked(name)}
        return {
            name: [
                item
                for item in self._locked(name)
                if item.entry.origin != "debian" and item.file.sha256 not in early
            ]
            for name in late
        }

    def _locked(self, name: str) -> list[LockedArtifact]:
        """Sources that the recipe's build takes."""
        return [] if name in self._untested else self.plan.sources(name).locked

    def _timed(self, name: str) -> str:
        """Under which name the time of what is to be done for a recipe is kept."""
        return f"{name} test" if name in self._untested else name

    @contextmanager
    def measured(self, name: str) -> Iterator[None]:
        """Takes the time of a phase."""
        started = self.progress.elapsed()
        yield
        self.phases.append((name, started, self.progress.elapsed() - started))

    def stop(self) -> None:
        """End all running builds with everything that they started."""
        self._stop.set()
        with self._lock:
            running = list(self._processes)
        for build in running:
            build.kill()
        if self._late is not None:
            self._late.stop()

    def _catch_signals(self) -> dict[int, Any]:
        if threading.current_thread() is not threading.main_thread():
            return {}

        def interrupted(number: int, _: Any) -> None:
            self.stop()
            raise KeyboardInterrupt(number)

        return {number: signal.signal(number, interrupted) for number in (signal.SIGTERM, signal.SIGHUP)}

    def _clean_work(self) -> None:
        """Delete what killed runs left; safe because a clone's builds hold its lock."""
        if self.layout.work.is_dir():
            for leftover in self.layout.work.iterdir():
                remove_tree(leftover)

    def _left(
        self, todo: Sequence[str], times: Mapping[str, float]
    ) -> Callable[[Mapping[str, float]], float]:
        """Estimates the seconds that are left, from those of what is being built. todo: most urgent first."""
        needs = {name: self.plan.requirements(name) for name in todo}

        def seconds_left(running: Mapping[str, float]) -> float:
            results = dict(self.results)
            over = results.keys() | running.keys() | {failure.recipe for failure in self.failures}
            finished = {name: built.seconds for name, built in results.items() if built.fresh or built.again}
            waiting = [name for name in todo if name not in over]
            return estimate.seconds_left(waiting, running, finished, needs, times, self.jobs)

        return seconds_left

    def _build_all(self, todo: Sequence[str], late: LateSources) -> None:
        waiting = list(todo)
        running: dict[Future[Built], str] = {}
        fetching: set[Future[Any]] = {late.future}
        failures = self.failures
        blocked: set[str] = set()
        with ThreadPoolExecutor(max_workers=self.jobs, thread_name_prefix="build") as pool:
            try:
                while waiting or running:
                    if not failures or self.keep_going:
                        for name in self._next(waiting, running.values(), blocked, late):
                            running[pool.submit(self._one, name)] = name
                    if not running and (not fetching or (failures and not self.keep_going)):
                        break
                    done: set[Future[Any]] = wait({*running, *fetching}, return_when=FIRST_COMPLETED).done
                    if fetching & done:
                        fetching.clear()
                        error = late.future.exception()
                        if isinstance(error, WmlceError):
                            failures.append(error)
                            blocked |= {name for name in waiting if late.lacks(name)}
                            self.progress.say(f"FAILED {error.message}")
                        elif error is not None:
                            raise error
                    for future in done & running.keys():
                        name = running.pop(future)
                        error = future.exception()
                        if error is None:
                            self.results[name] = future.result()
                            self.progress.finished += 1
                        elif isinstance(error, WmlceError):
                            failures.append(error)
                            blocked.add(name)
                            rest = ", ".join(running.values())
                            self.progress.say(
                                f"FAILED {error.message}"
                                + (f"; waiting for {rest} to finish so its result is kept" if rest else "")
                            )
                        else:
                            raise error
            except BaseException:
                self.stop()
                raise
        if failures:
            first, *more = failures
            if more:
                names = ", ".join(failure.recipe or "?" for failure in more)
                first.detail.append(f"({len(more)} more failed: {names})")
            if blocked_only := sorted(blocked - {failure.recipe for failure in failures if failure.recipe}):
                first.detail.append(f"(not built because they need it: {', '.join(blocked_only)})")
            raise first

    def _next(
        self, waiting: list[str], running: Collection[str], blocked: set[str], late: LateSources
    ) -> Iterator[str]:
        """Take out of `waiting` what a free job can build now, and what never can be, which is `blocked`."""
        for name in list(waiting):
            if len(running) >= self.jobs:
                return
            needs = self.plan.requirements(name)
            if needs & blocked:
                blocked.add(name)
                waiting.remove(name)
            elif needs <= self.results.keys() and not late.lacks(name):
                waiting.remove(name)
                if any(self._urgency[other] > self._urgency[name] for other in running):
                    self._patient.add(name)
                yield name

    def _one(self, name: str) -> Built:
        """Build one recipe, unless another run with the same cache has just built it."""
        content = self.plan.content_hash(name)
        recipe = self.plan.recipes.by_name[name]
        title = f"{name} {recipe.outputs[0].version}"
        log = self.layout.logs / f"{name}.log"
        with file_lock(
            self.layout.locks / f"build-{name}-{content}.lock",
            f"building {name}",
            say=self.progress.say,
            stop=self._stop,
        ):
            stored = None if name in self.force else self.store.find(name, content)
            if stored is not None and self.plan.test_hash(name) in self.store.tested(name, content):
                return Built(stored, False, 0.0)
            again = stored is not None
            doing, done = ("testing ", "tested  ") if again else ("building", "built   ")
            self.progress.start(name, doing.strip(), log)
            if not self.progress.console.is_terminal:
                self.progress.say(f"{doing} {title}")
            started = self.progress.elapsed()
            try:
                packages, steps = self._work_on(recipe, content, log, stored)
            finally:
                seconds = self.progress.end(name)
        count = self.progress.finished + 1
        remaining = f", {self.progress.time_left()}" if count < self.progress.total else ""
        self.progress.say(f"{done} {title}  {clock(seconds)}  ({count} of {self.progress.total}{remaining})")
        steps["other"] = steps.get("other", 0.0) + max(seconds - sum(steps.values()), 0.0)
        return Built(packages, not again, seconds, steps, started, again)

    def _work_on(
        self, recipe: Recipe, content: str, log: Path, stored: list[PackageFile] | None
    ) -> tuple[list[PackageFile], dict[str, float]]:
        """Build the packages, or test those that are `found`.

        Returns: The packages, and the seconds of each step: of worker.STEPS, to which the rest is added.
        """

        def work_in(work: Path) -> tuple[list[PackageFile], dict[str, float]]:
            # Links to files of the cache: a build sees them read-only.
            with self._workspaces.on_disk(f"{recipe.name}-inputs") as inputs:
                for folder in ("channel", "sources"):
                    (inputs / folder).mkdir()
                if stored is not None:
                    return self._test_in(work, inputs, recipe, content, log, stored)
                return self._build_in(work, inputs, recipe, content, log)

        log.parent.mkdir(parents=True, exist_ok=True)
        sources = (self.plan.lock.cached(item) for item in self._locked(recipe.name))
        needed = (package.size for package in self._needed(recipe))
        with self._workspaces.lend(
            recipe.name, sum(path.stat().st_size for path in sources), sum(needed)
        ) as (work, in_memory):
            try:
                return work_in(work)
            except OutOfSpace:
                # the estimate was too low: the disk has more room
                if not in_memory or self._stop.is_set():
                    raise
        self.progress.say(f"{recipe.name} needs more than memory has room for: working on the disk")
        with self._workspaces.on_disk(recipe.name) as work:
            return work_in(work)

    def _test_in(
        self, work: Path, inputs: Path, recipe: Recipe, content: str, log: Path, stored: list[PackageFile]
    ) -> tuple[list[PackageFile], dict[str, float]]:
        with disk_errors(f"preparing the tests of '{recipe.name}'"):
            write_channel(inputs / "channel", [*stored, *self._needed(recipe)])
            job = self._job(work, test=[package.key for package in stored])
        self._run(recipe, work, inputs, job, log)
        self.store.add_tested(recipe.name, content, stored, self.plan.test_hash(recipe.name))
        return stored, result.read(work, recipe).seconds

    def _job(self, work: Path, **task: Any) -> Path:
        """Write the file of the worker's task, with what all tasks have."""
        (work / "home").mkdir()
        (work / "tmp").mkdir()
        job = {"channel": f"{_PLACE}/channel", "result": f"{_PLACE}/result.json", **task}
        (work / "job.json").write_text(json.dumps(job))
        return work / "job.json"

    def _build_in(
        self, work: Path, inputs: Path, recipe: Recipe, content: str, log: Path
    ) -> tuple[list[PackageFile], dict[str, float]]:
        with disk_errors(f"preparing the build of '{recipe.name}'"):
            job, source_date = self._prepare(recipe, content, work, inputs)
        try:
            self._run(recipe, work, inputs, job, log)
        except WmlceError as error:
            stand_ins = drift.notes(self.plan.sources(recipe.name).locked)
            error.detail += [f"{line}: the recipe's patches may not fit it" for line in stand_ins]
            raise
        built = []
        outcome = result.read(work, recipe)
        before = time.monotonic()
        with disk_errors(f"packing '{recipe.name}'"):
            for path, subdir in outcome.packages:
                try:
                    entry = finish(path, source_date)
                except OSError:
                    raise
                except WmlceError as error:
                    raise WmlceError(
                        f"recipe '{recipe.name}': {error.message}", remedy=error.remedy, recipe=recipe.name
                    ) from error
                except Exception as error:  # whatever a file that is no package makes its readers raise
                    raise WmlceError(
                        f"recipe '{recipe.name}': {path.name} is no package that can be read",
                        detail=[f"{type(error).__name__}: {error}"],
                        remedy="look into the recipe's scripts",
                        recipe=recipe.name,
                    ) from error
                result.check(recipe, content, self.plan.number(recipe.name), subdir, path.name, entry)
                built.append(PackageFile(path, subdir, entry))
        result.check_all(recipe, [package.name for package in built])
        steps = outcome.seconds
        steps["compress"] = steps.get("compress", 0.0) + time.monotonic() - before
        return self.store.add(recipe.name, content, built, self.plan.test_hash(recipe.name)), steps

    def _prepare(self, recipe: Recipe, content: str, work: Path, inputs: Path) -> tuple[Path, int]:
        """Fill the build's folders; returns the file of the worker's task, and the package's date."""
        root = self.layout.root
        tree = work / "tree"
        folder = tree / recipe.folder.relative_to(root)
        folder.mkdir(parents=True)
        for name, path in self.plan.recipe_files(recipe.name).items():
            self._copy(recipe, path, folder / name, tree_state(root, path)[path])
            name_map.fill(folder / name, self.plan.recipes.names)
        for name, text in recipe.extra_files.items():
            (folder / name).write_text(text)
        sources = self.plan.sources(recipe.name)
        archives = []
        for item in sources.locked:
            archives.append(inputs / "sources" / item.file.name)
            link_or_copy(self.plan.lock.checked(item), archives[-1])
        for path in sources.project:
            for file, state in tree_state(root, path).items():
                self._copy(recipe, file, tree / file.relative_to(root), state)
        packages = self._needed(recipe)
        write_channel(inputs / "channel", packages)
        # not of all: the tests' own may change, and the package is the same
        built_with = self._packages(self.plan.build_requirements(recipe.name))
        source_date = of_package(archives, (int(package.entry.get("timestamp", 0)) for package in built_with))
        (folder / "recipe.yaml").write_text(
            for_build(
                recipe,
                content,
                self.plan.number(recipe.name),
                source_date,
                _CCACHE if self._compilations(recipe) else None,
            )
        )
        variants = work / "variants.yaml"
        variants.write_text(recipe.variants_text or self.plan.recipes.variants_text)
        job = self._job(
            work,
            recipe=f"{_PLACE}/{folder.relative_to(work)}/recipe.yaml",
            variants=f"{_PLACE}/variants.yaml",
            output=f"{_PLACE}/out",
            threads=cpu_count(),
            source_date=source_date,
        )
        return job, source_date

    def _needed(self, recipe: Recipe) -> list[PackageFile]:
        return self._packages(self.plan.all_requirements(recipe.name))

    def _packages(self, recipes: Iterable[str]) -> list[PackageFile]:
        return [package for name in recipes for package in self.results[name].packages]

    def _copy(self, recipe: Recipe, source: Path, target: Path, state: str) -> None:
        """Copy a file of the tree, and see that it is the one whose state the content hash was made of."""
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
            same = file_state(target) == state
        except FileNotFoundError:
            same = False
        if not same:
            raise WmlceError(
                f"{self.layout.display(source)} changed while recipe '{recipe.name}' waited to be built",
                remedy="nothing was kept of it; run the command again: it takes what the file holds now",
                recipe=recipe.name,
            )

    def _compilations(self, recipe: Recipe) -> dict[str, Path]:
        """Returns the folder of compilations that builds of a recipe of own sources share, by its place.

        Builds of other sources, and those of a site's recipes, get none: what they leave there would get into
        the project's own packages.
        """
        if self.plan.sources(recipe.name).locked or Path(recipe.where).is_absolute():
            return {}
        # of this recipe alone: what a build leaves there gets into no other package
        folder = self.layout.cache / "ccache-packages" / recipe.name
        folder.mkdir(parents=True, exist_ok=True)
        # a program with a set-user-ID bit that a build leaves there is for nobody to start
        folder.parent.chmod(0o700)
        return {_CCACHE["CCACHE_DIR"]: folder}

    def _run(self, recipe: Recipe, work: Path, inputs: Path, job: Path, log: Path) -> None:
        inside = sandbox.Sandbox(
            root=self._root,
            writable={_PLACE: work, "/tmp": work / "tmp", **self._compilations(recipe)},
            readable={
                f"{_PLACE}/channel": inputs / "channel",
                f"{_PLACE}/tree/build/sources": inputs / "sources",
                f"{_TOOLS}/worker.py": _WORKER,
                f"{_TOOLS}/rattler_build": Path(rattler_build.__file__ or "").parent,
            },
            folder=_PLACE,
        )
        command = ["/usr/bin/python3", f"{_TOOLS}/worker.py", f"{_PLACE}/{job.name}"]
        environment = sandbox.environment(
            HOME=f"{_PLACE}/home",
            RATTLER_CACHE_DIR=f"{_PLACE}/cache",
            PYTHONPATH=_TOOLS,
            PYTHONDONTWRITEBYTECODE="1",
            **{**_overrides(), **(recipe.variant.system if recipe.variant else {})},
        )
        with self._lock:
            if self._stop.is_set():
                raise WmlceError(f"the build of '{recipe.name}' was stopped", recipe=recipe.name)
            patient = recipe.name in self._patient
            build = Confined(inside, command, log, environment, prefix=_NICE if patient else ())
            self._processes.add(build)
        if patient:
            # where the kernel schedules by session, its niceness counts rather than that of processes
            with suppress(OSError):
                Path(f"/proc/{build.process.pid}/autogroup").write_text(str(_NICENESS))
        try:
            code = build.wait()
        finally:
            with self._lock:
                self._processes.discard(build)
            if build.stdin is not None:
                build.stdin.close()
        if build.exceeded:
            raise WmlceError(
                f"the build of recipe '{recipe.name}' was ended: {build.exceeded}",
                log=Path(self.layout.display(log)),
                remedy="look into the recipe's scripts",
                recipe=recipe.name,
            )
        if code != 0 or not (work / "result.json").is_file():
            raise _build_failure(recipe, code, log, self.layout)


def _overrides() -> dict[str, str]:
    """The user's overrides of virtual packages, meant for builds too; a variant's own count more."""
    return {key: value for key, value in os.environ.items() if key.startswith("CONDA_OVERRIDE_")}


def write_channel(folder: Path, packages: Iterable[PackageFile]) -> None:
    """A channel of links with repodata made from the packages' known entries; cheap enough for every
    single build.
    """
    entries: dict[str, dict[str, Any]] = {subdir: {} for subdir in of_this_machine().subdirs}
    for package in packages:
        link_or_copy(package.path, folder / package.subdir / package.file)
        entries.setdefault(package.subdir, {})[package.file] = dict(package.entry)
    for subdir, listed in entries.items():
        repodata = {
            "info": {"subdir": subdir},
            "packages": {},
            "packages.conda": listed,
            "repodata_version": 1,
        }
        write_atomic(folder / subdir / "repodata.json", json.dumps(repodata))


def _build_failure(recipe: Recipe, code: int, log: Path, layout: Layout) -> WmlceError:
    text = log.read_text(errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    log_path = Path(layout.display(log))
    # the kernel rather ends a compiler than this process
    compiler = "Killed signal terminated program" in text
    if code < 0 or compiler:
        name = "SIGKILL" if compiler else signal.Signals(-code).name
        return (OutOfSpace if name == "SIGKILL" else WmlceError)(
            f"the build of recipe '{recipe.name}' was killed ({name})",
            detail=lines[-5:],
            log=log_path,
            remedy="run the command again; if it was the kernel for lack of memory (dmesg), use --jobs 1",
            recipe=recipe.name,
        )
    if "No space left on device" in text:
        return OutOfSpace(
            f"no space left on the device while building recipe '{recipe.name}'",
            log=log_path,
            remedy="free some space under the clone's build folder and the cache, then run the command again",
            recipe=recipe.name,
        )
    tested = (
        "Test failed" in text
        or "failed package content tests" in text
        or ("Script failed" in text and "Collecting tests" in text)
    )
    outcome = "failed its test" if tested else "could not be built"
    where = Path(recipe.where)
    site = f"--recipes {where.parents[1]} " if where.is_absolute() else ""  # as those of a site are
    return WmlceError(
        f"recipe '{recipe.name}' {outcome} ({recipe.where})",
        detail=log_excerpt(lines),
        log=log_path,
        remedy=f"read the log, fix the recipe, then: wmlce channel build {site}{recipe.name}",
        recipe=recipe.name,
    )


def summary(results: Mapping[str, Built]) -> dict[str, Any]:
    """For `--json`."""
    return {
        name: {
            "built": built.fresh,
            "tested_again": built.again,
            "seconds": round(built.seconds, 1),
            "steps": {step: round(seconds, 3) for step, seconds in built.steps.items()},
            "packages": [package.file for package in built.packages],
        }
        for name, built in results.items()
    }
