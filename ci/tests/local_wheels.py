"""Wheels made on the fly, and a Python package to install them into; all without a network."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import os
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from scratch_clone import Clone
from tree import ROOT

ALONE = {"PIP_CONFIG_FILE": "/dev/null", "PIP_EXTRA_INDEX_URL": "", "PIP_NO_INDEX": "1"}
"""Variables under which pip asks no index, and heeds no settings of this machine."""


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    files: Mapping[str, str] | None = None,
    requires: Sequence[str] = (),
    entry_points: str = "",
    license_: str = "MIT",
) -> Path:
    """A pure Python wheel with a RECORD that holds."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nSummary: made for a test\n"
    metadata += f"License-Expression: {license_}\nRequires-Python: >=3.9\n"
    metadata += "".join(f"Requires-Dist: {text}\n" for text in requires)
    content = {
        **(files or {f"{name}/__init__.py": f'__version__ = "{version}"\n'}),
        f"{info}/METADATA": metadata + "\nA long description\n\nRequires-Dist: not-a-header\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/licenses/LICENSE": "Do what you like.\n",
    }
    if entry_points:
        content[f"{info}/entry_points.txt"] = entry_points
    record = [f"{file},sha256={_digest(text)},{len(text.encode())}" for file, text in content.items()]
    content[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,"]) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in content.items():
            archive.writestr(zipfile.ZipInfo(file, (2024, 1, 1, 0, 0, 0)), text)
    return path


def settings_of_pip(folder: Path) -> dict[str, str]:
    """Settings that people have, which put files elsewhere, none at all, or other ones."""
    (folder / "constraints.txt").write_text("".join(f"{name}<0.1\n" for name in ("quick", "car", "base")))
    places = {name: f"{folder}/{name}" for name in ("target", "prefix", "root", "report")}
    switches = dict.fromkeys(("user", "dry-run", "require-virtualenv", "no-deps"), "true")
    choices = {"constraint": f"{folder}/constraints.txt", "only-binary": ":none:", "no-binary": ":all:"}
    return {**places, **switches, **choices}


def variables_of_pip(settings: Mapping[str, str]) -> dict[str, str]:
    return {f"PIP_{name.upper().replace('-', '_')}": value for name, value in settings.items()}


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def pip_wheel(folder: Path) -> tuple[Path, str]:
    """The running environment's pip, packed as the wheel it came from."""
    distribution = importlib.metadata.distribution("pip")
    path = folder / f"pip-{distribution.version}-py3-none-any.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in distribution.files or []:
            name = str(file)
            unwanted = (
                name.startswith("..") or "__pycache__" in name or name.endswith(("INSTALLER", "REQUESTED"))
            )
            if not unwanted:
                archive.writestr(
                    zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0)), Path(str(file.locate())).read_bytes()
                )
    return path, distribution.version


def python_recipes(clone: Clone) -> None:
    """Packages python and python_abi: the interpreter of the environment under test, enough to run pip."""
    prefix = Path(os.environ.get("DDL_TEST_PREFIX") or ROOT / "build/envs/powerai")
    if not (prefix / "bin/python3.11").is_file():
        pytest.fail(
            f"no environment to take Python from: {prefix}; run ci/quickstart, or set DDL_TEST_PREFIX"
        )
    copied = clone.root / "interpreter"
    (copied / "bin").mkdir(parents=True)
    shutil.copy2(prefix / "bin/python3.11", copied / "bin")
    for name in ("python", "python3"):
        (copied / "bin" / name).symlink_to("python3.11")
    left_out = shutil.ignore_patterns("site-packages", "__pycache__", "test", "config-3.11-*")
    shutil.copytree(prefix / "lib/python3.11", copied / "lib/python3.11", symlinks=True, ignore=left_out)
    (copied / "lib/python3.11/site-packages").mkdir()
    (copied / "lib/python3.11/site-packages/README.txt").write_text("packages\n")
    for pattern in ("libpython3", "libz", "libffi", "libexpat", "liblzma", "libbz2", "libssl", "libcrypto"):
        for library in prefix.glob(f"lib/{pattern}*.so*"):
            shutil.copy2(library, copied / "lib", follow_symlinks=False)
    clone.recipe(
        "python",
        source=[{"path": "../../interpreter"}],
        script=["cp -a bin lib $PREFIX/"],
        test=["python -c 'import sys; assert sys.prefix == \"'$PREFIX'\", sys.prefix'"],
        extra={
            "package": {"version": "3.11.99"},
            "build": {
                "dynamic_linking": {"binary_relocation": False},
                "prefix_detection": {"ignore": True},
                "python": {"skip_pyc_compilation": ["**/*.py"]},
                "string": "0_cpython",
            },
        },
    )
    clone.recipe("python_abi", extra={"package": {"version": "3.11"}, "build": {"string": "0_cp311"}})
