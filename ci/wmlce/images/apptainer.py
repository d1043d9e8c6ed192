"""Apptainer, which builds and runs images: the site's own where there is one, else Debian's, fetched by name.

Debian 12 has no Apptainer. That of the next releases runs on it when two symbols are pointed to older names,
which serves machines that build and test; a cluster has its own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wmlce.images import debian
from wmlce.images.symbol_versions import relax_glibc
from wmlce.util import debian_archive
from wmlce.util.errors import WmlceError
from wmlce.util.files import disk_errors, remove_tree, scratch_beside
from wmlce.util.host import glibc_version
from wmlce.util.layout import Layout
from wmlce.util.locks import file_lock

VARIABLE = "WMLCE_APPTAINER"
_NAMES = ("apptainer", "singularity")
_SYSTEM = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
#: Program of the runtime, and the Debian package that has it.
_HELPERS = {"mksquashfs": "squashfs-tools", "unsquashfs": "squashfs-tools", "squashfuse": "squashfuse"}
_LAST_CAPABILITY = Path("/proc/sys/kernel/cap_last_cap")
#: By the kernel's numbers, from 0.
_CAPABILITIES = (
    "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE "
    "NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT "
    "SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE "
    "AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ "
    "PERFMON BPF CHECKPOINT_RESTORE"
)


@dataclass(frozen=True)
class Runtime:
    """program: apptainer or singularity. version: what it calls itself."""

    program: Path
    version: str

    def environment(self) -> dict[str, str]:
        """Variables under which it works for this user on this machine."""
        return {**os.environ, **missing_capabilities()}


def missing_capabilities() -> dict[str, str]:
    """A root without all capabilities (in a container) has to say that it does not want the others either."""
    if os.geteuid() != 0:
        return {}
    try:
        status = Path("/proc/self/status").read_text()
        last = int(_LAST_CAPABILITY.read_text())
        bound = int(status.split("CapBnd:", 1)[1].split()[0], 16)
    except (OSError, ValueError, IndexError):
        return {}
    capabilities = _CAPABILITIES.split()[: last + 1]
    lacking = [f"CAP_{name}" for number, name in enumerate(capabilities) if not bound >> number & 1]
    return {"APPTAINER_DROP_CAPS": ",".join(lacking)} if lacking else {}


def _ask_version(program: Path) -> str:
    try:
        answer = subprocess.run(
            [str(program), "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WmlceError(
            f"{program} cannot be run: {error}", remedy=f"name another one in {VARIABLE}"
        ) from error
    if answer.returncode != 0:
        raise WmlceError(
            f"{program} --version ended with code {answer.returncode}",
            detail=answer.stderr.splitlines()[-3:],
            remedy=f"name another one in {VARIABLE}, or fetch one: wmlce image apptainer",
        )
    return answer.stdout.strip()


def fetched(layout: Layout) -> Path | None:
    """Where `fetch` puts the locked one; None where the clone locks none."""
    if not debian.lock_path(layout).is_file():
        return None
    (item,) = debian.locked(layout, ["apptainer"])
    return layout.cache / "apptainer" / item.file.sha256[:16]


def find(layout: Layout) -> Runtime:
    """The runtime of this machine: $WMLCE_APPTAINER, else on PATH, else the fetched one."""
    named = os.environ.get(VARIABLE)
    if named:
        program = shutil.which(named)
        if program is None:
            raise WmlceError(
                f"{VARIABLE} names {named}, which is not a program", remedy="correct it, or unset it"
            )
        return Runtime(Path(program), _ask_version(Path(program)))
    program = next(filter(None, (shutil.which(name) for name in _NAMES)), None)
    program = program or next(filter(None, (shutil.which(name, path=_SYSTEM) for name in _NAMES)), None)
    fetched_folder = fetched(layout) if program is None else None
    if fetched_folder is not None and os.access(fetched_folder / "usr/bin/apptainer", os.X_OK):
        program = str(fetched_folder / "usr/bin/apptainer")
    if program is None:
        raise WmlceError(
            "there is no Apptainer on this machine",
            remedy=f"load its module, name it in {VARIABLE}, or, on Debian: wmlce image apptainer",
        )
    return Runtime(Path(program), _ask_version(Path(program)))


def ask(
    runtime: Runtime,
    arguments: Sequence[str],
    *,
    limit_s: float,
    title: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    answers: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run it to its end, whatever its exit code is. answers: what it reads from standard input."""
    try:
        return subprocess.run(
            [str(runtime.program), *arguments],
            env={**runtime.environment(), **(env or {})},
            cwd=cwd,
            input=answers,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except OSError as error:
        raise WmlceError(
            f"{title}: {runtime.program} cannot be run: {error.strerror}", remedy="install Apptainer again"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise WmlceError(
            f"{title}: did not finish within {limit_s:.0f} s", remedy="see what it waits for"
        ) from error


def run(
    runtime: Runtime,
    arguments: Sequence[str],
    *,
    limit_s: float,
    title: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> str:
    """Run it to its end; standard output. Raises WmlceError with its last words."""
    answer = ask(runtime, arguments, limit_s=limit_s, title=title, env=env, cwd=cwd)
    if answer.returncode != 0:
        raise WmlceError(
            f"{title}: {runtime.program.name} ended with code {answer.returncode}",
            detail=answer.stderr.splitlines()[-6:],
            remedy="see the lines above; `apptainer --debug` prints more",
        )
    return answer.stdout


def fetch(layout: Layout, *, say: Callable[[str], None]) -> Runtime:
    """Have the locked Apptainer of Debian in the cache. Needs no rights; the machine's own packages stay."""
    (package,) = debian.fetch(layout, ["apptainer"], say)
    home = layout.cache / "apptainer" / package.sha256[:16]
    with (
        disk_errors(f"unpacking Apptainer into {home}"),
        file_lock(layout.locks / "apptainer.lock", "fetching Apptainer", say=say),
    ):
        if not os.access(home / "usr/bin/apptainer", os.X_OK):
            with scratch_beside(home) as scratch:
                _unpack(package.path, scratch / "root")
                # Apptainer refuses settings that others could have written
                (scratch / "root").chmod(0o755)
                remove_tree(home)
                os.rename(scratch / "root", home)
    return Runtime(home / "usr/bin/apptainer", _ask_version(home / "usr/bin/apptainer"))


def _unpack(package: Path, root: Path) -> None:
    debian_archive.unpack(package, root)
    usr = root / "usr"
    libraries = next(usr.glob("lib/*/apptainer"))
    for program in (usr / "bin/apptainer", libraries / "bin/starter"):
        relax_glibc(program, glibc_version())
    # the command looks for its settings two folders above itself, the starter in one below
    for name in ("etc", "var"):
        if (root / name).is_dir() and not (usr / name).exists():
            os.rename(root / name, usr / name)
        (usr / name).mkdir(exist_ok=True)
        link = usr / "lib" / name
        if not link.is_symlink():
            link.symlink_to(f"../{name}")
    (usr / "bin/singularity").unlink(missing_ok=True)
    (usr / "bin/singularity").symlink_to("apptainer")


def missing_helpers() -> list[str]:
    """What images need on this machine besides the runtime, each with its remedy."""
    missing = []
    for program, package in _HELPERS.items():
        if shutil.which(program) is None and shutil.which(program, path=_SYSTEM) is None:
            missing.append(f"{program} not found (Debian package {package})")
    return missing


_LABEL = re.compile(r"^(?P<name>[A-Za-z0-9._-]+): (?P<value>.*)$")


def labels(runtime: Runtime, image: Path) -> dict[str, str]:
    """The labels of an image."""
    output = run(runtime, ["inspect", "--labels", str(image)], limit_s=60, title=f"reading {image}")
    return {match["name"]: match["value"] for line in output.splitlines() if (match := _LABEL.match(line))}
