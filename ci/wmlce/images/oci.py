"""The content of a finished image in the form of the Open Container Initiative, for Docker, Podman and
registries.

It is made from the image file itself, so that both hold the same files: unsquashfs takes them out, umoci
(that of PATH, else Debian's, fetched by name) packs them by the OCI image specification, and the layout
becomes one tar file, an "OCI archive". Two layers: the system, and the environment, which differ in how often
they change.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wmlce.images import apptainer, debian, image
from wmlce.images.apptainer import Runtime
from wmlce.util import debian_archive
from wmlce.util.errors import WmlceError
from wmlce.util.files import disk_errors, remove_tree, scratch_beside, sha256_file, write_json
from wmlce.util.layout import Layout
from wmlce.util.locks import file_lock
from wmlce.util.platform import of_this_machine

VARIABLE = "WMLCE_UMOCI"
_LIMIT_S = 3600.0
#: Of a tag, by the OCI distribution specification.
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_ENVIRONMENT = "/usr/share/ibm-wml-ce/environment.sh"
#: A line of `apptainer sif list`: where the file system begins.
_FILE_SYSTEM = re.compile(r"\|(\d+)-\d+\s*\|FS \(Squashfs/\*System/")
#: What Apptainer adds to every image, for itself.
_OF_APPTAINER = (".singularity.d", ".run", ".shell", ".exec", ".test", "singularity", "environment")
#: What the shell that is asked for the variables adds by itself.
_OF_SHELL = ("PWD", "OLDPWD", "SHLVL", "_")


@dataclass(frozen=True)
class Request:
    """source: an image that `wmlce image build` made. output: the archive to make. tag: its name in there."""

    source: Path
    output: Path
    tag: str


def find_umoci(layout: Layout, say: Callable[[str], None]) -> Path:
    """umoci: $WMLCE_UMOCI, else on PATH, else Debian's, which is fetched into the cache."""
    if named := os.environ.get(VARIABLE):
        if (program := shutil.which(named)) is None:
            raise WmlceError(
                f"{VARIABLE} names {named}, which is not a program", remedy="correct it, or unset it"
            )
        return Path(program)
    if program := shutil.which("umoci"):
        return Path(program)
    (package,) = debian.fetch(layout, ["umoci"], say)
    home = layout.cache / "umoci" / package.sha256[:16]
    with (
        disk_errors(f"unpacking umoci into {home}"),
        file_lock(layout.locks / "umoci.lock", "fetching umoci", say=say),
    ):
        if not os.access(home / "usr/bin/umoci", os.X_OK):
            with scratch_beside(home) as scratch:
                debian_archive.unpack(package.path, scratch / "root")
                remove_tree(home)
                os.rename(scratch / "root", home)
    return home / "usr/bin/umoci"


def build(layout: Layout, request: Request, *, say: Callable[[str], None]) -> bool:
    """Make the archive; False when it is there and of this image."""
    record = _record_of_source(request)
    runtime = apptainer.find(layout)
    if missing := apptainer.missing_helpers():
        raise WmlceError(
            f"cannot unpack an image on this machine: {'; '.join(missing)}", remedy="install these"
        )
    with (
        disk_errors(f"building {request.output}"),
        file_lock(image.lock_of(layout, request.output), f"building {request.output}", say=say),
    ):
        existing = image.read_record(request.output)
        if existing is not None and (existing.get("made_from"), existing.get("tag")) == (
            record["sha256"],
            request.tag,
        ):
            return False
        umoci = find_umoci(layout, say)
        started = time.monotonic()
        with scratch_beside(request.output) as scratch:
            say(f"taking {request.source.name} apart")
            root = scratch / "root"
            _take_apart(runtime, request.source, root)
            archive = _pack(umoci, request, record, root, scratch, say)
            new_record = {
                **record,
                "made_from": record["sha256"],
                "tag": request.tag,
                "built_with": _version(umoci),
            }
            new_record |= {"size": archive.stat().st_size, "sha256": sha256_file(archive)}
            os.replace(archive, request.output)
            write_json(image.record_of(request.output), new_record)
        size = request.output.stat().st_size / 1e6
        say(f"{layout.display(request.output)}: {size:.0f} MB in {time.monotonic() - started:.0f} s")
    return True


def _record_of_source(request: Request) -> dict[str, Any]:
    if not _TAG.fullmatch(request.tag):
        raise WmlceError(f"{request.tag!r} cannot be a tag", remedy="letters, digits, '.', '_' and '-'")
    if not request.source.is_file():
        raise WmlceError(f"there is no image {request.source}", remedy="build it: wmlce image build ddl")
    record = image.read_record(request.source)
    if record is None or not {"sha256", "licenses"} <= record.keys():
        raise WmlceError(
            f"{image.record_of(request.source)} is missing, or not of this image",
            remedy="build the image again: wmlce image build ddl",
        )
    if request.output.is_dir() or request.output == request.source:
        raise WmlceError(f"{request.output} cannot be written", remedy="name a new file with --output")
    return record


