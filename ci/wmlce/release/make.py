"""Makes a release: build/release/VERSION, whole or not there.

It is put together in a folder of another name, step by step. A run that was stopped goes on at the step where
it was; another commit or other options begin anew. Nothing in it tells the time or the machine, so the same
commit and the same packages give the same SHA256SUMS.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from wmlce.channel import published
from wmlce.documentation import site
from wmlce.images.apptainer import Runtime
from wmlce.recipes.recipe_set import RecipeSet, load_source_lock
from wmlce.release import (
    check,
    contents,
    copyleft,
    image_signature,
    manifest,
    page,
    signature,
    tree,
    trust,
)
from wmlce.release.check import CHANNEL, IMAGES, RECORD
from wmlce.release.freshness import Statement
from wmlce.release.image_signature import ImageKey
from wmlce.sources import binary_sources
from wmlce.sources.model import LockedArtifact, LockedSource
from wmlce.sources.store import SourceLock
from wmlce.util import platform
from wmlce.util.errors import WmlceError
from wmlce.util.files import disk_errors, for_others, remove_tree, sha256_file, write_atomic, write_json
from wmlce.util.host import cpu_count
from wmlce.util.layout import Layout
from wmlce.util.locks import file_lock
from wmlce.util.progress import Progress
from wmlce.util.templates import rendered

_METAPACKAGES = "powerai"
"""The recipe whose packages users install."""
_STATE = ".made.json"
NOTES = "NOTES.md"


@dataclass(frozen=True)
class Request:
    """packages: what users install, each with a lock; None: those of the recipe `powerai`. installers,
    images: packages and names of containers/NAME.def. sources: with the bundle of sources? source: a channel
    to take as it is, instead of building. address: where users will find the channel. key: to sign with.
    image_key: to sign the images with. expires: from when on nobody should use it any more.
    """

    packages: Sequence[str] | None = None
    installers: Sequence[str] = ("powerai",)
    images: Sequence[str] = ()
    sources: bool = True
    source: Path | None = None
    address: str | None = None
    key: Path | None = None
    image_key: ImageKey | None = None
    expires: datetime | None = None


@dataclass
class Made:
    """fresh: was something made now? key: the fingerprint of who signed it."""

    folder: Path
    fresh: bool
    key: str | None
    files: int = 0
    size: int = 0
    left_out: list[str] = field(default_factory=list)


def place(layout: Layout, version: str) -> Path:
    return layout.build / "release" / version


def make(layout: Layout, request: Request, progress: Progress) -> Made:
    """Make the release of this commit; one that is there already is only signed, if it was not."""
    # our own channel is not signed yet while it is made
    os.environ.pop(trust.VARIABLE, None)
    facts = tree.read(layout)
    if request.key is not None and not request.key.is_file():
        raise WmlceError(
            f"there is no key {request.key}", remedy=f"make one: wmlce release key new {request.key}"
        )
    final = place(layout, facts.version)
    question = _question(layout, request, facts)
    with (
        disk_errors(f"making {final}"),
        for_others(),
        file_lock(layout.build / "locks" / "release.lock", "making a release", say=progress.say),
    ):
        if final.exists():
            return _signed_again(layout, final, question, request, progress.say)
        staging = final.with_name(f".{facts.version}.part")
        state = staging / _STATE
        if staging.exists() and _read_state(state) != question:
            progress.say(f"{facts.version}: starting over: another commit, or other options")
            remove_tree(staging)
        if staging.exists():
            progress.say(f"{facts.version}: going on where an earlier run stopped")
        staging.mkdir(parents=True, exist_ok=True)
        write_json(state, question)
        left_out = _steps(layout, request, facts, question, staging, progress)
        state.unlink()
        progress.say(f"{manifest.NAME} of {facts.version}")
        manifest.write(staging, _known(staging))
        key = _sign(staging, request.key, progress.say)
        os.rename(staging, final)
    listed = manifest.read(final)
    size = sum((final / name).stat().st_size for name in listed)
    return Made(final, True, key, len(listed), size, left_out)


def _question(layout: Layout, request: Request, facts: tree.Tree) -> dict[str, Any]:
    """What decides the content of a release."""
    return {
        "version": facts.version,
        "commit": facts.commit,
        "packages": list(_metapackages(layout) if request.packages is None else request.packages),
        "installers": list(request.installers),
        "images": list(request.images),
        "sources": request.sources,
        "address": request.address,
        "built": request.source is None,
        "image_key": _image_key(layout, request),
        "documentation": _documentation(layout, facts) is not None,
        **({"expires": request.expires.isoformat()} if request.expires is not None else {}),
    }


def _documentation(layout: Layout, facts: tree.Tree) -> site.Site | None:
    """The site of this commit, if it has been made."""
    documentation = site.find(layout)
    return documentation if documentation is not None and documentation.commit == facts.commit else None


def _image_key(layout: Layout, request: Request) -> str | None:
    """The id of the key that signs the images."""
    if request.image_key is None:
        return None
    from wmlce.images import apptainer

    return image_signature.fingerprint(apptainer.find(layout), request.image_key)


def _read_state(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def _metapackages(layout: Layout) -> list[str]:
    recipe = RecipeSet(layout).by_name.get(_METAPACKAGES)
    if recipe is None:
        raise WmlceError(
            f"there is no recipe {_METAPACKAGES}, whose packages a release has locks of",
            remedy="name what users install: --package NAME",
        )
    return sorted(output.name for output in recipe.outputs)


def _signed_again(
    layout: Layout, final: Path, question: dict[str, Any], request: Request, say: Callable[[str], None]
) -> Made:
    record = check.read_record(final) or {}
    if record.get("made_of") != question:
        raise WmlceError(
            f"{layout.display(final)} is there, of {str(record.get('commit'))[:12]} and with its own options",
            remedy="a release that others may have never changes: raise VERSION; or, if nobody has it, "
            "remove the folder",
        )
    signed = all(signature.signature_of(path).is_file() for path in check.to_sign(final))
    key = None
    if request.key is not None and not signed:
        key = _sign(final, request.key, say)
    elif signed:
        key = signature.fingerprint(signature.key_of(final / manifest.NAME))
    listed = manifest.read(final)
    size = sum((final / name).stat().st_size for name in listed)
    return Made(final, key is not None and not signed, key, len(listed), size, record.get("left_out", []))


def _sign(folder: Path, key: Path | None, say: Callable[[str], None]) -> str | None:
    if key is None:
        return None
    say(f"signing with {key}")
    return signature.sign(check.to_sign(folder), key)


def sign(folder: Path, key: Path, say: Callable[[str], None]) -> str:
    """Sign a release (or a channel) that is as its list says; the key's fingerprint."""
    wrong = manifest.differences(folder, manifest.read(folder))
    if wrong:
        raise WmlceError(
            f"{folder} is not what its {manifest.NAME} says: {wrong[0]}",
            detail=wrong[1:10],
            remedy="get or make it again; nothing was signed",
        )
    say(f"signing with {key}")
    return signature.sign(check.to_sign(folder), key)


