"""What a host is: runs on every host of a job, as text sent to its Python, so it imports the standard library
only.

``facts(prefix, package, mpirun)`` returns plain data; run as a program it prints that between two markers,
because login shells print things of their own. Folders of the machine can be given to most functions, so that
they can be shown another machine than this one.
"""

import array
import contextlib
import errno
import fcntl
import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_ROOT = Path("/")
_SYS = Path("/sys")
#: A folder that stands for /: `sys`, `proc/driver/nvidia` and `dev` of another machine.
_ROOT_VARIABLE = "DDLRUN_SYSTEM_ROOT"
_GPU_SECONDS = 6.0
_RESOLVE_SECONDS = 2.0
# Of a folder for temporary files: mpirun needs some, and says no sensible word without.
_LEAST_TEMPORARY = 1 << 20
_SIOCGIFCONF, _SIOCGIFNETMASK = 0x8912, 0x891B
# Hardware types of <linux/if_arp.h>: PPP; IP in IP and its like; none, which WireGuard and tun have.
_LOOPBACK_TYPE, _TUNNEL_TYPES = 772, (512, 768, 769, 776, 778, 823, 0xFFFE)


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except (OSError, ValueError):
        return ""


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _ranges(text: str) -> set[int]:
    """Numbers of a kernel list such as `0-3,8`."""
    numbers: set[int] = set()
    for piece in filter(None, text.split(",")):
        low, _, high = piece.partition("-")
        numbers |= set(range(int(low), int(high or low) + 1))
    return numbers


# ---- processors


def _cgroup_folders(controller: str, sysfs: Path, memberships: str) -> list[Path]:
    """Folders of this process' cgroup and its parents that may limit it, innermost first, as far as they can
    be seen from here: those of version 2, then those of version 1's controller.
    """
    folders = []
    for line in memberships.splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        inside = Path(path.lstrip("/"))
        if ".." in inside.parts:
            inside = Path()
        if number == "0" and not names:
            root = sysfs / "fs/cgroup"
        elif controller in names.split(","):
            root = sysfs / "fs/cgroup" / controller
        else:
            continue
        folders += [root / inside, *(root / parent for parent in inside.parents)]
    return folders or [sysfs / "fs/cgroup"]


def allowed_cpus(sysfs: Path = _SYS, memberships: str | None = None) -> set[int] | None:
    """CPUs that the container or job may use at all, None when unlimited. MPI numbers its cores among these.

    memberships: what /proc/self/cgroup says.
    """
    listing = _read("/proc/self/cgroup") if memberships is None else memberships
    for folder in _cgroup_folders("cpuset", sysfs, listing):
        for name in ("cpuset.cpus.effective", "cpuset.effective_cpus"):
            text = _read(folder / name)
            if text:
                return _ranges(text)
    return None


