"""What a package says that it installs."""

from __future__ import annotations

from pathlib import Path

from rattler.package import PathsJson
from rattler.package.paths_json import PathsEntry

from wmlce.util.errors import WmlceError


def entries(package: Path, purpose: str) -> list[PathsEntry]:
    """Each file, with what rattler knows of it. purpose: what a reader of the error was after."""
    try:
        return PathsJson.from_package_archive(package).paths
    except Exception as error:  # rattler's errors have no common type
        raise WmlceError(
            f"{package.name} cannot be read for {purpose}",
            detail=str(error).splitlines()[:2],
            remedy="put the right file back: wmlce channel build",
        ) from error


def listed(package: Path, purpose: str) -> list[str]:
    """Relative paths of its files alone: a link brings nothing of others."""
    return [str(entry.relative_path) for entry in entries(package, purpose) if entry.path_type.hardlink]
