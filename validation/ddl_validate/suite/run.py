"""A run of `wmlce validate`: the checks one after the other, and what is kept of them while it goes on."""

from __future__ import annotations

import shlex
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..common.running import RunFailed
from . import expect, occupied, racks
from .bench import LOCALHOST, Bench, hosts_of, ranks_of
from .checks import environment
from .checks.environment import Checked
from .document import PENDING, Document, now
from .errors import ValidateError
from .expect import Reference
from .kinds import kinds_of
from .levels import Level
from .model import CheckResult, Finding, Key, Kind, Status
from .registry import ENVIRONMENT, MEASURING, Check
from .rounds import merged, number_of


@dataclass(frozen=True)
class Plan:
    """What was asked for.

    where:     options of ddlrun that name the hosts
    options:   further ones, for every program
    checks:    to be made, in their order
    budget:    seconds after which no further round begins
    ranks:     of each host; None: as many as its GPUs or cores
    skip_figures: figures and facts that are not judged
    log_hours: of the kernels' logs that count
    rails:     ports that are measured one by one; none: those of one rate that all hosts have
    references: what the site expects
    folder:    of logs
    command:   what was typed
    """

    prefix: Path
    where: tuple[str, ...]
    options: tuple[str, ...]
    exclude: tuple[str, ...]
    checks: Mapping[str, Check]
    level: Level
    budget: float
    tolerance: float
    folder: Path
    racks: int | None = None
    ranks: int | None = None
    skip_figures: Sequence[str] = ()
    log_hours: float = 24.0
    rails: tuple[str, ...] = ()
    references: Mapping[Key, Reference] = field(default_factory=dict)
    site: str = ""
    command: str = ""


class Run:
    """document: what was found so far, at any time. keep: takes it after each check. report: takes each new
    result, and say a line about progress.
    """

    def __init__(
        self,
        plan: Plan,
        keep: Callable[[Document], None],
        report: Callable[[CheckResult], None],
        say: Callable[[str], None],
    ) -> None:
        self.plan, self._keep, self._report, self._say = plan, keep, report, say
        self.document: Document | None = None
        self._seconds = 0.0
        self._occupied = ""
        self._began = time.monotonic()

    def go(self, earlier: Document | None = None) -> Document:
        """Make all checks. earlier: a run that was cut off; goes on where it ended. ValidateError where
        nothing can be made.
        """
        plan = self.plan
        checked, own_name = _under_own_name(self._ask())
        # a health check runs on hosts with jobs, too
        self._occupied = occupied.by() if own_name != LOCALHOST else ""
        usable = [host for host in checked if host.state == "ok"]
        failed = [host for host in checked if host.state != "ok"]
        document = _document(plan, usable)
        if earlier is not None:
            _require_same(document, earlier, failed)
            document = replace(document, started=earlier.started, results=earlier.results)
            self._seconds = earlier.seconds
        self.document = document
        if ENVIRONMENT in plan.checks:
            command = shlex.join([str(plan.prefix / "bin/ddlrun"), *plan.where, *plan.options, "-check"])
            result = environment.check(checked, command, occupied=bool(self._occupied))
            result.seconds = time.monotonic() - self._began
            self._take(result, again=False)
        elif failed:
            listed = "; ".join(f"{host.name}: {host.problem}" for host in failed)
            raise ValidateError(f"ddlrun cannot start on {listed}; leave it out (--exclude)")
        if usable:
            numbers = self._racks([host.name for host in usable])
            hosts = hosts_of(usable, numbers)
            document.ranks = [ranks_of(hosts, plan.ranks)] * len(hosts)
            document.racks = numbers
            self._rounds(
                Bench(
                    prefix=plan.prefix,
                    options=plan.options,
                    hosts=hosts,
                    has_racks=numbers is not None,
                    ranks=document.ranks[0],
                    gpus=min(len(host.facts.get("gpus") or ()) for host in hosts),
                    level=plan.level,
                    tolerance=plan.tolerance,
                    folder=plan.folder,
                    say=self._say,
                    own_name=own_name,
                    log_hours=plan.log_hours,
                    rails=plan.rails,
                )
            )
        return self._now()

    def _racks(self, hosts: list[str]) -> list[int] | None:
        plan = self.plan
        if plan.racks is not None:
            return racks.equal(len(hosts), plan.racks)
        if len(hosts) < 3:
            return None
        numbers, source = racks.seen_by_ddl(plan.prefix, self._where(), hosts)
        if numbers is not None:
            self._say(f"{len(set(numbers))} racks, as DDL sees them: {source}")
        return numbers

    def _where(self) -> list[str]:
        exclude = ("-exclude", ",".join(self.plan.exclude)) if self.plan.exclude else ()
        return [*self.plan.where, *exclude, *self.plan.options]

    def _ask(self) -> list[Checked]:
        return environment.ask(self.plan.prefix, self._where())

    def _rounds(self, bench: Bench) -> None:
        names = [name for name in self.plan.checks if name != ENVIRONMENT]
        while names:
            completed = {name: self._made(name) for name in names}
            least = min(completed.values())
            if least and (not self.plan.level.repeats or self._elapsed() > self.plan.budget):
                return
            if least:
                hours = (self.plan.budget - self._elapsed()) / 3600
                self._say(f"round {least + 1}; {hours:.1f} h left")
            for name in names:
                if completed[name] == least:
                    self._take(self._one(name, bench), again=least > 0)

    def _made(self, name: str) -> int:
        return next((number_of(result) for result in self._results() if result.name == name), 0)

    def _results(self) -> list[CheckResult]:
        assert self.document is not None
        return [result for result in self.document.results if not result.facts.get(PENDING)]

    def _one(self, name: str, bench: Bench) -> CheckResult:
        """A check that breaks off is a finding; the others go on."""
        start = time.monotonic()
        if self._occupied and name in MEASURING:
            return CheckResult(
                name,
                self.plan.checks[name].title,
                Status.SKIPPED,
                reason=f"{self._occupied}: what is measured beside it says nothing",
            )
        try:
            result = self.plan.checks[name].run(bench, self._results())
        except Exception as error:
            log = self.plan.folder / f"{name}.error.log"
            if not isinstance(error, ValidateError | RunFailed):
                log.write_text("".join(traceback.format_exception(error)))
            why = error.line if isinstance(error, RunFailed) else str(error) or repr(error)
            result = CheckResult(
                name,
                self.plan.checks[name].title,
                Status.BROKEN,
                time.monotonic() - start,
                why,
                logs=[str(log)] if log.exists() else [],
            )
        assert result.name == name, f"the check {name} calls itself {result.name}"
        if result.status is Status.BROKEN and not result.findings:
            reason = (result.reason or "no reason was given").splitlines()[0]
            result.findings.append(
                Finding(
                    Kind.NOT_CHECKED,
                    "cluster",
                    f"the check {name} broke off: {reason}",
                    f"read its log; run it alone: --only {name}",
                )
            )
        return result

    def _take(self, result: CheckResult, again: bool) -> None:
        others = [earlier for earlier in self._results() if earlier.name != result.name]
        if not result.facts.get(PENDING):
            expect.apply(result, self.plan.references, self.plan.tolerance)
            expect.judge(result, others)
            expect.leave_out(result, self.plan.skip_figures)
        expect.leave_out_effects([*others, result])
        self._report(result)
        document = self.document
        assert document is not None
        for number, earlier in enumerate(document.results):
            if earlier.name == result.name:
                document.results[number] = merged(earlier, result) if again else result
                break
        else:
            document.results.append(result)
        self._keep(self._now())

    def _elapsed(self) -> float:
        return self._seconds + time.monotonic() - self._began

    def _now(self) -> Document:
        """The document as of now, with the checks that are still to come."""
        document = self.document
        assert document is not None
        document.seconds = self._elapsed()
        finished = {result.name: result for result in self._results()}
        coming = [
            CheckResult(
                name,
                check.title,
                Status.SKIPPED,
                reason="not made: the run ended before",
                facts={PENDING: True},
            )
            for name, check in self.plan.checks.items()
            if name not in finished
        ]
        first = [finished.pop(name) for name in self.plan.checks if name in finished]
        document.results = [*first, *finished.values(), *(coming if document.hosts else [])]
        document.software = _software(document, self._results())
        return document


