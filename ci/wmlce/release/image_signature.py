"""Signatures inside images, by Apptainer and an OpenPGP key: `apptainer verify` finds them wherever the image
goes without the rest of the release.

Keys are in a keyring that the caller names, never in that of the user or of the machine.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wmlce.images import apptainer
from wmlce.images.apptainer import Runtime
from wmlce.util.errors import WmlceError

PUBLIC = "signing-key.asc"
"""The public key, beside the images that it checks."""
PASSPHRASE = "WMLCE_IMAGE_PASSPHRASE"
_KEYRING = "APPTAINER_KEYSDIR"
_FINGERPRINT = re.compile(r"^\s*Fingerprint:\s+(?P<id>[0-9A-F]{40})$", re.MULTILINE)
_LIMIT_S = 900
"""Images have gigabytes."""


@dataclass(frozen=True)
class ImageKey:
    """keyring: the folder that `apptainer key newpair --keysdir` made, with one private key."""

    keyring: Path
    passphrase: str = field(default="", repr=False)


def passphrase(file: Path | None) -> str:
    """What a file holds in its first line, else the variable; empty for a key without one."""
    if file is None:
        return os.environ.get(PASSPHRASE, "")
    try:
        return file.read_text().partition("\n")[0]
    except (OSError, UnicodeDecodeError) as error:
        raise WmlceError(
            f"the passphrase of the images' key cannot be read from {file}: {error}",
            remedy="name a file whose first line is the passphrase",
        ) from error


def fingerprint(runtime: Runtime, key: ImageKey) -> str:
    """The fingerprint of the keyring's private key."""
    if not (key.keyring / "pgp-secret").is_file():
        raise WmlceError(
            f"{key.keyring} is not a keyring with a private key",
            remedy=f"make one: apptainer key newpair --keysdir {key.keyring}",
        )
    return _only(_run(runtime, key.keyring, ["key", "list", "--secret"]).stdout, key.keyring)


def _only(listing: str, where: Path) -> str:
    fingerprints = _FINGERPRINT.findall(listing)
    if len(fingerprints) != 1:
        raise WmlceError(
            f"{where} holds {len(fingerprints)} keys, so it does not say which one signs",
            remedy="use a keyring with a single key",
        )
    return str(fingerprints[0])


def sign(runtime: Runtime, image: Path, key: ImageKey) -> None:
    """Add a signature of all that is in the image; the file changes."""
    done = _run(runtime, key.keyring, ["sign", "--keyidx", "0", str(image)], answers=key.passphrase)
    if done.returncode != 0:
        raise WmlceError(
            f"{image.name} could not be signed with {key.keyring}",
            detail=_told(done),
            remedy=f"is its passphrase in {PASSPHRASE}, or in the file of --image-passphrase?",
        )


def export(runtime: Runtime, key: ImageKey, target: Path) -> None:
    """Write the public half of the keyring's key."""
    key_id = fingerprint(runtime, key)
    public = _FINGERPRINT.findall(_run(runtime, key.keyring, ["key", "list"]).stdout)
    done = None
    if key_id in public:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        arguments = ["key", "export", "--armor", str(target)]
        done = _run(runtime, key.keyring, arguments, answers=str(public.index(key_id)))
    if done is None or done.returncode != 0 or not target.is_file():
        raise WmlceError(
            f"the public key {key_id} could not be taken out of {key.keyring}",
            detail=_told(done) if done else [],
            remedy="use a keyring that `apptainer key newpair --keysdir` made, with both halves",
        )
    target.chmod(0o644)


def verify(runtime: Runtime, images: Sequence[Path], public: Path) -> str:
    """An error unless the key in `public`, and no other, signed all of each image; its fingerprint."""
    with tempfile.TemporaryDirectory(prefix="wmlce-keyring-") as folder:
        keyring = Path(folder)
        keyring.chmod(0o700)
        done = _run(runtime, keyring, ["key", "import", str(public)])
        if done.returncode != 0:
            raise WmlceError(
                f"{public} is not a public key that Apptainer can read",
                detail=_told(done),
                remedy="get it again from where the release was published",
            )
        name = _only(_run(runtime, keyring, ["key", "list"]).stdout, public)
        for image in images:
            done = _run(runtime, keyring, ["verify", "--local", "--all", "--json", str(image)])
            if done.returncode != 0 or _signers(done.stdout) != {name}:
                raise WmlceError(
                    f"{image} is not what the key {name} signed",
                    detail=_told(done),
                    remedy="get it again from where the release was published, and do not run this one",
                )
    return name


def _signers(answer: str) -> set[str]:
    """Fingerprints of those whose signatures are right; nothing where one is not."""
    try:
        signers = [item["Signer"] for item in json.loads(answer)["SignerKeys"] or ()]
        if not all(signer["KeyCheck"] and signer["DataCheck"] for signer in signers):
            return set()
        return {str(signer["Fingerprint"]).upper() for signer in signers}
    except (ValueError, KeyError, TypeError):
        return set()


def _run(
    runtime: Runtime, keyring: Path, arguments: Sequence[str], *, answers: str = ""
) -> subprocess.CompletedProcess[str]:
    return apptainer.ask(
        runtime,
        arguments,
        limit_s=_LIMIT_S,
        title=f"apptainer {arguments[0]}",
        env={_KEYRING: str(keyring)},
        answers=f"{answers}\n",  # a command line would show it to every user of the machine
    )


def _told(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith(("FATAL", "ERROR"))][-3:]
