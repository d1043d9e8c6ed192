"""Where the ranks of a training run: this machine, or emulated hosts whose links are counted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from .scenarios import Scenario
from .testbed import EmulatedTestbed

Counters = Callable[[], dict[str, int]]
"""Bytes that every link has carried so far, in each direction."""


class Place:
    """This machine, with all ranks on it."""

    racks = 1
    counters: Counters | None = None
    variables: Mapping[str, str] = MappingProxyType({})
    """What the ranks need here, whoever starts them."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks

    @property
    def text(self) -> str:
        return f"{self.ranks} ranks of this machine"

    def hosts(self, *, more: int = 0, described: bool = True) -> list[str]:
        """Words that tell ddlrun the ranks, with `more` on the first host. described: and DDL the racks."""
        return ["-np", str(self.ranks + more)]

    def on_first_host(self, command: Sequence[str]) -> list[str]:
        """The command line that runs another one where the ranks are started."""
        return list(command)


class EmulatedHosts(Place):
    """Hosts in network namespaces with shaped links, reached by ssh."""

    variables = MappingProxyType({"GLOO_SOCKET_IFNAME": "eth0"})

    def __init__(self, testbed: EmulatedTestbed) -> None:
        self._testbed, self._scenario = testbed, testbed.scenario
        super().__init__(testbed.scenario.ranks)
        self.racks = testbed.scenario.racks
        self.counters = testbed.sent_bytes
        self._topology = testbed.folder / "topology.json"
        self._topology.write_text(json.dumps(testbed.scenario.topology()))

    @property
    def text(self) -> str:
        scenario = self._scenario
        uplinks = f", rack uplinks of {scenario.uplink_rate}" if scenario.racks > 1 else ""
        ranks = ", ".join(map(str, scenario.slots))
        return (
            f"{len(scenario.slots)} emulated hosts of {ranks} ranks in {scenario.racks} rack(s), "
            f"links of {scenario.host_rate}{uplinks}"
        )

    def hosts(self, *, more: int = 0, described: bool = True) -> list[str]:
        slots = list(self._scenario.slots)
        slots[0] += more
        arguments = ["-H", ",".join(f"{h}:{n}" for h, n in zip(self._scenario.hosts, slots, strict=True))]
        # What an administrator writes down once for a site; only DDL has a place to be told it.
        described = described and self.racks > 1
        return [*arguments, "-ddloption", f"-topology {self._topology}"] if described else arguments

    def on_first_host(self, command: Sequence[str]) -> list[str]:
        return self._testbed.command(self._testbed.sequence[0], list(command))


@contextmanager
def place(scenario: Scenario | None, ranks: int, shared: list[Path]) -> Iterator[Place]:
    """Emulated hosts for the scenario, or this machine where there is none.

    shared: folders below /tmp that the ranks read.
    """
    if scenario is None:
        yield Place(ranks)
        return
    with EmulatedTestbed(scenario, shared) as testbed:
        assert isinstance(testbed, EmulatedTestbed)
        yield EmulatedHosts(testbed)
