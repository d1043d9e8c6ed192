"""Environments whose packages do not fit together: symbols, copies of libraries, files of two packages."""

from __future__ import annotations

import fnmatch
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scratch_clone import Clone
from test_verify import findings, verify
from tree import ROOT
from wmlce.channel.verify import copies, environment, installed, symbols


def library(clone: Clone, package: str, file: str, source: str, *flags: str, **more: Any) -> None:
    """A recipe of lib/FILE, made of one line of C; what it links stays undefined."""
    clone.recipe(
        package,
        script=[
            f"mkdir -p $(dirname $PREFIX/{file})",
            f"printf '%s\\n' '{source}' > f.c",
            f"gcc -shared -fPIC -Wl,--allow-shlib-undefined {' '.join(flags)} -o $PREFIX/{file} f.c",
        ],
        **more,
    )


def checked(clone: Clone, *packages: str) -> dict[str, Any]:
    """verify.json of an environment of these; the packages are as they were, whatever was found."""
    clone.built()
    clone.ok("env", "create", "made", *packages)
    before = {name: state for name, state in clone.channel_state().items() if not name.startswith("ver")}
    document = verify(clone, "--env", "made")
    after = clone.channel_state()
    assert {name: after[name] for name in before} == before
    return document


def test_files_that_were_changed(clone: Clone) -> None:
    """In the environment, and with the record of the package; a missing one, and one of no package."""
    script = ["mkdir -p $PREFIX/share", "for n in one two three; do echo $n > $PREFIX/share/$n; done"]
    clone.recipe(
        "lib", script=[*script, "echo $PREFIX > $PREFIX/share/place", "ln -s one $PREFIX/share/link"]
    )
    clone.built()
    clone.ok("env", "create", "made", "lib")
    prefix = clone.root / "build/envs/made"
    name = "files as in their packages"
    assert findings(verify(clone, "--env", "made"), name) == []
    for file in ("one", "two", "place"):
        path = prefix / "share" / file
        content = path.read_text()
        path.unlink()
        path.write_text(f"POISON{content}")
    (prefix / "share/three").unlink()
    (prefix / "share/sitecustomize.py").touch()
    [record] = (prefix / "conda-meta").glob("lib-*.json")
    digests = [hashlib.sha256(text).hexdigest() for text in (b"two\n", b"POISONtwo\n")]
    record.write_text(record.read_text().replace(*digests))
    document = verify(clone, "--env", "made")
    assert findings(document, name) == [
        "lib: share/one was changed",
        "lib: share/place was changed",
        "lib: share/three is missing",
        "lib: share/two has another sha256 in its record",
    ]
    [check] = [check for check in document["checks"] if check["name"] == name]
    assert "files of no package: share/sitecustomize.py" in check["notes"]


