"""A recipe that wants more than to build its package: it ends in one error, and the cache is as it was."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from conda_package_streaming.create import conda_builder
from scratch_clone import Clone
from test_reproducible import members, packages
from tree import ROOT
from wmlce.builder import build_root, confined, glibc, result, sandbox
from wmlce.builder.confined import Confined
from wmlce.builder.repack import finish
from wmlce.recipes.model import Recipe
from wmlce.recipes.recipe_set import RecipeSet, load_source_lock
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout


def contents(cache: Path) -> dict[str, str]:
    """The digest of every file of a cache, but for the build root, which all tests share."""
    found = {}
    for folder, folders, files in os.walk(cache):
        folders[:] = [name for name in folders if name not in ("build-roots", "locks")]
        for name in files:
            path = Path(folder) / name
            link = path.is_symlink()
            content = os.readlink(path).encode() if link else path.read_bytes()
            found[str(path.relative_to(cache))] = hashlib.sha256(content).hexdigest()
    return found


@pytest.fixture
def site(clone: Clone) -> Clone:
    """A clone with a finished package `base`, whose environment is installed, so that it is unpacked, too."""
    clone.recipe("base", script=["mkdir -p $PREFIX/share", "echo right > $PREFIX/share/data"])
    for words in (["channel", "build", "base"], ["env", "create", "e", "base"]):
        done = clone.run(*words)
        assert done.returncode == 0, done.stderr
    return clone


def refused(clone: Clone, script: list[str], **recipe: object) -> str:
    """What building it says; nothing of it is kept."""
    clone.recipe("hostile", script=script, **recipe)  # type: ignore[arg-type]
    before = contents(clone.cache)
    done = clone.run("channel", "build", "hostile")
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1 and "hostile" in errors[0], done.stderr
    after = contents(clone.cache)
    assert {name: after.get(name) for name in before} == before
    assert not [name for name in after if name.startswith("packages/") and "hostile" in name]
    return done.stderr


@pytest.mark.parametrize("end", ["true", "false"], ids=["built", "failed"])
def test_a_file_of_its_environment_changed_in_place(site: Clone, end: str) -> None:
    """The package that the file is of stays as it is, for builds and environments, also of other clones."""
    installed = site.root / "build/envs/e/share/data"
    before = contents(site.cache)
    script = ["for file in $PREFIX/share/data $(find / -path '*/pkgs/*/share/data' 2> /dev/null); do"]
    script += ["  printf POISON >> $file; done", "mkdir -p $PREFIX/share", "touch $PREFIX/share/mine", end]
    site.recipe("hostile", host=["base"], script=["\n".join(script)])
    done = site.run("channel", "build", "hostile")
    assert (done.returncode == 0) == (end == "true"), done.stderr
    assert {name: contents(site.cache)[name] for name in before if "base" in name} == {
        name: digest for name, digest in before.items() if "base" in name
    }
    assert installed.read_text() == "right\n"
    assert site.run("env", "create", "f", "base").returncode == 0
    assert (site.root / "build/envs/f/share/data").read_text() == "right\n"


def test_packages_and_sources_that_it_is_given(site: Clone) -> None:
    """They are links to those of the cache, and cannot be written."""
    script = "! sh -c 'printf x >> $(ls /build/channel/*/base-*.conda)' && ! touch /build/channel/more && "
    script += "! touch /build/tree/build/sources/more && ! rm -rf /build/channel && false"
    output = refused(site, [script], host=["base"])
    assert "Read-only file system" in output or "hostile' could not be built" in output


_PUT = "mkdir -p $PREFIX/share $PREFIX/bin"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("ln -s /etc/shadow $PREFIX/share/link", "leads out of the environment"),
        ("ln -s ../../../etc/shadow $PREFIX/share/link", "leads out of the environment"),
        ("ln /usr/bin/id $PREFIX/bin/id", "Invalid cross-device link"),
        ("mknod $PREFIX/share/device c 1 3", "Operation not permitted"),
        ("truncate -s 100G $PREFIX/share/large", "File too large"),
        ("printf '\\033]0;owned\\007\\033[2J\\n'; false", "]0;owned"),
    ],
    ids=["link", "relative-link", "hard-link", "device", "large", "terminal"],
)
def test_what_is_no_file_of_a_package(site: Clone, script: str, message: str) -> None:
    output = refused(site, [_PUT, script])
    assert message in output
    assert not any(ord(character) < 32 and character != "\n" for character in output)


def test_a_set_user_id_bit(site: Clone) -> None:
    """It is not kept: a package has files for reading, and files for starting."""
    site.recipe("hostile", script=[_PUT, "cp /bin/sh $PREFIX/bin/root", "chmod 6755 $PREFIX/bin/root"])
    assert site.run("channel", "build", "hostile").returncode == 0
    [package] = [content for name, content in packages(site).items() if name.startswith("hostile")]
    assert members(package)["bin/root"][0].mode == 0o755


def test_a_command_outside_of_bin(site: Clone) -> None:
    site.recipe("python")
    extra = {"build": {"noarch": "python", "python": {"entry_points": ["../../evil = os:getpid"]}}}
    output = refused(site, [_PUT, "touch $PREFIX/share/x"], extra=extra, host=["python"])
    assert "evil" in output


def test_what_it_leaves_running_is_ended(site: Clone) -> None:
    """Before its result is read: else it could change that."""
    mark = f"wmlce-test-{uuid.uuid4().hex}"
    loop = f"while :; do : {mark}; printf '{{}}' > /build/result.json; sleep 0.01; done"
    site.recipe(
        "hostile", script=[_PUT, "touch $PREFIX/share/x", f'setsid sh -c "{loop}" > /dev/null 2>&1 &']
    )
    before = contents(site.cache)
    done = site.run("channel", "build", "hostile")
    running = [path for path in Path("/proc").glob("[0-9]*/cmdline") if mark.encode() in _read(path)]
    assert running == [] and "Traceback" not in done.stderr
    if done.returncode:
        assert "'hostile' left no list of its packages" in done.stderr
        assert {name: contents(site.cache).get(name) for name in before} == before


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.fixture(scope="module")
def root() -> Path:
    layout = Layout.locate(ROOT)
    return build_root.make(layout, build_root.read(layout), load_source_lock(layout), lambda _: None)


@pytest.mark.parametrize(
    ("limit", "value", "command", "message"),
    [
        ("PROCESSES", 40, "while :; do sleep 600 & done", "more than 40 processes"),
        ("LOG_BYTES", 1 << 20, "yes", "printed more than 1 MiB"),
        ("SECONDS", 0.5, "sleep 600", "ran for more than"),
        ("IDLE_S", 2, "sleep 600", "done nothing for 2 s"),
    ],
)
def test_limits(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    value: int,
    command: str,
    message: str,
) -> None:
    more = {"seconds": value} if limit == "SECONDS" else {}
    if not more:
        monkeypatch.setattr(confined, limit, value)
    inside = sandbox.Sandbox(root, writable={"/tmp": tmp_path})
    running = Confined(inside, ["/bin/sh", "-c", command], tmp_path / "log", sandbox.environment(), **more)
    first = running._first
    assert running.wait() != 0 and message in running.exceeded
    assert first is not None and _read(Path(f"/proc/{first}/cmdline")) == b"", "it runs, and is no zombie"


def test_the_end_of_a_build_is_the_end_of_its_processes(root: Path, tmp_path: Path) -> None:
    """bubblewrap itself returns before the kernel has ended the others."""
    inside = sandbox.Sandbox(root, writable={"/tmp": tmp_path})
    command = "for i in $(seq 200); do setsid sh -c 'while :; do date +%N > /tmp/last; done' & done; exit 3"
    running = Confined(inside, ["/bin/sh", "-c", command], tmp_path / "log", sandbox.environment())
    assert running.wait() == 3 and not running.exceeded
    (tmp_path / "last").write_text("mine")
    time.sleep(0.3)
    assert (tmp_path / "last").read_text() == "mine"


@pytest.fixture
def recipe(clone: Clone) -> Recipe:
    clone.recipe("good")
    return RecipeSet(Layout.locate(clone.root)).by_name["good"]


_GOOD = {
    "packages": [{"subdir": "linux-64", "path": "/build/out/linux-64/good-1.0-h_0.conda"}],
    "seconds": {},
}


def _left(work: Path, document: object = _GOOD) -> Path:
    """A build's folder with a result and its package."""
    package = work / "out/linux-64/good-1.0-h_0.conda"
    package.parent.mkdir(parents=True)
    package.write_bytes(b"package")
    (work / "result.json").write_text(json.dumps(document))
    return package


