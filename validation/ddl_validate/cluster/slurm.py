"""A real Slurm on an emulated cluster: munged and slurmd on every host, slurmctld on the first.

    with Cluster(spec) as cluster:
        slurm = Slurm(cluster)
        slurm.up()
        slurm.run(["sbatch", "-W", "-N", "2", …], timeout=60)

Racks become switches of topology/tree, slots become CPUs. Its daemons live inside the hosts' namespaces and
end with the cluster.
"""

import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from .cluster import Cluster
from .errors import ClusterError
from .requirements import missing_programs, program

_PROGRAMS = {
    "munged": "munge",
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
    "srun": "slurm-wlm",
    "sbatch": "slurm-wlm",
}
_START_SECONDS = 30.0
_CGROUPS = "/sys/fs/cgroup"
_SOCKET = "/run/munge/munge.socket.2"


def missing_slurm() -> list[str]:
    """Reasons why no Slurm can be started here; an empty list when it can."""
    reasons = missing_programs(_PROGRAMS)
    if not _pmix():
        reasons.append("pmix2/lib/libpmix.so.2 not found (Debian package libpmix2)")
    # slurmd looks there, also when it is told to use no control group
    if not os.path.ismount(_CGROUPS):
        reasons.append(f"no file system is mounted on {_CGROUPS}, as in some containers")
    return reasons


def _pmix() -> Path | None:
    """The folder that Slurm's pmix plugin loads its library from."""
    library = next(Path("/usr/lib").glob("*/pmix2/lib/libpmix.so.2"), None)
    return library and library.parent


