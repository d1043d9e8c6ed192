"""`ddlrun -doctor`: does this environment, in an image or not, fit the machine around it? Starts nothing.

Each finding says what there is and, where that is not enough, what to do. What only other hosts can tell is
the business of -check.
"""

import json
import os
import resource
import shutil
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..command_line.options import Options
from ..environment import Environment, current
from ..errors import Code, LaunchError
from ..hosts.host_list import Host, HostList
from ..image import Image
from . import diagnostics, gpu_checks, preflight
from .gpus import GpuReport
from .inventory import HostInventory
from .remote_probe import ProbeSettings

_LABELS = Path("/usr/share/ibm-wml-ce/image.json")
_DEVICES = Path("/dev/infiniband")
_PROVIDERS = ("/etc/libibverbs.d", "/usr/lib/x86_64-linux-gnu/libibverbs", "/usr/lib64/libibverbs")
_SCHEDULERS = {"SLURM_JOB_ID": "srun", "LSB_JOBID": "jsrun", "FLUX_URI": "flux"}
_LEAST_SHM = 2
_FEWEST_FOR_LINKS = 2
_OF_DRIVER = (Code.NO_DRIVER, Code.OLD_DRIVER, Code.GPU_FAILURE)


@dataclass(frozen=True)
class Finding:
    """What an examination has found.

    Attributes:
        subject: What was examined.
        level: ok, note or problem.
        observation: What there is.
        remedy: What to do where that is not enough.
    """

    subject: str
    level: str
    observation: str
    remedy: str = ""

    def as_data(self) -> dict[str, str]:
        """The finding as `ddlrun -doctor -json` prints it."""
        return {
            "subject": self.subject,
            "level": self.level,
            "found": self.observation,
            "remedy": self.remedy,
        }


def run(options: Options) -> int:
    """Print the findings; the exit code: 1 where something forbids a start."""
    findings = list(examine(current(), os.environ))
    if options.json:
        print(json.dumps([finding.as_data() for finding in findings], indent=1))
    else:
        width = max(len(finding.subject) for finding in findings)
        for finding in findings:
            remedy = f"; {finding.remedy}" if finding.remedy else ""
            print(f"{finding.level:<8} {finding.subject:<{width}}  {finding.observation}{remedy}")
    return 1 if any(finding.level == "problem" for finding in findings) else 0


def examine(environment: Environment, variables: Mapping[str, str]) -> Iterator[Finding]:
    image = environment.image
    yield from _image(image, variables)
    name = socket.gethostname()
    inspection = preflight.Inspection(ProbeSettings(variables.get("LD_LIBRARY_PATH")))
    hosts = HostList((Host(name),), "this host")
    report = preflight.look_at(hosts, {name}, environment, lambda _: None, inspection)
    for failed in report.failed.values():
        yield Finding("environment", "problem", failed.problem, failed.remedy)
    if inventory := report.facts.get(name):
        yield from _software(inventory, environment)
        yield from _memory(inventory)
        yield from _folders(inventory)
        yield from _gpus(inventory, image, environment.is_for_gpus)
        yield from _fabrics(inventory, image)
    yield from _ways(image, variables)


def _image(image: Image | None, variables: Mapping[str, str]) -> Iterator[Finding]:
    if image is None:
        yield Finding("image", "ok", "none around")
        return
    try:
        labels = json.loads(_LABELS.read_text())
        origin = f", release {labels['release']}, lock {labels['lock'][:12]}"
    except (OSError, ValueError, KeyError, TypeError):
        origin = ", not made by wmlce"
    yield Finding("image", "ok", f"{image.path}{origin}")
    binds = variables.get("APPTAINER_BIND") or variables.get("SINGULARITY_BIND")
    yield Finding("bound into it", "ok", binds or "nothing by you")
    yield Finding("other hosts enter it by", "ok", " ".join(image.exec_command()))


def _software(inventory: HostInventory, environment: Environment) -> Iterator[Finding]:
    yield Finding("C library", "ok", f"{inventory.glibc}, kernel {os.uname().release}")
    path = inventory.loaded_mpi_path or ""
    if inventory.load_problem or not path:
        return  # told already
    is_of_environment = os.path.realpath(path).startswith(f"{os.path.realpath(environment.prefix)}/")
    origin = "of the environment" if is_of_environment else f"of the site, from {path}"
    yield Finding("MPI", "ok", f"{inventory.loaded_mpi} {origin}, as mpirun")


def _memory(inventory: HostInventory) -> Iterator[Finding]:
    needed = diagnostics.shm_needed(_LEAST_SHM)
    free = inventory.shm_free_bytes
    enough = free is not None and free >= needed
    yield Finding(
        "/dev/shm",
        "ok" if enough else "problem",
        f"{diagnostics.size(free)} of {diagnostics.size(inventory.shm_bytes)} free"
        if free is not None
        else "absent",
        "" if enough else "let the image see the host's: no --contain, or --bind /dev/shm",
    )
    for text in diagnostics.shortages({inventory.name: inventory}):
        yield Finding("memory", "note", text)


def _folders(inventory: HostInventory) -> Iterator[Finding]:
    cwd, logical_cwd = os.getcwd(), os.environ.get("PWD", "")
    writable = os.access(cwd, os.W_OK)
    yield Finding(
        "working folder",
        "ok" if writable else "note",
        cwd if writable else f"{cwd} cannot be written to",
        "" if writable else f"bind a folder of yours: --bind {logical_cwd or '/scratch/me'}",
    )
    home = os.path.expanduser("~")
    has_home = os.path.isdir(home)
    yield Finding(
        "home folder",
        "ok" if has_home else "note",
        home if has_home else f"{home} is not here",
        "" if has_home else "ssh finds no key without it; bind it",
    )
    yield Finding(
        "temporary files",
        "ok",
        f"{inventory.temporary}, {diagnostics.size(inventory.temporary_free_bytes)} free",
    )


