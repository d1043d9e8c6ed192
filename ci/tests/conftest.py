"""Fixtures: small clones to build in, and images."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import images
import installers
import pytest
from images import Singularity
from installers import Installer
from scratch_clone import Clone
from tree import ROOT
from wmlce.release import freshness, trust
from wmlce.util.files import remove_tree

# What a site asks of channels (docs/cluster/release.md) is not asked of those that tests make.
for _variable in (trust.VARIABLE, trust.REVOKED, freshness.MINIMUM, freshness.MAXIMUM_AGE):
    os.environ.pop(_variable, None)


@pytest.fixture(scope="session", autouse=True)
def state_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests accept as signed is not remembered for who runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(freshness.STATE, str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path / "clone", tmp_path / "cache")


@pytest.fixture
def library_and_program(clone: Clone) -> Clone:
    """A C library, and a program of the project that links it: a real compile, link, relocation and test."""
    clone.write("recipes/libanswer/answer.c", "int answer(void) { return 42; }\n")
    clone.recipe(
        "libanswer",
        source=[{"path": "answer.c"}],
        script=[
            "mkdir -p $PREFIX/lib",
            "gcc -shared -fPIC -Wl,-soname,libanswer.so.1 -o $PREFIX/lib/libanswer.so.1 answer.c",
            "ln -s libanswer.so.1 $PREFIX/lib/libanswer.so",
        ],
        test=["test -f $PREFIX/lib/libanswer.so.1"],
    )
    clone.write(
        "program/main.c",
        '#include <stdio.h>\nint answer(void);\nint main(void) { printf("%d\\n", answer()); return 0; }\n',
    )
    clone.recipe(
        "program",
        host=["libanswer"],
        run=["libanswer"],
        source=[{"path": "../../program"}],
        script=[
            "mkdir -p $PREFIX/bin",
            "gcc -o $PREFIX/bin/program main.c -L$PREFIX/lib -lanswer -Wl,-rpath,$PREFIX/lib",
        ],
        test=["test $(program) = 42"],
    )
    return clone


@pytest.fixture(scope="session")
def singularity() -> Singularity:
    return images.singularity()


@pytest.fixture(scope="session")
def image(singularity: Singularity) -> Path:
    """The whole environment."""
    return images.built(ROOT / "build/images/ddl.sif")


@pytest.fixture(scope="session")
def small_image(singularity: Singularity) -> Path:
    """DDL, Open MPI and NumPy: starts sooner."""
    return images.built(ROOT / "build/images/ddl-only.sif", "ddl", "numpy")


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that other users can look into, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(prefix="wmlce-image-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        remove_tree(folder)


@pytest.fixture(scope="session")
def small() -> Installer:
    """Installs DDL with what it needs, and a package for any Python with a program."""
    return installers.build("test-small.sh", "ddl", "numpy", "wheel")


@pytest.fixture(scope="session")
def tiny() -> Installer:
    """Installs two packages without programs: most of it is the installer itself."""
    return installers.build("test-tiny.sh", "libzlib")