def _linked(path: Path, target: Path) -> None:
    if path.is_dir():
        path.rename(target)
    else:
        target.write_bytes(path.read_bytes())
        path.unlink()
    path.symlink_to(target)


def _item(**changes: object) -> Callable[[Path, Path], object]:
    def change(work: Path, _: Path) -> object:
        document = {**_GOOD, "packages": [{**_GOOD["packages"][0], **changes}]}  # type: ignore[index]
        return (work / "result.json").write_text(json.dumps(document))

    return change


HOSTILE_RESULTS: dict[str, Callable[[Path, Path], object]] = {
    "a subdir outside": _item(subdir="../../x"),
    "another platform": _item(subdir="osx-64"),
    "no package": _item(path="/build/out/linux-64/../../home/x"),
    "a hidden file": _item(path="/build/out/linux-64/.good-1.0-h_0.conda"),
    "not there": _item(path="/build/out/linux-64/other-1.0-h_0.conda"),
    "a linked result": lambda work, more: _linked(work / "result.json", more),
    "a linked package": lambda work, more: _linked(work / "out/linux-64/good-1.0-h_0.conda", more),
    "a linked folder": lambda work, more: _linked(work / "out/linux-64", more),
    "a linked folder of all": lambda work, more: _linked(work / "out", more),
    "a pipe": lambda work, _: ((work / "result.json").unlink(), os.mkfifo(work / "result.json")),
    "too large": lambda work, _: os.truncate(work / "result.json", 100 << 30),
    "no object": lambda work, _: (work / "result.json").write_text("[]"),
    "no JSON": lambda work, _: (work / "result.json").write_bytes(b"\xff{"),
    "strange seconds": lambda work, _: (work / "result.json").write_text(
        '{"packages": [], "seconds": {"a": []}}'
    ),
}


