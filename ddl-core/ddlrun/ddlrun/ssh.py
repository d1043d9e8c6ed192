"""How ddlrun reaches other hosts: by an ssh that never asks for anything and never waits for a dead host."""

from dataclasses import dataclass

CONNECT_SECONDS = 8


@dataclass(frozen=True)
class Ssh:
    """The same for the checks, for mpirun's daemons and for the look at the hosts afterwards."""

    port: int | None = None
    identity: str | None = None

    @property
    def name(self) -> str:
        return "ssh"

    @property
    def agent(self) -> str:
        """The words before a host's name, for mpirun, which knows no quotes."""
        return " ".join([self.name, *self.options])

    @property
    def options(self) -> tuple[str, ...]:
        arguments: tuple[str, ...] = (
            "-o",
            "BatchMode=yes",
            "-o",
            f"ConnectTimeout={CONNECT_SECONDS}",
            "-o",
            "ConnectionAttempts=1",
        )
        if self.port is not None:
            arguments = (*arguments, "-p", str(self.port))
        if self.identity is not None:
            arguments = (*arguments, "-i", self.identity, "-o", "IdentitiesOnly=yes")
        return arguments

    def command(self, host: str, remote: str) -> list[str]:
        """The line that lets the login shell of a host run a text."""
        return ["ssh", "-T", *self.options, "--", host, remote]
