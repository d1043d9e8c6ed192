"""Releases: made whole or not at all, signed, checked by wmlce and by ordinary tools."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from scratch_clone import Clone
from tree import ROOT

pytestmark = pytest.mark.slow
SMALL = ("--no-installers", "--no-sources", "--package", "user")
CHANGES = (
    "# Changelog\n\n## 2.0.0\n\n- Not in this one.\n\n## 1.0.0\n\n- The **first** one.\n\n## 0.9\n\n- Old.\n"
)


def git(root: Path, *words: str) -> str:
    who = ["-c", "user.name=Tester", "-c", "user.email=tester@example.org", "-c", "commit.gpgsign=false"]
    when = {"GIT_AUTHOR_DATE": "2024-05-06T07:08:09Z", "GIT_COMMITTER_DATE": "2024-05-06T07:08:09Z"}
    return subprocess.run(
        ["git", *who, *words],
        cwd=root,
        env={**os.environ, **when},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout


def committed(clone: Clone) -> Clone:
    clone.write("CHANGELOG.md", CHANGES)
    clone.write(".gitignore", "/build/\n")
    git(clone.root, "init", "-q", "-b", "main")
    git(clone.root, "add", "-A")
    git(clone.root, "commit", "-q", "-m", "Everything")
    return clone


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A clone whose channel has been built: a library for two programs, one of which is for users."""
    place = tmp_path_factory.mktemp("published")
    clone = Clone(place / "clone", place / "cache")
    clone.write("recipes/beside-conda-forge.yaml", "- user\n")
    clone.recipe("library", license_="LGPL-2.1-or-later")
    clone.recipe("user", run=["library"])
    committed(clone)
    clone.site(git(clone.root, "rev-parse", "HEAD").strip())
    clone.built()
    return clone


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory, published: Clone) -> Path:
    file = tmp_path_factory.mktemp("keys") / "release-key"
    made = published.ok("release", "key", "new", str(file), "--no-passphrase")
    assert made["id"].startswith("SHA256:") and file.stat().st_mode & 0o077 == 0
    return file


@pytest.fixture(scope="module")
def signed(published: Clone, key: Path) -> Path:
    """The release."""
    made = published.ok("release", "make", *SMALL, "--key", str(key))
    assert made["made"] and made["key"] == published.ok("release", "key", "show", f"{key}.pub")["id"]
    return Path(made["folder"])


@pytest.fixture
def copy(signed: Path, tmp_path: Path) -> Path:
    """One to be changed."""
    shutil.copytree(signed, tmp_path / "release")
    return tmp_path / "release"


def signers(key: Path) -> str:
    return f"{key}.allowed_signers"


