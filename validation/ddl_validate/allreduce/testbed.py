"""Where ranks run: on this machine or real hosts as they are, or on emulated hosts that the testbed starts
itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..cluster import Cluster, ClusterError, ClusterSpec, HostSpec, missing_requirements
from ..common.mpi import MPI_AS_ROOT
from .cpu_share import CpuShare
from .errors import BenchError
from .scenarios import Scenario

BINDINGS = ("auto", "cores", "none")

LIFE_SECONDS = 24 * 3600


class Testbed(ABC):
    """A place for the ranks of one scenario; a context manager.

    sequence: the host of each rank, by the name that launchers are given. interface: the network interface
    between the hosts, None where it is not known. folder: a folder that every host sees, removed at the end.
    crowded: whether ranks share cores, so that those that wait must yield. bind: cores, each rank gets cores
    of its own where there are enough; none, all ranks may run on all cores; auto, cores on real hosts alone.
    It is the timing programs that bind, not the launchers, so that it is the same for every peer. share:
    slows down what is started.
    """

    # Whether several hosts of the scenario are one machine, whose cores their ranks share.
    one_machine = True

    def __init__(
        self,
        scenario: Scenario,
        interface: str | None,
        crowded: bool,
        parent: Path | None,
        bind: str = "auto",
        share: CpuShare | None = None,
    ) -> None:
        self.scenario = scenario
        self.bind = bind
        self.share = share or CpuShare()
        self.interface = interface
        self.crowded = crowded
        self.folder = Path(tempfile.mkdtemp(prefix="ddl-bench.", dir=parent))

    def __enter__(self) -> Testbed:
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def sequence(self) -> list[str]:
        return self.scenario.sequence()

    def hostfile(self) -> Path:
        """A file with the host of each rank, one a line."""
        file = self.folder / "hosts"
        file.write_text("".join(f"{host}\n" for host in self.sequence))
        return file

    @property
    def spans_hosts(self) -> bool:
        return len(set(self.sequence)) > 1

    @property
    def variables(self) -> dict[str, str]:
        """What the ranks of every peer get: each one's place on its machine, where they are bound."""
        if self.bind == "none" or (self.bind == "auto" and self.one_machine):
            return {}
        machines = ["this"] * self.scenario.ranks if self.one_machine else self.sequence
        places = [
            f"{machines[:rank].count(machine)}/{machines.count(machine)}"
            for rank, machine in enumerate(machines)
        ]
        return {"DDL_BENCH_PLACES": ",".join(places)}

    @abstractmethod
    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
        """Start a launcher in a session of its own; standard output and error are pipes of text."""

    def renew(self) -> None:
        """Make sure that nothing of a failed launch disturbs the next one."""
        return None


def _popen(command: Sequence[str], environment: Mapping[str, str] | None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        env=dict(environment) if environment is not None else None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )


class DirectTestbed(Testbed):
    """This machine, or real hosts that the launchers reach by themselves (ssh, or the scheduler's way)."""

    def __init__(
        self,
        scenario: Scenario,
        interface: str | None = None,
        parent: Path | None = None,
        bind: str = "auto",
        share: CpuShare | None = None,
    ) -> None:
        self._here = len(scenario.slots) == 1 and not scenario.names
        self.one_machine = self._here
        if not self._here and share is not None and share.share < 1:
            raise BenchError(
                f"scenario {scenario.name}: --cpu-share slows down the cores of this machine, and its hosts "
                "are others; set their clock by their own means (cpupower frequency-set)"
            )
        crowded = max(scenario.slots) > len(os.sched_getaffinity(0))
        super().__init__(scenario, "lo" if self._here else interface, crowded, parent, bind, share)

    @property
    def sequence(self) -> list[str]:
        return ["localhost"] * self.scenario.ranks if self._here else super().sequence

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
        root = MPI_AS_ROOT if os.getuid() == 0 else {}
        return _popen(self.share.wrap(command), {**os.environ, **root, **environment})


class EmulatedTestbed(Testbed):
    """Hosts in namespaces with shaped links, started on entry and ended on exit. Needs root.

    shared: folders below /tmp that the ranks need, such as that of a prefix; each host has its own /tmp
    otherwise.
    """

    def __init__(
        self,
        scenario: Scenario,
        shared: Sequence[Path] = (),
        bind: str = "auto",
        share: CpuShare | None = None,
    ) -> None:
        crowded = scenario.ranks > len(os.sched_getaffinity(0))
        super().__init__(scenario, "eth0", crowded, None, bind, share)
        folders = [self.folder, *shared]
        self._spec = ClusterSpec(
            hosts=tuple(
                HostSpec(name, slots=slots, rack=scenario.rack_of(index))
                for index, (name, slots) in enumerate(zip(scenario.hosts, scenario.slots, strict=True))
            ),
            link_rate=scenario.host_rate,
            uplink_rate=scenario.uplink_rate,
            shared=tuple(sorted({str(path.resolve()) for path in folders if path.is_dir()})),
            # SHLVL: commands that come by ssh do not read ~/.bashrc, which may change PATH
            environment={"SHLVL": "1", **MPI_AS_ROOT},
            life_seconds=LIFE_SECONDS,
        )
        self._cluster: Cluster | None = None

    def __enter__(self) -> Testbed:
        self._up()
        return self

    def __exit__(self, *error: object) -> None:
        self._down()
        super().__exit__(*error)

    def _up(self) -> None:
        reasons = missing_requirements()
        if reasons:
            raise BenchError(
                f"scenario {self.scenario.name}: no hosts can be emulated here: {'; '.join(reasons)}; on a "
                "real cluster say -H HOST:RANKS,… or --hosts-from scheduler; 1x2 needs no emulation"
            )
        try:
            self._cluster = Cluster(self._spec)
            # the daemons of the hosts start ranks, too
            with self.share.joined():
                self._cluster.up()
        except ClusterError as error:
            raise BenchError(f"scenario {self.scenario.name}: {error}") from error

    def _down(self) -> None:
        if self._cluster is not None:
            self._cluster.down()
            self._cluster = None

    @property
    def _running(self) -> Cluster:
        assert self._cluster is not None, "enter the testbed first"
        return self._cluster

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
        line = self._running.command(self.sequence[0], command, env=environment, cwd=self.folder)
        return _popen(self.share.wrap(line), None)

    def run(self, host: str, command: Sequence[str], timeout: float) -> str:
        """Output of a command on one of the hosts; ClusterError where it fails."""
        return self._running.run(host, command, timeout=timeout, check=True, cwd=self.folder).stdout

    def command(self, host: str, command: Sequence[str]) -> list[str]:
        return self._running.command(host, command, cwd=self.folder)

    def sent_bytes(self) -> dict[str, int]:
        """Bytes that every link has carried so far, in each direction: see ``Cluster.sent_bytes``."""
        return self._running.sent_bytes()

    def renew(self) -> None:
        self._down()
        self._up()