@pytest.mark.parametrize("case", HOSTILE_RESULTS)
def test_results(recipe: Recipe, tmp_path: Path, case: str) -> None:
    work = tmp_path / "work"
    _left(work)
    HOSTILE_RESULTS[case](work, tmp_path / "outside")
    with pytest.raises(WmlceError, match="the build of recipe 'good' left"):
        result.read(work, recipe)


def test_a_right_result_lies_alone(recipe: Recipe, tmp_path: Path) -> None:
    """Beside it there is nothing that the build has made, through which the host could write."""
    package = _left(tmp_path)
    package.with_suffix(".part").symlink_to(tmp_path / "outside")
    [(path, subdir)] = result.read(tmp_path, recipe).packages
    assert subdir == "linux-64" and path.read_bytes() == b"package" and list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("entry", "subdir"),
    [
        ({"name": "powerai"}, "linux-64"),
        ({"version": "9"}, "linux-64"),
        ({"subdir": "noarch"}, "linux-64"),
        ({"name": None}, "linux-64"),
        ({"build_number": 7}, "linux-64"),
        ({"license": "MIT-0"}, "linux-64"),
        ({}, "noarch"),
    ],
)
def test_a_package_that_says_it_is_another(recipe: Recipe, entry: dict[str, Any], subdir: str) -> None:
    [output] = recipe.outputs
    right: dict[str, Any] = {"name": "good", "version": "1.0", "build": "h_0", "subdir": "linux-64"}
    right["license"] = output.rendered["about"]["license"]
    result.check(recipe, "h", 0, "linux-64", "good-1.0-h_0.conda", right)
    with pytest.raises(WmlceError, match="the build of recipe 'good' left"):
        result.check(recipe, "h", 0, subdir, "good-1.0-h_0.conda", right | entry)
    with pytest.raises(WmlceError, match=r"left good-1\.0-h_0\.conda"):
        result.check(recipe, "0123456789", 0, "linux-64", "good-1.0-h_0.conda", right)
    # that of a Debian revision counts too
    result.check(recipe, "h", 3001, "linux-64", "good-1.0-h_0.conda", right | {"build_number": 3001})


@pytest.mark.parametrize("names", [[], ["good", "good"], ["good", "other"]])
def test_other_packages_than_the_recipes(recipe: Recipe, names: list[str]) -> None:
    result.check_all(recipe, ["good"])
    with pytest.raises(WmlceError, match="the build of recipe 'good' left the packages"):
        result.check_all(recipe, names)


