"""The clone's own files in place of an environment's: what is edited is what runs."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout

#: Compiled files below the build folder, by patterns, and the folder of the environment that each belongs to.
_LIBRARIES = (("libddl/libddl.so.*.*.*", "lib"), ("libddl/libddl_pack.so.*.*.*", "lib"))
_MODULES = (
    ("python/bindings/python/_core*.so", "ddl"),
    ("python/bindings/python/bootstrap/ddl-bootstrap", "ddl/bootstrap"),
    ("python/bindings/tensorflow/libddl_tf.so", "ddl/tensorflow"),
    ("python/bindings/torch/_backend*.so", "ddl/torch"),
)


def link_clone(layout: Layout, prefix: Path, build: Path) -> list[Path]:
    """Links the clone's Python files and what was compiled into an environment.

    Every file is a link of its own: an update of the environment removes links, never files of the clone.
    Python files that the clone no longer has are removed. A new file needs another call.

    Args:
        prefix: The environment, in which the packages are installed.
        build: Build folder of ddl-core.

    Returns:
        Folders of packages that are the clone's now.
    """
    site = _site_packages(prefix)
    packages = [(root / name, site / name) for root in source_roots(layout) for name in _packages(root, site)]
    for source, target in packages:
        _link_package(source, target)
    for patterns, base in ((_LIBRARIES, prefix), (_MODULES, site)):
        for pattern, folder in patterns:
            for file in build.glob(pattern):
                _link(file, base / folder / file.name)
    return [source for source, _ in packages]


def source_roots(layout: Layout) -> list[Path]:
    """Returns the folders that Python packages of the clone lie in: those that mypy searches."""
    settings = tomllib.loads((layout.root / "pyproject.toml").read_text())
    return [layout.root / folder for folder in settings["tool"]["mypy"]["mypy_path"]]


def _site_packages(prefix: Path) -> Path:
    folders = sorted(prefix.glob("lib/python3*/site-packages"))
    if len(folders) != 1:
        raise WmlceError(f"{prefix} has {len(folders)} folders of Python packages, not one")
    return folders[0]


def _packages(root: Path, site: Path) -> Iterator[str]:
    """Yields packages and modules of a folder that are installed."""
    for path in sorted(root.iterdir()):
        importable = (path / "__init__.py").is_file() or path.suffix == ".py"
        if importable and (site / path.name).exists():
            yield path.name


def _link_package(source: Path, target: Path) -> None:
    if source.is_file():
        _link(source, target)
        return
    files = {path.relative_to(source) for path in source.rglob("*") if path.is_file() and _is_content(path)}
    for file in files:
        _link(source / file, target / file)
    for path in list(target.rglob("*.py")):
        if path.relative_to(target) not in files:
            path.unlink()


def _is_content(path: Path) -> bool:
    return path.suffix != ".pyc" and "__pycache__" not in path.parts


def _link(source: Path, target: Path) -> None:
    if target.is_symlink() and target.readlink() == source:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    target.symlink_to(source)
