"""A mirror that is not what it says: each of its ways ends in one error, and nothing of it is at the
destination. docs/cluster/security.md has the list of attacks.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import shutil
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from small_channel import index, make_package, sign
from web_server import Handler, listening
from wmlce.channel import published
from wmlce.envs import explicit
from wmlce.mirror import origin
from wmlce.mirror.mirroring import Mirrored, mirror
from wmlce.release import check, freshness, manifest, signature, trust
from wmlce.release.signature import Key, Trust
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout

NOW = datetime.now(UTC)
PACKAGE = "noarch/top-1.0-0.conda"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> list[Key]:
    folder = tmp_path_factory.mktemp("keys")
    return [signature.new_key(folder / name / "key", passphrase=False) for name in ("ours", "other")]


@dataclass
class Server:
    """Serves a folder, but for what it does with some files. requests: path and Authorization of each."""

    folder: Path
    url: str = ""
    ways: dict[str, Callable[[Handler], None]] = field(default_factory=dict)
    requests: list[tuple[str, str | None]] = field(default_factory=list)

    def answer(self, handler: Handler) -> None:
        name = handler.path.lstrip("/")
        self.requests.append((name, handler.headers.get("Authorization")))
        if name in self.ways:
            self.ways[name](handler)
        elif (self.folder / name).is_file():
            content(handler, (self.folder / name).read_bytes())
        else:
            handler.send_error(404)


def content(handler: Handler, body: bytes, length: int | None = None) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body) if length is None else length))
    handler.end_headers()
    handler.wfile.write(body)


def endless(handler: Handler) -> None:
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b" " * 1_000_000)
    except OSError:
        pass


def dripping(handler: Handler) -> None:
    """A byte now and then, for as long as somebody waits."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b" ")
            time.sleep(0.1)
    except OSError:
        pass


def dripping_header(handler: Handler) -> None:
    try:
        handler.wfile.write(b"HTTP/1.0 200 OK\r\nX-Long: ")
        while True:
            handler.wfile.write(b"a")
            time.sleep(0.1)
    except OSError:
        pass


def leading_to(address: str, body: Callable[[Handler], None] | None = None) -> Callable[[Handler], None]:
    def way(handler: Handler) -> None:
        handler.send_response(302)
        handler.send_header("Location", address)
        handler.end_headers()
        if body is not None:
            body(handler)

    return way


@dataclass
class World:
    """layout: of a clone with nothing in it. channel: a signed one, version 2.0. server: serves it."""

    layout: Layout
    channel: Path
    server: Server
    key: Key
    target: Path

    def mirror(self, *packages: str, source: str | None = None, key: Path | None = None) -> Mirrored:
        return mirror(
            self.layout,
            self.target,
            lambda _: None,
            source=source or self.server.url,
            packages=packages,
            key=key,
        )

    def refused(self, *packages: str, source: str | None = None) -> str:
        """The one error; the destination has what it had before."""
        before = state(self.target)
        with pytest.raises(WmlceError) as error:
            self.mirror(*packages, source=source)
        assert state(self.target) == before
        assert error.value.remedy
        return str(error.value)

    def refused_package(self, *left: str) -> str:
        """The same for an error that comes when other packages may have arrived already, each whole."""
        with pytest.raises(WmlceError) as error:
            self.mirror()
        listed = manifest.read(self.channel)
        arrived = state(self.target)
        assert [name for name, digest in arrived.items() if listed.get(name) != digest] == list(left)
        assert not (self.target / PACKAGE).exists()
        return str(error.value)