def hostile_package(
    folder: Path,
    members: list[tarfile.TarInfo | tuple[str, bytes]],
    *,
    more: Sequence[dict[str, str]] = (),
    record: str | None = None,
    index: Mapping[str, object] | None = None,
    **paths: object,
) -> Path:
    """A .conda file with these members beside share/data, and with its list of files changed.

    more: entries of the list. record: a file among the records. index: what info/index.json has, too
    """
    right = {"_path": "share/data", "path_type": "hardlink", "sha256": hashlib.sha256(b"right").hexdigest()}
    listed = [{**right, **paths}]
    about = {"name": "good", "version": "1.0", "build": "h_0", "build_number": 0, "subdir": "linux-64"}
    inside: list[tarfile.TarInfo | tuple[str, bytes]] = [
        ("info/index.json", json.dumps({**about, **(index or {})}).encode()),
        ("share/data", b"right"),
        *members,
    ]
    for member in members:
        name = member[0] if isinstance(member, tuple) else member.name
        kind = "softlink" if isinstance(member, tarfile.TarInfo) and member.issym() else "hardlink"
        sha256 = hashlib.sha256(member[1] if isinstance(member, tuple) else b"").hexdigest()
        if not name.startswith("info/"):
            listed.append({"_path": name, "path_type": kind, "sha256": sha256})
    listed += more
    inside.append(("info/paths.json", json.dumps({"paths": listed, "paths_version": 1}).encode()))
    folder.mkdir()
    if record is not None:
        inside.append((record, b"x"))

    def is_info(name: str) -> bool:
        return name.startswith("info/") or name == record

    with conda_builder("good-1.0-h_0", folder, is_info=is_info) as archive:
        for member in inside:
            if isinstance(member, tuple):
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
            else:
                archive.addfile(member)
    return folder / "good-1.0-h_0.conda"


