"""What a signed channel is, as its origin serves it: nothing of it counts before the signature is right.

A mirror takes the index, the list of checksums and the signatures over byte by byte, so that whoever installs
from the mirror checks the same signature as at its origin.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from wmlce.mirror.origin import Origin
from wmlce.release import freshness, manifest, signature
from wmlce.release.freshness import Statement
from wmlce.release.signature import Trust
from wmlce.util.errors import WmlceError
from wmlce.util.files import sha256_file

PACKAGE = ".conda"
SIGNATURE = manifest.NAME + signature.SUFFIX
_SIGNATURE_LIMIT = 64 << 10
_AT_ONCE = 4


@dataclass(frozen=True)
class Signed:
    """listed: sha256 of each file. key: the fingerprint of who signed it. trusted: was it looked for among
    trusted keys? statement: which version it is. lists: the list and its signature, as they are.
    """

    listed: Mapping[str, str]
    key: str
    trusted: bool
    statement: Statement | None
    lists: Mapping[str, bytes] = field(repr=False)

    def checked(self, name: str, content: bytes | None, title: str) -> bytes | None:
        """A file's content, when it is the signed one; None when it neither is there nor was signed."""
        if content is None and name not in self.listed:
            return None
        if content is None or hashlib.sha256(content).hexdigest() != self.listed.get(name):
            raise differs(title, name, "missing" if content is None else "changed")
        return content

    @property
    def others(self) -> list[str]:
        """The files that are no packages: the index in all its forms, and what tells of the channel."""
        return [name for name in self.listed if not name.endswith(PACKAGE)]


def differs(title: str, name: str, how: str) -> WmlceError:
    return WmlceError(
        f"{title}/{name} is not what was signed: {how}",
        remedy="if the channel was changed meanwhile, run the command again; if it stays, the server has "
        "other files than the signed ones: get them from where the channel was published",
    )


def read(origin: Origin, trust: Trust | None) -> Signed | None:
    """The signed list of a channel, when the signature is right; None of a channel without one."""
    listed = origin.read(manifest.NAME, manifest.LARGEST)
    proof = origin.read(SIGNATURE, _SIGNATURE_LIMIT) if listed is not None else None
    if listed is None or proof is None:
        return None
    lists = {manifest.NAME: listed, SIGNATURE: proof}
    key, digests = manifest.verified(listed, proof, trust, origin.title)
    for name in digests:
        if any(part.startswith(".") or not part for part in name.split("/")) or name in lists:
            raise WmlceError(
                f"{origin.title}/{manifest.NAME} lists {name[:80]!r}, which is no file of a channel",
                remedy="ask the signer to make the channel again",
            )
    # the part for users of conda-forge is a channel too, and has a signature of its own
    for name in [name for name in digests if PurePosixPath(name).name == manifest.NAME]:
        inner = origin.read(name, manifest.LARGEST)
        proof = origin.read(name + signature.SUFFIX, _SIGNATURE_LIMIT)
        if inner is None or hashlib.sha256(inner).hexdigest() != digests[name]:
            raise differs(origin.title, name, "missing" if inner is None else "changed")
        if proof is not None:
            manifest.verified(inner, proof, trust, f"{origin.title}/{PurePosixPath(name).parent}")
            lists[name + signature.SUFFIX] = proof
    unread = Signed(digests, key, trust is not None, None, lists)
    content = unread.checked(freshness.NAME, origin.read(freshness.NAME), origin.title)
    statement = freshness.parsed(content, f"{origin.title}/{freshness.NAME}") if content is not None else None
    return Signed(digests, key, trust is not None, statement, lists)


def fetch(origin: Origin, signed: Signed, target: Path, scratch: Path, say: Callable[[str], None]) -> None:
    """Put every file that is no package into `scratch`, each as it was signed; those that `target` has
    already are taken from there.
    """
    names = signed.others
    say(f"fetching the signed index, {len(names)} files, from {origin.title}")

    def work(name: str) -> None:
        place = scratch / name
        place.parent.mkdir(parents=True, exist_ok=True)
        present = target / name
        if present.is_file() and not present.is_symlink() and sha256_file(present) == signed.listed[name]:
            place.write_bytes(present.read_bytes())
        else:
            content = signed.checked(name, origin.read(name), origin.title)
            place.write_bytes(content or b"")
        place.chmod(0o644)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        futures = [pool.submit(work, name) for name in names]
        try:
            for future in futures:
                future.result()
        except BaseException:
            for future in futures:
                future.cancel()
            raise
    for name, content in signed.lists.items():
        (scratch / name).write_bytes(content)
        (scratch / name).chmod(0o644)


def strange(signed: Signed, present: Iterable[str]) -> list[str]:
    """Files of a mirror, but for packages, that are not in the signed list: of an older release, mostly."""
    belonging = {*signed.listed, *signed.lists}
    return [name for name in present if name not in belonging and not name.endswith(PACKAGE)]
