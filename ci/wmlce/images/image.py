"""Images for Singularity and Apptainer: a few Debian packages, and the environment out of the channel.

The files are put together here, for any user and without a network where everything is cached; Apptainer
packs them by containers/NAME.def and runs the image's test. An image is whole or as it was before, and is
built again only when something in it changes: what that is stands beside it in NAME.sif.json, and inside.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wmlce.channel import published
from wmlce.envs import environments
from wmlce.images import apptainer, base_system
from wmlce.images import debian as debian_packages
from wmlce.images.apptainer import Runtime
from wmlce.images.debian import DebianPackage
from wmlce.recipes import third_party
from wmlce.recipes.licenses import all_of, refuse_proprietary
from wmlce.util import conda_meta
from wmlce.util.errors import WmlceError
from wmlce.util.files import disk_errors, scratch_beside, sha256_file, write_json
from wmlce.util.layout import Layout
from wmlce.util.locks import file_lock

PREFIX = Path("/opt/ibm-wml-ce")
_SHARE = Path("usr/share/ibm-wml-ce")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_FORMAT = 2
"""Part of the content hash: another number where the same packages would give another image."""
_BUILD_LIMIT_S = 3600.0
_SHIPPED = ("environment.sh", "test.sh", "train.py")
#: Places that the driver's programs and sockets are bound to by --nv: a read-only image should have them.
_DRIVER_PLACES = (
    "usr/bin/nvidia-smi",
    "usr/bin/nvidia-debugdump",
    "usr/bin/nvidia-persistenced",
    "usr/bin/nvidia-cuda-mps-control",
    "usr/bin/nvidia-cuda-mps-server",
)


@dataclass(frozen=True)
class Request:
    """name: of containers/NAME.def. output: the file to make. source: the channel. proprietary: may it hold
    packages that must not be passed on?
    """

    name: str
    output: Path
    specs: list[str]
    source: Path
    proprietary: bool = False


@dataclass(frozen=True)
class Content:
    """Everything that decides what an image is."""

    definition: str
    shipped: dict[str, str]
    release: str
    specs: list[str]
    environment: dict[str, str]
    """File name of each package of the channel, and its sha256."""
    debian: list[DebianPackage]

    @property
    def lock(self) -> str:
        """One number for what is in the image: packages of the channel and of Debian."""
        return _digest({"environment": self.environment, "debian": self._debian()})

    @property
    def hash(self) -> str:
        facts = {key: value for key, value in vars(self).items() if key != "debian"}
        return _digest({"format": _FORMAT, **facts, "debian": self._debian()})

    def _debian(self) -> list[dict[str, str]]:
        return [package.described() for package in self.debian]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def definitions(layout: Layout) -> list[str]:
    """Names of the images that can be built."""
    return sorted(path.stem for path in (layout.root / "containers").glob("*.def"))


def record_of(image: Path) -> Path:
    return image.with_name(f"{image.name}.json")


def lock_of(layout: Layout, output: Path) -> Path:
    """The file that is locked while `output` is built."""
    return layout.build / "locks" / f"image-{hashlib.sha256(str(output).encode()).hexdigest()[:16]}.lock"


def read_record(image: Path) -> dict[str, Any] | None:
    """What the image was made of; None where that is not known, or not of this file."""
    try:
        record = json.loads(record_of(image).read_text())
        return record if record["size"] == image.stat().st_size else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def build(layout: Layout, request: Request, *, say: Callable[[str], None]) -> bool:
    """Make the image; False when it is there with the same content."""
    _check(layout, request)
    runtime = apptainer.find(layout)
    if missing := apptainer.missing_helpers():
        raise WmlceError(
            f"an image cannot be built here: {'; '.join(missing)}",
            remedy="ask your administrator to install these packages",
        )
    with (
        disk_errors(f"building {request.output}"),
        file_lock(lock_of(layout, request.output), f"building {request.output}", say=say),
        published.reading(layout, request.source, say),
    ):
        records = environments.solve_channel(request.source, request.specs, layout)
        if not request.proprietary:
            refuse_proprietary(records, f"the image {request.output.name}")
        content = _content(layout, request, records, say)
        record = read_record(request.output)
        if record is not None and record.get("content") == content.hash:
            return False
        started = time.monotonic()
        with scratch_beside(request.output) as scratch:
            root = scratch / "root"
            _fill(layout, request, content, records, root, say)
            say(f"packing {request.output.name} and testing it with {runtime.version}")
            finished = _pack(layout, request, content, runtime, root, scratch)
            _publish(request, content, root, finished, runtime)
        size = request.output.stat().st_size / 1e6
        say(f"{layout.display(request.output)}: {size:.0f} MB in {time.monotonic() - started:.0f} s")
    return True


def _check(layout: Layout, request: Request) -> None:
    available = definitions(layout)
    if not _NAME.fullmatch(request.name) or request.name not in available:
        raise WmlceError(
            f"there is no containers/{request.name}.def",
            remedy=f"name one of: {', '.join(available) or 'none'}",
        )
    if request.output.is_dir():
        raise WmlceError(f"{request.output} is a folder", remedy="name a file with --output")
    published.require(layout, request.source)


def _content(layout: Layout, request: Request, records: Sequence[Any], say: Callable[[str], None]) -> Content:
    folder = layout.root / "containers"
    return Content(
        definition=(folder / f"{request.name}.def").read_text(),
        shipped={name: (folder / name).read_text() for name in _SHIPPED},
        release=(layout.root / "VERSION").read_text().strip(),
        specs=request.specs,
        environment={r.file_name: r.sha256.hex() if r.sha256 else "" for r in records},
        debian=debian_packages.fetch(
            layout, debian_packages.listed_names(folder / debian_packages.LIST), say
        ),
    )


def _fill(
    layout: Layout,
    request: Request,
    content: Content,
    records: list[Any],
    root: Path,
    say: Callable[[str], None],
) -> None:
    """All files of the image, with the places that they will have."""
    base_system.unpack([package.path for package in content.debian], root)
    inside = root / PREFIX.relative_to("/")
    say(f"installing {len(records)} packages for {request.output.name}")
    environments.install_packages(layout, inside, records, request.specs, final=PREFIX)
    environments.compile_modules(inside, say, final=PREFIX)
    (inside / "CACHEDIR.TAG").unlink(missing_ok=True)
    share = root / _SHARE
    share.mkdir(parents=True)
    for name, text in content.shipped.items():
        (share / name).write_text(text)
    write_json(share / "image.json", _described(content, root))
    certificates = root / "etc/ssl/certs/ca-certificates.crt"
    if (inside / "ssl/cacert.pem").is_file():
        certificates.parent.mkdir(parents=True, exist_ok=True)
        certificates.symlink_to(PREFIX / "ssl/cacert.pem")
    for name in _DRIVER_PLACES:
        if "--nv" in content.definition:
            (root / name).touch()
    # Apptainer binds the user's own over these, and a user must not need the right to read root's
    for folder, _, names in os.walk(root):
        os.chmod(folder, os.stat(folder).st_mode | 0o755)
        for name in names:
            path = Path(folder) / name
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | 0o444)


def _licenses(content: Content, root: Path) -> str:
    """The licences of all software in an image: packages of the channel, what is inside them, Debian's."""
    stated = [third_party.declared().debian.get(package.name, "") for package in content.debian]
    for record in conda_meta.all_of(root / PREFIX.relative_to("/")).values():
        stated.append(str(record.get("license") or ""))
        inside = third_party.inside(str(record["name"]), str(record["version"]), record["files"])
        stated += [part.project.license for part in inside]
    return all_of(stated)


