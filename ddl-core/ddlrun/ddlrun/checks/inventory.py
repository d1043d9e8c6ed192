"""What a host said about itself, checked: the probe's answer came through other people's shells."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..networks import Network
from ..networks import parse as parse_networks
from ..plain_text import plain
from . import gpus
from .gpus import Gpu, GpuReport


@dataclass(frozen=True)
class Domain:
    """Usable cores of one NUMA node. package, node: the kernel's numbers, -1 where it gives none. cores:
    numbers among all cores of the host, as MPI counts them. cpus: the kernel's numbers of each core's
    hyperthreads.
    """

    package: int
    node: int
    cores: tuple[int, ...]
    cpus: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Interface:
    """The network interface that leads to the other hosts. speed_mbit: None where it does not tell."""

    name: str
    speed_mbit: int | None
    mtu: int | None


@dataclass(frozen=True)
class HostInventory:
    """What a host is; see probe.facts. None and empty: not known, or not there.

    gpus: that ranks use, in the order in which they number them. gpus_shared: several ranks may use one.
    quota: cores' worth of time, None: no limit. loaded_ddl, loaded_mpi: what the libraries themselves say.
    identity: the same only for other names of it. folder_problem: why -wdir cannot be its folder.
    clock_s: by how much its clock is ahead of ours beyond what the answer's way explains.
    """

    name: str
    domains: tuple[Domain, ...]
    machine: str = ""
    glibc: str = ""
    python: str = ""
    cpu: str = ""
    quota: float | None = None
    gpus: tuple[Gpu, ...] = ()
    gpus_shared: bool = False
    gpu_report: GpuReport | None = None
    memory_bytes: int | None = None
    memory_free_bytes: int | None = None
    shm_bytes: int | None = None
    shm_free_bytes: int | None = None
    temporary: str = ""
    temporary_problem: str | None = None
    temporary_free_bytes: int | None = None
    interface: Interface | None = None
    networks: tuple[Network, ...] = ()
    identity: str = ""
    folder_problem: str | None = None
    fabrics: tuple[str, ...] = ()
    release: str | None = None
    ddl: str | None = None
    mpi: str | None = None
    loaded_ddl: str | None = None
    loaded_mpi: str | None = None
    loaded_mpi_path: str | None = None
    load_problem: str | None = None
    clock_s: float = 0.0
    seconds: float = field(default=0.0, compare=False)

    @property
    def core_count(self) -> int:
        return sum(len(domain.cores) for domain in self.domains)

    @property
    def accelerators(self) -> int:
        return len(self.gpus)

    @property
    def driver(self) -> str | None:
        """Version of NVIDIA's driver."""
        return self.gpu_report.driver if self.gpu_report else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return plain(value) if isinstance(value, str) else None


def parse(answer: Mapping[str, Any]) -> HostInventory:
    """The facts of a probe's answer. Raises ValueError where it is not one."""
    try:
        domains = tuple(
            Domain(
                int(entry["package"]),
                int(entry["node"]),
                tuple(map(int, entry["cores"])),
                tuple(tuple(map(int, cpus)) for cpus in entry["cpus"]),
            )
            for entry in answer["domains"]
        )
        nodes = {cpu: domain.node for domain in domains for cpus in domain.cpus for cpu in cpus}
        gpu_report = gpus.parse(answer["gpus"], nodes)
        quota = None if answer["quota"] is None else float(answer["quota"])
        link, temporary, loaded = answer["interface"], answer["temporary"], answer["loaded"]
        interface = (
            Interface(plain(link["name"]), _whole(link["speed_mbit"]), _whole(link["mtu"])) if link else None
        )
        return HostInventory(
            name=plain(answer["name"]),
            domains=domains,
            machine=plain(answer["machine"]),
            glibc=plain(answer["glibc"]),
            python=plain(answer["python"]),
            cpu=plain(answer["cpu"]),
            quota=quota,
            gpus=gpu_report.chosen if gpu_report else (),
            gpu_report=gpu_report,
            memory_bytes=_whole(answer["memory_bytes"]),
            memory_free_bytes=_whole(answer["memory_free_bytes"]),
            shm_bytes=_whole(answer["shm_bytes"]),
            shm_free_bytes=_whole(answer["shm_free_bytes"]),
            temporary=plain(temporary["folder"]),
            temporary_problem=_text(temporary["problem"]),
            temporary_free_bytes=_whole(temporary["free_bytes"]),
            interface=interface,
            networks=parse_networks(answer["networks"]),
            identity=plain(answer["identity"]),
            folder_problem=_text(answer["folder_problem"]),
            fabrics=tuple(map(plain, answer["fabrics"])),
            release=_text(answer["release"]),
            ddl=_text(answer["ddl"]),
            mpi=_text(answer["mpi"]),
            loaded_ddl=_text(loaded.get("ddl")),
            loaded_mpi=_text(loaded.get("version")),
            loaded_mpi_path=_text(loaded.get("path")),
            load_problem=_text(loaded.get("problem")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"not understood: {error!r}") from error