def _move(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def _retarget(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link out": (lambda e: _retarget(e / "share/link", "/etc/hostname"), "leads out of the environment"),
    "another target": (lambda e: _retarget(e / "share/link", "two"), "share/link was changed"),
    "no target": (lambda e: _retarget(e / "share/link", "gone"), "which is not there"),
    "a linked folder": (lambda e: _move(e / "share"), "the folder share is not in the environment"),
    "set-user-ID": (lambda e: (e / "share/one").chmod(0o4755), "runs with the rights of its owner"),
    "a pipe": (lambda e: ((e / "share/one").unlink(), os.mkfifo(e / "share/one")), "share/one is no file"),
    "no record": (
        lambda e: next(e.glob("conda-meta/lib-*")).unlink(),
        "it needs lib, of which there is no record",
    ),
    "no record at all": (
        lambda e: [p.unlink() for p in e.glob("conda-meta/*.json")],
        "no record of any package",
    ),
    "a broken record": (
        lambda e: next(e.glob("conda-meta/lib-*")).write_text("[]"),
        "is no record of a package",
    ),
    "a record of nothing": (
        lambda e: next(e.glob("conda-meta/lib-*")).write_text('{"name": "lib", "paths_data": {"paths": []}}'),
        "is no record of a package",
    ),
    "a record that is a pipe": (lambda e: os.mkfifo(e / "conda-meta/x.json"), "is no record of a package"),
}


def test_other_changes(clone: Clone) -> None:
    script = ["mkdir -p $PREFIX/share", "for n in one two; do echo $n > $PREFIX/share/$n; done"]
    clone.recipe("lib", script=[*script, "ln -s one $PREFIX/share/link"])
    clone.recipe("user", run=["lib"])
    clone.built()
    for number, (change, message) in enumerate(CHANGES.values()):
        clone.ok("env", "create", f"e{number}", "user")
        prefix = clone.root / f"build/envs/e{number}"
        assert installed.files(prefix, clone.root / "build/channel").findings == []
        for file in prefix.rglob("share/one"):  # not the cache's
            content = file.read_text()
            file.unlink()
            file.write_text(content)
        change(prefix)
        found = installed.files(prefix, clone.root / "build/channel").findings
        assert any(message in finding for finding in found), (message, found)
        os.mkfifo(prefix / "share/nobody-writes")
        error = clone.fails("channel", "verify", "--env", str(prefix))
        assert "did not pass" in error and message in error, error


def test_undefined_symbol(clone: Clone) -> None:
    """Found without loading; a weak one may be missing, and what a needed library defines is there."""
    library(clone, "base", "lib/libbase.so", "int base(void) { return 1; }")
    source = (
        "int base(void); int lost(void); int maybe(void) __attribute__((weak)); double cos(double); "
        "int f(double x) { return base() + lost() + (maybe ? maybe() : 0) + (int)cos(x); }"
    )
    library(
        clone, "user", "lib/libuser.so", source, "-L$PREFIX/lib", "-Wl,--no-as-needed", "-lm", "-lbase",
        "-Wl,-rpath,$PREFIX/lib", host=["base"], run=["base"],
    )  # fmt: skip
    found = findings(checked(clone, "user"), "symbol")
    assert found == ["user: lib/libuser.so needs the symbol lost: nothing defines it"]


def test_version_that_a_library_does_not_have(clone: Clone) -> None:
    """A library as another one of its name was when the user was linked."""
    script = "printf '%s\\n' 'V_1 { global: f; local: *; };' > map"
    old = [
        "mkdir -p $PREFIX/lib",
        script,
        "echo 'int f(void) { return 1; }' > f.c",
        "gcc -shared -fPIC -Wl,--version-script=map -Wl,-soname,libv.so.1 -o $PREFIX/lib/libv.so.1 f.c",
    ]
    clone.recipe("versioned", script=old)
    user = [
        "mkdir -p $PREFIX/lib own",
        script.replace("V_1", "V_2"),
        "echo 'int f(void) { return 1; }' > f.c",
        "gcc -shared -fPIC -Wl,--version-script=map -Wl,-soname,libv.so.1 -o own/libv.so f.c",
        "echo 'int f(void); int g(void) { return f(); }' > g.c",
        "gcc -shared -fPIC -o $PREFIX/lib/libuser.so g.c -Lown -lv -Wl,-rpath,$PREFIX/lib",
    ]
    clone.recipe("user", script=user, run=["versioned"])
    found = findings(checked(clone, "user", "versioned"), "symbol")
    assert found == ["user: lib/libuser.so needs version V_2 of libv.so.1: lib/libv.so.1 does not have it"]


def test_two_copies_of_a_library(clone: Clone) -> None:
    """By its name as auditwheel changes it; links to one file are one copy."""
    place = "lib/python3.11/site-packages"
    library(clone, "one", "lib/libfoo.so.3.1", "int f(void) { return 1; }")
    library(clone, "two", f"{place}/two.libs/libfoo-0123abcd.so.3.0.0", "int f(void) { return 2; }")
    library(clone, "mp", "lib/libgomp.so.1", "int g(void) { return 1; }")
    library(clone, "intel", "lib/libiomp5.so", "int g(void) { return 2; }")
    library(clone, "scipy", f"{place}/scipy.libs/libgfortran-0123abcd.so.5.0.0", "int g(void) { return 3; }")
    library(clone, "numpy", f"{place}/numpy.libs/libgfortran-4567cdef.so.5.0.0", "int g(void) { return 4; }")
    linked = f"{place}/torch/lib"
    clone.recipe(
        "torch",
        script=[
            f"mkdir -p $PREFIX/{linked}",
            f"ln -s ../../../../libgomp.so.1 $PREFIX/{linked}/libgomp.so.1",
        ],
        run=["mp"],
    )
    document = checked(clone, "one", "two", "mp", "intel", "scipy", "numpy", "torch")
    foo, openmp = sorted(findings(document, "one copy"), reverse=True)
    assert openmp.startswith(
        "OpenMP runtime is there 2 times: lib/libgomp.so.1 (mp), lib/libiomp5.so (intel);"
    )
    assert foo.startswith(
        "libfoo.so.3 is there 2 times: lib/libfoo.so.3.1 (one), "
        f"{place}/two.libs/libfoo-0123abcd.so.3.0.0 (two);"
    )
    notes = [note for check in document["checks"] for note in check["notes"]]
    assert sum("is another libgfortran.so.5" in note for note in notes) == 2
    assert not any("torch" in note for note in notes)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("libgfortran-040039e1-0352e75f.so.5.0.0", "libgfortran.so.5"),
        ("libgomp.so.1", "libgomp.so.1"),
        ("libtorch_cpu.so", "libtorch_cpu.so"),
        ("_core.cpython-311-x86_64-linux-gnu.so", None),
        ("mca_btl_tcp.so", None),
    ],
)
def test_names_of_libraries(file: str, name: str | None) -> None:
    assert copies.library_name(file) == name


