"""Copies the samples of a component into a folder of the user's."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from wml_ce_commands.components import SAMPLES


def _files(folder: Path) -> list[Path]:
    return sorted(
        file.relative_to(folder)
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    )


def _copy(source: Path, target: Path) -> None:
    """Copies what is in the file: at once, and writable even if the environment is not."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as scratch:
        try:
            scratch.write(source.read_bytes())
            scratch.close()
            os.chmod(scratch.name, 0o644)
            os.replace(scratch.name, target)
        except BaseException:
            os.unlink(scratch.name)
            raise


def install(component: str, arguments: Sequence[str]) -> int:
    """Does what `<component>-install-samples` is asked for.

    Returns:
        The exit status.
    """
    command = f"{component}-install-samples"
    samples = SAMPLES[component]
    parser = argparse.ArgumentParser(
        prog=command, description=f"Copies the samples of {component} into a folder."
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="created if it does not exist")
    parser.add_argument("-f", "--force", action="store_true", help="replace files that DIR has already")
    options = parser.parse_args(arguments)

    source = Path(sys.prefix) / samples.folder
    if not source.is_dir():
        print(
            f"{command}: there are no samples in {source}: install the package {samples.package}",
            file=sys.stderr,
        )
        return 1
    files = _files(source)
    present = [str(file) for file in files if os.path.lexists(options.folder / file)]
    if present and not options.force:
        print(
            f"{command}: {options.folder} has {', '.join(present)} already: name another folder, or give "
            "--force to replace them",
            file=sys.stderr,
        )
        return 1
    try:
        for file in files:
            _copy(source / file, options.folder / file)
    except OSError as error:
        print(
            f"{command}: cannot write {error.filename or options.folder}: {error.strerror}; name a folder "
            "that you can write to",
            file=sys.stderr,
        )
        return 1
    print(f"Written into {options.folder}:")
    for file in files:
        print(f"  {file}")
    if samples.note:
        print(samples.note)
    print(f"Start one of them there: {samples.start}")
    return 0
