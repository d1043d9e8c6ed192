"""index.html of a release: how to install from the address at which the folder lies, and how to check it.

It names that address URL, which the page replaces by its own in a browser: the folder can lie anywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from wmlce.channel import conda_forge_overlay, published
from wmlce.documentation.site import START
from wmlce.recipes.variant import Variant
from wmlce.release import check, manifest, signature
from wmlce.release.check import CHANNEL
from wmlce.util import platform
from wmlce.util.templates import rendered

NAME = "index.html"
DOCUMENTATION = "docs"
_FRAMEWORKS = {"PyTorch": "powerai-pytorch", "TensorFlow": "powerai-tensorflow"}
_SHOWN = {
    "Python": "python",
    **_FRAMEWORKS,
    "Keras": "keras",
    "Horovod": "powerai-horovod",
    "DDL": "ddl",
    "Open MPI": "powerai-openmpi",
    "NumPy": "numpy",
}
"""Packages whose versions the first lines name."""
_PINNED = re.compile(r"(?P<name>\S+) (?P<version>[0-9.]+)\.\*")


@dataclass(frozen=True)
class Part:
    """Something in the release. is_folder: no link leads there, as not every web server lists folders."""

    name: str
    is_folder: bool
    content: str
    size: int


def render(
    folder: Path, record: Mapping[str, Any], entries: Mapping[str, Mapping[str, Any]], variants: list[Variant]
) -> str:
    """The page of a release that is whole but for its lists. entries: of the channel's index."""
    packages = sorted(entries.values(), key=lambda entry: str(entry["name"]))
    versions = {str(entry["name"]): str(entry["version"]) for entry in packages}
    package = "powerai" if "powerai" in record["locks"] else next(iter(record["locks"]))
    part = published.entries(folder / CHANNEL / conda_forge_overlay.FOLDER)
    with_conda_forge = {entry["name"] for entry in part.values()}
    filters: dict[str, Callable[..., str]] = {
        "mb": lambda size: f"{size / 1e6:,.2f}",
        "addressed": _addressed,
    }
    return rendered(
        "wmlce.release",
        "index.html.j2",
        filters,
        release=record,
        spoken=platform.of_this_machine().spoken,
        versions={title: versions[name] for title, name in _SHOWN.items() if name in versions},
        package=package,
        commands=_commands(f"URL/{CHANNEL}", package),
        beside=f"URL/{CHANNEL}/{conda_forge_overlay.FOLDER}" if package in with_conda_forge else None,
        installers=_installers(folder),
        images=sorted(path.name for path in folder.glob("images/*.sif")),
        needs=_needs(packages),
        frameworks=list(_FRAMEWORKS),
        variants=[variant for variant in variants if not variant.instead],
        parts=_parts(folder, record),
        documentation=f"{DOCUMENTATION}/{START}" if (folder / DOCUMENTATION).is_dir() else None,
        packages=packages,
        listed=manifest.NAME,
        signatures=[
            f"{path.relative_to(folder).as_posix()}{signature.SUFFIX}"
            for path in check.to_sign(folder)
            if path != folder / manifest.NAME
        ],
        namespace=signature.NAMESPACE,
        principal=signature.PRINCIPAL,
    )


def _commands(url: str, package: str) -> dict[str, str]:
    """How clients install from a channel at `url`, by client."""
    return {
        "conda": f"conda create --name {package} --override-channels --channel {url} {package}",
        "mamba": f"mamba create --name {package} --override-channels --channel {url} {package}",
        "pixi": f"pixi init --channel {url} {package} && cd {package} && pixi add {package}",
    }


def _addressed(text: str) -> Markup:
    """A command in which a browser finds the places of the address."""
    return Markup(str(escape(text)).replace("URL", '<b class="url">URL</b>'))


def _installers(folder: Path) -> list[dict[str, Any]]:
    """Each with what its record tells of it."""
    installers = []
    for path in sorted(folder.glob("installers/*.sh")):
        facts = json.loads(path.with_name(f"{path.name}.json").read_text())
        installers.append({key: facts[key] for key in ("specs", "size", "sha256", "glibc", "installed")})
        installers[-1]["name"] = path.name
    return installers


def _needs(packages: list[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """Packages that were compiled for, or tested with, one version of a framework alone, and which."""
    rows = []
    for entry in packages:
        pins = {match["name"]: match["version"] for d in entry["depends"] if (match := _PINNED.fullmatch(d))}
        if pins.keys() & set(_FRAMEWORKS.values()):
            rows.append((str(entry["name"]), [pins.get(name, "") for name in _FRAMEWORKS.values()]))
    return rows


def _parts(folder: Path, record: Mapping[str, Any]) -> list[Part]:
    descriptions = {
        CHANNEL: f"the conda channel: {record['channel']['packages']} packages",
        "installers/*.sh": "installs without conda and without a network",
        "images/*.sif": "an image for Singularity and Apptainer",
        "locks/*.lock": "every package that the one of its name needs, with its sha256",
        DOCUMENTATION: "the documentation for a browser, which needs no network",
        "sources": "what the packages are built from",
        f"ibm-wml-ce-{record['version']}.tar.gz": "recipes, wmlce, the documentation's text, own code",
        "NOTES.md": "what changed, and the sources of what is under the GNU licences",
        record["sbom"]: "the bill of materials of the channel, in CycloneDX",
        "sbom.spdx.json": "the same, in SPDX",
    }
    return [
        Part(path.relative_to(folder).as_posix(), path.is_dir(), content, _size(path))
        for pattern, content in descriptions.items()
        for path in sorted(folder.glob(pattern))
    ]


def _size(path: Path) -> int:
    inside = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in inside if file.is_file())