class Slurm:
    """Slurm on all hosts of a running cluster.

    cpus: of each host. Default: its slots. More than the machine has are possible; then ranks are not bound.
    racks: False leaves out topology/tree.
    spool: each host's own folder for slurmd. Its sockets are there, whose paths have at most 107 bytes.
    settings: further lines of slurm.conf.
    """

    def __init__(
        self,
        cluster: Cluster,
        cpus: Mapping[str, int] | None = None,
        racks: bool = True,
        spool: str = "/run/slurm",
        settings: Sequence[str] = (),
    ) -> None:
        self.cluster = cluster
        self.folder = cluster.state / "slurm"
        self._cpus = {host.name: host.slots for host in cluster.spec.hosts} | dict(cpus or {})
        self._racks = racks
        self._spool = spool
        self._more = tuple(settings)

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        """Variables that a command needs to talk to this Slurm."""
        return {"SLURM_CONF": str(self.conf)}

    @property
    def controller(self) -> str:
        return self.cluster.spec.hosts[0].name

    def up(self) -> None:
        """Start all daemons; return when every node is idle."""
        reasons = missing_slurm()
        if reasons:
            raise ClusterError("no Slurm can be started here: " + "; ".join(reasons))
        for name in ("state", "log", "pids"):
            (self.folder / name).mkdir(parents=True)
        self.conf.write_text(self._settings())
        if self._racks:
            (self.folder / "topology.conf").write_text(self._switches())
        key = self._munge_key()
        pmix = self._pmix_copy()
        for host in self.cluster.spec.hosts:
            self._as_root(host.name, [program("mount"), "--bind", *pmix])
            self._start_munge(host.name, key)
            self._as_root(host.name, ["mkdir", "-p", self._spool])
        self._daemon(self.controller, "slurmctld")
        for host in self.cluster.spec.hosts:
            self._daemon(host.name, "slurmd", "-N", host.name)
        self._await_idle()

    def run(
        self,
        command: Sequence[str],
        *,
        timeout: float,
        host: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        check: bool = False,
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command that talks to this Slurm, by default where the controller is."""
        variables = {**self.environment, **(env or {})}
        return self.cluster.run(
            host or self.controller, command, timeout=timeout, env=variables, cwd=cwd, check=check
        )

    # ---- inside

    def _settings(self) -> str:
        folder = self.folder
        lines = [
            "ClusterName=emulated",
            f"SlurmctldHost={self.controller}",
            "SlurmUser=root",
            "SlurmdUser=root",
            "AuthType=auth/munge",
            f"AuthInfo=socket={_SOCKET}",
            f"StateSaveLocation={folder}/state",
            f"SlurmdSpoolDir={self._spool}/%n",
            f"SlurmctldPidFile={folder}/pids/slurmctld",
            f"SlurmdPidFile={folder}/pids/%n",
            f"SlurmctldLogFile={folder}/log/slurmctld",
            f"SlurmdLogFile={folder}/log/%n",
            # Hosts share the machine's cgroups: what needs a tree of its own is left out.
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/affinity",
            "JobAcctGatherType=jobacct_gather/none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_CPU",
            "MpiDefault=none",
            "ReturnToService=2",
            "KillWait=5",
            # Nodes may claim more CPUs than the machine has.
            "SlurmdParameters=config_overrides",
            "SchedulerParameters=sched_interval=1,bf_interval=1",
            f"TopologyPlugin=topology/{'tree' if self._racks else 'none'}",
        ]
        names = [host.name for host in self.cluster.spec.hosts]
        lines += [f"NodeName={name} CPUs={self._cpus[name]} RealMemory=1000 State=UNKNOWN" for name in names]
        lines.append("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO")
        return "\n".join([*lines, *self._more, ""])

    def _switches(self) -> str:
        spec = self.cluster.spec
        lines = [
            f"SwitchName=rack{rack} Nodes={','.join(host.name for host in spec.hosts if host.rack == rack)}"
            for rack in range(spec.racks)
        ]
        if spec.racks > 1:
            lines.append(f"SwitchName=spine Switches=rack[0-{spec.racks - 1}]")
        return "\n".join([*lines, ""])

    def _pmix_copy(self) -> tuple[str, str]:
        """A folder with libpmix.so in it, and the folder that it stands for: Slurm's plugin opens a name that
        only the package for developers has.
        """
        original = _pmix()
        assert original
        copy = self.folder / "pmix"
        shutil.copytree(original, copy, symlinks=True)
        if not (copy / "libpmix.so").exists():
            (copy / "libpmix.so").symlink_to("libpmix.so.2")
        return str(copy), str(original)

    def _munge_key(self) -> Path:
        """munged demands that nobody but its own account could have written the key's folder."""
        folder = self.folder / "munge"
        folder.mkdir(mode=0o700)
        key = folder / "key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        for path in (folder, key):
            shutil.chown(path, "munge", "munge")
        return key

    def _as_root(self, host: str, command: Sequence[str]) -> None:
        self.cluster.run(host, command, timeout=20, user="root", env=self.environment, check=True)

    def _start_munge(self, host: str, key: Path) -> None:
        run = "/run/munge"
        self._as_root(host, ["chown", "munge:munge", run])
        command = [program("munged"), f"--socket={_SOCKET}", f"--pid-file={run}/pid", f"--log-file={run}/log"]
        # The cluster's folder need not be one that munged trusts all the way up.
        command += [f"--key-file={key}", f"--seed-file={run}/seed", "--force"]
        self.cluster.run(host, command, timeout=20, user="munge", check=True)

    def _daemon(self, host: str, name: str, *more: str) -> None:
        command = [program(name), "-f", str(self.conf), *more]
        try:
            self._as_root(host, command)
        except ClusterError as error:
            raise ClusterError(f"{error}\n{self._log_ends()}") from error

    def _log_ends(self) -> str:
        """The daemons themselves say little on their standard error."""
        logs = sorted((self.folder / "log").iterdir())
        return "\n".join(f"{path.name}: {path.read_text()[-500:]}" for path in logs)

    def _await_idle(self) -> None:
        expected = str(len(self.cluster.spec.hosts))
        end = time.monotonic() + _START_SECONDS
        output = ""
        while time.monotonic() < end:
            done = self.run(["sinfo", "-h", "-t", "idle", "-o", "%D"], timeout=20)
            if done.stdout.strip() == expected:
                return
            output = done.stdout + done.stderr
            time.sleep(0.1)
        raise ClusterError(f"Slurm's nodes did not become idle: {output}\n{self._log_ends()}")