def _known(staging: Path) -> dict[str, str]:
    """Digests that are known: packages have been compared with theirs."""
    return {
        f"{CHANNEL}/{name}": digest
        for name, digest in manifest.read(staging / CHANNEL).items()
        if name.endswith(".conda")
    }


def _steps(
    layout: Layout,
    request: Request,
    facts: tree.Tree,
    question: dict[str, Any],
    staging: Path,
    progress: Progress,
) -> list[str]:
    say = progress.say
    channel = staging / CHANNEL
    source = request.source or _built(layout, progress)
    with published.reading(layout, source, say):
        selection = contents.select(layout, source)
        if not channel.is_dir():
            say(f"channel: {len(selection.entries)} packages")
            statement = Statement(
                signature.NAMESPACE, facts.version, datetime.fromisoformat(facts.date), request.expires
            )
            contents.write_channel(layout, source, selection, channel, facts.time, statement)
        elif published.read(channel).packages.keys() != selection.entries.keys():
            remove_tree(staging)
            raise WmlceError(
                f"{source} was changed since the release was begun", remedy="run the command again"
            )
    checks = contents.verify(layout, channel, say)
    say(f"locks of {', '.join(question['packages'])}")
    base = request.address or f"../{CHANNEL}"
    locked = contents.write_locks(channel, question["packages"], base, staging / "locks")
    _installers(layout, request, facts, staging, say)
    _images(layout, request, staging, say)
    bill = _sbom(layout, channel, staging, say)
    documentation = _documentation(layout, facts)
    if documentation is None:
        say("without documentation: ci/docs has not made the site of this commit")
    else:
        site.copy(documentation, staging / page.DOCUMENTATION)
    name = staging / f"ibm-wml-ce-{facts.version}.tar.gz"
    recipes = RecipeSet(layout)
    gnu, sources = _gnu_sources(layout, request, recipes, selection, staging, name.name, say)
    if not name.is_file():
        tree.archive(layout, facts, name)
    floor = max((contents.floor_of(e.get("depends", [])) for e in selection.entries.values()), default=None)
    record = {
        "version": facts.version,
        "commit": facts.commit,
        "date": facts.date,
        "made_of": question,
        "channel": {
            "packages": len(selection.entries),
            "bytes": sum(int(entry["size"]) for entry in selection.entries.values()),
            "glibc": str(floor),
        },
        "locks": {name: asdict(facts_) for name, facts_ in locked.items()},
        "verification": {"ok": True, "checks": [item.name for item in checks]},
        "sbom": bill,
        "left_out": selection.left_out,
        "sources_left_out": sources,
        "gnu_licenses": [asdict(item) for item in gnu],
    }
    write_atomic(staging / NOTES, _notes(facts, record, staging))
    variants = list(recipes.variants.values())
    write_atomic(staging / page.NAME, page.render(staging, record, selection.entries, variants))
    record["sizes"] = {
        name: path.stat().st_size
        for name, path in manifest.files(staging).items()
        if name not in (RECORD, _STATE)
    }
    write_json(staging / RECORD, record)
    return selection.left_out


