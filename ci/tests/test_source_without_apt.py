"""Debian's files without apt: signed lists and files by http, believed by signature and digest alone."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from debian_mirror import Key, Mirror, digest, without_apt
from local_wheels import make_wheel
from scratch_clone import Clone
from test_debian_archive import make_deb
from web_server import Files
from wmlce.sources import signed_lists, suite
from wmlce.sources.apt import PrivateApt
from wmlce.sources.signed_lists import SignedLists
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout

VERSION = "1.2-3"
ORIG = "tool_1.2.orig.tar.gz"


@pytest.fixture(scope="module")
def key() -> Iterator[Key]:
    made = Key()
    yield made
    made.forget()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return without_apt(tmp_path_factory.mktemp("machine") / "bin")


@pytest.fixture
def mirror(tmp_path: Path, key: Key) -> Mirror:
    archive = Mirror(tmp_path / "mirror", key)
    archive.add("tool", VERSION, orig={"program": "1.2"}, debian={"fix": "first"})
    archive.publish()
    return archive


@pytest.fixture
def server(mirror: Mirror) -> Iterator[Files]:
    with Files(mirror.folder).served() as files:
        yield files


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def lists(
    mirror: Mirror, server: Files, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> SignedLists:
    """What a machine without apt has of the mirror."""
    for name, value in {
        **mirror.settings(f"{server.url}/debian"),
        "no_proxy": "*",
        "PIP_RETRIES": "0",
    }.items():
        monkeypatch.setenv(name, value)
    return SignedLists(Layout(tmp_path, tmp_path / "cache"), said.append)


def refused(lists: SignedLists) -> str:
    with pytest.raises(WmlceError) as caught:
        lists.update(force=True)
    assert lists.stale(1e9), "what was refused counts as read"
    assert caught.value.remedy
    return str(caught.value)


def fetched(lists: SignedLists, folder: Path, name: str = ORIG) -> suite.Trouble | None:
    folder.mkdir(exist_ok=True)
    return lists.download("debian-source", [("tool", VERSION)], [name], folder)


def test_sources_and_a_build_root(clone: Clone, mirror: Mirror, server: Files, path: str, key: Key) -> None:
    """Of two releases; what was fetched is fetched once."""
    root = Mirror(mirror.folder, key, suite="bullseye")
    binary = root.add_binary("libtool", "1:1.2-1+b2")
    root.publish()
    entries = [
        {**entry, "version": version, "files": [{"name": name, "sha256": digest(file)}]}
        for entry, version, name, file in (
            (
                {"recipes": ["tool"], "kind": "debian-source", "package": "tool"},
                *(VERSION, ORIG, mirror.root / "pool/tool" / ORIG),
            ),
            (
                {
                    "recipes": ["build-root"],
                    "kind": "debian-binary",
                    "suite": "bullseye",
                    "package": "libtool",
                },
                *("1:1.2-1+b2", "libtool_1%3a1.2-1+b2_amd64.deb", binary),
            ),
        )
    ]
    clone.write("recipes/sources.lock.yaml", yaml.safe_dump(entries[:1]))
    clone.write("recipes/build-root.lock.yaml", yaml.safe_dump(entries[1:]))
    clone.recipe("tool", source=[{"path": f"../../build/sources/{ORIG}"}])
    clone.env |= {"PATH": path, "no_proxy": "*", **mirror.settings(f"{server.url}/debian")}
    files = [ORIG, "libtool_1%3a1.2-1+b2_amd64.deb"]
    assert sorted(clone.ok("source", "fetch")["fetched"]) == sorted(files)
    server.requests.clear()
    assert clone.ok("source", "fetch")["fetched"] == [] and not server.requests


def test_no_mirror_is_an_error_before_anything_is_fetched(clone: Clone, path: str, tmp_path: Path) -> None:
    clone.env |= {"PATH": path, "WMLCE_DEBIAN_MIRROR": "", "WMLCE_DEBIAN_KEYRING": ""}
    assert "--debian-mirror URL" in clone.fails("doctor", "--no-network")
    wheel = make_wheel(tmp_path / "links", "tiny", "1.0")
    clone.without_build_root()
    python = {"recipes": ["tool"], "kind": "python", "package": "tiny", "version": "1.0"}
    python["files"] = [{"name": wheel.name, "sha256": digest(wheel)}]  # type: ignore[assignment]
    debian = {"recipes": ["tool"], "kind": "debian-source", "package": "tool", "version": VERSION}
    debian["files"] = [{"name": ORIG, "sha256": "0" * 64}]  # type: ignore[assignment]
    clone.write("recipes/sources.lock.yaml", yaml.safe_dump([python, debian]))
    clone.env |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheel.parent)}
    error = clone.fails("source", "fetch")
    assert "no apt-get" in error and "--debian-mirror URL" in error and "WMLCE_DEBIAN_MIRROR" in error
    assert "--offline DIR" in error and "wmlce source bundle" in error
    assert not list(clone.cache.glob("sources/*/*.whl"))
    clone.env["WMLCE_DEBIAN_KEYRING"] = str(tmp_path / "none.gpg")
    assert f"{tmp_path}/none.gpg does not exist" in clone.fails("source", "fetch")


def test_lists_are_fetched_once_and_a_broken_connection_goes_on(
    lists: SignedLists, server: Files, mirror: Mirror, tmp_path: Path, said: list[str]
) -> None:
    server.cut |= {"Sources.xz", ORIG}
    assert lists.update()
    assert any("has no bookworm-security, bookworm-updates" in line for line in said), said
    assert fetched(lists, tmp_path / "out") is None
    assert digest(tmp_path / "out" / ORIG) == digest(mirror.root / "pool/tool" / ORIG)
    assert not server.cut, "nothing was cut off"
    server.requests.clear()
    assert not lists.update() and not server.requests
    assert lists.update(force=True)
    assert {name.rpartition("/")[2] for name in server.requests} == {"InRelease"}, server.requests
    # another mirror is another matter
    lists.mirror = suite.Mirror(f"file://{mirror.root}", None, str(mirror.key.public))
    assert lists.update()


def test_a_mirror_that_is_not_reached(lists: SignedLists, mirror: Mirror) -> None:
    lists.mirror = suite.Mirror("http://127.0.0.1:1/debian", None, str(mirror.key.public))
    error = refused(lists)
    assert "bookworm's package lists could not be read" in error and "not reachable" in error


def test_forged_lists(lists: SignedLists, mirror: Mirror) -> None:
    """Changed after they were signed; signed by nobody; by somebody else."""
    release = mirror.root / "dists/bookworm/InRelease"
    true = release.read_text()
    forged = true.replace("Components: main", "Components: evil")
    for text in (
        forged,
        true.partition("-----BEGIN PGP SIGNATURE")[0],
        (release.with_name("Release")).read_text(),
    ):
        release.write_text(text)
        error = refused(lists)
        assert "/dists/bookworm/InRelease: " in error and "Debian's signature" in error and "keyring" in error
    stranger = Key()
    try:
        stranger.sign(release.with_name("Release"), release)
    finally:
        stranger.forget()
    assert "Debian's signature" in refused(lists)
    # what surrounds the signed part is not read
    release.write_text(f"Components: evil\n\n{true}\nSHA256:\n evil\n")
    try:
        lists.update(force=True)
    except WmlceError as error:
        assert "Debian's signature" in str(error)
    assert [offer.version for offer in lists.offers("debian-source", "tool")] in ([], [VERSION])


def test_expired_lists(lists: SignedLists, mirror: Mirror, server: Files) -> None:
    mirror.publish(Valid_Until="Sun, 22 Nov 2026 00:00:00 UTC")
    error = refused(lists)
    assert "was valid until Sun, 22 Nov 2026" in error and "clock" in error
    # those of a snapshot are old by their nature
    lists.mirror = suite.Mirror(f"{server.url}/debian", None, str(mirror.key.public), permanent=True)
    assert lists.update()
    lists.mirror = None
    mirror.publish(Date="Sat, 21 Nov 2099 00:00:00 UTC")
    assert "is of Sat, 21 Nov 2099" in refused(lists)


def test_a_release_under_the_name_of_another(lists: SignedLists, mirror: Mirror) -> None:
    mirror.publish(Codename="bullseye", Suite="oldstable")
    assert "is of bullseye (oldstable), and not of bookworm" in refused(lists)


def test_a_mirror_without_the_release(lists: SignedLists, mirror: Mirror) -> None:
    (mirror.root / "dists/bookworm").rename(mirror.root / "dists/trixie")
    error = refused(lists)
    assert "the mirror has no release bookworm" in error and "--debian-mirror URL" in error


def test_lists_with_another_content_than_is_signed(lists: SignedLists, mirror: Mirror) -> None:
    listing = mirror.root / "dists/bookworm/main/source/Sources.xz"
    listing.write_bytes(listing.read_bytes()[:-9])
    error = refused(lists)
    assert "Sources.xz has other content than its InRelease says" in error and digest(listing) in error
    listing.unlink()
    assert "there is no " in refused(lists)


def test_lists_by_their_digest(lists: SignedLists, mirror: Mirror) -> None:
    """A mirror that is being updated has those of both states; one that is not whole has not all of them."""
    mirror.publish(Acquire_By_Hash="yes")
    listing = mirror.root / "dists/bookworm/main/source/Sources.xz"
    place = listing.parent / "by-hash/SHA256" / digest(listing)
    place.parent.mkdir(parents=True)
    listing.rename(place)
    assert lists.update()
    assert [offer.version for offer in lists.offers("debian-source", "tool")] == [VERSION]


def test_files_that_are_cut_off_or_gone(lists: SignedLists, mirror: Mirror, tmp_path: Path) -> None:
    lists.update()
    file = mirror.root / "pool/tool" / ORIG
    whole = file.read_bytes()
    file.write_bytes(whole[:20])
    trouble = fetched(lists, tmp_path / "out")
    assert trouble is not None and not (tmp_path / "out" / ORIG).exists()
    assert "has other content than Debian's lists say" in trouble.lines[0] and "20 bytes" in trouble.lines[2]
    file.unlink()
    assert fetched(lists, tmp_path / "out") is None and not (tmp_path / "out" / ORIG).exists()


def test_a_package_that_two_lists_name(lists: SignedLists, mirror: Mirror, key: Key, tmp_path: Path) -> None:
    """A security update that came into the release later: one of both places may have been tidied up."""
    security = Mirror(tmp_path / "security", key, suite="bookworm-security")
    security.add("tool", VERSION, orig={"program": "1.2"}, debian={"fix": "first"})
    security.publish()
    security.root.rename(mirror.folder / "debian-security")
    (mirror.folder / "debian-security/pool/tool" / ORIG).unlink()
    lists.update()
    assert fetched(lists, tmp_path / "out") is None and (tmp_path / "out" / ORIG).is_file()


def test_damaged_lists_in_the_cache(lists: SignedLists) -> None:
    lists.update()
    for file in lists.folder.glob("*.xz"):
        file.write_bytes(b"rot")
    with pytest.raises(WmlceError, match="could not be read"):
        lists.offers("debian-source", "tool")
    assert lists.stale(1e9)


@pytest.fixture
def with_keys(
    mirror: Mirror, lists: SignedLists, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> list[str]:
    """The machine has no keys of Debian, and the mirror has its package of them; returns the fingerprints."""
    armored = subprocess.run(
        ["gpg", "--homedir", mirror.key.home, "--armor", "--export"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    place = mirror.add_binary("debian-archive-keyring", "2026.1")
    make_deb(place, [("./usr/share/keyrings/debian-archive-keyring.gpg", armored)])
    mirror.publish()
    monkeypatch.delenv("WMLCE_DEBIAN_KEYRING")
    monkeypatch.setattr(suite, "_KEYRING", tmp_path / "none.gpg")
    return [one.fingerprint for one in signed_lists._read_keys(mirror.key.public)]


@pytest.mark.parametrize("kind", [SignedLists, PrivateApt])
def test_keys_from_the_mirror(
    kind: type[suite.Suite],
    lists: SignedLists,
    with_keys: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """They are known by their fingerprints alone; apt without Debian's keys takes them, too."""
    if kind is PrivateApt and not suite.has_apt():
        pytest.skip("this machine has no apt")
    release = kind(lists.layout, lists.say)
    with pytest.raises(WmlceError, match="has no keys of Debian bookworm"):
        release.update()
    assert not list(lists.layout.cache.glob("debian-keys-*"))
    monkeypatch.setattr(signed_lists, "FINGERPRINTS", frozenset(with_keys))
    assert release.update()
    assert [offer.version for offer in release.offers("debian-source", "tool")] == [VERSION]


def test_an_attackers_lists_name_the_right_keys(
    lists: SignedLists, mirror: Mirror, with_keys: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists that are not checked lead to the keys; they are not believed for that."""
    monkeypatch.setattr(signed_lists, "FINGERPRINTS", frozenset(with_keys))
    stranger = Key()
    try:
        release = mirror.root / "dists/bookworm/InRelease"
        stranger.sign(release.with_name("Release"), release)
    finally:
        stranger.forget()
    assert "Debian's signature" in refused(lists)
    assert lists.offers("debian-source", "tool") == []


def test_keys_of_debian() -> None:
    """The known fingerprints are those of the machine's own package of keys."""
    if not suite._KEYRING.is_file():
        pytest.skip("this machine has no debian-archive-keyring")
    found = {key.fingerprint for key in signed_lists._read_keys(suite._KEYRING)}
    assert found & signed_lists.FINGERPRINTS


def test_a_file_that_holds_no_keys(
    lists: SignedLists, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys").write_bytes(hashlib.sha256(b"").digest())
    monkeypatch.setenv("WMLCE_DEBIAN_KEYRING", str(tmp_path / "keys"))
    with pytest.raises(WmlceError, match="is not a file of OpenPGP keys"):
        lists.update()
