"""Where the workers run: emulated hosts whose links are counted, or this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..allreduce.scenarios import Scenario
from ..allreduce.testbed import EmulatedTestbed
from .measure import Counters
from .ways import Way

# The same for every way: one thread computes, and TensorFlow tells errors alone.
_VARIABLES = {"TF_CPP_MIN_LOG_LEVEL": "2", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}


class Place:
    """This machine, with all workers on it."""

    racks = 1
    counters: Counters | None = None
    packages: Path | None = None
    """Beside those of the environment."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    @property
    def text(self) -> str:
        return f"{self.workers} workers of this machine"

    def command(self, prefix: Path, way: Way, program: Sequence[str]) -> list[str]:
        """The command line that starts a way's processes, of the environment `prefix`."""
        variables = self._variables()
        if self.packages:
            variables = {**variables, "PYTHONPATH": str(self.packages.resolve())}
        passed = [word for name, value in variables.items() for word in ("-x", f"{name}={value}")]
        return [
            str(prefix / "bin/ddlrun"),
            "-q",
            *self._hosts(way.coordinator),
            *way.options,
            *passed,
            *program,
        ]

    def _variables(self) -> dict[str, str]:
        return {name: value for name, value in _VARIABLES.items() if name != "GLOO_SOCKET_IFNAME"}

    def _hosts(self, coordinator: bool) -> list[str]:
        return ["-np", str(self.workers + coordinator)]


class EmulatedHosts(Place):
    """Hosts in network namespaces with shaped links, reached by ssh."""

    def __init__(self, testbed: EmulatedTestbed) -> None:
        self._testbed, self._scenario = testbed, testbed.scenario
        super().__init__(testbed.scenario.ranks)
        self.racks = testbed.scenario.racks
        self.counters = testbed.sent_bytes
        self._topology = testbed.folder / "topology.json"
        self._topology.write_text(json.dumps(testbed.scenario.topology()))

    @property
    def text(self) -> str:
        one = self._scenario
        uplinks = f", rack uplinks of {one.uplink_rate}" if one.racks > 1 else ""
        return (
            f"{len(one.slots)} emulated hosts of {', '.join(map(str, one.slots))} workers in {one.racks} "
            f"rack(s), links of {one.host_rate}{uplinks}"
        )

    def command(self, prefix: Path, way: Way, program: Sequence[str]) -> list[str]:
        words = super().command(prefix, way, program)
        return self._testbed.command(self._testbed.sequence[0], words)

    def _variables(self) -> dict[str, str]:
        return _VARIABLES

    def _hosts(self, coordinator: bool) -> list[str]:
        slots = list(self._scenario.slots)
        slots[0] += coordinator
        words = ["-H", ",".join(f"{h}:{n}" for h, n in zip(self._scenario.hosts, slots, strict=True))]
        # What an administrator writes down once for a site. With a coordinator DDL takes no part.
        described = self._scenario.racks > 1 and not coordinator
        return [*words, "-ddloption", f"-topology {self._topology}"] if described else words


@contextmanager
def place(scenario: Scenario | None, workers: int, shared: list[Path]) -> Iterator[Place]:
    """Emulated hosts for the scenario, or this machine where there is none.

    shared: folders below /tmp that the workers read.
    """
    if scenario is None:
        yield Place(workers)
        return
    with EmulatedTestbed(scenario, shared) as testbed:
        assert isinstance(testbed, EmulatedTestbed)
        yield EmulatedHosts(testbed)