def _gnu_sources(
    layout: Layout,
    request: Request,
    recipes: RecipeSet,
    selection: contents.Selection,
    staging: Path,
    archive: str,
    say: Callable[[str], None],
) -> tuple[list[copyleft.Item], list[str]]:
    """What is under the GNU licences, with its source; and the sources that are left out."""
    lock = load_source_lock(layout)
    shipped = copyleft.shipped(staging / CHANNEL, selection.entries.values())
    # of what is declared, only the sources of what is passed on
    names = {file.package for file in shipped}
    declared = [item for item in binary_sources.read(layout) if names & set(item.packages)]
    locked_sources = binary_sources.locked(layout, declared)
    gnu = copyleft.items(shipped, recipes, lock, declared, locked_sources, archive)
    without = sum(item.without is not None for item in gnu)
    say(f"{len(gnu)} files or packages under the GNU licences, {without} of them without a source")
    return gnu, _sources(lock, locked_sources.values(), staging, say) if request.sources else []


def _built(layout: Layout, progress: Progress) -> Path:
    """build/channel, of the committed recipes and of the locked sources."""
    from wmlce.channel.update import update

    done = update(layout, progress, [], jobs=cpu_count())
    if done.stand_ins:
        raise WmlceError(
            "the channel is built from other sources than the locked ones",
            detail=done.stand_ins[:10],
            remedy="lock them (wmlce lock sources), commit, and build; or build with --locked",
        )
    progress.say(
        f"{layout.display(layout.channel)}: {done.packages} packages, {done.fresh} recipes built now"
    )
    return layout.channel