def quota(sysfs: Path = _SYS, memberships: str | None = None) -> float | None:
    """Cores' worth of time that the container or job gets; None when unlimited."""
    listing = _read("/proc/self/cgroup") if memberships is None else memberships
    quotas = []
    for folder in _cgroup_folders("cpu", sysfs, listing):
        values = _read(folder / "cpu.max").split()
        values = values or [_read(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
        used, period = map(_number, values) if len(values) == 2 else (None, None)
        if used and period and used > 0:
            quotas.append(used / period)
    return min(quotas, default=None)


def _memory_of_slurm(environment: Mapping[str, str]) -> int | None:
    """Bytes of memory that Slurm's job may have on a node; None where it sets no limit. It may end a job that
    takes more, also where no cgroup keeps it from that.
    """
    megabytes = _number(environment.get("SLURM_MEM_PER_NODE", ""))
    if not megabytes:
        per_cpu, cpus = (environment.get(f"SLURM_{name}", "") for name in ("MEM_PER_CPU", "CPUS_ON_NODE"))
        megabytes = (_number(per_cpu) or 0) * (_number(cpus) or 0)
    return megabytes << 20 if megabytes else None


def memory(
    sysfs: Path = _SYS,
    memberships: str | None = None,
    meminfo: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> tuple[int | None, int | None]:
    """Bytes of memory that the container or job may have, and those of them that are free: what the kernel
    can give, and what the limits leave. None where that is not told. meminfo: what /proc/meminfo says.
    """
    text = _read("/proc/meminfo") if meminfo is None else meminfo
    kilobytes = [re.search(rf"{name}:\s+(\d+) kB", text) for name in ("MemTotal", "MemAvailable")]
    total, free = (int(match[1]) * 1024 if match else None for match in kilobytes)
    listing = _read("/proc/self/cgroup") if memberships is None else memberships
    for folder in _cgroup_folders("memory", sysfs, listing):
        names = ("memory.max", "memory.current", "inactive_file")
        if not (folder / names[0]).is_file():
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        limit, used = (_number(_read(folder / name)) for name in names[:2])
        if limit is None:
            continue  # "max"
        total = limit if total is None else min(total, limit)
        # Files that were read long ago make room.
        files = re.search(rf"^{names[2]} (\d+)$", _read(folder / "memory.stat"), re.MULTILINE)
        if used is not None:
            remaining = max(0, limit - used + (int(files[1]) if files else 0))
            free = remaining if free is None else min(free, remaining)
    of_slurm = _memory_of_slurm(environment)
    if of_slurm is not None:
        total = of_slurm if total is None else min(total, of_slurm)
        free = free if free is None else min(free, total)
    return total, free


def _numa_nodes(sysfs: Path) -> dict[int, int]:
    """NUMA node of each CPU. Nodes of memory alone, such as a GPU's, have none."""
    nodes: dict[int, int] = {}
    for folder in (sysfs / "devices/system/node").glob("node[0-9]*"):
        for cpu in _ranges(_read(folder / "cpulist")):
            nodes[cpu] = int(folder.name[4:])
    return nodes


def domains(
    sysfs: Path = _SYS, affinity: set[int] | None = None, allowed: set[int] | None = None
) -> list[dict[str, Any]]:
    """Usable cores by NUMA node: [{"package", "node", "cores", "cpus"}], cores as numbers among all that MPI
    sees here, cpus as the kernel's. affinity: the CPUs this process may run on; allowed: those of its cgroup;
    None: all.

    The order is hwloc's: packages, NUMA nodes, groups sharing the last-level cache, cores, each by its lowest
    CPU. A core's hyperthreads are one core.
    """
    cpus = sysfs / "devices/system/cpu"
    visible = _ranges(_read(cpus / "online")) or set(range(os.cpu_count() or 1))
    visible = visible & allowed if allowed else visible
    nodes = _numa_nodes(sysfs)
    lowest: dict[int, int] = {}
    for cpu in sorted(visible, reverse=True):
        lowest[nodes.get(cpu, -1)] = cpu
    cores: dict[int, tuple[tuple[int, int, int, int], int, int, set[int]]] = {}
    for cpu in sorted(visible):
        topology = cpus / f"cpu{cpu}" / "topology"
        siblings = _ranges(_read(topology / "thread_siblings_list")) & visible or {cpu}
        if min(siblings) in cores:
            continue
        package = min(_ranges(_read(topology / "package_cpus_list")) & visible or {0})
        node = nodes.get(cpu, -1)
        cache = min(_ranges(_read(cpus / f"cpu{cpu}/cache/index3/shared_cpu_list")) & visible or {package})
        socket_number = _number(_read(topology / "physical_package_id"))
        key = (package, lowest[node], cache, min(siblings))
        cores[min(siblings)] = (key, -1 if socket_number is None else socket_number, node, siblings)
    by_node: dict[tuple[int, int], dict[str, Any]] = {}
    for number, (_, package, node, siblings) in enumerate(sorted(cores.values(), key=lambda item: item[0])):
        if affinity is None or siblings & affinity:
            fresh = {"package": package, "node": node, "cores": [], "cpus": []}
            domain = by_node.setdefault((package, node), fresh)
            domain["cores"].append(number)
            domain["cpus"].append(sorted(siblings))
    return list(by_node.values())


def cpu_model(cpuinfo: str) -> str:
    """What the processor is called: x86 and POWER tell a name, ARM numbers."""
    for key in ("model name", "cpu"):
        match = re.search(rf"^{key}\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
        if match:
            return " ".join(match[1].split())
    numbers = [
        match[1]
        for key in ("CPU implementer", "CPU part")
        if (match := re.search(rf"^{key}\s*:\s*(\S+)", cpuinfo, re.MULTILINE))
    ]
    return "ARM " + " ".join(numbers) if numbers else ""


# ---- accelerators


class GpuProbe:
    """gpu_probe.py at work in a process of its own, which nobody waits for longer than some seconds: a driver
    that hangs does not even let it be killed. None is started on a machine without a sign of NVIDIA.
    """

    def __init__(self, root: Path = _ROOT, seconds: float = _GPU_SECONDS) -> None:
        self._end = time.monotonic() + seconds
        self._seconds = seconds
        self._child: subprocess.Popen[bytes] | None = None
        if not self._has_sign(root):
            return
        sent = globals().get("GPU_PROBE")  # put before this text where it is sent to a host
        text = sent or Path(__file__).with_name("gpu_probe.py").read_text()
        # Without a process to spare the host fails in other checks, which say so.
        with contextlib.suppress(OSError):
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", text, str(root)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )

    @staticmethod
    def _has_sign(root: Path) -> bool:
        if any((root / name).exists() for name in ("proc/driver/nvidia/version", "dev/nvidiactl", "dev/dxg")):
            return True
        vendors = (root / "sys/bus/pci/devices").glob("*/vendor")
        return any(
            _read(vendor) == "0x10de" and _read(vendor.with_name("class")).startswith("0x03")
            for vendor in vendors
        )

    def answer(self) -> dict[str, Any] | None:
        """What it tells, with CUDA_VISIBLE_DEVICES as "visible"; None where there is nothing of NVIDIA's."""
        child = self._child
        if child is None:
            return None
        report: dict[str, Any] = {"driver": None, "gpus": [], "nics": []}
        report["nvml"] = {"state": "failed", "said": "the program that asks it died", "code": None}
        try:
            out, _ = child.communicate(timeout=max(0.1, self._end - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            child.kill()
            out = error.output or b""
            report["nvml"] = {"state": "late", "said": f"no answer within {self._seconds:g} s", "code": None}
        for line in out.decode(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                report |= json.loads(line)
        return {**report, "visible": os.environ.get("CUDA_VISIBLE_DEVICES")}


# ---- network


def _addresses_of_interfaces() -> dict[str, tuple[str, int]]:
    """Interface and length of the prefix of each of this host's addresses."""
    owners: dict[str, tuple[str, int]] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        # SIOCGIFCONF lists aliases (eth0:1) too, which the list of interfaces does not.
        buffer = array.array("B", bytes(64 << 10))
        request = struct.pack("iL", len(buffer), buffer.buffer_info()[0])
        used = struct.unpack("iL", fcntl.ioctl(handle.fileno(), _SIOCGIFCONF, request))[0]
        data = buffer.tobytes()[:used]
        for at in range(0, len(data) - 39, 40):
            label = data[at : at + 16]
            try:
                mask = fcntl.ioctl(handle.fileno(), _SIOCGIFNETMASK, label + bytes(240))[20:24]
            except OSError:
                continue
            name = label.split(b"\0", 1)[0].decode(errors="replace").partition(":")[0]
            bits = int.from_bytes(mask, "big").bit_count()
            owners[socket.inet_ntoa(data[at + 20 : at + 24])] = (name, bits)
    for line in _read("/proc/net/if_inet6").splitlines():
        fields = line.split()
        if len(fields) == 6:
            address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(fields[0]))
            owners[address] = (fields[5], int(fields[2], 16))
    return owners


def kind_of_interface(name: str, sysfs: Path = _SYS) -> str:
    """What an interface is: loopback, bridge, tunnel or other."""
    folder = sysfs / "class/net" / name
    number = _number(_read(folder / "type"))
    if number == _LOOPBACK_TYPE:
        return "loopback"
    if (folder / "bridge").is_dir():
        return "bridge"
    return "tunnel" if number in _TUNNEL_TYPES or (folder / "tun_flags").exists() else "other"


def _sources(peers: list[str]) -> list[str]:
    """Own addresses that packets to these hosts carry. The kernel's routes tell; nothing is sent."""
    addresses: list[str] = []

    def ask(peer: str) -> None:
        try:
            for family, kind, _, _, address in socket.getaddrinfo(peer, 9, type=socket.SOCK_DGRAM):
                with socket.socket(family, kind) as trial:
                    trial.connect(address)
                    addresses.append(trial.getsockname()[0].partition("%")[0])
                    return
        except OSError:
            pass

    # Daemon threads: a resolver may hang for longer than anybody wants to wait.
    threads = [threading.Thread(target=ask, args=(peer,), daemon=True) for peer in peers]
    for thread in threads:
        thread.start()
    end = time.monotonic() + _RESOLVE_SECONDS
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return list(addresses)


def interface(name: str, sysfs: Path = _SYS) -> dict[str, Any]:
    """Speed in Mbit/s (None: the interface does not tell) and the largest packet of an interface."""
    folder = sysfs / "class/net" / name
    speed = _number(_read(folder / "speed"))
    return {
        "name": name,
        "speed_mbit": speed if speed and speed > 0 else None,
        "mtu": _number(_read(folder / "mtu")),
    }


def interfaces_to(peers: list[str]) -> set[str]:
    """Names of the interfaces that lead to these hosts; none where that is not known."""
    try:
        owners = _addresses_of_interfaces()
    except OSError:
        return set()
    names = {owners[source][0] for source in _sources(peers) if source in owners}
    names = names - {"lo"} or names
    if not names:
        # A name may mean nothing here; ssh came from somewhere, though.
        connection = os.environ.get("SSH_CONNECTION", "").split()
        names = {owners[connection[2]][0]} if len(connection) == 4 and connection[2] in owners else set()
    return names


def slowest(names: set[str]) -> dict[str, Any] | None:
    """The slowest of these interfaces; None without one."""
    interfaces = [interface(name) for name in sorted(names)]
    return min(interfaces, key=lambda link: link["speed_mbit"] or 1 << 60, default=None)


def networks(leading: set[str]) -> list[dict[str, Any]]:
    """The networks of this host. leading: interfaces that lead to other hosts."""
    try:
        owners = _addresses_of_interfaces()
    except OSError:
        return []
    return [
        {
            "interface": name,
            "address": address,
            "network": _network(address, bits),
            "kind": kind_of_interface(name),
            "leads": name in leading,
        }
        for address, (name, bits) in sorted(owners.items())
        # Each interface has one of those, and all are alike.
        if not address.startswith("fe80:")
    ]


def _network(address: str, bits: int) -> str:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    packed = socket.inet_pton(family, address)
    host_bits = 8 * len(packed) - bits
    number = int.from_bytes(packed, "big") >> host_bits << host_bits
    return f"{socket.inet_ntop(family, number.to_bytes(len(packed), 'big'))}/{bits}"


def fabrics(sysfs: Path = _SYS) -> list[str]:
    """Active InfiniBand, Omni-Path and RoCE ports, such as `mlx5_0 100 Gb/sec (4X EDR)`."""
    ports = []
    for port in sorted((sysfs / "class/infiniband").glob("*/ports/*")):
        if "ACTIVE" in _read(port / "state"):
            ports.append(f"{port.parents[1].name} {_read(port / 'rate')}".strip())
    return ports


# ---- software


def ddl_version(prefix: str, package: str) -> str | None:
    """Version of DDL in the environment, from file names: loading it takes long and could fail. None:
    absent.
    """
    if not (Path(package) / "__init__.py").is_file():
        return None
    for record in sorted(Path(prefix, "conda-meta").glob("ddl-[0-9]*.json")):
        return record.stem.removeprefix("ddl-")
    for folder in (Path(prefix, "lib"), Path(package, "../../lib")):
        for library in sorted(folder.glob("libddl.so.*.*.*")):
            return library.name.removeprefix("libddl.so.")
    return "unknown"


def release(prefix: str) -> str | None:
    """The release that the environment is pinned to, None without one."""
    for record in sorted(Path(prefix, "conda-meta").glob("powerai-release-[0-9]*.json")):
        return record.stem.removeprefix("powerai-release-").rsplit("-", 1)[0]
    return None


def mpi_version(mpirun: str) -> str | None:
    """What mpirun calls itself. None: absent or not able to run."""
    try:
        completed = subprocess.run(
            [mpirun, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=8,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\(([^)]*)\)\s+(\S+)", completed.stdout)
    return f"{match[1]} {match[2]}" if match else None


def loaded(prefix: str, package: str) -> dict[str, str | None]:
    """DDL's library as it is loaded here: its own version {"ddl"}, {"version", "path"} of the MPI library
    that it gets, or {"problem"} where it cannot be loaded.

    It is really loaded, as what the loader finds depends on LD_LIBRARY_PATH, LD_PRELOAD and the system.
    """
    import ctypes

    libraries = [
        library
        for folder in (Path(prefix, "lib"), Path(package, "../../lib"), Path(package))
        for library in sorted(folder.glob("libddl.so*"))
    ]
    if not libraries:
        return {}
    try:
        ddl = ctypes.CDLL(str(libraries[0]), mode=os.RTLD_LAZY)
        ddl.ddl_version.restype = ctypes.c_char_p
        paths = {line.split()[-1] for line in _read("/proc/self/maps").splitlines() if "libmpi.so" in line}
        versions = {"ddl": ddl.ddl_version().decode(errors="replace")}
        if not paths:
            return versions
        path = sorted(paths)[0]
        text, length = ctypes.create_string_buffer(8192), ctypes.c_int()
        ctypes.CDLL(path).MPI_Get_library_version(text, ctypes.byref(length))
        banner = text.value.decode(errors="replace")
        match = re.match(r"(.*?),? v?(?:ersion:?\s*)?(\d[\w.]*)", banner)
        return versions | {"version": f"{match[1]} {match[2]}" if match else banner[:60], "path": path}
    except (OSError, AttributeError) as error:
        return {"problem": str(error)[:300]}


# ---- all of it


def _glibc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except ValueError:
        return ""


def _room(path: str) -> tuple[int, int] | None:
    """Bytes that are free for this user, and all, of the file system at a path."""
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize


def _temporary() -> dict[str, Any]:
    """The folder for temporary files: its place, what forbids to make a file in it, its free bytes."""
    folder = os.environ.get("TMPDIR") or "/tmp"
    trial = os.path.join(folder, f".ddlrun.{os.getpid()}.{time.monotonic_ns()}")
    problem = None
    try:
        handle = os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(handle, b"x")
        finally:
            os.close(handle)
            os.unlink(trial)
    except OSError as error:
        problem = error.strerror or str(error)
    room = _room(folder)
    if room and room[0] < _LEAST_TEMPORARY:
        problem = problem or os.strerror(errno.ENOSPC)
    return {"folder": folder, "problem": problem, "free_bytes": room[0] if room else None}


def identity() -> str:
    """What only one host has, whatever it is called."""
    parts = [socket.gethostname(), _read("/proc/sys/kernel/random/boot_id")]
    with contextlib.suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/net"))
    return " ".join(parts)


def folder_problem(folder: str | None) -> str | None:
    """Why programs cannot start in a folder of this host; None where they can, or where none is named."""
    if folder is None or os.path.isdir(folder):
        return None
    return "it is no folder" if os.path.exists(folder) else "it does not exist"


def facts(
    prefix: str,
    package: str,
    mpirun: str | None,
    peers: list[str] | None = None,
    load: bool = False,
    gpus: bool = True,
) -> dict[str, Any]:
    """Everything about this host. peers: hosts that it is to reach. load: load DDL's library, to see which
    MPI it gets; only in a process that does nothing else. gpus: look at these too.
    """
    other = os.environ.get(_ROOT_VARIABLE)
    root = Path(other or _ROOT)
    looking = GpuProbe(root) if gpus else None
    total, free = memory()
    shm = _room("/dev/shm") if os.path.isdir("/dev/shm") else None
    leading = interfaces_to(peers) if peers else set()
    return {
        "name": socket.gethostname(),
        "machine": os.uname().machine,
        "glibc": _glibc(),
        "python": ".".join(map(str, sys.version_info[:3])),
        "cpu": cpu_model(_read("/proc/cpuinfo")),
        "domains": domains(root / "sys")
        if other
        else domains(affinity=os.sched_getaffinity(0), allowed=allowed_cpus()),
        "quota": quota(),
        "memory_bytes": total,
        "memory_free_bytes": free,
        "shm_free_bytes": shm[0] if shm else None,
        "shm_bytes": shm[1] if shm else None,
        "temporary": _temporary(),
        "interface": slowest(leading),
        "networks": networks(leading) if peers else [],
        "identity": identity(),
        "folder_problem": folder_problem(os.environ.get("DDLRUN_FOLDER")),
        "fabrics": fabrics(root / "sys"),
        "release": release(prefix),
        "ddl": ddl_version(prefix, package),
        "mpi": mpi_version(mpirun) if mpirun else None,
        "loaded": loaded(prefix, package) if load else {},
        # asked last: it had the time of all the others
        "gpus": looking.answer() if looking else None,
    }


if __name__ == "__main__":
    _nonce, _prefix, _package, _mpirun, *_peers = sys.argv[1:]
    _found = facts(_prefix, _package, _mpirun, _peers, load=True)
    _found["clock"] = time.time()
    _mark = f"@@ddlrun:{_nonce}@@"
    # A library that was loaded may have threads or handlers of its own, which the end must not wait for.
    sys.stdout.write(f"\n{_mark}{json.dumps(_found)}{_mark}\n")
    sys.stdout.flush()
    os._exit(0)
