"""``--cpu-share 0.5``: cores that are slower than the machine's, for every peer alike.

Two ways, of which the first that is allowed here is taken:

``clock``: a thread of real-time priority on every core computes for half of each 200 microseconds, on all
cores at the same moments (programs/slow_cores.c). Whatever takes longer than that is slowed down as on cores
of half the clock; changing to the thread and back takes some microseconds of each period more. What the
kernel does in interrupts is not slowed down.

``quota``: a control group in which all ranks together get half of what the cores have, in periods of 10 ms.
Ranks run at full speed until the quota is spent and then stand still. Means over many periods are those of
slower cores, but a short call takes its usual time, or a pause more.

Either way a repetition that is shorter than the pauses' period takes its usual time, or a pause more. So the
mean of a round's repetitions counts, not their median.

Neither is a slower clock: memory, caches and links stay as fast as they are.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from ..cluster.cgroups import CGROUPS, make_limited_group, remove_group
from .errors import BenchError, PeerMissing
from .programs import compiled_alone

METHODS = ("auto", "clock", "quota")
# Microseconds. The kernel takes quotas from 1 ms on; the first core that asks may take all of a small one.
_PERIOD = 10_000
_LEAST_QUOTA = 1_000
_LIMIT_SECONDS = 20.0
_SPIN_SECONDS = 0.5
# What spinning processes may get beyond the share before the limit counts as not in force.
_TOLERANCE = 1.1


class NotAllowed(Exception):
    """This way of slowing down is not possible here; the text says why."""


class CpuShare:
    """Slows down whatever is started through ``wrap``, while the context is entered; by itself it does not.

    share: of each core's time that remains, above 0 and at most 1.
    """

    method: ClassVar[str] = "none"
    explanation: ClassVar[str] = "the cores as they are"

    def __init__(self, share: float = 1.0) -> None:
        self.share = share

    def __enter__(self) -> CpuShare:
        """Begin; NotAllowed where it is not possible here."""
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def wrap(self, command: Sequence[str]) -> list[str]:
        """The command that runs words slowed down, with all that they start."""
        return list(command)

    @contextmanager
    def joined(self) -> Iterator[None]:
        """What this process starts meanwhile is slowed down, too."""
        yield

    def measured(self) -> None:
        """What came so far was the trial, and does not count in ``facts``."""
        return None

    def facts(self) -> dict[str, Any]:
        return {"share": self.share, "method": self.method, "explanation": self.explanation}


class Clock(CpuShare):
    """Real-time threads take the rest of every core."""

    method = "clock"
    explanation = (
        "a real-time thread on every core takes the rest of each 200 microseconds, on all cores at once"
    )

    def __init__(self, share: float, program: Path) -> None:
        super().__init__(share)
        self._program = program
        self._child: subprocess.Popen[str] | None = None

    def __enter__(self) -> Clock:
        most = realtime_fraction()
        if 1 - self.share > most:
            raise NotAllowed(
                f"the kernel lets real-time threads take {most:.0%} of a core; a share of {1 - most:.2f} is "
                "the least"
            )
        child = subprocess.Popen(
            [str(self._program), "take", repr(self.share)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._child = child
        assert child.stdout and child.stderr
        readable, _, _ = select.select([child.stdout], [], [], _LIMIT_SECONDS)
        if not readable:
            child.kill()
        if not readable or child.stdout.readline() != "ready\n":
            reason = child.stderr.read().strip() or "no message"
            self.__exit__()
            raise NotAllowed(f"no real-time priority ({reason}); be root, or have `ulimit -r` allow 10")
        return self

    def __exit__(self, *error: object) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        assert child.stdin
        with suppress(OSError):
            child.stdin.close()
        try:
            child.wait(_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        for stream in (child.stdout, child.stderr):
            assert stream
            stream.close()


class Quota(CpuShare):
    """A control group of the ranks with a limit on processor time: cgroup v2, or v1 where the machine has
    that.

    The group is removed at the end.
    """

    method = "quota"
    explanation = "a control group gives all ranks together that share of the cores in periods of 10 ms"

    def __init__(self, share: float) -> None:
        super().__init__(share)
        self._group: Path | None = None
        self._home: Path | None = None
        self._before: dict[str, int] = {}

    def limits(self) -> tuple[int, int]:
        """Quota and period in microseconds, for all cores together."""
        quota = self.share * len(os.sched_getaffinity(0)) * _PERIOD
        longer = max(1.0, _LEAST_QUOTA / quota)
        return round(quota * longer), round(_PERIOD * longer)

    def __enter__(self) -> Quota:
        self._group, reasons = make_limited_group(f"ddl-bench.{os.getpid()}", *self.limits(), self._join)
        if self._group is None:
            causes = "; ".join(reasons) or f"none in {CGROUPS}"
            raise NotAllowed(f"no control group that limits processor time ({causes}); be root")
        return self

    def _join(self, group: Path, home: Path) -> None:
        """Join the group and leave it again; without this right the ranks could not join."""
        self._group, self._home = group, home
        with self.joined():
            pass

    def __exit__(self, *error: object) -> None:
        group, self._group = self._group, None
        if group is not None:
            remove_group(group, _LIMIT_SECONDS)

    def wrap(self, command: Sequence[str]) -> list[str]:
        assert self._group is not None, "enter the context first"
        # 0 is the process that writes, in any namespace
        join = 'echo 0 >"$0" && exec "$@"'
        return ["/bin/sh", "-c", join, str(self._group / "cgroup.procs"), *command]

    @contextmanager
    def joined(self) -> Iterator[None]:
        assert self._group is not None and self._home is not None, "enter the context first"
        (self._group / "cgroup.procs").write_text("0")
        try:
            yield
        finally:
            (self._home / "cgroup.procs").write_text("0")

    def measured(self) -> None:
        self._before = self.statistics()

    def facts(self) -> dict[str, Any]:
        statistics = {name: value - self._before.get(name, 0) for name, value in self.statistics().items()}
        return {**super().facts(), "group": str(self._group), "statistics": statistics}

    def statistics(self) -> dict[str, int]:
        """The group's cpu.stat: above all nr_throttled, the periods in which the quota was spent."""
        if self._group is None:
            return {}
        lines = (self._group / "cpu.stat").read_text().splitlines()
        return {name: int(value) for name, value in (line.split() for line in lines)}