def _installers(
    layout: Layout, request: Request, facts: tree.Tree, staging: Path, say: Callable[[str], None]
) -> None:
    from wmlce.installer import build

    for name in request.installers:
        middle = "" if name == _METAPACKAGES else f"{name}-"
        file = f"ibm-wml-ce-{middle}{facts.version}-{platform.of_this_machine().subdir}.sh"
        output = staging / "installers" / file
        output.parent.mkdir(exist_ok=True)
        build.build(
            layout, build.Request(output, [name], staging / CHANNEL, channel=request.address), say=say
        )


def _images(layout: Layout, request: Request, staging: Path, say: Callable[[str], None]) -> None:
    """Built in build/images, where an image that has not changed is not built again: two builds of an image
    differ in its identifier and its time.
    """
    from wmlce.images import apptainer, image
    from wmlce.util.files import link_or_copy

    for name in request.images:
        output = layout.images / f"{name}.sif"
        image.build(layout, image.Request(name, output, [_METAPACKAGES], staging / CHANNEL), say=say)
        place = staging / IMAGES / output.name
        if request.image_key is None:
            for path in (output, image.record_of(output)):
                link_or_copy(path, place.with_name(path.name))
        else:
            _signed_image(apptainer.find(layout), output, place, request.image_key, say)


def _signed_image(
    runtime: Runtime, built: Path, place: Path, key: ImageKey, say: Callable[[str], None]
) -> None:
    """A copy of a built image, with a signature in it: the time is part of a signature, so one that an
    interrupted run made stays.
    """
    from wmlce.images import image

    public = place.with_name(image_signature.PUBLIC)
    facts = json.loads(image.record_of(built).read_text())
    record = image.read_record(place)
    if public.is_file() and record is not None and record.get("unsigned_sha256") == facts["sha256"]:
        image_signature.verify(runtime, [place], public)
        return
    say(f"signing {place.name} with the key in {key.keyring}")
    image_signature.export(runtime, key, public)
    part = place.with_name(f".{place.name}.part")
    shutil.copyfile(built, part)
    part.chmod(0o755)
    image_signature.sign(runtime, part, key)
    image_signature.verify(runtime, [part], public)
    signed = {"size": part.stat().st_size, "sha256": sha256_file(part), "unsigned_sha256": facts["sha256"]}
    os.replace(part, place)
    write_json(image.record_of(place), {**facts, **signed})


def _sbom(layout: Layout, channel: Path, staging: Path, say: Callable[[str], None]) -> str:
    """The bills of materials: of equal packages they have equal bytes."""
    from wmlce.channel import sbom

    say("bill of materials")
    for form, name in sbom.FILES.items():
        sbom.write(staging / name, sbom.of_channel(layout, channel, form))
    return sbom.FILE


def _sources(
    lock: SourceLock, binaries: Iterable[LockedSource], staging: Path, say: Callable[[str], None]
) -> list[str]:
    """The bundle of everything that packages are built from and that may be passed on, and of the sources of
    binaries; what may not be passed on.
    """
    from wmlce.sources import bundle, relock_tools

    usual = [item for item in lock.by_file.values() if item.entry.variant is None]
    items = [item for item in usual if item.entry.redistribute]
    items += [LockedArtifact(entry, file) for entry in binaries for file in entry.files]
    say(f"sources: {len(items)} files")
    bundle.write(lock, items, staging / "sources", say, tools=bool(relock_tools.locks(lock.layout)))
    return sorted(item.file.name for item in usual if not item.entry.redistribute)


def _notes(facts: tree.Tree, record: dict[str, Any], staging: Path) -> str:
    return rendered(
        "wmlce.release",
        "notes.md.j2",
        release=record,
        spoken=platform.of_this_machine().spoken,
        changes=facts.changes,
        installers=sorted(path.name for path in staging.glob("installers/*.sh")),
        images=sorted(path.name for path in staging.glob("images/*.sif")),
        namespace=signature.NAMESPACE,
        principal=signature.PRINCIPAL,
    )
