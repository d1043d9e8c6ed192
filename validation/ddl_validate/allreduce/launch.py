"""One start of a peer: reads its events as they come, ends what takes too long, says why nothing came."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any

from .errors import LaunchFailed, WrongSum
from .peers import Launch
from .results import Round
from .sizes import show_size
from .testbed import Testbed

MARK = "@ddl-bench "
_TAIL_LINES = 40
_END_SECONDS = 15


@dataclass
class Sample:
    """What was measured at one size."""

    bytes: int
    times: Round


@dataclass
class Report:
    """The report of a peer's start. hosts, cores: of each rank. description: what the library says of itself.
    abandoned: larger sizes were left out, because this peer is slow out of all proportion.
    """

    library: str = ""
    hosts: list[str] = field(default_factory=list)
    cores: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    description: dict[str, Any] | None = None
    abandoned: bool = False


def same_placement(expected: Sequence[str], actual: Sequence[str]) -> bool:
    """Whether the same ranks share hosts; names may differ (localhost, a domain)."""
    return [expected.index(host) for host in expected] == [list(actual).index(host) for host in actual]


def run(
    testbed: Testbed,
    launch: Launch,
    silence: float,
    on_sample: Callable[[Sample], None] | None = None,
    cores: Sequence[str] | None = None,
) -> Report:
    """Run a launch to its end; every sample goes to ``on_sample`` as soon as it is there.

    silence: seconds without a new line after which it is ended. cores: those that each rank had in another
    launch; it fails where they differ, for then the two cannot be compared. Raises WrongSum or LaunchFailed;
    samples reported before have reached ``on_sample``.
    """
    child = testbed.start(launch.command, launch.environment)
    lines: queue.Queue[tuple[str, str] | None] = queue.Queue()
    assert child.stdout and child.stderr
    readers = [
        threading.Thread(target=_read, args=(stream, name, lines), daemon=True)
        for stream, name in ((child.stdout, "out"), (child.stderr, "err"))
    ]
    for reader in readers:
        reader.start()
    report, tail, open_streams, ended = Report(), deque[str](maxlen=_TAIL_LINES), len(readers), False
    try:
        while open_streams:
            try:
                line = lines.get(timeout=silence)
            except queue.Empty:
                raise LaunchFailed(f"nothing came for {silence:g} s", "\n".join(tail)) from None
            if line is None:
                open_streams -= 1
                continue
            stream, text = line
            # launchers may put the lines of two streams, or a prompt of their own, before the mark
            _, mark, event = text.partition(MARK)
            if stream == "err" or not mark:
                tail.append(text)
                continue
            ended = _take(json.loads(event), report, testbed, on_sample, cores)
        rc = child.wait(_END_SECONDS)
    except (ValueError, KeyError) as error:
        raise LaunchFailed(f"its output cannot be read: {error!r}", "\n".join(tail)) from error
    except subprocess.TimeoutExpired:
        raise LaunchFailed("its launcher did not end after its ranks", "\n".join(tail)) from None
    finally:
        _end(child)
    if rc or not ended:
        raise LaunchFailed(f"ended with exit code {rc}", "\n".join(tail))
    return report


def _take(
    event: dict[str, Any],
    report: Report,
    testbed: Testbed,
    on_sample: Callable[[Sample], None] | None,
    cores: Sequence[str] | None,
) -> bool:
    """Take an event into the report; true at the end."""
    kind = event.get("event")
    if kind == "start":
        report.library, report.hosts, report.cores = event["library"], event["hosts"], event["cores"]
        if not same_placement(testbed.sequence, report.hosts):
            raise LaunchFailed(
                f"the launcher put the ranks on {', '.join(report.hosts)}; "
                f"asked for {', '.join(testbed.sequence)}"
            )
        if cores is not None and list(cores) != report.cores:
            raise LaunchFailed(
                f"its ranks run on the cores {'; '.join(report.cores)}; "
                f"those of the others on {'; '.join(cores)}"
            )
    elif kind == "size":
        times = Round(event["seconds"], event["warmup"], event["user"], event["system"])
        sample = Sample(event["bytes"], times)
        report.samples.append(sample)
        if on_sample:
            on_sample(sample)
    elif kind == "wrong":
        raise WrongSum(
            f"wrong sum at {show_size(event['bytes'])}: element {event['index']:.0f} on rank "
            f"{event['rank']} is {event['got']}, not {event['expected']}"
        )
    elif kind == "failed":
        raise LaunchFailed(f"at {show_size(event['bytes'])} rank {event['rank']} failed: {event['text']}")
    elif kind == "end":
        report.description, report.abandoned = event["description"], event["abandoned"]
    else:
        raise ValueError(f"unknown event {kind!r}")
    return bool(kind == "end")


def _read(stream: IO[str], name: str, lines: queue.Queue[tuple[str, str] | None]) -> None:
    with suppress(ValueError):  # closed by the reader while the launcher's children still hold it
        for line in stream:
            lines.put((name, line.rstrip("\n")))
    lines.put(None)


def _end(child: subprocess.Popen[str]) -> None:
    """End the launcher politely, so that it ends its ranks, and then its whole session."""
    if child.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        end = time.monotonic() + _END_SECONDS
        while child.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait(_END_SECONDS)