def test_what_a_release_holds(published: Clone, signed: Path, key: Path) -> None:
    assert signed == published.root / "build/release/1.0.0"
    record = json.loads((signed / "release.json").read_text())
    assert record["commit"] == git(published.root, "rev-parse", "HEAD").strip()
    assert record["date"] == "2024-05-06T07:08:09+00:00" and record["channel"]["packages"] == 2
    notes = (signed / "NOTES.md").read_text()
    assert "- The **first** one." in notes and "Not in this one" not in notes and "Old" not in notes
    assert re.search(r"`locks/user\.lock` \| 2 \|", notes)
    lock = [line for line in (signed / "locks/user.lock").read_text().splitlines() if "#sha256:" in line]
    assert len(lock) == 2 and all(line.startswith("../channel/linux-64/") for line in lock)
    [gnu] = record["gnu_licenses"]  # made of nothing but its recipe
    assert (gnu["package"], gnu["license"], gnu["files"]) == (
        "library",
        "LGPL-2.1-or-later",
        ["ibm-wml-ce-1.0.0.tar.gz"],
    )
    assert "| library 1.0 | all | LGPL-2.1-or-later | ibm-wml-ce-1.0.0.tar.gz |" in notes
    page = (signed / "index.html").read_text()
    assert "conda create --name user --override-channels" in page and "installers/" not in page
    bill = json.loads((signed / record["sbom"]).read_text())
    assert {component["name"] for component in bill["components"]} == {"library", "user"}
    names = {str(path.relative_to(signed)) for path in signed.rglob("*") if path.is_file()}
    assert '<a href="docs/index.html">documentation</a>' in page and {"docs/index.html"} <= names
    assert {"channel/SHA256SUMS.sig", "channel/beside-conda-forge/SHA256SUMS.sig", "SHA256SUMS.sig"} <= names
    assert {name for name in names if name.endswith(".tar.gz")} == {"ibm-wml-ce-1.0.0.tar.gz"}
    checked = published.ok("release", "check", str(signed), "--key", signers(key))
    assert checked["version"] == "1.0.0" and checked["trusted"]
    # a public key will do, the environment names one too, and without one it says so
    assert published.ok("release", "check", str(signed), "--key", f"{key}.pub")["trusted"]
    assert published.ok("release", "check", str(signed), "--require-signature", signers(key))["trusted"]
    alone = published.run("release", "check", str(signed))
    assert alone.returncode == 0 and "compare this one" in alone.stdout and checked["key"] in alone.stdout
    # a channel on its own
    assert published.ok("release", "check", str(signed / "channel"), "--key", signers(key))["trusted"]


def test_the_documented_commands_check_it(signed: Path, key: Path, copy: Path) -> None:
    page = (ROOT / "docs/cluster/release.md").read_text()
    [block] = re.findall(r"```sh not-run: needs a release\n(ssh-keygen -Y verify.*?)```", page, re.DOTALL)
    notes = (signed / "NOTES.md").read_text()
    assert block.strip() in notes

    def checked(folder: Path) -> subprocess.CompletedProcess[str]:
        shutil.copy(signers(key), folder.parent / "allowed_signers")
        script = block.replace("-f allowed_signers", "-f ../allowed_signers")
        return subprocess.run(["sh", "-euc", script], cwd=folder, capture_output=True, text=True, timeout=60)

    done = checked(copy)
    assert done.returncode == 0 and "Good" in done.stdout, done.stdout + done.stderr
    _add_byte(copy / "locks/user.lock")
    done = checked(copy)
    assert done.returncode != 0 and "locks/user.lock: FAILED" in done.stdout
    _add_byte(copy / "SHA256SUMS")
    assert "Could not verify" in checked(copy).stdout


def _add_byte(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data + b"\n")


def _cut(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[:-1])


def _same_size(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)


def _package(folder: Path) -> Path:
    return next((folder / "channel/linux-64").glob("user-*.conda"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: _same_size(_package(folder)), r"changed: channel/linux-64/user-"),
        (lambda folder: _cut(_package(folder)), r"cut off: channel/linux-64/user-\S+ has \d+ of \d+ bytes"),
        (lambda folder: _package(folder).unlink(), r"missing: channel/linux-64/user-"),
        (lambda folder: (folder / "more").write_text(""), r"not in SHA256SUMS: more"),
        (lambda folder: (folder / "more.sig").write_text(""), r"not in SHA256SUMS: more\.sig"),
        (lambda folder: (folder / "link").symlink_to("locks"), r"not in SHA256SUMS: link"),
        (lambda folder: _add_byte(folder / "SHA256SUMS"), r"SHA256SUMS\.sig does not match \S+/SHA256SUMS"),
        (lambda folder: (folder / "SHA256SUMS.sig").unlink(), r"SHA256SUMS is not signed"),
        (lambda folder: (folder / "channel/SHA256SUMS.sig").unlink(), r"channel/SHA256SUMS is not signed"),
        (lambda folder: _cut(folder / "SHA256SUMS.sig"), None),
        (lambda folder: (folder / "SHA256SUMS.sig").write_text("no"), r"is not a complete SSH signature"),
        (
            lambda folder: shutil.copy(folder / "SHA256SUMS.sig", folder / "channel/SHA256SUMS.sig"),
            r"SHA256SUMS\.sig does not match \S+/channel/SHA256SUMS",
        ),
        (lambda folder: (folder / "SHA256SUMS").unlink(), r"has no SHA256SUMS"),
    ],
)  # fmt: skip
def test_what_is_not_as_it_was_signed(
    published: Clone, copy: Path, key: Path, change: Callable[[Path], None], said: str | None
) -> None:
    change(copy)
    if said is None:  # without the last line break it is the same signature
        assert published.ok("release", "check", str(copy), "--key", signers(key))
        return
    error = published.fails("release", "check", str(copy), "--key", signers(key))
    assert re.search(said, error), error


