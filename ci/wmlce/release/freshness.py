"""How old a signed channel may be: signed.json, which its list of checksums covers, says which one it is.

An old release stays signed for ever, and who serves it may serve it again. So the version that a place gave
last is remembered, and an older one from there is refused; a site may set a lowest version and a highest age
besides, and a signer a day on which the release expires.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from wmlce.util.errors import WmlceError
from wmlce.util.files import open_file, write_json

NAME = "signed.json"
MINIMUM = "WMLCE_MINIMUM_VERSION"
MAXIMUM_AGE = "WMLCE_MAXIMUM_AGE"
STATE = "XDG_STATE_HOME"
_AHEAD = timedelta(days=1)
"""How far the signer's clock may be before this machine's."""
_LARGEST = 65536
_on_command_line = False


@dataclass(frozen=True)
class Statement:
    """name: of the channel. version, date: of its content. expires: from when on nobody should use it."""

    name: str
    version: str
    date: datetime
    expires: datetime | None = None

    def write(self, path: Path) -> None:
        expires = {"expires": _text(self.expires)} if self.expires else {}
        write_json(path, {"name": self.name, "version": self.version, "date": _text(self.date), **expires})

    def __str__(self) -> str:
        return f"{self.name} {self.version} of {self.date:%Y-%m-%d}"


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")


def parsed(content: bytes, title: str) -> Statement:
    """The statement of a file signed.json."""
    try:
        document = json.loads(content[: _LARGEST + 1])
        return _statement(document)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WmlceError(
            f"{title} does not say which version of which channel was signed",
            remedy="get it again from where it was published",
        ) from error


def _statement(document: Any) -> Statement:
    name, version = document["name"], document["version"]
    if not (isinstance(name, str) and name.isprintable() and 0 < len(name) < 500):
        raise ValueError(name)
    Version(version)
    expires = document.get("expires")
    return Statement(name, version, _moment(document["date"]), _moment(expires) if expires else None)


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def day(text: str) -> datetime:
    """A day that somebody typed, from its beginning."""
    try:
        return _moment(text)
    except ValueError as error:
        raise WmlceError(f"{text!r} is not a day", remedy="write it as 2027-06-30") from error


def read(folder: Path) -> Statement | None:
    """What a folder says of itself; None where it says nothing, as those of before."""
    path = folder / NAME
    return parsed(path.read_bytes(), str(path)) if path.is_file() else None


def signed(folder: Path, listed: Mapping[str, str], name: str = NAME) -> Statement | None:
    """Statement of a folder with its signed list; what is parsed is what is compared. name: of the file in
    the list.
    """
    digest, path = listed.get(name), folder / name
    if digest is None:
        return None
    try:
        with open_file(path) as stream:
            content = stream.read(_LARGEST + 1)
    except OSError as error:
        raise WmlceError(f"{path} cannot be read: {error.strerror}", remedy="get it again") from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise WmlceError(f"{path} is not what was signed: changed", remedy="get it again")
    return parsed(content, str(path))


# ------------------------------------------------------------------------------ what is asked for


def export(minimum: str | None) -> None:
    """Put what the command line says where this process and those that it starts look for it."""
    global _on_command_line
    if minimum is not None:
        _version(minimum, "--minimum")
        _on_command_line = True
        os.environ[MINIMUM] = minimum


def asked_by_variable() -> str | None:
    """The variable of the environment that refuses old channels, where one is set."""
    return next((name for name in (MINIMUM, MAXIMUM_AGE) if os.environ.get(name)), None)


def _version(text: str, title: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion as error:
        raise WmlceError(f"{title}: {text!r} is not a version", remedy="write one such as 2.0.1") from error


def _maximum_age() -> timedelta | None:
    text = os.environ.get(MAXIMUM_AGE)
    if not text:
        return None
    if not text.isdecimal() or int(text) == 0 or len(text) > 6:
        raise WmlceError(f"{MAXIMUM_AGE}={text}: not a number of days", remedy="set it to one, such as 180")
    return timedelta(days=int(text))


def check(statement: Statement | None, title: str, now: datetime | None = None) -> None:
    """An error where a signed folder is older than is asked for, or has expired. title: what it is of."""
    now = now or datetime.now(UTC)
    minimum, age = os.environ.get(MINIMUM), _maximum_age()
    if statement is None:
        if minimum or age is not None:
            raise WmlceError(
                f"{title} does not say of which version and date it is (it has no {NAME}), which "
                f"{MINIMUM if minimum else MAXIMUM_AGE} asks for",
                remedy="get a newer release: those of before have no such file",
            )
        return
    if statement.date > now + _AHEAD:
        raise WmlceError(
            f"{title} is {statement}, which is still to come",
            remedy=f"see this machine's clock, which says {now:%Y-%m-%d}; if that is right, ask the signer",
        )
    if minimum and Version(statement.version) < _version(minimum, MINIMUM):
        raise WmlceError(
            f"{title} is {statement}, and {MINIMUM} (--minimum) asks for {minimum} or newer",
            remedy="get the newer release: who serves this one may hide it",
        )
    if statement.expires is not None and now >= statement.expires:
        raise WmlceError(
            f"{title} is {statement}, which expired on {statement.expires:%Y-%m-%d}",
            remedy="get a newer release; if there is none, ask who signs them, and see this machine's clock",
        )
    if age is not None and now - statement.date > age:
        raise WmlceError(
            f"{title} is {statement}: {(now - statement.date).days} days old, and {MAXIMUM_AGE} allows "
            f"{age.days}",
            remedy="get a newer release: who serves this one may hide it",
        )


# ------------------------------------------------------------------------------ what a place gave before


def compare(statement: Statement | None, last: Statement | None, title: str) -> None:
    """An error where a place gives something older than it did, or another channel."""
    if last is None:
        return
    if statement is None:
        raise WmlceError(
            f"{title} does not say of which version it is, and it was {last} before",
            remedy="get the newer release: who serves this one may have put an old one back",
        )
    if statement.name != last.name and not _on_command_line:
        raise WmlceError(
            f"{title} is the channel {statement.name}, and it was {last.name} before",
            remedy="see that the address is right; if it is to be another channel from now on: --minimum "
            + statement.version,
        )
    version, before = Version(statement.version), Version(last.version)
    if (version < before or (version == before and statement.date < last.date)) and not _on_command_line:
        raise WmlceError(
            f"{title} is {statement}, older than what it was before: {last.version} of {last.date:%Y-%m-%d}",
            remedy="get the newer release; if you do want the older one: --minimum " + statement.version,
        )


def _remembered(place: str) -> Path | None:
    """The file of what this user last accepted from a place; None where the user has no folder for it."""
    base = os.environ.get(STATE, "")
    if not os.path.isabs(base):  # the XDG Base Directory Specification ignores such a value
        try:
            base = str(Path.home() / ".local/state")
        except RuntimeError:
            return None
    return Path(base) / "wmlce/accepted" / f"{hashlib.sha256(place.encode()).hexdigest()[:32]}.json"


def accept(statement: Statement | None, place: str, title: str) -> None:
    """Check a signed folder, also against what this user accepted from that place before, and remember it."""
    check(statement, title)
    path = _remembered(place)
    last = None
    if path is not None and path.is_file():
        try:
            last = _statement(json.loads(path.read_text()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise WmlceError(
                f"{path}, which says what was last accepted from {place}, cannot be read",
                remedy="remove it, and compare the version with what you expect",
            ) from error
    compare(statement, last, title)
    if statement is None or statement == last:
        return
    try:
        if path is None:
            raise OSError("HOME is not set")
        statement.write(path)
    except (OSError, WmlceError) as error:
        print(
            f"note: that {title} is {statement.version} cannot be remembered, and an older one would pass "
            f"next time: {error}",
            file=sys.stderr,
        )