def state(folder: Path) -> dict[str, str]:
    """All that can be read there, and half files too."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".mirror.lock"
    }


@pytest.fixture
def world(tmp_path: Path, keys: list[Key], monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv(freshness.STATE, str(tmp_path / "state"))
    monkeypatch.setenv(trust.VARIABLE, str(keys[0].signers))
    for name in (trust.REVOKED, freshness.MINIMUM, freshness.MAXIMUM_AGE, "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(origin, "_PAUSE_S", 0.01)
    monkeypatch.setattr(trust, "_on_command_line", False)
    monkeypatch.setattr(freshness, "_on_command_line", False)
    (tmp_path / "clone/recipes").mkdir(parents=True)
    channel = tmp_path / "channel"
    make_package(channel, "low")
    make_package(channel, "top", depends=["low"])
    make_package(channel, "other")
    sign(index(channel), keys[0], "2.0")
    server = Server(channel)

    class Answer(Handler):
        def do_GET(self) -> None:
            server.answer(self)

    with listening(Answer) as port:
        server.url = f"http://127.0.0.1:{port}"
        layout = Layout(tmp_path / "clone", tmp_path / "cache")
        yield World(layout, channel, server, keys[0], tmp_path / "mirror")


def older(world: World, version: str = "1.0") -> Path:
    """A release of before, signed by the same key."""
    folder = world.channel.parent / f"release-{version}"
    make_package(folder, "low", "0.9")
    make_package(folder, "top", "0.9", depends=["low"])
    return sign(index(folder), world.key, version, date=NOW - timedelta(days=400))


# ------------------------------------------------------------------------------ what is right


@pytest.mark.parametrize("by", ["http", "folder", "file"])
def test_a_mirror_is_the_signed_channel_byte_by_byte(world: World, by: str) -> None:
    source = {"http": world.server.url, "folder": str(world.channel), "file": world.channel.as_uri()}[by]
    done = world.mirror(source=source)
    assert state(world.target) == state(world.channel)
    assert (done.key, done.trusted, done.absent) == (world.key.id, True, 0)
    assert trust.open_channel(world.target) == manifest.read(world.channel)
    assert check.check(world.target, Trust(world.key.signers), lambda _: None).files == len(
        manifest.read(world.channel)
    )
    assert world.mirror(source=source).fetch == []
    assert state(world.target) == state(world.channel)


def test_a_mirror_follows_its_origin_to_the_next_release(world: World) -> None:
    world.mirror()
    (world.channel / PACKAGE).unlink()
    make_package(world.channel, "top", "2.0", depends=["low"])
    part = world.channel / "beside-conda-forge"
    (part / "noarch").mkdir(parents=True)
    os.link(world.channel / "noarch/low-1.0-0.conda", part / "noarch/low-1.0-0.conda")
    index(part)
    manifest.write(part)
    sign(index(world.channel), world.key, "2.1")
    world.mirror()
    assert state(world.target) == {**state(world.channel), **{PACKAGE: state(world.target)[PACKAGE]}}
    for folder in (world.target, world.target / "beside-conda-forge"):
        assert trust.open_channel(folder)
    # and back to one without that part
    shutil.rmtree(part)
    sign(world.channel, world.key, "2.2")
    world.mirror()
    assert trust.open_channel(world.target) == manifest.read(world.channel)


def test_some_packages_keep_the_signed_index(world: World) -> None:
    done = world.mirror("top")
    assert done.absent == 1 and not list(world.target.rglob("other*.conda"))
    listed = trust.open_channel(world.target)
    assert listed == manifest.read(world.channel)
    from wmlce.envs.environments import solve_channel

    assert {r.name.normalized for r in solve_channel(world.target, ["top"])} == {"top", "low"}
    with pytest.raises(WmlceError, match=r"other-1.0-0.conda is not what was signed: missing") as error:
        solve_channel(world.target, ["other"])
    assert "--packages other" in str(error.value)


def test_a_mirror_of_what_is_not_signed_is_signed_by_who_makes_it(world: World, keys: list[Key]) -> None:
    bare = world.channel.parent / "bare"
    make_package(bare, "top")
    index(bare)
    assert "is not signed" in world.refused(source=str(bare))
    # the clone's own builds
    world.layout.build.mkdir(exist_ok=True)
    shutil.copytree(bare, world.layout.channel)
    own = str(world.layout.channel)
    world.mirror(source=own)
    with pytest.raises(WmlceError, match=r"mirror is not signed.*") as error:
        trust.open_channel(world.target)
    assert "wmlce channel mirror DIR --key FILE" in str(error.value)
    done = world.mirror(source=own, key=world.key.private)
    assert (done.key, done.trusted) == (world.key.id, True)
    assert ".mirror.lock" not in (trust.open_channel(world.target) or {".mirror.lock"})
    world.mirror(source=own, key=world.key.private)
    assert trust.open_channel(world.target)
    with pytest.raises(WmlceError, match="is a signed mirror, and"):
        world.mirror(source=own)
    with pytest.raises(WmlceError, match="does not name"):
        world.mirror(source=own, key=keys[1].private)
    with pytest.raises(WmlceError, match="there is no key"):
        world.mirror(source=own, key=world.target / "none")


@pytest.mark.parametrize("reader", ["channel", "release"])
def test_a_folder_that_changes_while_it_is_checked(
    world: World, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    """Who can write to it exchanges the list once its signature was checked, or the statement once its digest
    was compared: what was checked is used, or it is an error.
    """
    listed, verify, differences = manifest.read(world.channel), signature.verify, manifest.differences
    own = "0" * 64 + f"  {PACKAGE}\n"

    def verify_and_swap(path: Path, keys: Trust | None) -> str:
        key = verify(path, keys)
        (world.channel / manifest.NAME).write_text(own)
        return key

    def compare_and_swap(*arguments: Any, **options: Any) -> list[str]:
        wrong = differences(*arguments, **options)
        freshness.Statement("small", "9.0", NOW).write(world.channel / freshness.NAME)
        return wrong

    def read() -> object:
        if reader == "channel":
            return trust.open_channel(world.channel)
        return check.check(world.channel, trust.required(), lambda _: None)

    original = (world.channel / manifest.NAME).read_bytes()
    monkeypatch.setattr(signature, "verify", verify_and_swap)
    result = read()
    assert result == listed if reader == "channel" else isinstance(result, check.Checked)
    (world.channel / manifest.NAME).write_bytes(original)
    monkeypatch.setattr(signature, "verify", verify)
    monkeypatch.setattr(manifest, "differences", compare_and_swap)
    with pytest.raises(WmlceError, match=r"signed\.json is not what was signed: changed"):
        read()


def test_channels_that_the_clone_built_need_no_signature(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_site = world.layout.build / "site/our-recipes/channel"
    for folder in (world.layout.channel, of_site):
        make_package(folder, "top")
        index(folder)
        assert trust.open_channel(folder, world.layout.channel) is None
        with pytest.raises(WmlceError, match="is not signed"):
            trust.open_channel(folder)
    with pytest.raises(WmlceError, match="is not signed"):
        trust.open_channel(world.layout.build / "site/channel", world.layout.channel)
    monkeypatch.setattr(trust, "_on_command_line", True)
    with pytest.raises(WmlceError, match="is not signed"):
        trust.open_channel(of_site, world.layout.channel)


# ------------------------------------------------------------------------------ what is not


def test_swapped_files(world: World) -> None:
    ways = world.server.ways
    other = bytes(reversed((world.channel / PACKAGE).read_bytes()))
    ways[PACKAGE] = lambda handler: content(handler, other)
    assert "sha256 of the index" in world.refused_package()
    ways.clear()
    repodata = world.channel / "noarch/repodata.json"
    document = json.loads(repodata.read_text())
    document["packages.conda"][PACKAGE.split("/")[1]]["sha256"] = hashlib.sha256(other).hexdigest()
    ways["noarch/repodata.json"] = lambda handler: content(handler, json.dumps(document).encode())
    assert "noarch/repodata.json is not what was signed: changed" in world.refused()
    ways.clear()
    # forms of the index that this client does not read, and others do
    for name in ("noarch/repodata.json.zst", "noarch/repodata_shards.msgpack.zst"):
        ways[name] = lambda handler: content(handler, b"swapped")
        assert f"{name} is not what was signed: changed" in world.refused()
        ways.clear()


@pytest.mark.parametrize("name", ["SHA256SUMS", "SHA256SUMS.sig", "noarch/repodata.json", "signed.json"])
def test_cut_files(world: World, name: str) -> None:
    whole = (world.channel / name).read_bytes()
    world.server.ways[name] = lambda handler: content(handler, whole[: len(whole) // 2])
    world.refused()
    # and where the server says that there is more
    world.server.ways[name] = lambda handler: content(handler, whole[: len(whole) // 2], len(whole))
    assert "cannot be read" in world.refused()


def test_a_cut_package(world: World) -> None:
    """What has arrived of it stays, hidden, for the next run."""
    whole = (world.channel / PACKAGE).read_bytes()
    world.server.ways[PACKAGE] = lambda handler: content(handler, whole[:100], len(whole))
    digest = hashlib.sha256(whole).hexdigest()[:16]
    left = PACKAGE.replace("/", "/.") + f".{digest}.part"
    assert "IncompleteRead" in world.refused_package(left)
    world.server.ways.clear()
    world.mirror()
    assert state(world.target) == state(world.channel)


def test_missing_files(world: World) -> None:
    for name in ("SHA256SUMS", "SHA256SUMS.sig"):
        kept = (world.channel / name).rename(world.channel.parent / "kept")
        assert "is not signed" in world.refused()
        kept.rename(world.channel / name)
    (world.channel / "noarch/repodata.json.zst").unlink()
    assert "noarch/repodata.json.zst is not what was signed: missing" in world.refused()


def test_a_foreign_key(world: World, keys: list[Key]) -> None:
    sign(world.channel, keys[1], "3.0")
    told = world.refused()
    assert f"{world.server.url}/SHA256SUMS is signed by the key {keys[1].id}" in told


def test_an_old_release(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.mirror()
    world.server.folder = older(world)
    told = world.refused()
    assert f"the channel {world.server.url} is small 1.0 of" in told and "older than what it was" in told
    assert "--minimum 1.0" in told
    # who has no mirror of it yet is told too, and so is another user of the same mirror
    world.target = world.target.with_name("second")
    assert "older than what it was before: 2.0" in world.refused()
    world.target = world.target.with_name("mirror")
    monkeypatch.setenv(freshness.STATE, str(world.target.with_name("of another user")))
    assert "older than what it was before: 2.0" in world.refused()
    # on request it may be taken
    monkeypatch.setattr(freshness, "_on_command_line", True)
    monkeypatch.setenv(freshness.MINIMUM, "1.0")
    world.mirror()
    monkeypatch.setattr(freshness, "_on_command_line", False)
    assert trust.open_channel(world.target)
    world.server.folder = older(world, "0.5")
    assert "WMLCE_MINIMUM_VERSION (--minimum) asks for 1.0" in world.refused()


def test_an_old_release_of_before_versions_were_signed(world: World) -> None:
    world.mirror()
    folder = world.channel.parent / "first"
    make_package(folder, "low", "0.1")
    world.server.folder = sign(index(folder), world.key, stated=False)
    assert "does not say of which version it is, and it was small 2.0" in world.refused()


def test_an_old_release_in_the_folder_that_is_installed_from(world: World) -> None:
    assert trust.open_channel(world.channel)
    shutil.rmtree(world.channel)
    older(world).rename(world.channel)
    with pytest.raises(WmlceError, match=r"older than what it was before: 2\.0"):
        trust.open_channel(world.channel)


@pytest.mark.parametrize("taken", ["index", "lists", "packages"])
def test_two_releases_mixed(world: World, taken: str) -> None:
    old = older(world)
    names = {
        "index": ["noarch/repodata.json", "noarch/repodata.json.zst", "noarch/repodata_shards.msgpack.zst"],
        "lists": ["SHA256SUMS", "SHA256SUMS.sig"],
        "packages": ["SHA256SUMS", "SHA256SUMS.sig", "signed.json"],
    }[taken]
    for name in names:
        body = (old / name).read_bytes()
        world.server.ways[name] = lambda handler, body=body: content(handler, body)  # type: ignore[misc]
    assert "is not what was signed" in world.refused()


def test_another_channel_of_the_same_signer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.mirror()
    sign(world.channel, world.key, "9.0", name="renamed")
    assert "is the channel renamed, and it was small before" in world.refused()
    monkeypatch.setattr(freshness, "_on_command_line", True)
    world.mirror()


@pytest.mark.parametrize(
    "name", ["SHA256SUMS", "SHA256SUMS.sig", "noarch/repodata.json", "noarch/repodata_shards.msgpack.zst"]
)
def test_endless_answers(world: World, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world.server.ways[name] = endless
    told = world.refused()
    assert f"{world.server.url}/{name} does not end after " in told


def test_an_endless_package(world: World) -> None:
    world.server.ways[PACKAGE] = endless
    assert "is longer than the" in world.refused_package()


def _chunked(handler: Handler, more: bytes, seconds: float) -> None:
    """An answer in chunks, in which more arrives without end that is no part of it."""
    handler.close_connection = True
    with contextlib.suppress(OSError):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        while True:
            handler.wfile.write(more)
            time.sleep(seconds)


def endless_size(handler: Handler) -> None:
    _chunked(handler, b"0", 0.02)


def endless_trailers(handler: Handler) -> None:
    _chunked(handler, b"0\r\nX: y\r\n", 0.001)


@pytest.mark.parametrize("way", [endless_size, endless_trailers])
@pytest.mark.parametrize("name", ["SHA256SUMS", PACKAGE])
def test_answers_that_nothing_of_use_arrives_of(
    world: World, name: str, way: Callable[[Handler], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origin, "_WINDOW_S", 0.5)
    world.server.ways[name] = way
    started = time.monotonic()
    with pytest.raises(WmlceError):
        world.mirror()
    assert time.monotonic() - started < 60 and not (world.target / "SHA256SUMS").exists()


@pytest.mark.parametrize("way", [dripping, dripping_header])
@pytest.mark.parametrize("name", ["SHA256SUMS", PACKAGE])
def test_slow_answers(
    world: World, name: str, way: Callable[[Handler], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origin, "_WINDOW_S", 0.3)
    monkeypatch.setattr(origin, "_ANSWER_LIMIT_S", 1.0)
    world.server.ways[name] = way
    before = state(world.target)
    with pytest.raises(WmlceError) as error:
        world.mirror()
    told = str(error.value)
    assert ("sends too slowly" if way is dripping else "no answer has begun within 1 s") in told, told
    assert not (world.target / "SHA256SUMS").exists() and not before


def test_redirects(world: World, keys: list[Key]) -> None:
    host = world.server.url.replace("127.0.0.1", "localhost")
    world.server.ways["noarch/repodata.json"] = leading_to(f"{host}/elsewhere", endless)
    world.server.ways["elsewhere"] = lambda handler: content(handler, b"{}")
    assert "noarch/repodata.json is not what was signed: changed" in world.refused()
    for address, said in (
        ("file:///etc/passwd", "which is not safe"),
        ("ftp://127.0.0.1/x", "which is not safe"),
        ("http://user:secret@127.0.0.1/x", "which is not safe"),
        ("http://[/x", "which is not safe"),
        ("http://xn--\u00e9..\u00ff/", "which is not safe"),
        ("/SHA256SUMS", "leads on to another address more than 5 times"),
    ):
        world.server.ways["SHA256SUMS"] = leading_to(address)
        told = world.refused()
        assert said in told and "secret" not in told, told
    # what is right is taken from wherever it is
    world.server.ways = {"SHA256SUMS": leading_to(f"{host}/lists")}
    world.server.ways["lists"] = lambda handler: content(handler, (world.channel / "SHA256SUMS").read_bytes())
    world.mirror()
    assert trust.open_channel(world.target)


def test_https(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same by TLS; and it does not lead on to a connection without it."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with; Debian: apt-get install openssl")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    class Answer(Handler):
        def do_GET(self) -> None:
            world.server.answer(self)

    with listening(Answer, context) as port:
        url = f"https://127.0.0.1:{port}"
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        assert "CERTIFICATE_VERIFY_FAILED" in world.refused(source=url)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        world.server.ways["SHA256SUMS"] = leading_to(f"{world.server.url}/lists")
        told = world.refused(source=url)
        assert f"{url}/SHA256SUMS leads on to {world.server.url}/lists, which is not safe" in told
        monkeypatch.setattr(origin, "_ANSWER_LIMIT_S", 1.0)
        world.server.ways["SHA256SUMS"] = dripping_header
        assert "no answer has begun within 1 s" in world.refused(source=url)
        world.server.ways.clear()
        world.mirror(source=url)
    assert trust.open_channel(world.target)


def test_a_login_is_for_its_host_alone(world: World, tmp_path: Path) -> None:
    port = world.server.url.rpartition(":")[2]
    home = tmp_path / "home"
    home.mkdir()
    (home / ".netrc").write_text("machine localhost login user password secret\ndefault login a password b\n")
    (home / ".netrc").chmod(0o600)
    world.server.ways["SHA256SUMS"] = leading_to(f"http://127.0.0.1:{port}/elsewhere")
    world.server.ways["signed.json"] = leading_to(f"http://localhost:{port}/elsewhere.json")
    for name, place in (("elsewhere", "SHA256SUMS"), ("elsewhere.json", "signed.json")):
        body = (world.channel / place).read_bytes()
        world.server.ways[name] = lambda handler, body=body: content(handler, body)  # type: ignore[misc]
    world.mirror(source=f"http://localhost:{port}")
    login = "Basic " + base64.b64encode(b"user:secret").decode()
    logins = dict(world.server.requests)
    assert logins.pop("elsewhere") is None
    assert set(logins.values()) == {login}
    (home / ".netrc").chmod(0o644)
    told = world.refused(source=f"http://localhost:{port}")
    assert "others can read it" in told and "secret" not in told
    (home / ".netrc").write_text("machine localhost login user passw secret\n")
    (home / ".netrc").chmod(0o600)
    told = world.refused(source=f"http://localhost:{port}")
    assert "cannot be read" in told and "secret" not in told


def test_a_login_in_an_address_is_refused(world: World) -> None:
    for word in ("user:secret", "secret"):
        told = world.refused(source=world.server.url.replace("://", f"://{word}@"))
        assert "secret" not in told and ".netrc" in told


ENTRY = {"name": "a", "version": "1", "build": "0", "build_number": 0, "size": 10, "sha256": "0" * 64}


@pytest.mark.parametrize(
    ("index", "says"),
    [
        ("[" * 100_000, "is not a channel index"),
        ("[]", "is not a channel index"),
        ('{"packages.conda": []}x', "is not a channel index"),
        ({"a.conda": []}, "has no name, size and"),
        ({"../a.conda": ENTRY}, "has no name, size and"),
        ({"a.conda\n": ENTRY}, "has no name, size and"),
        ({"a" * 300 + ".conda": ENTRY}, "has no name, size and"),
        ({"a.conda": {**ENTRY, "size": -1}}, "has no name, size and"),
        ({"a.conda": {**ENTRY, "sha256": "0" * 64 + "\n"}}, "has no name, size and"),
        ({"a.conda": {**ENTRY, "depends": [1]}}, "has no name, size and"),
        ({"a.conda": {**ENTRY, "size": 1 << 60}}, "no space left for the mirror"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_an_index_that_is_none(
    world: World, index: str | dict[str, object], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no signature is wanted."""
    monkeypatch.delenv(trust.VARIABLE)
    text = index if isinstance(index, str) else json.dumps({"packages.conda": index})
    world.server.ways["SHA256SUMS"] = lambda handler: handler.send_error(404)
    world.server.ways["noarch/repodata.json"] = lambda handler: content(handler, text.encode())
    assert says in world.refused("a")