def test_whose_signature_it_is(published: Clone, copy: Path, key: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    name = published.ok("release", "key", "new", str(other), "--no-passphrase")["id"]
    check = ("release", "check", str(copy), "--key")
    error = published.fails(*check, signers(other))
    assert f"{other}.allowed_signers does not name" in error and "signed by the key SHA256:" in error
    # both are trusted while one follows the other
    both = tmp_path / "trusted" / "allowed_signers"
    both.parent.mkdir()
    both.write_text("# ours\n" + Path(signers(key)).read_text() + Path(signers(other)).read_text())
    assert published.ok(*check, str(both))["key"] != name
    assert published.ok("release", "sign", str(copy), "--key", str(other))["key"] == name
    assert published.ok(*check, str(both))["key"] == name
    # the list of revoked keys beside it counts, and one that is named
    listed = both.parent / "revoked_keys"
    assert published.ok("release", "key", "revoke", f"{other}.pub", "--list", str(listed))["added"]
    assert not published.ok("release", "key", "revoke", f"{other}.pub", "--list", str(listed))["added"]
    assert f"signed by the key {name}, which is revoked" in published.fails(*check, str(both))
    assert "is revoked" in published.fails(*check, signers(other), "--revoked", str(listed))
    assert published.ok(*check, signers(other))["key"] == name
    # and ssh-keygen's own lists
    krl = tmp_path / "krl"
    subprocess.run(["ssh-keygen", "-q", "-k", "-f", krl, f"{other}.pub"], check=True, timeout=30)
    assert "is revoked" in published.fails(*check, signers(other), "--revoked", str(krl))
    assert "(KRL)" in published.fails("release", "key", "revoke", f"{key}.pub", "--list", str(krl))
    # a key that is trusted no longer
    late = tmp_path / "late"
    late.write_text(Path(signers(other)).read_text().replace(" ssh-", ',valid-before="20200101" ssh-'))
    assert "is not valid now" in published.fails(*check, str(late))
    # a signature of the same key for something else
    subprocess.run(
        ["ssh-keygen", "-q", "-Y", "sign", "-f", other, "-n", "git", copy / "SHA256SUMS"],
        input="y\n",
        text=True,
        check=True,
        timeout=30,
    )
    assert "made for another purpose ('git'" in published.fails(*check, signers(other))


def test_keys_that_are_not_there(published: Clone, copy: Path, key: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*")}
    sign = ("release", "sign", str(copy), "--key")
    assert "there is no key" in published.fails(*sign, str(tmp_path / "none"))
    assert "nothing was signed" in published.fails(*sign, f"{key}.allowed_signers")
    locked = tmp_path / "locked"
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-f", str(locked), "-N", "a secret"]
    subprocess.run(words, check=True, timeout=30)
    assert "nothing was signed" in published.fails(*sign, str(locked))
    _add_byte(copy / "NOTES.md")
    error = published.fails(*sign, str(key))
    assert "changed: NOTES.md" in error and "nothing was signed" in error
    _cut(copy / "NOTES.md")
    assert {path: path.stat().st_mtime_ns for path in copy.rglob("*") if path.name.endswith(".sig")} == {
        path: when for path, when in before.items() if path.name.endswith(".sig")
    }
    check = ("release", "check", str(copy), "--key")
    assert "cannot be read" in published.fails(*check, str(tmp_path / "none"))
    assert "holds no public key" in published.fails(*check, str(copy / "NOTES.md"))
    assert "is there already" in published.fails("release", "key", "new", str(key), "--no-passphrase")
    assert "no terminal" in published.fails("release", "key", "new", str(tmp_path / "new"))
    published.env["PATH"] = str(tmp_path)
    try:
        assert "no command ssh-keygen" in published.fails(*check, signers(key))
    finally:
        del published.env["PATH"]


def test_only_from_signed_channels(published: Clone, copy: Path, key: Path, tmp_path: Path) -> None:
    channel = copy / "channel"
    create = ("env", "create", "e", "user", "--from", str(channel), "--require-signature", signers(key))
    envs = published.root / "build/envs"
    assert published.ok(*create)["changed"]
    assert (envs / "e/share/user").read_text() == "user\n"
    # the cache of unpacked packages is not believed
    assert published.ok("env", "create", "plain", "user", "--from", str(channel))["changed"]
    [unpacked] = published.cache.glob("pkgs/user-*/share/user")
    unpacked.chmod(0o644)
    unpacked.write_text("POISON\n")
    assert published.ok("env", "create", "again", *create[3:])["changed"]
    assert (envs / "again/share/user").read_text() == "user\n"
    error = published.fails("env", "create", "plain", *create[3:])
    assert "was made when no signature was asked for" in error and "wmlce env remove plain" in error
    assert not published.ok(*create)["changed"]
    # a copy of a signed one may be of another account's, which has changed it
    published.ok("env", "clone", "e", str(envs / "copied"))
    assert "made when no signature was asked for" in published.fails("env", "create", "copied", *create[3:])
    part = ("--from", str(channel / "beside-conda-forge"), "--require-signature", signers(key))
    # a channel of its own, with a signature of its own, which needs conda-forge beside it
    error = published.fails("env", "create", "part", "user", *part)
    assert "cannot give an environment" in error and "library" in error
    locked = ("env", "create", "l", "--lock", str(copy / "locks/user.lock"), *create[4:])
    assert published.ok(*locked)["changed"]
    strange = tmp_path / "strange.lock"
    strange.write_text(re.sub(r"#sha256:.", "#sha256:0", (copy / "locks/user.lock").read_text()))
    error = published.fails("env", "create", "l", "--lock", str(strange), *create[4:])
    assert "not among those that were signed" in error
    # a mirror of it is as good, and an older release in its place is not
    mirror = tmp_path / "copy"
    told = published.run("channel", "mirror", str(mirror), "--from", str(channel), *create[6:])
    assert told.returncode == 0 and "ibm-wml-ce 1.0.0 of 2024-05-06" in told.stdout, told.stderr
    assert published.ok("env", "create", "m", "user", "--from", str(mirror), *create[6:])["changed"]
    assert published.ok("release", "check", str(mirror), "--key", signers(key))["date"] == (
        "2024-05-06T07:08:09+00:00"
    )
    newer = ("--from", str(mirror), *create[6:], "--minimum", "1.0.1")
    assert "asks for 1.0.1 or newer" in published.fails("env", "create", "n", "user", *newer)
    # our own channel is not signed
    error = published.fails("env", "create", "own", "user", "--require-signature", signers(key))
    assert "is not signed" in error and not (envs / "own").exists()
    # which is asked of what comes from elsewhere, unless the command line asks for it
    published.env["WMLCE_REQUIRE_SIGNATURE"] = signers(key)
    try:
        assert published.ok("env", "create", "own", "user")["changed"]
        shutil.copytree(ROOT / "modulefiles", published.root / "modulefiles")
        module = ("--prefix", str(tmp_path / "sw"), "--no-compile", "user")
        assert published.ok("module", "install", *module)["installed"]
        mirror = ("channel", "mirror", str(tmp_path / "mirror"))
        published.ok(*mirror)
        error = published.fails("env", "create", "bad", "user", "--from", mirror[2])
        assert "is not signed" in error and "channel mirror DIR --key FILE" in error
        published.ok(*mirror, "--key", str(key))
        assert published.ok("env", "create", "mirrored", "user", "--from", mirror[2])["changed"]
        elsewhere = tmp_path / "elsewhere"
        shutil.copytree(published.root / "build/channel", elsewhere)
        error = published.fails("env", "create", "bad", "user", "--from", str(elsewhere))
        assert "is not signed" in error and not (envs / "bad").exists()
    finally:
        shutil.rmtree(published.root / "modulefiles", ignore_errors=True)
        del published.env["WMLCE_REQUIRE_SIGNATURE"]

    def refused(change: Callable[[], object], said: str) -> None:
        backup = tmp_path / "backup"
        shutil.copytree(channel, backup)
        change()
        error = published.fails("env", "create", "bad", *create[3:])
        assert re.search(said, error), error
        assert not (envs / "bad").exists()
        shutil.rmtree(channel)
        backup.rename(channel)

    repodata = channel / "linux-64/repodata.json"
    refused(lambda: _add_byte(repodata), r"the index of \S+ is not what was signed: changed: linux-64/repod")
    refused(lambda: (channel / "linux-64/repodata.json.bz2").write_text(""), r"not in SHA256SUMS: linux-64/")
    refused(
        lambda: _same_size(next(channel.glob("linux-64/repodata_shards*"))), r"changed: linux-64/repodata_s"
    )
    refused(lambda: _same_size(_package(copy)), r"user-\S+ is not what was signed: changed")
    refused(lambda: (channel / "SHA256SUMS.sig").unlink(), r"SHA256SUMS is not signed")
    refused(lambda: (channel / "SHA256SUMS").unlink(), r"is not signed, and WMLCE_REQUIRE_SIGNATURE")
    # the variables of a site do the same
    published.ok("release", "key", "revoke", f"{key}.pub", "--list", str(tmp_path / "gone"))
    published.env |= {"WMLCE_REQUIRE_SIGNATURE": signers(key), "WMLCE_REVOKED_KEYS": str(tmp_path / "gone")}
    try:
        error = published.fails("env", "create", "bad", "user", "--from", str(channel))
        assert "is revoked" in error and not (envs / "bad").exists()
    finally:
        del published.env["WMLCE_REQUIRE_SIGNATURE"], published.env["WMLCE_REVOKED_KEYS"]


def test_a_release_is_not_made_again(published: Clone, signed: Path, key: Path) -> None:
    state = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in signed.rglob("*")}
    assert not published.ok("release", "make", *SMALL, "--key", str(key))["made"]
    error = published.fails("release", "make", *SMALL, "--channel", "https://sw.example.org/channel")
    assert "1.0.0 is there, of " in error and "raise VERSION" in error
    assert {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in signed.rglob("*")} == state


def test_the_same_commit_gives_the_same_release(published: Clone, signed: Path, key: Path) -> None:
    """Made and indexed in another second, and signed afterwards, as on a machine without a network."""
    kept = signed.with_name("kept")
    signed.rename(kept)
    try:
        time.sleep(1.1)
        old = os.umask(0o077)
        try:
            made = published.ok("release", "make", *SMALL)
        finally:
            os.umask(old)
        for path in [signed, *signed.rglob("*")]:
            wanted = 0o555 if path.is_dir() else 0o444
            assert path.stat().st_mode & wanted == wanted, f"{path} is not for everybody"
        assert made["made"] and made["key"] is None
        for name in ("SHA256SUMS", "channel/SHA256SUMS"):
            assert (signed / name).read_bytes() == (kept / name).read_bytes()
        assert "is not signed" in published.fails("release", "check", str(signed))
        published.ok("release", "sign", str(signed), "--key", str(key))
        assert (signed / "SHA256SUMS.sig").read_bytes() == (kept / "SHA256SUMS.sig").read_bytes()
    finally:
        shutil.rmtree(signed, ignore_errors=True)
        kept.rename(signed)


def test_trees_that_no_release_is_made_of(clone: Clone) -> None:
    clone.recipe("user")
    clone.without_build_root()
    assert "is not a clone with a commit" in clone.fails("release", "make", *SMALL)
    committed(clone)
    clone.write("new file", "")
    clone.write("VERSION", "1.0.1\n")
    error = clone.fails("release", "make", *SMALL)
    assert "2 files are changed or not in git" in error and '?? "new file"' in error and " M VERSION" in error
    git(clone.root, "add", "-A")
    git(clone.root, "commit", "-q", "-m", "More")
    error = clone.fails("release", "make", *SMALL)
    assert "no section '## 1.0.1'" in error
    error = clone.fails("release", "make", "--from", str(clone.root / "none"))
    assert "no section" in error
    git(clone.root, "checkout", "-q", "HEAD~")
    error = clone.fails("release", "make", "--no-installers", "--no-sources")
    assert "no recipe powerai" in error and "--package NAME" in error
    error = clone.fails("release", "make", *SMALL, "--from", str(clone.root))
    assert "is not a channel that wmlce published" in error
    assert "there is no key" in clone.fails("release", "make", *SMALL, "--key", str(clone.root / "none"))
    assert not (clone.root / "build/release/1.0.0").exists()


def test_a_channel_with_a_changed_package_is_not_released(published: Clone, signed: Path) -> None:
    channel = published.root / "build/channel"
    package = next((channel / "linux-64").glob("library-*.conda"))
    spare = package.with_name("spare")
    package.rename(spare)
    shutil.copy(spare, package)
    kept = signed.with_name("kept")
    signed.rename(kept)
    try:
        _same_size(package)
        error = published.fails("release", "make", *SMALL, "--from", str(channel))
        assert "is not the package that was published" in error and not signed.exists()
    finally:
        spare.replace(package)
        kept.rename(signed)
    shutil.rmtree(signed.with_name(".1.0.0.part"), ignore_errors=True)


def test_killed_at_any_time_it_goes_on(published: Clone, signed: Path) -> None:
    """Under its own name a release is whole: whatever a killed run left is finished by the next one."""
    kept = signed.with_name("kept")
    signed.rename(kept)
    words = ("release", "make", *SMALL, "--from", str(published.root / "build/channel"))
    try:
        part = signed.with_name(".1.0.0.part")
        for mark in (".made.json", "channel", "locks"):
            process = published.start(*words)
            limit = time.monotonic() + 60
            while not (part / mark).exists() and process.poll() is None and time.monotonic() < limit:
                time.sleep(0.002)
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=30)
            if signed.exists():  # it was faster
                break
        inode = (part / "channel").stat().st_ino if (part / "channel").exists() else None
        done = published.run(*words)
        assert done.returncode == 0, done.stderr
        if inode is not None and not signed.with_name("never").exists():
            assert "going on where an earlier run stopped" in done.stderr
            assert (signed / "channel").stat().st_ino == inode
        assert {p.name for p in signed.parent.iterdir()} == {"1.0.0", "kept"}
        same = (signed / "channel/SHA256SUMS").read_bytes() == (kept / "channel/SHA256SUMS").read_bytes()
        assert same and not (signed / ".made.json").exists()
    finally:
        shutil.rmtree(signed, ignore_errors=True)
        kept.rename(signed)


def test_one_place_says_the_version() -> None:
    """VERSION; what else has to hold it is compared with it."""
    import wmlce
    import yaml

    version = (ROOT / "VERSION").read_text().strip()
    assert yaml.safe_load((ROOT / "recipes/variants.yaml").read_text())["release"] == [version]
    assert wmlce.__version__ == version
    assert re.search(rf"^## {re.escape(version)}$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
