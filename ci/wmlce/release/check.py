"""Is a folder what somebody signed, whole and with nothing else in it?"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wmlce.images.apptainer import Runtime
from wmlce.release import copyleft, freshness, manifest, signature
from wmlce.release.freshness import Statement
from wmlce.release.signature import Trust
from wmlce.util.errors import WmlceError

RECORD = "release.json"
CHANNEL = "channel"
IMAGES = "images"


@dataclass(frozen=True)
class Checked:
    """version, commit: of a release; None of a channel alone. key: the fingerprint. trusted: was it looked
    for among trusted keys? image_key: of the signatures in the images. images_checked: were they looked at?
    statement: which version it is, as was signed.
    """

    version: str | None
    commit: str | None
    key: str
    trusted: bool
    files: int
    size: int
    image_key: str | None = None
    images_checked: bool = False
    statement: Statement | None = None


def to_sign(folder: Path) -> list[Path]:
    """What of a release (or of a channel) has a signature of its own: the list of everything, the lists of
    the channels, which are used without the rest, and the installers, which are passed on alone.
    """
    manifests = [
        path for name, path in manifest.everything(folder).items() if Path(name).name == manifest.NAME
    ]
    # the sources have a list too, for those who fetch them without the rest; the one of everything covers it
    manifests = [path for path in manifests if path.parent == folder or _is_channel(path.parent)]
    return [*manifests, *sorted((folder / "installers").glob("*.sh"))]


def _is_channel(folder: Path) -> bool:
    return any(folder.glob("*/repodata.json"))


def read_record(folder: Path) -> dict[str, Any] | None:
    """release.json; None where there is none."""
    try:
        document = json.loads((folder / RECORD).read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise WmlceError(f"{folder / RECORD} cannot be read", remedy="get the release again") from error
    if not isinstance(document, dict):
        raise WmlceError(f"{folder / RECORD} is not a release record", remedy="get the release again")
    return document


def check(
    folder: Path, trust: Trust | None, say: Callable[[str], None], runtime: Runtime | None = None
) -> Checked:
    """An error that tells what is wrong; changes nothing. Without `trust`, whose key it is stays open;
    without `runtime`, whether the signatures in the images are right.
    """
    manifest.require(folder)
    say(f"signature of {manifest.NAME}")
    # nothing is believed before
    key, listed = manifest.signed(folder, trust)
    sizes = _sizes(folder, listed)
    say(f"{len(listed)} files")
    wrong = manifest.differences(folder, listed, sizes=sizes)
    signed = {str(path.relative_to(folder)) for path in to_sign(folder)}
    for name, path in manifest.everything(folder).items():
        base = name.removesuffix(signature.SUFFIX)
        if name == base:
            continue
        if base not in signed:
            wrong.append(f"not in {manifest.NAME}: {name}")
        elif base != manifest.NAME and not wrong:
            signature.verify(path.with_name(Path(base).name), trust)
    if wrong:
        raise WmlceError(
            f"{folder} is not what was signed: {wrong[0]}"
            + (f" and {len(wrong) - 1} more" if wrong[1:] else ""),
            detail=wrong[1:20],
            remedy="get these files again from where the release was published",
        )
    missing = [name for name in sorted(signed) if not signature.signature_of(folder / name).is_file()]
    if missing:
        raise WmlceError(f"{folder / missing[0]} is not signed", remedy="copy its signature too")
    of_channel = freshness.NAME if _is_channel(folder) else f"{CHANNEL}/{freshness.NAME}"
    statement = freshness.signed(folder, listed, of_channel)
    freshness.check(statement, str(folder))
    record = read_record(folder) or {}
    if record and (folder / CHANNEL).is_dir():
        say("sources of what is under the GNU licences")
        copyleft.check(folder, record, listed)
    image_key = record.get("made_of", {}).get("image_key")
    if image_key is not None and runtime is not None:
        _images(folder, runtime, image_key, say)
    return Checked(
        record.get("version"),
        record.get("commit"),
        key,
        trust is not None,
        len(listed),
        sum((folder / name).stat().st_size for name in listed),
        image_key,
        image_key is not None and runtime is not None,
        statement,
    )


def _images(folder: Path, runtime: Runtime, key: str, say: Callable[[str], None]) -> None:
    from wmlce.release import image_signature

    images = sorted((folder / IMAGES).glob("*.sif"))
    say(f"signatures in {len(images)} images")
    signer = image_signature.verify(runtime, images, folder / IMAGES / image_signature.PUBLIC)
    if signer != key:
        raise WmlceError(
            f"the images of {folder} are signed by the key {signer}, and {RECORD} names {key}",
            remedy="get the release again from where it was published",
        )


def _sizes(folder: Path, listed: dict[str, str]) -> dict[str, int]:
    """What release.json tells, if it is the signed one: so a file that was cut off can be told."""
    from wmlce.util.files import sha256_file

    path = folder / RECORD
    if not path.is_file() or sha256_file(path) != listed.get(RECORD):
        return {}
    record = read_record(folder) or {}
    return {str(name): int(size) for name, size in record.get("sizes", {}).items()}
