"""What a build has left, which is believed only as far as the packages themselves show it."""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wmlce.recipes.model import Recipe
from wmlce.util.errors import WmlceError
from wmlce.util.platform import of_this_machine

_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+!-]*\.conda")
_LARGEST = 1 << 20


@dataclass(frozen=True)
class Result:
    """Packages as (file, subdir), moved to where nothing but they is; and the seconds of each step."""

    packages: list[tuple[Path, str]]
    seconds: dict[str, float]


def read(work: Path, recipe: Recipe) -> Result:
    """The result in a build's folder, after all its processes have ended.

    Raises:
        WmlceError: It is none: another file in its place, or a package in another one.
    """
    listed, seconds = _document(work, recipe)
    fresh = Path(tempfile.mkdtemp(prefix="packages-", dir=work))
    packages: list[tuple[Path, str]] = []
    for number, item in enumerate(listed):
        subdir, name = str(item.get("subdir")), Path(str(item.get("path"))).name
        path = work / "out" / subdir / name
        if subdir not in of_this_machine().subdirs or not _FILE.fullmatch(name):
            raise _strange(recipe, f"the package {subdir}/{name}")
        # a link would lead to files of the host
        folders = (work / "out", work / "out" / subdir)
        if not all(_is(folder, stat.S_ISDIR) for folder in folders) or not _is(path, stat.S_ISREG):
            raise _strange(recipe, f"{subdir}/{name}, which is no file in its folder")
        target = fresh / str(number) / name
        target.parent.mkdir()
        path.rename(target)
        packages.append((target, subdir))
    return Result(packages, seconds)


def check(
    recipe: Recipe, content: str, number: int, subdir: str, file: str, entry: Mapping[str, Any]
) -> None:
    """WmlceError where a package, by what it says of itself, is none of the recipe's at this content hash
    and this build number.
    """
    says = f"{entry.get('name')}-{entry.get('version')}-{entry.get('build')}.conda"
    versions = {output.name: output.version for output in recipe.outputs}
    version = versions.get(str(entry.get("name")))
    if version != entry.get("version") or says != file or content not in str(entry.get("build")):
        raise _strange(recipe, f"{file}, which says that it is {says}")
    if entry.get("build_number", 0) != number or type(entry.get("build_number", 0)) is not int:
        raise _strange(
            recipe, f"{file}, which says that it is build {entry.get('build_number')}, not {number}"
        )
    # mirrors, bills of materials and images go by it
    licenses = {
        (output.rendered.get("about") or {}).get("license")
        for output in recipe.outputs
        if output.name == entry["name"]
    }
    if entry.get("license") not in licenses:
        raise _strange(recipe, f"{file}, which says that its license is {entry.get('license')}")
    if entry.get("subdir") != subdir:
        raise _strange(recipe, f"{file} for {entry.get('subdir')} in the folder of {subdir}")


def check_all(recipe: Recipe, names: Sequence[str]) -> None:
    """WmlceError where these are not the recipe's packages, each once."""
    expected = sorted(output.name for output in recipe.outputs)
    if sorted(names) != expected:
        raise _strange(recipe, f"the packages {', '.join(sorted(names))}, not {', '.join(expected)}")


def _document(work: Path, recipe: Recipe) -> tuple[list[dict[str, Any]], dict[str, float]]:
    try:
        handle = os.open(work / "result.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as stream:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise _strange(recipe, "something that is no file")
            content = stream.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise _strange(recipe, f"a list of its packages of more than {_LARGEST} bytes")
        document = json.loads(content)
        seconds = {str(step): float(value) for step, value in document["seconds"].items()}
        return [dict(item) for item in document["packages"]], seconds
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise _strange(recipe, f"no list of its packages ({error})") from None


def _is(path: Path, kind: Any) -> bool:
    try:
        return bool(kind(path.lstat().st_mode))
    except OSError:
        return False


def _strange(recipe: Recipe, description: str) -> WmlceError:
    return WmlceError(
        f"the build of recipe '{recipe.name}' left {description}"[:400],
        remedy="nothing was kept of it; look into the recipe's scripts and sources",
        recipe=recipe.name,
    )