def realtime_fraction() -> float:
    """The part of a core that the kernel leaves to real-time threads."""
    try:
        runtime, period = (
            int(Path(f"/proc/sys/kernel/sched_rt_{name}_us").read_text()) for name in ("runtime", "period")
        )
    except (OSError, ValueError):
        return 1.0
    return 1.0 if runtime < 0 else runtime / period


def parse_share(text: str) -> float:
    """A share above 0 and at most 1; BenchError otherwise."""
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise BenchError(f"--cpu-share {text!r}: write a number above 0 and at most 1, such as 0.5")
    return share


@contextmanager
def slowed(share: float, method: str, cache: Path) -> Iterator[tuple[CpuShare, dict[str, Any]]]:
    """Cores of this machine slowed down to a share, and what the document says of it; ended on exit.

    method: one of METHODS. Measures what spinning processes get; BenchError where no way is allowed, or where
    they get more than the share.
    """
    if share == 1:
        full = CpuShare()
        yield full, full.facts()
        return
    try:
        program = _program(cache)
    except PeerMissing as error:
        raise BenchError(f"--cpu-share {share:g}: {error}") from error
    ways: list[CpuShare] = [Clock(share, program), Quota(share)]
    reasons = []
    for way in ways:
        if method not in ("auto", way.method):
            continue
        try:
            way.__enter__()
        except NotAllowed as error:
            reasons.append(f"{way.method}: {error}")
            continue
        try:
            got = spinning_share(way, program)
            if got > share * _TOLERANCE + 0.01:
                raise BenchError(
                    f"--cpu-share {share:g} by {way.method} has no effect: spinning processes got {got:.2f} "
                    "of the cores; say another --cpu-share-by"
                )
            way.measured()
            yield way, {**way.facts(), "spinning": got}
            return
        finally:
            way.__exit__()
    raise BenchError(f"--cpu-share {share:g} is not possible here: {'; '.join(reasons)}")


def spinning_share(way: CpuShare, program: Path) -> float:
    """Processor time over wall time and cores of processes that compute on every core; less than the share
    where other work runs on the machine, never more."""
    command = way.wrap([str(program), "spin", repr(_SPIN_SECONDS)])
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_SECONDS, check=True)
        return float(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise BenchError(f"--cpu-share: {' '.join(command)}: {error}") from error


def _program(cache: Path) -> Path:
    compiler = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    if compiler is None:
        raise PeerMissing("no C compiler for its program; install one (Debian package gcc)")
    return compiled_alone("slow_cores", Path(compiler), ["-pthread"], cache)