def test_nothing_that_a_server_says_steers_the_terminal(world: World) -> None:
    world.server.ways["SHA256SUMS"] = lambda handler: handler.send_error(400, "\x1b]0;x\x07" + "x" * 5000)
    told = world.refused()
    assert "HTTP Error 400" in told and "\x1b" not in told and "\x07" not in told and len(told) < 600


def test_pipes_and_devices_in_a_folder_are_no_files(world: World) -> None:
    for name in ("SHA256SUMS.sig", "noarch/repodata.json.zst"):
        (world.channel / name).rename(world.channel.parent / "kept")
        os.mkfifo(world.channel / name)
        told = world.refused(source=str(world.channel))
        assert "is not signed" in told or "missing" in told
        with pytest.raises(WmlceError, match=r"is not a complete SSH signature|is not what was signed"):
            trust.open_channel(world.channel)
        (world.channel.parent / "kept").rename(world.channel / name)


def test_exports_that_are_no_list(world: World) -> None:
    (world.channel / "noarch/run_exports.json").write_text('{"packages.conda": []}')
    with pytest.raises(WmlceError, match="is no list of what packages export"):
        published.repodata(world.channel)


def test_a_list_that_does_not_end(world: World) -> None:
    with (world.channel / manifest.NAME).open("r+b") as stream:
        stream.truncate(100 << 30)
    with pytest.raises(WmlceError, match="has more than 16 MiB"):
        trust.open_channel(world.channel)


