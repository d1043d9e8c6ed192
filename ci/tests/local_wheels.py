"""Wheels made on the fly, and a Python package to install them into; all without a network."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from scratch_clone import Clone


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
    """Packages python and python_abi: a virtual environment of the running interpreter, enough to run pip."""
    clone.recipe(
        "python",
        script=[f"{sys.executable} -m venv --without-pip --copies $PREFIX"],
        test=["python -c 'import sys; assert sys.prefix == \"'$PREFIX'\", sys.prefix'"],
        extra={
            "package": {"version": "3.11.99"},
            "build": {"dynamic_linking": {"binary_relocation": False}, "string": "0_cpython"},
        },
    )
    clone.recipe("python_abi", extra={"package": {"version": "3.11"}, "build": {"string": "0_cp311"}})