def _take_apart(runtime: Runtime, source: Path, root: Path) -> None:
    """The files of an image. Apptainer tells where its file system begins; its own way to a folder needs
    rights that a root in a container lacks."""
    listing = apptainer.run(runtime, ["sif", "list", str(source)], limit_s=60, title=f"reading {source.name}")
    offsets = _FILE_SYSTEM.findall(listing)
    if len(offsets) != 1:
        raise WmlceError(
            f"{source} has {len(offsets)} squashfs file systems",
            remedy="build it again: wmlce image build ddl",
        )
    command = [
        "unsquashfs",
        "-no-progress",
        "-no-xattrs",
        "-offset",
        offsets[0],
        "-dest",
        str(root),
        str(source),
    ]
    _run(command, f"unsquashfs cannot unpack {source}", "build the image again: wmlce image build ddl")


def _pack(
    umoci: Path,
    request: Request,
    record: dict[str, Any],
    root: Path,
    scratch: Path,
    say: Callable[[str], None],
) -> Path:
    variables = _variables(root)
    for name in _OF_APPTAINER:
        path = root / name
        if path.is_symlink():
            path.unlink()
        else:
            remove_tree(path)
    inside = f"./{image.PREFIX.relative_to('/')}"
    layout_folder = scratch / "oci"
    tag = f"{layout_folder}:{request.tag}"
    say(f"packing {request.output.name} with umoci")
    _umoci(umoci, ["init", "--layout", str(layout_folder)])
    _umoci(umoci, ["new", "--image", tag])
    # `umoci insert` of release 0.4.7 leaves out the end of an archive, at which strict readers stop
    for name, tar_arguments in (("system", [f"--exclude={inside}/*", "."]), ("environment", [inside])):
        layer = scratch / f"{name}.tar"
        _tar(root, layer, tar_arguments)
        _umoci(umoci, ["raw", "add-layer", "--image", tag, "--history.created_by", name, str(layer)])
        layer.unlink()
    labels = {
        "org.opencontainers.image.title": "ibm-wml-ce",
        "org.opencontainers.image.version": str(record["release"]),
        "org.opencontainers.image.licenses": str(record["licenses"]),
        "ibm-wml-ce.release": str(record["release"]),
        "ibm-wml-ce.lock": str(record["lock"]),
    }
    arguments = [word for name, value in labels.items() for word in ("--config.label", f"{name}={value}")]
    arguments += [word for name, value in variables.items() for word in ("--config.env", f"{name}={value}")]
    arguments += ["--config.cmd", "ddlrun", "--config.cmd", "-help", "--os", "linux"]
    arguments += ["--architecture", of_this_machine().oci]
    _umoci(umoci, ["config", *arguments, "--image", tag])
    _umoci(umoci, ["gc", "--layout", str(layout_folder)])
    archive = scratch / request.output.name
    with tarfile.open(archive, "w") as stream:  # the layers are compressed already
        for path in sorted(layout_folder.rglob("*")):
            stream.add(path, str(path.relative_to(layout_folder)), recursive=False, filter=normalize_owner)
    return archive


def _tar(root: Path, layer: Path, arguments: Sequence[str]) -> None:
    fixed = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"]
    _run(
        ["tar", "-C", str(root), "-cf", str(layer), *fixed, *arguments],
        f"tar cannot pack {root}",
        "see the lines above, then run the command again",
    )


def normalize_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() else 0o644
    return member


def _variables(root: Path) -> dict[str, str]:
    """The variables that the image sets at each start, for runtimes that read no scripts."""
    # `env` is that of this machine: the PATH which the script sets ends with the system's folders
    answer = subprocess.run(
        ["/bin/sh", "-c", '. "$1" && env -0', "sh", str(root / _ENVIRONMENT.lstrip("/"))],
        env={"PATH": os.environ.get("PATH", "/usr/bin:/bin")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )
    if answer.returncode != 0:
        raise WmlceError(
            f"{_ENVIRONMENT} of the image cannot be read: {answer.stderr.strip()}",
            remedy="build the image again: wmlce image build ddl",
        )
    pairs = (entry.split("=", 1) for entry in answer.stdout.split("\0") if "=" in entry)
    return {name: value for name, value in pairs if name not in _OF_SHELL}


def _version(umoci: Path) -> str:
    return _umoci(umoci, ["--version"]).strip()


def _umoci(program: Path, arguments: Sequence[str]) -> str:
    remedy = f"see the lines above; another umoci can be named in {VARIABLE}"
    return _run([str(program), *arguments], f"umoci {arguments[0]} failed", remedy)


def _run(command: Sequence[str], failure: str, remedy: str) -> str:
    """Standard output of a command; WmlceError with its last words where it fails or does not end."""
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WmlceError(f"{failure}: {error}", remedy=remedy) from error
    if answer.returncode != 0:
        raise WmlceError(
            f"{failure} (code {answer.returncode})", detail=answer.stderr.splitlines()[-4:], remedy=remedy
        )
    return answer.stdout
