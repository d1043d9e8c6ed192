"""Keys and settings of the cluster's ssh: real sshd, real keys, known to nobody outside the cluster."""

import shlex
import shutil
from pathlib import Path

from .process import tool
from .spec import ClusterSpec, HostSpec


def prepare(spec: ClusterSpec, state: Path) -> None:
    """Write keys and the settings of client and servers below ``state``."""
    for name in ("host_key", "id"):
        tool("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "emulated cluster", "-f", str(state / name))
    (state / "nobodys.pub").touch()
    shutil.chown(state / "id", spec.user)
    host_key = (state / "host_key.pub").read_text().split()[:2]
    (state / "known_hosts").write_text(f"* {' '.join(host_key)}\n")
    (state / "ssh_config").write_text(
        "Host *\n"
        f"  IdentityFile {state}/id\n"
        "  IdentitiesOnly yes\n"
        f"  GlobalKnownHostsFile {state}/known_hosts\n"
        "  UserKnownHostsFile /dev/null\n"
        "  StrictHostKeyChecking yes\n"
        "  LogLevel ERROR\n"
    )
    for host in spec.hosts:
        server_settings(state, host).write_text(_server(spec, host, state))


def server_settings(state: Path, host: HostSpec) -> Path:
    """The file with the settings of a host's sshd."""
    return state / f"{host.name}.sshd_config"


def _server(spec: ClusterSpec, host: HostSpec, state: Path) -> str:
    keys = state / ("id.pub" if host.accepts_key else "nobodys.pub")
    lines = [
        "Port 22",
        f"HostKey {state}/host_key",
        f"AuthorizedKeysFile {keys}",
        "StrictModes no",
        # Accounts without a password are locked for sshd unless PAM decides.
        f"UsePAM {'no' if spec.user == 'root' else 'yes'}",
        "PermitRootLogin yes",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PidFile none",
        "MaxStartups 300",
        "MaxSessions 300",
        "UseDNS no",
    ]
    if host.noise:
        script = state / f"{host.name}.noisy"
        noise = shlex.quote(host.noise)
        script.write_text(f"#!/bin/sh\nprintf '%s\\n' {noise}\nexec /bin/sh -c \"$SSH_ORIGINAL_COMMAND\"\n")
        script.chmod(0o755)
        lines.append(f"ForceCommand {script}")
    variables = {**spec.environment, **dict(host.environment)}
    if variables:
        lines.append("SetEnv " + " ".join(_quoted(f"{k}={v}") for k, v in variables.items()))
    return "\n".join([*lines, ""])


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