def _under_own_name(checked: Sequence[Checked]) -> tuple[Sequence[Checked], str]:
    """The hosts, this machine alone by its name: so figures of a job and of a health check are of one host.

    Returns: The hosts, and the name by which this machine is to be started on without logging in.
    """
    if [host.name for host in checked] != [LOCALHOST]:
        return checked, LOCALHOST
    name = str(checked[0].facts.get("name") or LOCALHOST).partition(".")[0]
    return [replace(checked[0], name=name)], name


def _document(plan: Plan, usable: Sequence[Checked]) -> Document:
    facts = usable[0].facts if usable else {}
    return Document(
        level=plan.level.name,
        hosts=[host.name for host in usable],
        ranks=[],
        kinds=list(kinds_of({host.name: host.facts for host in usable}).values()),
        site=plan.site,
        command=plan.command,
        started=now(),
        release=str(facts.get("release") or ""),
        machine=_machine(facts),
    )


def _machine(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts about the first host's hardware and system."""
    if not facts:
        return {}
    cores = sum(len(domain.get("cores", ())) for domain in facts.get("domains") or [])
    gpus = [
        str(gpu.get("name", gpu)) if isinstance(gpu, dict) else str(gpu) for gpu in facts.get("gpus") or []
    ]
    machine = {
        "name": facts.get("name"),
        "processor": facts.get("cpu"),
        "architecture": facts.get("machine"),
        "cores": cores,
        "memory": facts.get("memory_bytes"),
        "GPUs": ", ".join(gpus) or None,
        "fabrics": ", ".join(map(str, facts.get("fabrics") or [])) or None,
        "C library": facts.get("glibc"),
    }
    return {name: value for name, value in machine.items() if value is not None}


def _software(document: Document, results: Sequence[CheckResult]) -> dict[str, str]:
    """Versions on the first host; those of the check `imports` where it ran."""
    if not document.hosts:
        return {}
    first = document.hosts[0]
    software: dict[str, str] = {}
    for result in results:
        if result.name == ENVIRONMENT:
            facts = result.facts.get("hosts", {}).get(first, {})
            versions_of_system = {
                "ddl": facts.get("loaded_ddl"),
                "mpi": facts.get("loaded_mpi"),
                "python": facts.get("python"),
            }
            software |= {name: str(value) for name, value in versions_of_system.items() if value}
        if isinstance(versions := result.facts.get("versions"), dict):
            software |= {str(name): str(value) for name, value in versions.items()}
    return software


def _require_same(document: Document, earlier: Document, failed: Sequence[Checked]) -> None:
    """ValidateError where the earlier run is of other hosts, another level or another release."""
    for name in ("hosts", "level", "site", "release"):
        before, today = getattr(earlier, name), getattr(document, name)
        if before != today:
            problem = "".join(f"; {host.name}: {host.problem}" for host in failed)
            raise ValidateError(
                f"--resume: the run in the --output folder has {name} {before}, this one {today}{problem}; "
                "begin a new one in another folder"
            )
