"""What a host that cannot be asked is reported as: from ssh's own words, or from what is missing there."""

import sys

from ..errors import Code, LaunchError
from ..image import PROGRAM_VARIABLE, Image
from ..plain_text import plain
from ..remote_shell import VARIABLE


class NotAsked(LaunchError):
    """For a host that is not looked at, as so many others are closed and none has answered."""

    def __init__(self, host: str, closed: int, shell: str) -> None:
        super().__init__(
            Code.UNREACHABLE,
            f"not looked at, as {closed} other hosts cannot be reached and none has answered",
            f"host {host}",
            f"check that `{shell} {host} true` works" + (" without a password" if shell == "ssh" else ""),
        )


def ssh_refusal(host: str, output: str, code: int) -> LaunchError:
    """The error for an ssh that failed, from its own words (the last lines; a banner may come before)."""
    last = " / ".join(output.strip().splitlines()[-2:])[-300:] or f"ssh ended with code {code} and no words"
    where = f"host {host}"
    if "Host key verification failed" in output or "IDENTIFICATION HAS CHANGED" in output:
        return LaunchError(
            Code.REFUSED,
            f"its host key is not known here: {last}",
            where,
            f"log in once by hand (`ssh {host}`) or ask the administrator for known_hosts",
        )
    if "Permission denied" in output or "Too many authentication failures" in output:
        return LaunchError(
            Code.REFUSED,
            f"it does not accept your ssh key: {last}",
            where,
            f"add your public key to ~/.ssh/authorized_keys there, until `ssh {host} true` works",
        )
    if "Could not resolve" in output or "not known" in output:
        return LaunchError(
            Code.UNREACHABLE,
            f"the name is not known: {last}",
            where,
            "check the spelling, DNS and /etc/hosts",
        )
    return LaunchError(
        Code.UNREACHABLE,
        f"it cannot be reached by ssh: {last}",
        where,
        f"check that the host is up and that `ssh {host} true` works without a password",
    )


def shell_refusal(host: str, shell: str, output: str, code: int) -> LaunchError:
    """The error for a scheduler's remote shell that brought no answer of a host."""
    last = plain(" / ".join(output.strip().splitlines()[-2:])[-300:], 300) or f"it ended with code {code}"
    return LaunchError(
        Code.UNREACHABLE,
        f"{shell} brought no answer of the environment's Python there: {last}",
        f"host {host}",
        f"check that `{shell} {host} {sys.executable} -V` works; {VARIABLE}=ssh takes ssh instead",
    )


def no_way_in(image: Image, missing: str, where: str) -> LaunchError:
    if missing == "image":
        return LaunchError(
            Code.IMAGE,
            f"there is no image {image.path}",
            where,
            "copy it to the same path there, or put it on a file system that all hosts see",
        )
    return LaunchError(
        Code.IMAGE,
        f"the program {image.program}, which enters the image, was not found",
        where,
        f"install it there, or set {PROGRAM_VARIABLE} to its path",
    )
