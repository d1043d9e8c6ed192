"""Names that recipes do not write: those of the platform, and of the channel's Python.

A recipe says `${{ multiarch }}` or `${{ python_tag }}`, a file beside it `@multiarch@`. The values are
variant keys that the tool adds to recipes/variants.yaml. With its names filled in, a recipe is what it would
be if it stated them, so it has the same content hash.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wmlce.recipes.model import Output
from wmlce.sources.drift import upstream
from wmlce.sources.model import read_source_lock, role
from wmlce.util.layout import Layout
from wmlce.util.platform import Platform, of_this_machine
from wmlce.util.project_files import tree_hash
from wmlce.util.python import TARGET

_MARKED = re.compile(rb"@([a-z_]+)@")
_EXPRESSION = re.compile(r"\$\{\{\s*([a-z_]+)\s*\}\}")


def values(layout: Layout, platform: Platform | None = None) -> dict[str, str]:
    """All of them. platform: this machine's, unless it is named"""
    source = next((entry for entry in read_source_lock(layout) if entry.package == f"python{TARGET}"), None)
    # not locked: the recipe's sources are then missed, by their names
    files = {role(file.name): file.name for file in source.files} if source else {}
    return {
        **(platform or of_this_machine()).variables(),
        **TARGET.variables(),
        "python_version": upstream(source.version) if source else f"{TARGET}.0",
        "python_source": files.get("orig.tar", f"python{TARGET}.orig.tar"),
        "python_changes": files.get("debian.tar", f"python{TARGET}.debian.tar"),
    }


def filled(item: Any, variables: Mapping[str, str]) -> Any:
    """A part of an evaluated recipe with names in place of the expressions that scripts still have."""
    if isinstance(item, str):
        return _EXPRESSION.sub(lambda match: variables.get(match[1], match[0]), item)
    if isinstance(item, Mapping):
        return {key: filled(value, variables) for key, value in item.items()}
    if isinstance(item, (list, tuple)):
        return [filled(value, variables) for value in item]
    return item


def filled_bytes(content: bytes, variables: Mapping[str, str]) -> bytes:
    """A file of a recipe, such as its script, with the names in place of `@NAME@`."""
    return _MARKED.sub(lambda match: variables.get(match[1].decode(), match[0].decode()).encode(), content)


def fill(path: Path, variables: Mapping[str, str]) -> None:
    """Write the names into a copy of a recipe's file."""
    if not path.is_symlink() and (content := path.read_bytes()) != (
        whole := filled_bytes(content, variables)
    ):
        path.write_bytes(whole)


def file_hash(root: Path, path: Path, variables: Mapping[str, str]) -> str:
    """The hash of a recipe's file as it is built, with its names filled in."""
    if path.is_symlink() or (content := path.read_bytes()) == (whole := filled_bytes(content, variables)):
        return tree_hash(root, path)
    state = f"{int(os.access(path, os.X_OK))}\0{hashlib.sha256(whole).hexdigest()}"
    return hashlib.sha256(f"{path.name}\0{state}\n".encode()).hexdigest()


def stated(output: Output, variables: Mapping[str, str]) -> dict[str, Any]:
    """What an output is, for its content hash, as if its recipe stated the names: they are in none of the
    keys, nor in the hash of these that rattler-build puts into build strings. `python` is a key: packages are
    told apart by it.
    """
    variant = {key: value for key, value in output.variant.items() if key == "python" or key not in variables}
    recipe = filled(output.rendered, variables)
    build = recipe.get("build") or {}
    if build.get("string"):
        text = str(build["string"]).replace(_hash(output.variant), _hash(variant))
        recipe = {**recipe, "build": {**build, "string": text}}
    return {"recipe": recipe, "variant": variant}


def _hash(variant: Mapping[str, str]) -> str:
    """Seven digits over the keys of a variant, as conda-build and rattler-build make them."""
    text = json.dumps(variant, sort_keys=True)
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:7]


def as_in_recipes(file: str, platform: Platform | None = None) -> str:
    """The name of a source file as a recipe writes it: libc6_2.36_${{ debian_architecture }}.deb."""
    target = platform or of_this_machine()
    if file.endswith(".whl"):
        return file.replace(f"_{target.machine}", "_${{ machine }}")
    return re.sub(rf"_{target.debian}(?=\.deb$)", "_${{ debian_architecture }}", file)