def _described(content: Content, root: Path) -> dict[str, Any]:
    return {
        "release": content.release,
        "lock": content.lock,
        "licenses": _licenses(content, root),
        "prefix": str(PREFIX),
        "specs": content.specs,
        "environment": content.environment,
        "debian": {
            package.name: {"version": package.version, "sha256": package.sha256} for package in content.debian
        },
    }


def _pack(
    layout: Layout, request: Request, content: Content, runtime: Runtime, root: Path, scratch: Path
) -> Path:
    finished = scratch / request.output.name
    (scratch / "tmp").mkdir()
    # relative, as Apptainer writes it into the image
    values = {
        "rootfs": root.name,
        "release": content.release,
        "lock": content.lock,
        "licenses": _licenses(content, root),
    }
    arguments = [
        "build",
        *(word for key, value in values.items() for word in ("--build-arg", f"{key}={value}")),
    ]
    definition = layout.root / "containers" / f"{request.name}.def"
    apptainer.run(
        runtime,
        [*arguments, str(finished), str(definition)],
        limit_s=_BUILD_LIMIT_S,
        title=f"building {request.output.name}",
        cwd=scratch,
        env={"APPTAINER_TMPDIR": str(scratch / "tmp"), "APPTAINER_CACHEDIR": str(scratch / "cache")},
    )
    return finished


def _publish(request: Request, content: Content, root: Path, finished: Path, runtime: Runtime) -> None:
    """The image first: a record without its image would only say that there is one."""
    with finished.open("rb") as stream:
        os.fsync(stream.fileno())
    finished.chmod(0o755)
    record = {
        **_described(content, root),
        "name": request.name,
        "content": content.hash,
        "built_with": runtime.version,
        "size": finished.stat().st_size,
        "sha256": sha256_file(finished),
    }
    os.replace(finished, request.output)
    write_json(record_of(request.output), record)


@dataclass(frozen=True)
class ImageInfo:
    """What `image list` shows. current: what `image build` would make."""

    path: Path
    size: int
    release: str
    lock: str
    packages: int


def listing(layout: Layout) -> list[ImageInfo]:
    """The images in build/images."""
    infos = []
    for path in sorted(layout.images.glob("*.sif")):
        record = read_record(path) or {}
        infos.append(
            ImageInfo(
                path,
                path.stat().st_size,
                str(record.get("release", "unknown")),
                str(record.get("lock", "unknown")),
                len(record.get("environment", {})) + len(record.get("debian", {})),
            )
        )
    return infos
