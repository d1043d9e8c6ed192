"""What a solver's refusal means here, in words that say what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from rattler import VirtualPackage, VirtualPackageOverrides

from wmlce.channel import published
from wmlce.recipes.model import package_name
from wmlce.recipes.recipe_set import RecipeSet
from wmlce.recipes.variant import Variant, read_all
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout

CUDA = "CONDA_OVERRIDE_CUDA"
_WANTED = re.compile(r"__cuda >=([0-9.]+)")
_SHOWN_LINES = 20


def virtual_packages() -> list[VirtualPackage]:
    """What the host has, or what CONDA_OVERRIDE_… says instead."""
    return VirtualPackage.detect(VirtualPackageOverrides.from_env())


def host_cuda() -> str | None:
    """The CUDA version that the host's driver is for, or that CONDA_OVERRIDE_CUDA names; None without one."""
    packages = (package.into_generic() for package in virtual_packages())
    return next((str(package.version) for package in packages if package.name.normalized == "__cuda"), None)


def explained(layout: Layout | None, folder: Path, specs: Sequence[str], reason: str) -> WmlceError:
    """The error for a channel that cannot give `specs`.

    layout: the clone whose variants are known. reason: the solver's words
    """
    request = " ".join(specs)
    detail = reason.splitlines()[:_SHOWN_LINES]
    variants = list(read_all(layout).values()) if layout else []
    if layout and (absent := _absent(layout, variants, folder, specs)):
        name, of = absent
        if of is None:
            message, arguments = f"{request}: {name} is not in this channel", name
        else:
            message = f"{name} is a package of the variant {of.name} ({of.summary}), "
            message += "and this channel was built without it"
            arguments = f"--variant {of.name}"
        return WmlceError(message, detail=detail, remedy=f"wmlce channel build {arguments}")
    if cuda_need := _WANTED.search(reason):
        cuda = host_cuda()
        has = f"is for CUDA {cuda}" if cuda else "is none, or does not answer"
        example = next((variant.system[CUDA] for variant in variants if CUDA in variant.system), cuda_need[1])
        return WmlceError(
            f"{request}: this needs a GPU driver for CUDA {cuda_need[1]} or newer; that of this host {has}",
            detail=detail,
            remedy="install it on a host with such a driver; to install it here for hosts that have one, set "
            f"{CUDA}={example}; without GPUs, use powerai-cpu",
        )
    return WmlceError(
        f"the channel cannot give an environment with: {request}",
        detail=detail,
        remedy="leave out what the channel has not got, or ask for another version; conda-forge, beside it, "
        "has many more packages: docs/cluster/conda-forge.md",
    )


def _absent(
    layout: Layout, variants: Sequence[Variant], folder: Path, specs: Sequence[str]
) -> tuple[str, Variant | None] | None:
    """The first package of `specs` that recipes make and the channel does not have, and the variant that
    alone makes it; no variant where the channel's own recipes do.
    """
    available = {
        entry["name"] for entries in published.repodata(folder).values() for entry in entries.values()
    }
    missing = [name for name in map(package_name, specs) if name not in available]
    if not missing:
        return None
    recipes = RecipeSet(layout)
    for name in missing:
        for variant in (None, *variants):
            if recipes.maker(name, variant.name if variant else None) is not None:
                return name, variant
    return None
