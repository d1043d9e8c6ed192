"""Where the ranks run: the cores of this machine, or emulated hosts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..allreduce.scenarios import Scenario
from ..allreduce.testbed import EmulatedTestbed
from .configurations import Configuration


class Place:
    """This machine, with all ranks on it, each on a core of its own where there are enough."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks

    @property
    def text(self) -> str:
        return f"{self.ranks} ranks of this machine, a core each"

    def options(self) -> list[str]:
        """Words for ddlrun: which ranks, and what they need here."""
        return ["-np", str(self.ranks), "-cores", "1"]

    def command(self, prefix: Path, configuration: Configuration, program: list[str]) -> list[str]:
        """The command line that starts the ranks of a configuration, of the environment `prefix`."""
        if configuration.by_horovodrun:
            start = [str(prefix / "bin/horovodrun"), "-np", str(self.ranks)]
            # it looks for mpirun there
            path = f"PATH={prefix / 'bin'}:{os.environ.get('PATH', '/usr/bin:/bin')}"
            return ["env", path, "TF_CPP_MIN_LOG_LEVEL=2", *start, str(prefix / "bin/python"), *program]
        passed = {"TF_CPP_MIN_LOG_LEVEL": "2", **configuration.variables}
        variables = [word for name, value in passed.items() for word in ("-x", f"{name}={value}")]
        return self._on_first_host(
            [str(prefix / "bin/ddlrun"), *self.options(), *variables, str(prefix / "bin/python"), *program]
        )

    def _on_first_host(self, words: list[str]) -> list[str]:
        return words


class EmulatedHosts(Place):
    """Hosts in network namespaces with shaped links, reached by ssh."""

    def __init__(self, testbed: EmulatedTestbed) -> None:
        self._testbed, self._scenario = testbed, testbed.scenario
        super().__init__(testbed.scenario.ranks)
        self._topology = testbed.folder / "topology.json"
        self._topology.write_text(json.dumps(testbed.scenario.topology()))

    @property
    def text(self) -> str:
        one = self._scenario
        return (
            f"{len(one.slots)} emulated hosts of {', '.join(map(str, one.slots))} ranks in {one.racks} "
            f"rack(s), links of {one.host_rate}, rack uplinks of {one.uplink_rate}"
        )

    def options(self) -> list[str]:
        one = self._scenario
        hosts = ",".join(f"{host}:{slots}" for host, slots in zip(one.hosts, one.slots, strict=True))
        words = ["-H", hosts, "-cores", "1", "-x", "GLOO_SOCKET_IFNAME=eth0"]
        # What an administrator writes down once for a site; only DDL has a place to be told it.
        return [*words, "-ddloption", f"-topology {self._topology}"] if one.racks > 1 else words

    def _on_first_host(self, words: list[str]) -> list[str]:
        return self._testbed.command(self._testbed.sequence[0], words)


@contextmanager
def place(scenario: Scenario | None, ranks: int, shared: list[Path]) -> Iterator[Place]:
    """Emulated hosts for the scenario, or this machine where there is none.

    shared: folders below /tmp that the ranks read.
    """
    if scenario is None:
        yield Place(ranks)
        return
    testbed = EmulatedTestbed(scenario, shared)
    with testbed:
        yield EmulatedHosts(testbed)