def test_trusted_keys_in_a_pipe(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(trust.VARIABLE, str(world.target.with_name("keys")))
    os.mkfifo(world.target.with_name("keys"))
    with pytest.raises(WmlceError, match=r"the file of trusted keys .* cannot be read: no file"):
        trust.open_channel(world.channel)


def test_a_locked_package_that_changes_while_it_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = trust.open_channel(world.channel)
    assert listed is not None
    name = next(name for name in listed if name.endswith(".conda"))
    lock = explicit.Lock({name: listed[name]})
    assert len(explicit.records(world.layout, lock, world.channel)) == 1
    other = next(other for other in listed if other.endswith(".conda") and other != name)
    read = explicit._read_records

    def swapped(paths: list[Path]) -> Any:
        shutil.copy(world.channel / other, world.channel / name)
        return read(paths)

    monkeypatch.setattr(explicit, "_read_records", swapped)
    with pytest.raises(WmlceError, match="was changed while it was read"):
        explicit.records(world.layout, lock, world.channel)


@pytest.mark.parametrize(("variable", "value"), [(freshness.MINIMUM, "1.0"), (freshness.MAXIMUM_AGE, "9")])
def test_a_lowest_version_without_a_signature_is_no_protection(
    world: World, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.delenv(trust.VARIABLE)
    monkeypatch.setenv(variable, value)
    with pytest.raises(WmlceError, match=f"{variable} is set, and the channel"):
        trust.open_channel(world.channel)
    for name in (manifest.NAME, f"{manifest.NAME}.sig"):
        (world.channel / name).unlink()
    assert f"{variable} is set, and the channel" in world.refused()
    # what this clone has built has no version to compare
    assert trust.open_channel(world.channel, world.channel) is None


def test_wrong_dates(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sign(world.channel, world.key, "2.0", date=NOW + timedelta(days=3))
    assert "which is still to come" in world.refused()
    sign(world.channel, world.key, "2.0", expires=NOW - timedelta(days=3))
    assert "which expired on" in world.refused()
    with pytest.raises(WmlceError, match="which expired on"):
        trust.open_channel(world.channel)
    with pytest.raises(WmlceError, match="which expired on"):
        check.check(world.channel, None, lambda _: None)
    sign(world.channel, world.key, "2.0", date=NOW - timedelta(days=100))
    monkeypatch.setenv(freshness.MAXIMUM_AGE, "90")
    assert "100 days old, and WMLCE_MAXIMUM_AGE allows 90" in world.refused()
    monkeypatch.setenv(freshness.MAXIMUM_AGE, "soon")
    assert "not a number of days" in world.refused()
    monkeypatch.setenv(freshness.MAXIMUM_AGE, "110")
    world.mirror()
    # the same version from an earlier day
    sign(world.channel, world.key, "2.0", date=NOW - timedelta(days=101))
    assert "older than what it was before" in world.refused()
    monkeypatch.setenv(freshness.MINIMUM, "2.1")
    assert "asks for 2.1 or newer" in world.refused()
    (world.channel / "signed.json").unlink()
    sign(world.channel, world.key, stated=False)
    assert "does not say of which version and date it is" in world.refused()
    for text in ("{}", "[]", "", '{"name": "", "version": "1", "date": "2026-01-01"}', "9" * 70_000):
        (world.channel / "signed.json").write_text(text)
        sign(world.channel, world.key, stated=False)
        assert "does not say which version of which channel" in world.refused()


def test_a_signed_list_with_names_of_its_own(world: World) -> None:
    for name in (".mirror.lock", "noarch/.x", "a//b", "SHA256SUMS"):
        text = (world.channel / "SHA256SUMS").read_text() + f"{'0' * 64}  {name}\n"
        (world.channel / "SHA256SUMS").write_text(text)
        signature.sign([world.channel / "SHA256SUMS"], world.key.private)
        assert "which is no file of a channel" in world.refused()
        sign(world.channel, world.key, "2.0")


def test_what_was_put_into_a_mirror_is_told(world: World) -> None:
    world.mirror()
    (world.target / "index.html").write_text("ours")
    with pytest.raises(WmlceError, match=r"has files that were not signed.*: not in SHA256SUMS: index.html"):
        world.mirror()


def test_without_wanting_signatures_the_signature_is_carried_and_its_key_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(trust.VARIABLE)
    done = world.mirror()
    assert state(world.target) == state(world.channel) and not done.trusted and done.key == world.key.id
    world.server.ways["noarch/repodata.json"] = lambda handler: content(handler, b"{}")
    assert "is not what was signed" in world.refused()
    assert published.is_channel(world.target)


def test_what_cannot_be_remembered_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(freshness.STATE, str(tmp_path / "file"))
    assert trust.open_channel(world.channel)
    assert "cannot be remembered" in capsys.readouterr().err
    monkeypatch.setenv(freshness.STATE, str(tmp_path / "state"))
    assert trust.open_channel(world.channel)
    [place] = (tmp_path / "state/wmlce/accepted").iterdir()
    place.write_text("{")
    with pytest.raises(WmlceError, match="cannot be read"):
        trust.open_channel(world.channel)
