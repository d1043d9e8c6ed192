"""The hosts that this user's ssh knows by name."""

import re
from os.path import expanduser

#: A file of known hosts may be that of a whole site.
_LONGEST = 1 << 20


def known_hosts(home: str = "~") -> list[str]:
    """Names of ~/.ssh/config and ~/.ssh/known_hosts; neither patterns nor hashed ones."""
    folder = f"{expanduser(home)}/.ssh"
    hosts: set[str] = set()
    for line in _lines(f"{folder}/config"):
        keyword, _, names = line.strip().replace("=", " ", 1).partition(" ")
        if keyword.lower() == "host":
            hosts.update(names.split())
    for line in _lines(f"{folder}/known_hosts"):
        fields = line.split()
        # before the names may stand a marker: @cert-authority or @revoked
        if fields and not fields[0].startswith(("#", "@", "|")):
            hosts.update(re.sub(r"^\[(.*)\]:[0-9]+$", r"\1", name) for name in fields[0].split(","))
    return sorted(name for name in hosts if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name))


def _lines(path: str) -> list[str]:
    try:
        with open(path, errors="replace") as file:
            return file.read(_LONGEST).splitlines()
    except OSError:
        return []
