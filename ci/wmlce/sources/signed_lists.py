"""Debian's archive without apt: its signed lists, and the files that they name, fetched by pip's session.

InRelease is signed, and has the digests of the lists, which have those of the packages. The keys are those of
the user, else of the machine; else they come from the mirror, and are known by their fingerprints.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import lzma
import re
import tarfile
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

from debian.debfile import DebError, DebFile
from pysequoia import Cert, verify

from wmlce.sources.pypi import fetch_addresses
from wmlce.sources.settings import KEYRING
from wmlce.sources.suite import UNREACHABLE, Candidate, Mirror, Suite, Trouble, candidates, find_mirror
from wmlce.util.errors import WmlceError
from wmlce.util.files import sha256_file, write_atomic, write_json
from wmlce.util.platform import of_this_machine

FINGERPRINTS = frozenset(
    (
        # Debian 11: the archive's key, that of security updates, that of the release
        "1f89983e0081fde018f3cc9673a4f27b8dd47936",
        "ac530d520f2f3269f5e98313a48449044aad5c5d",
        "a4285295fc7b1a81600062a9605c66f00d6c9793",
        # Debian 12
        "b8b80b5b623eab6ad8775c45b7c5d7d6350947f8",
        "05ab90340c0c5e797f44a8c8254cf3b5aec0a8f0",
        "4d64fec119c2029067d6e791f8d2585b8783d481",
        # Debian 13
        "04b54c3cdca79751b16bc6b5225629df75b188bd",
        "5e04a1e3223a19a20706e20f9904613d4cce68c6",
        "41587f7db8c774bccf131416762f67a0b2c39de4",
    )
)
"""Fingerprints of Debian's keys, as its package debian-archive-keyring has them."""
_KEYS_PACKAGE = "debian-archive-keyring"
_OPEN: dict[str, Callable[[bytes], bytes]] = {".xz": lzma.decompress, ".gz": gzip.decompress, "": bytes}
_PACKAGE = re.compile(rb"^Package: (.+)$", re.MULTILINE)
"""The first line of what a list tells of a package."""
_TOO_EARLY_S = 24 * 3600.0
"""A clock that is wrong by less than that is not this project's business."""


class Unsigned(Exception):
    """Nobody whose keys are known has signed it."""


@dataclass(frozen=True)
class _List:
    """A file with a list of packages, as InRelease names it; `urls`: where it may be."""

    site: str
    kind: str
    sha256: str
    ending: str
    urls: tuple[str, ...]

    @property
    def file(self) -> str:
        return f"{self.sha256}{self.ending}"


