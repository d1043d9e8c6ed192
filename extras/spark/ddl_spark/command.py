"""The command that a cluster is started for."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence

from ddlrun import processes, rank_variables

from ddl_spark.cluster import SparkClusterError, StandaloneCluster

_PAUSE_SECONDS = 0.1
_POLITE_SECONDS = 10.0


class Command:
    """The command that uses the cluster, with the signals that this process gets."""

    def __init__(self, command: Sequence[str], cluster: StandaloneCluster) -> None:
        self._words = [word.replace("{master}", cluster.master) for word in command]
        self._environment = {**rank_variables.without(os.environ), **cluster.environment}

    def result(self) -> int:
        """Runs it, and returns its exit code as a shell has it."""
        # From before its start: a signal that comes meanwhile must not end this process without an exit code.
        received: list[int] = []
        # A terminal has sent SIGINT to the command too.
        before = {signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None)}
        for number in (signal.SIGTERM, signal.SIGHUP):
            before[number] = signal.signal(number, lambda got, _: received.append(got))
        try:
            return self._wait(self._start(), received)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self._words,
                env=self._environment,
                preexec_fn=processes.die_with_parent(signal.SIGTERM),
            )
        except OSError as error:
            raise SparkClusterError(
                f"the command cannot be started; {self._words[0]}: {error.strerror}; "
                "give the path of a program"
            ) from None

    def _wait(self, child: subprocess.Popen[bytes], received: list[int]) -> int:
        """Passes on each signal that this process has received, and ends a command that stays after one."""
        until = float("inf")
        while True:
            try:
                return processes.shell_code(child.wait(_PAUSE_SECONDS))
            except subprocess.TimeoutExpired:
                while received:
                    child.send_signal(received.pop(0))
                    until = time.monotonic() + _POLITE_SECONDS
                if time.monotonic() > until:
                    child.kill()
