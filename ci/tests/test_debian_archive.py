"""Debian packages are unpacked into their root, whatever they hold."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from wmlce.images import base_system
from wmlce.util import debian_archive
from wmlce.util.errors import WmlceError

Member = tuple[str, str]
"""Name, and `text`, `-> target` (a link), `= target` (a hard link), `/` (a folder) or `device`."""


def make_deb(path: Path, members: Sequence[Member]) -> Path:
    """A package of these files, as `dpkg-deb` would make it: an ar archive with three members."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:xz") as archive:
        for name, what in members:
            member = tarfile.TarInfo(name)
            content = b""
            if what == "/":
                member.type, member.mode = tarfile.DIRTYPE, 0o755
            elif what == "device":
                member.type = tarfile.CHRTYPE
            elif what.startswith("-> "):
                member.type, member.linkname = tarfile.SYMTYPE, what[3:]
            elif what.startswith("= "):
                member.type, member.linkname = tarfile.LNKTYPE, what[2:]
            else:
                content, member.mode = what.encode(), 0o4755
                member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    control = io.BytesIO()
    with tarfile.open(fileobj=control, mode="w:xz") as archive:
        text = b"Package: crafted\nVersion: 1\n"
        member = tarfile.TarInfo("./control")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    parts = {"debian-binary": b"2.0\n", "control.tar.xz": control.getvalue(), "data.tar.xz": data.getvalue()}
    with path.open("wb") as stream:
        stream.write(b"!<arch>\n")
        for name, content in parts.items():
            stream.write(f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode())
            stream.write(content + b"\n" * (len(content) % 2))
    return path


def test_a_package_cannot_write_through_a_link_of_another(tmp_path: Path) -> None:
    """The first leaves a link that leads onto the machine, the second writes through it."""
    outside = tmp_path / "host"
    outside.mkdir()
    one = make_deb(tmp_path / "one.deb", [("./usr/", "/"), ("./usr/evil", f"-> {outside}")])
    two = make_deb(
        tmp_path / "two.deb", [("./usr/evil/", "/"), ("./usr/evil/planted", "mine"), ("./bin/tool", "tool")]
    )
    root = tmp_path / "root"
    base_system.unpack([one, two], root)
    assert list(outside.iterdir()) == []
    # as in the system that it will be
    assert (root / str(outside).lstrip("/") / "planted").read_text() == "mine"
    assert (root / "bin/tool").read_text() == "tool" and (root / "bin").is_symlink()


@pytest.mark.parametrize(
    "members",
    [
        [("./up", "-> ../../../../../../.."), ("./up/planted", "mine")],
        [("./a", "-> /"), ("./b", "-> a/../.."), ("./b/planted", "mine")],
    ],
)
def test_above_the_root_is_the_root(tmp_path: Path, members: list[Member]) -> None:
    root = tmp_path / "root"
    root.mkdir()
    debian_archive.unpack(make_deb(tmp_path / "x.deb", members), root)
    assert (root / "planted").read_text() == "mine" and not (tmp_path / "planted").exists()


@pytest.mark.parametrize(
    "members",
    [
        [("../planted", "mine")],
        [("./dev/sda", "device")],
        [("./a", "-> b"), ("./b", "-> a"), ("./a/planted", "mine")],
        [("./secret", "= ../host/secret")],
        [("./a/", "/"), ("./a", "text")],
    ],
)
def test_what_is_refused(tmp_path: Path, members: list[Member]) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "host").mkdir()
    (tmp_path / "host/secret").write_text("secret")
    with pytest.raises(WmlceError, match=r"x\.deb cannot be unpacked"):
        debian_archive.unpack(make_deb(tmp_path / "x.deb", members), root)
    assert not (tmp_path / "planted").exists() and not (root / "secret").exists()


def test_links_files_and_modes(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "usr/lib").mkdir(parents=True)
    (root / "lib").symlink_to("usr/lib")
    members = [
        ("./lib/", "/"),
        ("./lib/libx.so.1", "library"),
        ("./lib/libx.so", "-> libx.so.1"),
        ("./lib/again", "= ./lib/libx.so.1"),
        ("./etc/mtab", "-> /proc/mounts"),
        ("./usr/share/man/x", "unread"),
    ]
    debian_archive.unpack(
        make_deb(tmp_path / "x.deb", members), root, lambda name: name.startswith("usr/share/man")
    )
    assert (root / "usr/lib/libx.so").read_text() == "library" and (root / "lib").is_symlink()
    assert (root / "usr/lib/again").samefile(root / "usr/lib/libx.so.1")
    assert (root / "usr/lib/again").stat().st_mode & 0o7777 == 0o755
    assert (root / "etc/mtab").readlink() == Path("/proc/mounts")
    assert not (root / "usr/share/man").exists()


def test_a_damaged_package(tmp_path: Path) -> None:
    path = make_deb(tmp_path / "x.deb", [("./a", "text")])
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(WmlceError, match="cannot be unpacked"):
        debian_archive.unpack(path, tmp_path / "root")