class SignedLists(Suite):
    """Its state in the cache: list files under their sha256, and which of them count."""

    NAME = "debian"
    BY = "pip's session"

    @functools.cached_property
    def _texts(self) -> dict[str, tuple[bytes, dict[bytes, list[int]]]]:
        """Lists that were looked into, by their file, and where in them packages begin."""
        return {}

    def _prepare(self) -> None:
        if self._index().get("asked") != self._asked():
            self.forget()

    def _asked(self) -> list[str]:
        mirror = self.mirror or find_mirror()
        return [f"{site} {suite}" for site, suite, _ in self.parts(mirror)] + [mirror.keyring or ""]

    def _index(self) -> dict[str, list[str]]:
        """asked: of whom; lists: kind, site and file of each list."""
        try:
            index: dict[str, list[str]] = json.loads((self.folder / "index.json").read_text())
        except (OSError, ValueError):
            return {}
        return index

    def _read(self) -> None:
        lists = self.fetch_lists()
        index = {"asked": self._asked(), "lists": [f"{item.kind} {item.site} {item.file}" for item in lists]}
        write_json(self.folder / "index.json", index)
        current = {item.file for item in lists}
        for path in self.folder.glob("*"):
            if path.is_file() and len(path.stem) == 64 and path.name not in current:
                path.unlink()

    def fetch_lists(self) -> list[_List]:
        """Have the lists in the folder, of which InRelease has the digests."""
        mirror = self.mirror or find_mirror()
        certificates = self._certificates(mirror)
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=self.folder) as scratch:
            parts = self.parts(mirror)
            place = {suite: f"{site.rstrip('/')}/dists/{suite}/InRelease" for site, suite, _ in parts}
            came = fetch_addresses(Path(scratch), self.say, list(place.values()))
            lists: list[_List] = []
            absent = []
            for site, suite, optional in parts:
                answer = came[place[suite]]
                if answer.absent and optional:
                    absent.append(suite)
                    continue
                if answer.path is None:
                    raise self._unread(
                        f"the mirror has no release {suite}: there is no {without_password(place[suite])}"
                        if answer.absent
                        else answer.error or "",
                        f"name a mirror that has it, by --debian-mirror URL: {without_password(site)} has not"
                        if answer.absent
                        else UNREACHABLE,
                    )
                lists += self._lists_of(answer.path.read_bytes(), site, suite, mirror, certificates)
            self._say_absent(absent)
            self._fetch_files(lists, Path(scratch))
        return lists

    def _unread(self, why: str, remedy: str) -> WmlceError:
        return WmlceError(
            f"Debian {self.suite}'s package lists could not be read",
            detail=[line for line in why.splitlines() if line.strip()][:4],
            remedy=remedy,
        )

    def _certificates(self, mirror: Mirror) -> list[Cert]:
        if mirror.keyring is not None:
            return _read_keys(Path(mirror.keyring))
        return _of_debian(_read_keys(archive_keyring(self, mirror)))

    def _text(self, data: bytes, certificates: list[Cert]) -> bytes:
        """What is signed, of an InRelease."""
        try:
            text: bytes | None = verify(data, store=lambda _: certificates).bytes
        except (RuntimeError, ValueError) as error:
            raise Unsigned(str(error).splitlines()[0]) from error
        if not text:
            raise Unsigned("it has no content")
        return text

    def _lists_of(
        self, data: bytes, site: str, suite: str, mirror: Mirror, certificates: list[Cert]
    ) -> list[_List]:
        folder = f"{site.rstrip('/')}/dists/{suite}"
        name = f"{without_password(folder)}/InRelease"
        try:
            fields, digests = _release(self._text(data, certificates).decode())
        except (Unsigned, UnicodeDecodeError) as error:
            raise self._unread(
                f"{name}: {error}",
                "only lists with Debian's signature are used: correct the mirror (--debian-mirror); or, if "
                f"it has other keys, name a file of them: --debian-keyring FILE ({KEYRING})",
            ) from error
        if suite not in (fields.get("Suite"), fields.get("Codename")):
            raise self._unread(
                f"{name} is of {fields.get('Codename')} ({fields.get('Suite')}), and not of {suite}",
                "correct the mirror (--debian-mirror), or a proxy that answers for it",
            )
        if not mirror.permanent:
            self._check_dates(fields, name)
        lists = []
        kinds = {"debian-binary": f"main/binary-{of_this_machine().debian}/Packages"}
        if self.sources:
            kinds["debian-source"] = "main/source/Sources"
        for kind, path in kinds.items():
            ending = next((ending for ending in _OPEN if f"{path}{ending}" in digests), None)
            if ending is None:
                raise self._unread(f"{name} names no {path}", "use a mirror that has it (--debian-mirror)")
            digest = digests[f"{path}{ending}"]
            urls = [f"{folder}/{path}{ending}"]
            if fields.get("Acquire-By-Hash") == "yes":
                # a mirror that is being updated has lists of both states there
                urls.insert(0, f"{folder}/{path.rpartition('/')[0]}/by-hash/SHA256/{digest}")
            lists.append(_List(site, kind, digest, ending, tuple(urls)))
        return lists

    def _check_dates(self, fields: Mapping[str, str], name: str) -> None:
        now = datetime.now(UTC).timestamp()
        until, since = _time(fields.get("Valid-Until")), _time(fields.get("Date"))
        if until is not None and until < now:
            raise self._unread(
                f"{name} was valid until {fields['Valid-Until']}",
                "the mirror is out of date, or somebody holds its updates back: name another one "
                "(--debian-mirror); and look at this machine's clock",
            )
        if since is not None and since > now + _TOO_EARLY_S:
            raise self._unread(f"{name} is of {fields['Date']}", "correct this machine's clock")

    def _fetch_files(self, lists: Sequence[_List], scratch: Path) -> None:
        """A list that is there from before has the right content: that is its name."""
        for attempt in range(2):
            todo = [item for item in lists if not (self.folder / item.file).is_file()]
            urls = [item.urls[min(attempt, len(item.urls) - 1)] for item in todo]
            came = fetch_addresses(scratch, self.say, urls) if todo else {}
            for item, url in zip(todo, urls, strict=True):
                answer = came[url]
                last = url == item.urls[-1]
                if answer.path is None:
                    if not (answer.absent and not last):
                        raise self._unread(
                            f"there is no {without_password(url)}" if answer.absent else answer.error or "",
                            "the mirror is not whole: try again later, or name another one (--debian-mirror)"
                            if answer.absent
                            else UNREACHABLE,
                        )
                elif (actual := sha256_file(answer.path)) == item.sha256:
                    answer.path.replace(self.folder / item.file)
                elif last:
                    raise self._unread(
                        f"{without_password(url)} has other content than its InRelease says:\n"
                        f"signed: {item.sha256}\nfound:  {actual}, {answer.path.stat().st_size} bytes",
                        "the mirror is just being updated, or it was cut off or exchanged on its way: try "
                        "again later, or name another mirror (--debian-mirror)",
                    )

    def offers(self, kind: str, package: str) -> list[Candidate]:
        entries = [line.split(" ") for line in self._index().get("lists", [])]
        lists = [(site, file) for list_kind, site, file in entries if list_kind == kind]
        return candidates(self._stanzas(lists, package), kind, package)

    def _stanzas(self, lists: Sequence[tuple[str, str]], package: str) -> Iterator[tuple[str, str]]:
        for site, file in lists:
            text, starts = self._content(file)
            for start in starts.get(package.encode(), ()):
                end = text.find(b"\n\n", start)
                yield f"{site.rstrip('/')}/", text[start : end if end >= 0 else len(text)].decode()

    def _content(self, file: str) -> tuple[bytes, dict[bytes, list[int]]]:
        if file not in self._texts:
            path = self.folder / file
            try:
                text = _OPEN[path.suffix](path.read_bytes())
            except (OSError, EOFError, lzma.LZMAError) as error:
                path.unlink(missing_ok=True)
                self.forget()
                raise self._unread(f"{path}: {error}", "run the command again") from error
            starts: dict[bytes, list[int]] = {}
            for match in _PACKAGE.finditer(text):
                starts.setdefault(match[1], []).append(match.start())
            self._texts[file] = text, starts
        return self._texts[file]

    def download(
        self, kind: str, versions: Sequence[tuple[str, str]], names: Collection[str], folder: Path
    ) -> Trouble | None:
        digests: dict[str, str] = {}
        places: dict[str, list[str]] = {}
        for package, version in versions:
            for offer in self.offers(kind, package):
                if offer.version == version:
                    for name in set(offer.files) & set(names):
                        digests[name], places[name] = offer.files[name], list(offer.places[name])
        trouble: list[str] = []
        remedy = UNREACHABLE
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder) as scratch:
            while batch := {places[name].pop(0): name for name in sorted(places) if places[name]}:
                for url, answer in fetch_addresses(Path(scratch), self.say, list(batch)).items():
                    if answer.absent:
                        continue
                    name = batch[url]
                    del places[name]
                    if answer.path is None:
                        trouble += [
                            f"{without_password(url)}: {line}"
                            for line in (answer.error or "").splitlines()[:2]
                        ]
                    elif (actual := sha256_file(answer.path)) == digests[name]:
                        answer.path.replace(folder / name)
                    else:
                        trouble += [f"{without_password(url)} has other content than Debian's lists say:"]
                        trouble += [f"signed: {digests[name]}"]
                        trouble += [f"found:  {actual}, {answer.path.stat().st_size} bytes"]
                        remedy = "it was cut off or exchanged on its way: try again, or name another mirror "
                        remedy += "(--debian-mirror)"
        return Trouble(trouble[:6], remedy) if trouble else None


