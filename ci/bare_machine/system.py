"""A minimal Debian in a folder, and commands that run in it as on a machine of its own."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wmlce.util.errors import WmlceError

from bare_machine import clone
from bare_machine.mirrors import RELEASES, Mirrors
from bare_machine.settings import Settings

MAKE_LIMIT_S = 900.0
_ENTER = Path(__file__).with_name("enter.sh")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_HEARTBEAT_S = 30.0


@dataclass(frozen=True)
class User:
    """A line of the system's /etc/passwd."""

    name: str
    uid: int
    gid: int
    home: str


@dataclass(frozen=True)
class Ended:
    """How a command ended; `output` is all that it printed."""

    code: int
    output: str
    seconds: float


def need_root() -> None:
    """Making a system and mounting in it is root's right."""
    if os.geteuid() != 0:
        raise WmlceError(
            "ci/bare-machine makes and enters a whole Debian system, which only root can do",
            remedy="run it as root: sudo ci/bare-machine …",
        )


class BareSystem:
    """A system in `folder`."""

    def __init__(self, folder: Path, settings: Settings, say: Callable[[str], None]) -> None:
        self.folder = folder
        self.settings = settings
        self._say = say

    @property
    def complete(self) -> bool:
        """Was it made, to the end?"""
        return self._made.exists()

    @property
    def _made(self) -> Path:
        return self.folder.with_name(self.folder.name + ".made")

    def make(self, release: str, mirrors: Mirrors, packages: Sequence[str] = ()) -> None:
        """Unpack and configure a minimal Debian; nothing of a failed attempt stays."""
        if release not in RELEASES:
            raise WmlceError(
                f"there is no release '{release}' here", remedy=f"choose one of {', '.join(RELEASES)}"
            )
        self.remove()
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        installed = [*packages, *(["ca-certificates"] if mirrors.encrypted else [])]
        # its mounts in a namespace of its own: killed, it unmounts nothing
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--"]
        command += ["mmdebstrap", "--variant=minbase", "--format=directory"]
        command += [f"--include={','.join(installed)}"] if installed else []
        command += ['--aptopt=Acquire::Languages "none"', release, str(self.folder), "-"]
        text = "\n".join(mirrors.lines(release)) + "\n"
        try:
            process = subprocess.run(
                _ends_with_us(command),
                input=text,
                capture_output=True,
                text=True,
                timeout=MAKE_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            self.remove()
            raise WmlceError(
                f"mmdebstrap made no {release} within {MAKE_LIMIT_S:.0f} s",
                remedy="look at the machine's network and mirror, and run the command again",
            ) from None
        if process.returncode != 0:
            self.remove()
            raise WmlceError(
                f"mmdebstrap could not make {release} from {mirrors.archive}",
                detail=process.stderr.splitlines()[-8:],
                remedy="name another mirror: ci/bare-machine --mirror ADDRESS …",
            )
        self.settings.install(self.folder)
        self._made.touch()

    def copy(self, other: BareSystem) -> None:
        """Be a copy of another system."""
        self.remove()
        subprocess.run(["cp", "--archive", "--reflink=auto", "--", other.folder, self.folder], check=True)
        self.settings.install(self.folder)
        self._made.touch()

    def remove(self) -> None:
        """Delete the system. What was mounted in it went with the commands that ran in it.

        Raises:
            WmlceError: Somebody else mounted something in it: deleting would go through the mount.
        """
        if mounted := _mounted_in(self.folder):
            raise WmlceError(
                f"{self.folder} is not deleted: something is mounted in it",
                detail=[str(point) for point in mounted],
                remedy="unmount it: umount " + " ".join(shlex.quote(str(point)) for point in mounted),
            )
        self._made.unlink(missing_ok=True)
        if self.folder.exists():
            subprocess.run(["rm", "-rf", "--one-file-system", "--", str(self.folder)], check=True)

    def user(self, name: str) -> User:
        """The user of that name, who is made if missing."""
        account = self._find_user(name)
        if account is None:
            ended = self.run(["useradd", "--create-home", "--shell", "/bin/bash", "--", name], limit_s=60)
            account = self._find_user(name)
            if ended.code != 0 or account is None:
                raise WmlceError(
                    f"the system in {self.folder} takes no user '{name}'",
                    detail=ended.output.splitlines()[-3:],
                )
        return account

    def _find_user(self, name: str) -> User | None:
        for line in (self.folder / "etc/passwd").read_text().splitlines():
            fields = line.split(":")
            if len(fields) >= 6 and fields[0] == name:
                return User(name, int(fields[2]), int(fields[3]), fields[5])
        return None

    def outside(self, inside: str) -> Path:
        """Where a path of the system lies on this machine."""
        return self.folder / inside.lstrip("/")

    def bring_clone(self, user: User, *, uncommitted: bool) -> str:
        """The project as a clone in the user's home; its path in the system."""
        inside = f"{user.home}/{clone.NAME}"
        target = self.outside(inside)
        if not target.exists():
            part = target.with_name(f".{clone.NAME}.part")
            clone.make(part, uncommitted=uncommitted)
            subprocess.run(["chown", "-R", f"{user.uid}:{user.gid}", "--", str(part)], check=True)
            part.rename(target)
        return inside

    def command(
        self,
        arguments: Sequence[str],
        user: User | None = None,
        *,
        folder: str | None = None,
        environment: Mapping[str, str] | None = None,
        network: bool = True,
        binds: Mapping[Path, str] | None = None,
        before: Sequence[str] = (),
    ) -> list[str]:
        """The command that runs `words` in the system.

        Args:
            words: Program and arguments.
            user: Root, if None.
            folder: Of the system, where it starts; by default the user's home.
            environment: More variables; only these, the machine's settings and a login's few are there.
            network: Without it, there is a loopback of the system's own, and nothing else.
            binds: Files and folders of this machine by where the system shows them, read-only.
            before: A command of this machine that starts all of it.
        """
        user = user or User("root", 0, 0, "/root")
        mounts = {**{path: str(path) for path in sorted(self.settings.folders)}, **(binds or {})}
        variables = {
            "HOME": user.home,
            "USER": user.name,
            "LOGNAME": user.name,
            "PATH": _PATH,
            "LANG": "C.UTF-8",
            "TERM": os.environ.get("TERM", "dumb"),
            "DEBIAN_FRONTEND": "noninteractive",
            **self.settings.environment,
            **(environment or {}),
        }
        spaces = ["--mount", "--pid", "--ipc", *([] if network else ["--net"])]
        command = [
            *before,
            "unshare",
            *spaces,
            "--fork",
            "--kill-child=KILL",
            "--",
            "bash",
            str(_ENTER),
            str(self.folder),
        ]
        command += [str(user.uid), str(user.gid), str(len(mounts))]
        for path, where in mounts.items():
            command += [str(path), where]
        command += ["-i", "--chdir", folder or user.home]
        command += [f"{name}={value}" for name, value in variables.items()]
        return _ends_with_us([*command, *arguments])

    def run(
        self,
        arguments: Sequence[str],
        user: User | None = None,
        *,
        limit_s: float,
        log: Path | None = None,
        folder: str | None = None,
        environment: Mapping[str, str] | None = None,
        network: bool = True,
        binds: Mapping[Path, str] | None = None,
        before: Sequence[str] = (),
    ) -> Ended:
        """Run to the end, or to the limit; every half minute says what it last printed."""
        command = self.command(
            arguments,
            user,
            folder=folder,
            environment=environment,
            network=network,
            binds=binds,
            before=before,
        )
        started = time.monotonic()
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
        target = log or self.folder.with_name(self.folder.name + ".log")
        with target.open("ab") as stream:
            start = stream.tell()
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
            )
            try:
                self._wait(process, target, started, limit_s, " ".join(arguments))
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        with target.open("rb") as stream:
            stream.seek(start)
            output = stream.read().decode(errors="replace")
        if log is None:
            target.unlink()
        return Ended(process.returncode, output, time.monotonic() - started)

    def require(self, ended: Ended, title: str, log: Path) -> Ended:
        """What `run` gave, if the command succeeded; else WmlceError, which begins with `title`."""
        if ended.code != 0:
            raise WmlceError(
                f"{title}: exit code {ended.code}",
                detail=ended.output.splitlines()[-15:],
                log=log,
                remedy=f"look around in {self.folder}",
            )
        return ended

    def _wait(
        self, process: subprocess.Popen[bytes], log: Path, started: float, limit_s: float, title: str
    ) -> None:
        last_report = started
        while True:
            try:
                process.wait(timeout=0.2)
                return
            except subprocess.TimeoutExpired:
                now = time.monotonic()
            if now - started > limit_s:
                raise WmlceError(f"{title}: not ended within {limit_s:.0f} s", log=log)
            if now - last_report >= _HEARTBEAT_S:
                last_report = now
                self._say(f"  … {now - started:.0f} s: {_last_line(log)}")


def _last_line(log: Path) -> str:
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - 2000))
        lines = stream.read().decode(errors="replace").split("\n")
    return next((line.strip()[:140] for line in reversed(lines) if line.strip()), "")


def _mounted_in(folder: Path) -> list[Path]:
    """What is mounted under a folder, the innermost first (proc_pid_mountinfo(5))."""
    inside = []
    for line in os.fsdecode(Path("/proc/self/mountinfo").read_bytes()).splitlines():
        # blanks and backslashes are written as three octal digits
        point = Path(re.sub(r"\\([0-7]{3})", lambda digits: chr(int(digits[1], 8)), line.split()[4]))
        if point.is_relative_to(folder.resolve()):
            inside.append(point)
    return inside[::-1]


def _ends_with_us(command: Sequence[str]) -> list[str]:
    """The command, killed by the kernel should this process die without a chance to end it."""
    return ["setpriv", "--pdeathsig", "KILL", "--", *command]
