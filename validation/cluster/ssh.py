"""Keys and settings of the cluster's ssh: real sshd, real keys, known to nobody outside the cluster."""

import shutil
from pathlib import Path

from .process import tool
from .spec import ClusterSpec


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
    for accepted, name in ((True, "sshd_config"), (False, "sshd_config.refusing")):
        keys = state / ("id.pub" if accepted else "nobodys.pub")
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
        if spec.environment:
            lines.append("SetEnv " + " ".join(_quoted(f"{k}={v}") for k, v in spec.environment.items()))
        (state / name).write_text("\n".join(lines) + "\n")


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