class _Unchecked(SignedLists):
    """For finding the package that has the keys, by which the signatures are checked then."""

    lists: Sequence[_List] = ()

    def parts(self, mirror: Mirror) -> list[tuple[str, str, bool]]:
        return super().parts(mirror)[:1]

    def _index(self) -> dict[str, list[str]]:
        return {"lists": [f"{item.kind} {item.site} {item.file}" for item in self.lists]}

    def _certificates(self, mirror: Mirror) -> list[Cert]:
        return []

    def _text(self, data: bytes, certificates: list[Cert]) -> bytes:
        _, _, signed = data.replace(b"\r\n", b"\n").partition(b"-----BEGIN PGP SIGNED MESSAGE-----\n")
        text, mark, _ = signed.partition(b"\n\n")[2].partition(b"\n-----BEGIN PGP SIGNATURE-----")
        if not mark:
            raise Unsigned("it is not signed")
        return text


def archive_keyring(suite: Suite, mirror: Mirror) -> Path:
    """A file with Debian's keys: those in the mirror's package of them that have the known fingerprints."""
    fingerprints = hashlib.sha256(" ".join(sorted(FINGERPRINTS)).encode()).hexdigest()[:12]
    path = suite.layout.cache / f"debian-keys-{suite.suite}-{fingerprints}.gpg"
    if path.is_file():
        return path
    suite.say(
        f"fetching Debian's keys from {without_password(mirror.main)}, to be known by their fingerprints"
    )
    suite.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="keys-", dir=suite.folder) as scratch:
        # the lists are fetched once: what they are called by is their content
        folder = suite.folder if isinstance(suite, SignedLists) else Path(scratch)
        lists = _Unchecked(
            suite.layout, suite.say, suite=suite.suite, mirror=mirror, folder=folder, sources=False
        )
        lists.lists = lists.fetch_lists()
        offered = lists.offers("debian-binary", _KEYS_PACKAGE)
        for offer in offered[:1]:
            versions = [(_KEYS_PACKAGE, offer.version)]
            trouble = lists.download("debian-binary", versions, offer.files, Path(scratch))
            for name in offer.files:
                if (Path(scratch) / name).is_file():
                    keys = _of_debian(_keys_in(Path(scratch) / name))
                    if keys:
                        write_atomic(path, b"".join(bytes(key) for key in keys))
                        return path
            if trouble is not None:
                raise WmlceError(
                    "Debian's keys could not be fetched", detail=trouble.lines, remedy=trouble.remedy
                )
    raise WmlceError(
        f"{without_password(mirror.main)} has no keys of Debian {suite.suite}",
        detail=[
            f"its {_KEYS_PACKAGE} has none whose fingerprint is known"
            if offered
            else "it has no such package"
        ],
        remedy="correct the mirror (--debian-mirror); or name a file of its keys: --debian-keyring FILE "
        f"({KEYRING})",
    )