def test_a_file_of_two_packages(clone: Clone) -> None:
    for name in ("first", "second"):
        clone.recipe(name, script=["mkdir -p $PREFIX/share", f"echo {name} > $PREFIX/share/same"])
    found = findings(checked(clone, "first", "second"), "each file")
    assert found == ["share/same is in first and in second: leave it out of one of them"]


def test_metadata_that_lie_about_what_a_package_needs(clone: Clone) -> None:
    """A requirement of the package for another version than METADATA asks for. (A wheel's own recipe is
    generated from its METADATA; this is what a recipe by hand can do.)
    """
    site = "$PREFIX/lib/python3.11/site-packages"

    def distribution(name: str, version: str, *requires: str) -> list[str]:
        folder = f"{site}/{name}-{version}.dist-info"
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {one}" for one in requires]
        return [f"mkdir -p {folder}", *(f"echo '{line}' >> {folder}/METADATA" for line in lines)]

    clone.recipe("base", script=distribution("base", "1.0"))
    clone.recipe("liar", script=distribution("liar", "1.0", "base>=2"), run=["base"])
    clone.built()
    clone.ok("env", "create", "made", "liar")
    prefix = clone.root / "build/envs/made"
    found = environment.python_requirements(prefix).findings
    assert found == ["liar 1.0 (package liar) requires base>=2: base is 1.0"]
    (prefix / "lib/python3.11/site-packages/base-1.0.dist-info/METADATA").unlink()
    found = environment.python_requirements(prefix).findings
    assert found == ["liar 1.0 (package liar) requires base>=2: it is not there"]
    assert findings(verify(clone, "--env", "made"), "metadata") == found


def test_declared_exceptions_are_those_of_this_environment() -> None:
    """None is found in the channel's own environment, and each symbol declared as another file's is one."""
    prefix = ROOT / "build/envs/powerai"
    found = environment.scan(prefix)
    checks = [
        symbols.undefined(prefix, found, print),
        copies.libraries(prefix, found),
        copies.clobbered(prefix),
        environment.python_requirements(prefix),
    ]
    assert not [finding for check in checks for finding in check.findings]
    told = " ".join(checks[0].notes)
    files = [str(path.relative_to(prefix.resolve())) for path in found]
    there = [
        one
        for one in symbols.declared()
        if any(fnmatch.fnmatch(file, pattern) for file in files for pattern in one.users)
    ]
    assert there and all(one.reason in told for one in there)


def test_a_damaged_file_stops_nothing(tmp_path: Path) -> None:
    file = tmp_path / "libx.so"
    file.write_bytes(b"\x7fELF" + bytes(60))
    assert symbols.read(file) is None
    file.write_bytes(b"no library")
    assert symbols.read(file) is None


def test_a_cycle_among_recipes_leaves_the_channel(clone: Clone) -> None:
    clone.recipe("a")
    clone.recipe("b", run=["a"])
    clone.built()
    clone.ok("channel", "verify")
    before = clone.channel_state()
    clone.recipe("a", run=["b"])
    error = clone.fails("channel", "build")
    assert "in a circle: " in error and ("a -> b -> a" in error or "b -> a -> b" in error)
    assert clone.channel_state() == before
    clone.ok("channel", "verify")
