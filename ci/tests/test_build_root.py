"""The build root: builds see what they declare and nothing else, and what they make runs on older systems."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from scratch_clone import Clone
from tree import ROOT
from wmlce.builder import build_root, glibc, link_floor, root_files, sandbox
from wmlce.builder.plan import Plan
from wmlce.recipes.recipe_set import RecipeSet, load_source_lock
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout


@pytest.fixture(scope="module")
def root() -> Path:
    layout = Layout.locate(ROOT)
    return build_root.make(layout, build_root.read(layout), load_source_lock(layout), lambda _: None)


def inside(root: Path, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    words = sandbox.Sandbox(root, writable={"/build": folder}, folder="/build").command_line(command)
    return subprocess.run(
        words, env=sandbox.environment(), capture_output=True, text=True, timeout=120, check=False
    )


def test_a_program_of_the_host_is_not_there(clone: Clone) -> None:
    assert shutil.which("git"), "the host has the program that the build must not see"
    clone.recipe("undeclared", script=["git --version > version", "install -D version $PREFIX/share/version"])
    error = clone.fails("channel", "build")
    assert "recipe 'undeclared' could not be built" in error and "git: command not found" in error


def test_a_file_of_the_host_is_not_there(clone: Clone, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the host\n")
    clone.recipe("curious", script=[f"cat {tmp_path}/secret"])
    assert "No such file or directory" in clone.fails("channel", "build")


CALL = "exec 3<>/dev/tcp/{}/{}"


@pytest.mark.parametrize("address", ["127.0.0.1", "host"])
def test_a_build_reaches_no_network(clone: Clone, address: str) -> None:
    """Neither a server on this very machine, which listens, nor any other."""
    import socket

    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        own = socket.gethostbyname(socket.gethostname()) if address == "host" else address
        with socket.create_connection((own, port), 5):
            pass  # it does answer
        clone.recipe("caller", script=[CALL.format(own, port)])
        error = clone.fails("channel", "build")
    assert "Network is unreachable" in error or "Connection refused" in error


def test_a_test_of_a_package_reaches_no_network_either(clone: Clone) -> None:
    clone.recipe(
        "caller",
        test=[CALL.format("192.0.2.1", 9)],
    )
    assert "Network is unreachable" in clone.fails("channel", "build")


def test_builds_are_the_same_user_in_the_same_place_everywhere(clone: Clone) -> None:
    clone.recipe(
        "facts",
        script=["mkdir -p $PREFIX/share", "(id -un; hostname; pwd) > $PREFIX/share/facts"],
        test=[
            "test $(grep -cx build $PREFIX/share/facts) = 2",
            "grep ^/build/ $PREFIX/share/facts",
        ],
    )
    clone.built()


def test_the_root_counts_in_every_content_hash(clone: Clone) -> None:
    clone.recipe("a")
    clone.built()
    path = clone.root / "recipes/build-root.yaml"
    text = path.read_text()
    assert 'glibc: "2.28"' in text
    layout = Layout(clone.root, clone.cache)

    def content_hash() -> str:
        return Plan(layout, RecipeSet(layout), load_source_lock(layout)).content_hash("a")

    before, published = content_hash(), clone.published()
    assert [before in name for name in published] == [True]
    path.write_text(text.replace('glibc: "2.28"', 'glibc: "2.29"'))
    assert content_hash() != before
    path.write_text(text)
    assert clone.built() == set() and clone.published() == published


def test_what_is_linked_runs_on_an_older_glibc(root: Path, tmp_path: Path) -> None:
    """exp, log and pow have versions of 2.29, condition variables wait by a function of 2.30."""
    (tmp_path / "new.cc").write_text(
        "#include <chrono>\n#include <cmath>\n#include <condition_variable>\n"
        "#include <cstdio>\n#include <mutex>\n"
        "int main(int n, char**) {\n"
        "  std::mutex mutex; std::condition_variable changed; std::unique_lock lock(mutex);\n"
        "  changed.wait_for(lock, std::chrono::milliseconds(1));\n"
        "  double x = n;\n"
        '  std::printf("%.3f %.3f %.3f\\n", std::exp(x), std::log(x + 1), std::pow(x + 1, 2.5));\n}\n'
    )
    done = inside(root, tmp_path, "g++", "-std=c++20", "-pthread", "new.cc", "-o", "new")
    assert done.returncode == 0, done.stderr
    assert inside(root, tmp_path, "./new").stdout == "2.718 0.693 5.657\n"
    assert subprocess.run([tmp_path / "new"], capture_output=True, text=True).stdout == "2.718 0.693 5.657\n"
    with (tmp_path / "new").open("rb") as program:
        needed = glibc.needed_by_file(program)
    assert needed is not None and needed <= (2, 28)


def test_a_function_without_an_older_form_does_not_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "new.c").write_text(
        "#define _GNU_SOURCE\n#include <unistd.h>\nint main(void) { return gettid(); }\n"
    )
    done = inside(root, tmp_path, "gcc", "new.c", "-o", "new")
    assert done.returncode != 0 and "undefined reference to `gettid'" in done.stderr


def test_a_package_says_which_glibc_its_own_files_need(clone: Clone) -> None:
    clone.library_for_glibc_2_27("new", run=["__glibc >=2.5"])
    clone.recipe("text")
    clone.built()
    repodata = json.loads((clone.root / "build/channel/linux-64/repodata.json").read_text())["packages.conda"]
    depends = {entry["name"]: entry["depends"] for entry in repodata.values()}
    assert depends == {"new": ["__glibc >=2.27,<3.0.a0"], "text": []}


def test_where_namespaces_are_forbidden_it_says_so(clone: Clone, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    refusing = programs / "bwrap"
    refusing.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    refusing.chmod(0o755)
    clone.env["PATH"] = f"{programs}:/usr/bin:/bin"
    clone.recipe("a")
    error = clone.fails("channel", "build")
    assert "the build root cannot be entered" in error and "No permissions to create new namespace" in error
    assert "user namespaces" in error


def test_namespaces_are_asked_for_before_sources_are_fetched(clone: Clone, tmp_path: Path) -> None:
    """Also where the build root, which has bubblewrap, is still to be made."""
    (clone.cache / "build-roots").unlink()
    test_where_namespaces_are_forbidden_it_says_so(clone, tmp_path)
    assert not (clone.cache / "sources").exists() and not (clone.cache / "build-roots").exists()


@pytest.mark.parametrize(
    ("setting", "value", "user", "remedy"),
    [
        ("user/max_user_namespaces", "0", 0, "sysctl -w user.max_user_namespaces=10000"),
        ("kernel/unprivileged_userns_clone", "0", 1000, "sysctl -w kernel.unprivileged_userns_clone=1"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            1000,
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        # which do not hold for root, so that in a container it is the runtime
        ("kernel/apparmor_restrict_unprivileged_userns", "1", 0, "seccomp=unconfined"),
        ("user/max_user_namespaces", "5", 1000, "seccomp=unconfined"),
    ],
)
def test_the_remedy_is_that_of_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, value: str, user: int, remedy: str
) -> None:
    """Settings of kernels that this machine may not have, in a folder of files instead of /proc/sys."""
    (tmp_path / setting).parent.mkdir(parents=True)
    (tmp_path / setting).write_text(f"{value}\n")
    monkeypatch.setattr(sandbox, "_KERNEL", tmp_path)
    monkeypatch.setattr(sandbox, "_CONTAINER_MARKS", (str(tmp_path),))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    bwrap = tmp_path / "bwrap"
    bwrap.write_text("#!/bin/sh\nexit 1\n")
    bwrap.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WmlceError) as error:
        sandbox.require_namespaces()
    assert remedy in (error.value.remedy or ""), error.value


def test_the_root_brings_its_own_bubblewrap(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    words = sandbox.Sandbox(root, writable={"/build": tmp_path}).command_line(["/usr/bin/id", "-un"])
    assert words[0].startswith(str(root))
    done = subprocess.run(words, env=sandbox.environment(), capture_output=True, text=True, timeout=60)
    assert done.stdout == "build\n", done.stderr


def test_a_package_cannot_write_outside_of_the_root(tmp_path: Path) -> None:
    """A member below a link that leads out of the root lands inside, where the link leads for the system."""
    import io
    import tarfile

    outside, unpacked = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    unpacked.mkdir()
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        link = tarfile.TarInfo("./usr/share/way-out")
        link.type, link.linkname = tarfile.SYMTYPE, str(outside)
        archive.addfile(link)
        file = tarfile.TarInfo("./usr/share/way-out/planted")
        file.size = 4
        archive.addfile(file, io.BytesIO(b"bad\n"))
    package = tmp_path / "crafted_1_amd64.deb"
    control = io.BytesIO()
    with tarfile.open(fileobj=control, mode="w:gz") as archive:
        text = b"Package: crafted\nVersion: 1\nArchitecture: amd64\n"
        info = tarfile.TarInfo("./control")
        info.size = len(text)
        archive.addfile(info, io.BytesIO(text))
    members = [
        ("debian-binary", b"2.0\n"),
        ("control.tar.gz", control.getvalue()),
        ("data.tar.gz", data.getvalue()),
    ]
    with package.open("wb") as stream:
        stream.write(b"!<arch>\n")
        for name, content in members:
            stream.write(f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode())
            stream.write(content + b"\n" * (len(content) % 2))
    root_files.unpack([package], unpacked)
    assert list(outside.iterdir()) == []
    assert [path.name for path in unpacked.rglob("planted")] == ["planted"]


def test_a_suite_that_the_floor_was_not_made_for_is_refused(tmp_path: Path) -> None:
    libraries = tmp_path / "usr/lib/x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    for name in ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"):
        (libraries / name).write_bytes(Path("/bin/true").read_bytes())
    with pytest.raises(WmlceError, match="has no symbol versions"):
        link_floor.hide_newer_symbols(tmp_path, "2.28")