def _of_debian(keys: Sequence[Cert]) -> list[Cert]:
    return [key for key in keys if key.fingerprint.lower() in FINGERPRINTS]


def _keys_in(package: Path) -> list[Cert]:
    """The keys in a package of keys; none if it is another package."""
    try:
        with DebFile(str(package)) as archive:
            content = archive.data.get_content(f"usr/share/keyrings/{_KEYS_PACKAGE}.gpg")
            return list(Cert.split_bytes(content or b""))
    except (DebError, tarfile.TarError, lzma.LZMAError, EOFError, ValueError, OSError, RuntimeError):
        return []


def _read_keys(path: Path) -> list[Cert]:
    try:
        return list(Cert.split_file(str(path)))
    except (RuntimeError, ValueError, OSError) as error:
        raise WmlceError(
            f"{path} is not a file of OpenPGP keys: {str(error).splitlines()[0]}",
            remedy=f"correct --debian-keyring ({KEYRING}), or leave it out",
        ) from error


def _release(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """The fields of a Release file, and the sha256 of the files that it names."""
    fields: dict[str, str] = {}
    digests: dict[str, str] = {}
    section = ""
    for line in text.splitlines():
        if line.startswith(" "):
            columns = line.split()
            if section == "SHA256" and len(columns) == 3 and re.fullmatch("[0-9a-f]{64}", columns[0]):
                digests[columns[2]] = columns[0]
        else:
            section, _, value = line.partition(":")
            fields[section] = value.strip()
    return fields, digests


def _time(text: str | None) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() if text else None
    except ValueError:
        return None


def without_password(url: str) -> str:
    """An address without the password that it may have."""
    return re.sub(r"//[^/@]*@", "//", url)