def _gpus(inventory: HostInventory, image: Image | None, needed: bool) -> Iterator[Finding]:
    """needed: the environment is built for GPUs, so that a job does not start without."""
    report = inventory.gpu_report
    bad = "problem" if needed else "note"
    error = gpu_checks.problem(inventory.name, inventory)
    if report is None or (report.driver is None and not report.on_bus):
        remedy = error.remedy if error and needed else ""
        yield Finding("GPU driver", bad if needed else "ok", "the host has no NVIDIA driver", remedy)
        return
    cuda = f", CUDA {gpu_checks.cuda_text(report.cuda)}" if report.cuda else ""
    if error and error.code in _OF_DRIVER:
        remedy = error.remedy
        if image and report.nvml == "absent":
            remedy = "start the image with --nv"
        yield Finding("GPU driver", bad, error.problem, remedy)
    else:
        late = f"; it gave {report.said}" if report.nvml == "late" else ""
        yield Finding("GPU driver", "note" if late else "ok", f"{report.driver}{cuda}{late}")
    if report.driver is None:
        return
    yield from _seen_gpus(inventory, report, error if error and error.code not in _OF_DRIVER else None, bad)


def _seen_gpus(
    inventory: HostInventory, report: GpuReport, error: LaunchError | None, bad: str
) -> Iterator[Finding]:
    kinds = Counter(
        gpu.model + (f" of {diagnostics.size(gpu.memory_bytes)}" if gpu.memory_bytes else "")
        for gpu in report.usable
    )
    summary = ", ".join(f"{count} x {kind}" for kind, count in kinds.items()) or "none"
    if error:
        yield Finding("GPUs", bad, f"{summary}; {error.problem}", error.remedy)
    elif report.visible is not None:
        chosen = ", ".join(str(gpu.number) for gpu in report.chosen)
        yield Finding("GPUs", "ok", f"{summary}; CUDA_VISIBLE_DEVICES chooses {chosen}")
    else:
        yield Finding("GPUs", "ok", summary)
    if report.closed:
        yield Finding("other GPUs", "ok", f"{report.closed} that this job may not use")
    for text in report.broken:
        yield Finding("other GPUs", "note", text, "see what `nvidia-smi` says")
    if report.nvml != "ok" or len(report.usable) < _FEWEST_FOR_LINKS:
        return
    uneven = gpu_checks.uneven_links(report)
    yield Finding(
        "NVLink",
        "note" if uneven else "ok",
        gpu_checks.nvlink_text(report) + (f"; {uneven}" if uneven else ""),
        "see what `nvidia-smi nvlink -s` says, and restart the host" if uneven else "",
    )


def _fabrics(inventory: HostInventory, image: Image | None) -> Iterator[Finding]:
    if not inventory.fabrics:
        yield Finding("fabric", "ok", "no active InfiniBand, Omni-Path or RoCE port")
        return
    named = ", ".join(inventory.fabrics)
    if not _DEVICES.is_dir():
        yield Finding("fabric", "problem", f"{named}, but no {_DEVICES}", f"bind it: --bind {_DEVICES}")
    elif not any(os.path.isdir(folder) and os.listdir(folder) for folder in _PROVIDERS):
        where = "the image" if image else "this system"
        yield Finding(
            "fabric",
            "problem",
            f"{named}, but {where} has no drivers for it (libibverbs)",
            "bind the site's, see docs/cluster/image-admin.md",
        )
    else:
        yield Finding("fabric", "ok", named)
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft != resource.RLIM_INFINITY and soft < 1 << 30:
        yield Finding(
            "locked memory",
            "problem",
            f"limited to {diagnostics.size(soft)}",
            "fabrics need `ulimit -l unlimited`",
        )


def _ways(image: Image | None, variables: Mapping[str, str]) -> Iterator[Finding]:
    """How ranks are started, here and on other hosts."""
    size = variables.get("PMI_SIZE", "")
    if size not in ("", "1") and "PMIX_NAMESPACE" not in variables:
        yield Finding(
            "launcher around",
            "problem",
            f"it says that there are {size} ranks, and speaks no PMIx: each would be alone",
            "start them by ddlrun, by the mpirun of an Open MPI, or by srun --mpi=pmix",
        )
    elif "PMIX_NAMESPACE" in variables:
        maker = variables.get("OMPI_VERSION") or variables.get("PMIX_VERSION") or "unknown"
        named = "Open MPI" if "OMPI_VERSION" in variables else "PMIx"
        yield Finding("launcher around", "ok", f"{named} {maker}, which this MPI understands")
    for variable, program in _SCHEDULERS.items():
        if variables.get(variable) and image and shutil.which(program) is None:
            yield Finding(
                "scheduler",
                "note",
                f"{program} is not in the image: ranks on other hosts start by ssh",
                f"to start them by {program}: ddlrun -image {image.path} -launcher {program} outside of it",
            )
    if shutil.which("ssh") is None:
        yield Finding("ssh", "note", "not found on PATH", "ranks start on this host only")
    elif image and not _is_mounted("/etc/ssh"):
        yield Finding(
            "ssh",
            "ok",
            "with your ~/.ssh; the host's /etc/ssh (host keys of the site) is not bound: --bind /etc/ssh",
        )
    else:
        yield Finding("ssh", "ok", "found")


def _is_mounted(path: str) -> bool:
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return False
    return any(
        len(fields) > 4 and fields[4] in (path, f"{path}/ssh_config") for fields in map(str.split, lines)
    )
