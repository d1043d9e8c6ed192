"""What every peer of the benchmark is: how to start it on the ranks of a testbed, and in which settings."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from ...common.running import run_text
from ..cpu_share import CpuShare
from ..errors import PeerMissing
from ..scenarios import Scenario
from ..testbed import DirectTestbed, EmulatedTestbed, Testbed

#: Where buffers may lie: in the host's memory, or in that of NVIDIA's GPUs.
MEMORIES = ("host", "cuda")


@dataclass(frozen=True)
class Setting:
    """One way to run a peer. options: variables of the ranks' environment that make it so.

    instead: the setting to take where the peer refuses this one with a text that holds all words of refusal.
    """

    name: str
    options: dict[str, str] = field(default_factory=dict)
    instead: Setting | None = None
    refusal: tuple[str, ...] = ()


@dataclass(frozen=True)
class Launch:
    """A command line that starts all ranks, and the variables that it needs beside the testbed's."""

    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)


def run_tool(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What a program of a prefix prints; PeerMissing where it cannot be run."""
    try:
        return run_text([str(program), *arguments], 60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerMissing(f"{program}: {error}") from error


class Peer(ABC):
    """An all-reduce implementation, installed in a prefix.

    Its ranks speak the protocol of programs/timing.h and take that program's arguments. optional: where it is
    missing and was not asked for by name, the run is complete without it; the report says that it is missing.
    memories: the kinds of memory that it reduces, of MEMORIES. marks: patterns of the files by which a prefix
    that holds it is known. remedy: how to install it, for the error that it is missing.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    optional: ClassVar[bool] = False
    memories: ClassVar[tuple[str, ...]] = ("host",)
    marks: ClassVar[tuple[str, ...]] = ()
    remedy: ClassVar[str] = ""

    #: The format in which it sends, of bounds.WIRE_FORMATS.
    wire: str = "full"
    #: The memory that is measured.
    memory: str = "host"

    def __init__(self, prefix: Path, cache: Path) -> None:
        self.prefix = prefix
        self.cache = cache

    @classmethod
    def found_in(cls, prefix: Path) -> bool:
        """Whether a prefix looks like one that holds the peer."""
        return all(any(prefix.glob(mark)) for mark in cls.marks)

    @abstractmethod
    def version(self) -> str:
        """The version installed; PeerMissing where it cannot be determined."""

    @abstractmethod
    def prepare(self) -> str:
        """Compile what is needed; PeerMissing with the reason where that fails.

        Returns a text that changes whenever something else is installed: times of before count no more.
        """

    def settings(self, testbed: Testbed) -> list[Setting]:
        """The settings that make sense in this testbed, defaults first. May write files into its folder."""
        return [Setting("defaults")]

    @abstractmethod
    def launch(self, testbed: Testbed, setting: Setting, arguments: Sequence[str]) -> Launch:
        """The command that runs the timing loop with these arguments on all ranks of the testbed."""

    def folders(self) -> list[Path]:
        """Folders that every host must see."""
        return [self.prefix, self.cache]


class CompiledPeer(Peer):
    """One whose timing program is compiled with its libraries."""

    @abstractmethod
    def program(self) -> Path:
        """The timing program, compiled at first use."""

    def prepare(self) -> str:
        return self.program().name


def open_testbed(
    scenario: Scenario,
    peers: Sequence[Peer],
    *,
    interface: str | None = None,
    shared: Path | None = None,
    bind: str = "auto",
    share: CpuShare | None = None,
) -> Testbed:
    """The place for a scenario's ranks. shared: a folder that real hosts see."""
    if len(scenario.slots) == 1 or scenario.names:
        return DirectTestbed(scenario, interface, shared if scenario.names else None, bind, share)
    return EmulatedTestbed(scenario, [folder for peer in peers for folder in peer.folders()], bind, share)
