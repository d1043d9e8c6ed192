"""Starting, using and removing an emulated cluster."""

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import network, scheduling, ssh
from .errors import ClusterError
from .process import in_namespaces, start_time, tool
from .requirements import HOST_NAMESPACES, missing_requirements, program
from .spec import ClusterSpec, HostSpec

_FABRIC = "fabric"
_START_SECONDS = 20.0
# ddl-bench is installed with this package under another name.
_PACKAGE = __name__.rpartition(".")[0]
_PACKAGE_PATH = Path(__file__).resolve().parents[len(_PACKAGE.split("."))]


class Cluster:
    """An emulated cluster; a context manager. Needs root: ``missing_requirements()`` tells beforehand.

    state: folder of keys, settings and logs, made when absent; a fresh one below the temporary folder by
    default. tied: the cluster ends when this process does, even when it is killed. Otherwise only ``down`` or
    its life ends it.
    """

    def __init__(self, spec: ClusterSpec, state: Path | None = None, tied: bool = True) -> None:
        self.spec = spec
        self.state = Path(state) if state else Path(tempfile.mkdtemp(prefix="cluster."))
        self._tied = tied
        self._pids: dict[str, tuple[int, int]] = {}
        self._lifeline: int | None = None
        self._group: Path | None = None
        self._limited: dict[str, Path] = {}

    # ---- life

    def __enter__(self) -> "Cluster":
        self.up()
        return self

    def __exit__(self, *error: object) -> None:
        self.down()

    def up(self) -> None:
        """Start all hosts and return when every sshd answers; on any failure nothing is left behind."""
        reasons = missing_requirements()
        if reasons:
            raise ClusterError("no cluster can be emulated here: " + "; ".join(reasons))
        if (self.state / "cluster.json").exists():
            raise ClusterError(f"a cluster is up already in {self.state}: take it down first")
        try:
            self._up()
        except BaseException:
            self.down()
            raise

    def _up(self) -> None:
        self.state.mkdir(parents=True, exist_ok=True)
        self.state.chmod(0o755)
        (self.state / "hosts").write_text(self.spec.etc_hosts())
        self.hostfile.write_text(self.spec.hostfile())
        ssh.prepare(self.spec, self.state)
        self._group = scheduling.make_group()
        for host in self.spec.hosts:
            if host.cores is not None:
                self._limited[host.name] = scheduling.make_limited_group(host.name, host.cores)
        reading = None
        if self._tied:
            reading, self._lifeline = os.pipe()
        try:
            self._start_holder(_FABRIC, None, reading)
            for host in self.spec.hosts:
                self._start_holder(host.name, host, reading)
        finally:
            if reading is not None:
                os.close(reading)
        self._save()
        holders = [self._pids[host.name][0] for host in self.spec.hosts]
        network.connect(self.spec, self._pids[_FABRIC][0], holders)
        for host in self.spec.hosts:
            self._overlay(host)
            settings, log = ssh.server_settings(self.state, host), self.state / host.name / "sshd.log"
            command = [program("sshd"), "-f", str(settings), "-E", str(log)]
            self.run(host.name, command, user="root", timeout=20, check=True)
        self._await_sshd()

    def down(self) -> None:
        """End every process of the cluster, then remove its state folder. Harmless when nothing is up."""
        for name in list(self._pids):
            self.kill_host(name)
        self._pids.clear()
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        for group in (*self._limited.values(), *([self._group] if self._group else [])):
            scheduling.remove_group(group)
        self._limited.clear()
        self._group = None
        shutil.rmtree(self.state, ignore_errors=True)

    def kill_host(self, name: str) -> None:
        """End a host as a power failure does: all its processes and interfaces vanish."""
        if not self.alive(name):
            return
        pid = self._pids[name][0]
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + 10
        while self.alive(name):
            if time.monotonic() > end:
                raise ClusterError(f"host {name} (pid {pid}) did not end within 10 s")
            time.sleep(0.01)

    def alive(self, name: str) -> bool:
        process = self._pids.get(name)
        return process is not None and start_time(process[0]) == process[1]

    @classmethod
    def attach(cls, state: Path) -> "Cluster":
        """The running cluster of a state folder."""
        try:
            saved = json.loads((state / "cluster.json").read_text())
        except OSError as error:
            raise ClusterError(f"no cluster is up in {state}") from error
        cluster = cls(ClusterSpec.from_dict(saved["spec"]), state, tied=False)
        cluster._pids = {name: (pid, begun) for name, (pid, begun) in saved["pids"].items()}
        cluster._group = Path(saved["group"]) if saved["group"] else None
        cluster._limited = {name: Path(group) for name, group in saved["limited"].items()}
        return cluster

    # ---- use

    @property
    def hostfile(self) -> Path:
        """A file of the hosts and their slots in Open MPI's form."""
        return self.state / "hostfile"

    def pid(self, name: str) -> int:
        """Pid of a host's first process as the machine sees it."""
        if not self.alive(name):
            names = ", ".join(host.name for host in self.spec.hosts)
            raise ClusterError(f"no running host {name!r}; hosts of this cluster: {names}")
        return self._pids[name][0]

    def command(
        self,
        host: str,
        command: Sequence[str],
        *,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
    ) -> list[str]:
        """The command line that runs ``words`` on a host, as the cluster's user, in ``cwd`` (default: the
        current).
        """
        own_environment = next((spec.environment for spec in self.spec.hosts if spec.name == host), ())
        variables = {**self.spec.environment, **dict(own_environment), **(env or {})}
        account = user or self.spec.user
        prefix: list[str] = []
        if account != "root":
            entry = pwd.getpwnam(account)
            variables = {"HOME": entry.pw_dir, "USER": account, "LOGNAME": account, **variables}
            prefix = [
                program("setpriv"),
                f"--reuid={entry.pw_uid}",
                f"--regid={entry.pw_gid}",
                "--init-groups",
            ]
        settings = [f"{name}={value}" for name, value in variables.items()]
        # nsenter leaves the working folder on the machine's mount; entering it anew finds the host's.
        enter = ["sh", "-c", 'cd -- "$0" 2>/dev/null || cd /; exec "$@"', str(cwd or Path.cwd())]
        line = in_namespaces(self.pid(host), "muinp", [*enter, *prefix, "env", *settings, *command])
        return scheduling.in_group(self._limited.get(host, self._group), line)

    def run(
        self,
        host: str,
        command: Sequence[str],
        *,
        timeout: float,
        check: bool = False,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        stdin: str | None = None,
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command on a host and return its text; ends with ClusterError after ``timeout`` seconds."""
        line = self.command(host, command, user=user, env=env, cwd=cwd)
        # A session of its own, so that a command that runs too long is ended with its children.
        child = subprocess.Popen(
            line,
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = child.communicate(stdin, timeout=timeout)
        except subprocess.TimeoutExpired as error:
            os.killpg(child.pid, signal.SIGKILL)
            out, err = child.communicate()
            raise ClusterError(
                f"on {host}: {' '.join(command)}: not finished after {timeout:g} s\n{out}{err}"
            ) from error
        if check and child.returncode:
            raise ClusterError(f"on {host}: {' '.join(command)}: exit code {child.returncode}\n{out}{err}")
        return subprocess.CompletedProcess(line, child.returncode, out, err)

    def sent_bytes(self) -> dict[str, int]:
        """Bytes that every link has carried so far, in each direction: see ``network.sent_bytes``."""
        return network.sent_bytes(self.spec, self.pid(_FABRIC))

    # ---- inside

    def _start_holder(self, name: str, host: HostSpec | None, lifeline: int | None) -> None:
        folder = self.state / name
        folder.mkdir()
        report = folder / "pid"
        settings: dict[str, Any] = {
            "name": name,
            "is_host": host is not None,
            "report": str(report),
            "lifeline": lifeline,
            "life_seconds": self.spec.life_seconds,
        }
        if host:
            settings |= {
                "staging": str(folder / "tmp"),
                "shared": self._shared(),
                "hidden": list(host.hidden),
                "shm_bytes": host.shm_bytes,
                "binds": [
                    (str(self.state / "hosts"), "/etc/hosts"),
                    (str(self.state / "ssh_config"), "/etc/ssh/ssh_config"),
                ],
            }
        (folder / "holder.json").write_text(json.dumps(settings))
        with (folder / "holder.log").open("w") as log:
            command = [program("unshare"), *(HOST_NAMESPACES if host else ["--net"]), "--", sys.executable]
            command += ["-P", "-m", f"{_PACKAGE}.holder", str(folder / "holder.json")]
            child = subprocess.Popen(
                scheduling.in_group(self._group, command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=[lifeline] if lifeline is not None else [],
                cwd="/",
                env={**os.environ, "PYTHONPATH": str(_PACKAGE_PATH), "PYTHONDONTWRITEBYTECODE": "1"},
            )
        end = time.monotonic() + _START_SECONDS
        while not report.exists():
            if child.poll() is not None or time.monotonic() > end:
                reason = (folder / "holder.log").read_text().strip()
                raise ClusterError(f"host {name} did not start: {reason or 'no answer within its time'}")
            time.sleep(0.01)
        pid = int(report.read_text())
        begun = start_time(pid)
        if begun is None:
            raise ClusterError(f"host {name} ended at once: {(folder / 'holder.log').read_text().strip()}")
        self._pids[name] = (pid, begun)

    def _overlay(self, host: HostSpec) -> None:
        """Lay the host's own files over those that all hosts see; also over those of its interfaces, so they
        must be up.
        """
        for number, (path, source) in enumerate(host.overlays):
            copy = self.state / host.name / f"overlay{number}"
            shutil.copy(source, copy)
            command = [program("mount"), "--bind", str(copy), path]
            self.run(host.name, command, user="root", timeout=20, check=True)

    def _shared(self) -> list[str]:
        """Folders below /tmp that all hosts see: the state, the current folder, and what the spec names."""
        folders = [self.state, Path.cwd(), *map(Path, self.spec.shared)]
        paths = sorted({str(folder.resolve()) for folder in folders})
        below = [path for path in paths if path.startswith("/tmp/")]
        return [path for path in below if not any(path.startswith(f"{other}/") for other in below)]

    def _save(self) -> None:
        group = str(self._group) if self._group else None
        limited = {name: str(path) for name, path in self._limited.items()}
        saved = {"spec": self.spec.as_dict(), "pids": self._pids, "group": group, "limited": limited}
        (self.state / "cluster.json").write_text(json.dumps(saved, indent=1))

    def _await_sshd(self) -> None:
        """Every sshd greets, seen from its own host: a refusing one greets too."""
        probe = (
            "import socket,sys,time\n"
            "for _ in range(200):\n"
            "    try:\n"
            "        greeting = socket.create_connection((sys.argv[1], 22), 5).recv(4)\n"
            "        sys.exit(not greeting.startswith(b'SSH'))\n"
            "    except OSError: time.sleep(0.05)\n"
            "sys.exit(1)\n"
        )
        for index, host in enumerate(self.spec.hosts):
            # Only the network is the host's: its file system may hide this Python.
            command = [sys.executable, "-I", "-c", probe, self.spec.address(index)]
            try:
                tool(*in_namespaces(self.pid(host.name), "n", command), timeout=30)
            except ClusterError as error:
                log = (self.state / host.name / "sshd.log").read_text()
                raise ClusterError(f"sshd of {host.name} does not answer: {log}{error}") from error