def link(name: str, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    return member


HOSTILE_PACKAGES: dict[str, tuple[list[tarfile.TarInfo | tuple[str, bytes]], dict[str, object], str]] = {
    "a file twice": ([("share/data", b"right")], {}, "in the package twice"),
    "two lists of files": ([("info/paths.json", b'{"paths": []}')], {}, "only in its list of them"),
    "two records": ([("info/index.json", b"{}")], {}, "in the package twice"),
    "another digest": ([], {"sha256": "0" * 64}, "says something else of share/data"),
    "another type": ([], {"path_type": "softlink"}, "says something else of share/data"),
    "another place": ([], {"_path": "../elsewhere/data"}, "only in its files or only in its list"),
    "a record of an environment": ([("conda-meta/x.json", b"{}")], {}, "record of the environment"),
    "links by way of links": (
        [link("a/b/c", "../.."), link("a/b/d", "c/../../etc")],
        {},
        "a/b/d leads out of the environment",
    ),
    "a link to itself": ([link("a", "b"), link("b", "a")], {}, "leads to itself"),
    "an absolute name": ([("/etc/evil", b"x")], {}, "is no place in an environment"),
    "a name that types": ([("share/\x1b]0;x", b"x")], {}, "is no place in an environment"),
    "a folder elsewhere": (
        [],
        {"more": [{"_path": "share/d/../../../etc/evil", "path_type": "directory"}]},
        "is no folder in an environment",
    ),
    "a folder that is a file": (
        [],
        {"more": [{"_path": "share/data", "path_type": "directory"}]},
        "is no folder in an environment",
    ),
    "files among the records": ([], {"record": "share/other"}, "is no record of a package"),
    "records below a link": (
        [link("info/a", "."), ("info/a/paths.json", b'{"paths": []}')],
        {},
        "'info/a' is no file",
    ),
    "a record that is a link": ([link("info/link.json", "index.json")], {}, "'info/link.json' is no file"),
    "a file below a link": (
        [link("share/l", "../x"), ("share/l/evil", b"x")],
        {},
        "below 'share/l', which is",
    ),
    "a link below a link": ([link("a", "share"), link("a/b", "data")], {}, "below 'a', which is no folder"),
    "a file below a file": ([("share/data/x", b"x")], {}, "below 'share/data', which is no folder"),
    "a file that is named like a folder": ([("share/data/", b"x")], {}, "in the package twice"),
    "a link in place of the records": ([link("conda-meta", "share")], {}, "record of the environment"),
    "a folder among the records": (
        [],
        {"more": [{"_path": "conda-meta/history", "path_type": "directory"}]},
        "record of the environment",
    ),
    "a script that installs": (
        [("bin/.good-post-link.sh", b"x")],
        {},
        "would run when the package is installed",
    ),
    "a name that turns round": ([("share/\u202egpj", b"x")], {}, "is no place in an environment"),
    "an entry point of two lines": (
        [("info/link.json", b'{"noarch": {"entry_points": ["a = b:c\\nimport x"]}}')],
        {},
        "is no `command = module:function`",
    ),
    "a number that is none": ([], {"index": {"build_number": False}}, "cannot read its records"),
    "no dependency": ([], {"index": {"depends": ["((("]}}, "cannot read its records"),
    "no kind": ([], {"index": {"noarch": "strange"}}, "cannot read its records"),
    "modules elsewhere": ([], {"index": {"python_site_packages_path": "../x"}}, "is no place for modules"),
}


@pytest.mark.parametrize("case", HOSTILE_PACKAGES)
def test_packages_that_say_something_else_than_they_hold(tmp_path: Path, case: str) -> None:
    members, paths, message = HOSTILE_PACKAGES[case]
    right = hostile_package(tmp_path / "right", [link("share/link", "data")])
    assert finish(right, 0)["name"] == "good"
    package = hostile_package(tmp_path / "hostile", members, **paths)
    with pytest.raises(WmlceError, match=message):
        finish(package, 0)


def test_files_that_are_larger_than_any_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sparse = tarfile.TarInfo("share/sparse")
    sparse.type = tarfile.GNUTYPE_SPARSE
    with pytest.raises(WmlceError, match="of more than 64 GiB, or with holes"):
        finish(hostile_package(tmp_path / "sparse", [sparse]), 0)
    monkeypatch.setattr(glibc, "LARGEST", 999)
    with pytest.raises(WmlceError, match="of more than 0 GiB, or with holes"):
        finish(hostile_package(tmp_path / "large", [("share/large", bytes(1000))]), 0)
    library = hostile_package(tmp_path / "library", [("share/lib.so", b"\x7fELF" + bytes(500))])
    monkeypatch.setattr(glibc, "_IN_MEMORY", 100)
    assert finish(library, 0)["name"] == "good"


def test_a_tree_that_is_too_deep_for_python(site: Clone) -> None:
    """It goes with the build, and no later build meets it."""
    deep = "import os\nos.chdir('/build/tmp')\nfor i in range(3000): os.mkdir('d'); os.chdir('d')"
    site.recipe("hostile", script=[_PUT, "touch $PREFIX/share/x", f'/usr/bin/python3 -c "{deep}"'])
    done = site.run("channel", "build", "hostile")
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert list((site.root / "build/work").iterdir()) == []
    site.recipe("next")
    assert site.built("next") == {"next"}


def test_compilations_are_kept_for_the_recipe_alone(clone: Clone) -> None:
    """A build cannot have another one's compiler started by a program of its own."""
    clone.write("sources/a.c", "int a(void) { return 1; }\n")
    source = [{"path": "../../sources"}]
    evil = "printf '#!/bin/sh\\necho PREFIXED >&2; exec \"$@\"\\n' > /ccache/evil; chmod 755 /ccache/evil; "
    evil += "echo prefix_command = /ccache/evil > /ccache/ccache.conf"
    clone.recipe("hostile", source=source, script=[_PUT, "touch $PREFIX/share/x", evil])
    assert clone.built("hostile") == {"hostile"}
    assert (clone.cache / "ccache-packages").stat().st_mode & 0o077 == 0
    clone.recipe("good", source=source, script=[_PUT, "ccache gcc -c a.c -o $PREFIX/share/a.o"])
    done = clone.run("channel", "build", "good")
    assert done.returncode == 0, done.stderr
    assert "PREFIXED" not in (clone.root / "build/logs/good.log").read_text()


def test_typing_into_the_callers_terminal(root: Path, tmp_path: Path) -> None:
    """`wmlce build-root run` has the user's terminal: nothing inside may put input into it (TIOCSTI)."""
    type_ = "import fcntl, termios, sys; fcntl.ioctl(0, termios.TIOCSTI, b'x')"
    inside = sandbox.Sandbox(root)
    words = inside.command_line(
        ["/usr/bin/python3", "-c", type_], new_session=sandbox.can_type_into_terminals()
    )
    start = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"
    done = subprocess.run(
        [sys.executable, "-c", start, *words],
        env=sandbox.environment(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert b"Error" in done.stdout, done.stdout
