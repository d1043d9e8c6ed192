"""Trust in signed folders: whose key, revoked or not, for what purpose, and that nothing else is in them."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tree import ROOT
from wmlce.images.apptainer import Runtime
from wmlce.release import check, image_signature, manifest, signature, trust
from wmlce.release.signature import Key, Trust
from wmlce.util.errors import WmlceError


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> list[Key]:
    folder = tmp_path_factory.mktemp("keys")
    return [signature.new_key(folder / name / "key", passphrase=False) for name in ("one", "other")]


@pytest.fixture
def file(tmp_path: Path, keys: list[Key]) -> Path:
    """A file that the first key has signed."""
    path = tmp_path / "file"
    path.write_text("content\n")
    assert signature.sign([path], keys[0].private) == keys[0].id
    return path


def ssh_keygen(*arguments: str | Path, **options: Any) -> str:
    command = ["ssh-keygen", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60, **options).stdout


def test_the_id_is_ssh_keygens(keys: list[Key]) -> None:
    assert keys[0].id == ssh_keygen("-l", "-f", keys[0].public).split()[1]
    assert keys[0].id == signature.id_of(keys[0].public) != keys[1].id
    assert keys[0].private.stat().st_mode & 0o077 == 0
    assert keys[0].signers.read_text() == signature.allowed_signers(keys[0].public)


def test_whose_signature_it_is(file: Path, keys: list[Key]) -> None:
    one, other = keys
    for trusted in (None, Trust(one.signers), Trust(one.public)):
        assert signature.verify(file, trusted) == one.id
    with pytest.raises(WmlceError, match=rf"signed by the key {re.escape(one.id)}, which .* does not name"):
        signature.verify(file, Trust(other.signers))


def test_a_file_of_several_keys(file: Path, keys: list[Key], tmp_path: Path) -> None:
    signers = tmp_path / "signers"
    blob = keys[0].public.read_text().split()[1]
    signers.write_text(f"# keys\n\n{keys[1].signers.read_text()}any@*,second ssh-ed25519 {blob}\n")
    assert signature.verify(file, Trust(signers)) == keys[0].id
    signers.write_text("# none\n\nno key\n")
    with pytest.raises(WmlceError, match="holds no public key"):
        signature.verify(file, Trust(signers))
    with pytest.raises(WmlceError, match=r"the file of trusted keys .* cannot be read"):
        signature.verify(file, Trust(tmp_path / "absent"))


def test_a_changed_file_and_a_changed_signature(file: Path, keys: list[Key]) -> None:
    file.write_text("other\n")
    for trusted in (None, Trust(keys[0].signers)):
        with pytest.raises(WmlceError, match=r"file\.sig does not match"):
            signature.verify(file, trusted)
    signed = signature.signature_of(file)
    text = signed.read_text()
    for damaged in (
        "",
        text[: len(text) // 2],
        text.replace("SSH", "PGP"),
        text + "more",
        text[:60] + "!" + text[60:],
    ):
        signed.write_text(damaged)
        with pytest.raises(WmlceError, match="is not a complete SSH signature"):
            signature.verify(file, None)
    signed.write_bytes(b"\xff\xfe")
    with pytest.raises(WmlceError, match="is not a complete SSH signature"):
        signature.verify(file, None)
    body = base64.b64encode(b"SSHSIX" + b"\0" * 40).decode()
    signed.write_text(f"-----BEGIN SSH SIGNATURE-----\n{body}\n-----END SSH SIGNATURE-----\n")
    with pytest.raises(WmlceError, match="is not a complete SSH signature"):
        signature.verify(file, None)
    signed.unlink()
    with pytest.raises(WmlceError, match=r"file is not signed: there is no file.sig beside it"):
        signature.verify(file, None)


def test_a_signature_for_another_purpose(file: Path, keys: list[Key]) -> None:
    signature.signature_of(file).unlink()
    ssh_keygen("-Y", "sign", "-f", keys[0].private, "-n", "git", file)
    with pytest.raises(WmlceError, match=r"made for another purpose .'git', not 'ibm-wml-ce'"):
        signature.verify(file, None)


def test_a_revoked_key(file: Path, keys: list[Key], tmp_path: Path) -> None:
    listed = tmp_path / "list"
    signers = tmp_path / "trusted" / "signers"
    signers.parent.mkdir()
    signers.write_text(keys[0].signers.read_text())
    assert signature.revoke(keys[1].public, listed)
    assert signature.verify(file, Trust(signers, listed)) == keys[0].id
    assert signature.revoke(keys[0].public, listed) and not signature.revoke(keys[0].public, listed)
    assert len(listed.read_text().splitlines()) == 2
    with pytest.raises(WmlceError, match=rf"signed by the key {re.escape(keys[0].id)}, which is revoked"):
        signature.verify(file, Trust(signers, listed))
    assert Trust(signers).revoked_file() is None
    beside = signers.with_name(signature.REVOKED)
    beside.write_text(listed.read_text().rstrip())
    assert Trust(signers).revoked_file() == beside
    with pytest.raises(WmlceError, match="which is revoked"):
        signature.verify(file, Trust(signers))
    file.write_text("other\n")  # neither a revoked key nor a right one: the content is what is wrong
    with pytest.raises(WmlceError, match="does not match"):
        signature.verify(file, Trust(signers))
    with pytest.raises(WmlceError, match=r"the list of revoked keys .* cannot be read"):
        signature.verify(file, Trust(signers, tmp_path / "absent"))
    listed.write_bytes(b"SSHKRL\n\0")
    with pytest.raises(WmlceError, match="is a binary list of revoked keys"):
        signature.revoke(keys[0].public, listed)
    # a list whose last line has no end
    assert beside.read_text()[-1] != "\n" and signature.revoke(new_public(tmp_path), beside)
    assert len(beside.read_text().splitlines()) == 3


def new_public(folder: Path) -> Path:
    return signature.new_key(folder / "third" / "key", passphrase=False).public


def test_a_key_that_is_no_longer_valid(file: Path, keys: list[Key], tmp_path: Path) -> None:
    signers = tmp_path / "signers"
    line = keys[0].signers.read_text().replace("namespaces=", 'valid-before="20200101",namespaces=')
    signers.write_text(line)
    with pytest.raises(
        WmlceError, match=rf"signed by the key {re.escape(keys[0].id)}, which is not valid now"
    ):
        signature.verify(file, Trust(signers))


@pytest.mark.parametrize(
    "options", ['namespaces="git"', "cert-authority", 'cert-authority,namespaces="ibm-wml-ce"']
)
def test_a_line_that_does_not_allow_its_key_to_sign_releases(
    file: Path, keys: list[Key], tmp_path: Path, options: str
) -> None:
    signers = tmp_path / "signers"
    kind, blob = keys[0].public.read_text().split()[:2]
    signers.write_text(f"release {options} {kind} {blob}\n")
    with pytest.raises(WmlceError, match="does not allow that key to sign it") as error:
        signature.verify(file, Trust(signers))
    assert "namespaces, if it is there, must name ibm-wml-ce" in str(error.value)
    assert "cert-authority" in str(error.value) and "OpenSSH" not in str(error.value)
    file.write_text("other\n")
    with pytest.raises(WmlceError, match=r"does not match|could not check"):
        signature.verify(file, Trust(signers))


def test_keys_are_never_replaced(keys: list[Key], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("key", "key.pub", "key.allowed_signers"):
        place = tmp_path / name
        place.symlink_to("nowhere")
        with pytest.raises(WmlceError, match=f"{name} is there already"):
            signature.new_key(tmp_path / "key", passphrase=False)
        place.unlink()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: False))
    with pytest.raises(WmlceError, match="no terminal to ask for the passphrase on"):
        signature.new_key(tmp_path / "key", passphrase=True)
    with pytest.raises(WmlceError, match="there is no key"):
        signature.sign([tmp_path / "file"], tmp_path / "key")
    (tmp_path / "key").write_text("no key\n")
    with pytest.raises(WmlceError, match="nothing was signed with"):
        signature.sign([keys[0].public], tmp_path / "key")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WmlceError, match="there is no command ssh-keygen"):
        signature.sign([tmp_path / "file"], keys[0].private)


# ------------------------------------------------------------------------------ signed folders


@dataclass
class Release:
    """A signed folder with a channel, an installer and an image."""

    folder: Path
    key: Key

    def sign(self, **made_of: Any) -> None:
        record = {"version": "1.0", "commit": "c0ffee", "made_of": made_of, "sizes": {"images/a.sif": 5}}
        self.write("release.json", json.dumps(record))
        for folder in (self.folder / "channel", self.folder):
            manifest.write(folder)
        signature.sign(check.to_sign(self.folder), self.key.private)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def check(self, runtime: Runtime | None = None) -> check.Checked:
        return check.check(self.folder, Trust(self.key.signers), lambda _: None, runtime)


@pytest.fixture
def release(tmp_path: Path, keys: list[Key], monkeypatch: pytest.MonkeyPatch) -> Release:
    monkeypatch.setattr(check.copyleft, "check", lambda *_: None)
    release = Release(tmp_path / "release", keys[0])
    release.write("channel/noarch/repodata.json", "{}\n")
    release.write("channel/noarch/a-1-0.conda", "package\n")
    release.write("installers/all.sh", "#!/bin/sh\n")
    release.write("images/a.sif", "image")
    release.write("sources/SHA256SUMS", f"{'0' * 64}  a.tar\n")
    release.sign(image_key="A" * 40)
    return release


def test_a_whole_release(release: Release) -> None:
    checked = release.check()
    assert (checked.version, checked.commit, checked.key) == ("1.0", "c0ffee", release.key.id)
    assert checked.trusted and not checked.images_checked and checked.image_key == "A" * 40
    names = manifest.read(release.folder)
    assert checked.files == len(names) == 7
    assert checked.size == sum((release.folder / name).stat().st_size for name in names)
    signed = [path.relative_to(release.folder).as_posix() for path in check.to_sign(release.folder)]
    assert signed == ["SHA256SUMS", "channel/SHA256SUMS", "installers/all.sh"]
    assert not check.check(release.folder, None, lambda _: None).trusted


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.write("images/a.sif", "other"), "changed: images/a.sif"),
        (lambda r: r.write("images/a.sif", "im"), "cut off: images/a.sif has 2 of 5 bytes"),
        (lambda r: (r.folder / "images/a.sif").unlink(), "missing: images/a.sif"),
        (lambda r: r.write("new", ""), "not in SHA256SUMS: new"),
        (lambda r: r.write("images/a.sif.sig", ""), "not in SHA256SUMS: images/a.sif.sig"),
        (lambda r: (r.folder / "folder").symlink_to("images"), "not in SHA256SUMS: folder"),
        (lambda r: (r.write("new", ""), r.write("images/a.sif", "other")), "and 1 more"),
        (lambda r: r.write("SHA256SUMS", ""), "does not match"),
        (lambda r: r.write("installers/all.sh.sig", ""), "is not a complete SSH signature"),
        (lambda r: (r.folder / "installers/all.sh.sig").unlink(), "installers/all.sh is not signed"),
        (lambda r: (r.folder / "SHA256SUMS").unlink(), "has no SHA256SUMS"),
        (lambda r: r.write("release.json", "{}"), "changed: release.json"),
    ],
)
def test_what_is_not_as_it_was_signed(
    release: Release, change: Callable[[Release], object], message: str
) -> None:
    change(release)
    with pytest.raises(WmlceError) as error:
        release.check()
    assert message in str(error.value)


def test_a_link_is_no_file(release: Release) -> None:
    image = release.folder / "images/a.sif"
    image.rename(release.folder.parent / "image")
    image.symlink_to(release.folder.parent / "image")
    with pytest.raises(WmlceError, match=r"a link or a pipe, and no file: images/a.sif"):
        release.check()
    with pytest.raises(WmlceError, match="cannot be in a release"):
        manifest.write(release.folder)


def test_hidden_files_are_not_listed_and_not_missed(release: Release) -> None:
    """A mirror has a lock in it, and parts of files that are on their way."""
    for name in (".mirror.lock", "channel/.mirror.lock", "channel/noarch/.a.part", ".scratch/file"):
        release.write(name, "")
    assert release.check().files == 7
    release.sign(image_key="A" * 40)
    assert release.check().files == 7 and not any(".mirror" in name for name in manifest.read(release.folder))


def test_a_record_that_is_none(release: Release) -> None:
    record = release.folder / "release.json"
    record.write_text("[]")
    with pytest.raises(WmlceError, match="is not a release record"):
        check.read_record(release.folder)
    record.write_text("{")
    with pytest.raises(WmlceError, match="cannot be read"):
        check.read_record(release.folder)
    record.unlink()
    assert check.read_record(release.folder) is None


@pytest.mark.parametrize("line", ["0 a", f"{'0' * 64}  /a", f"{'0' * 64}  a/../../b", f"{'0' * 63}g  a", ""])
def test_a_list_with_another_line_is_refused(tmp_path: Path, line: str) -> None:
    good = f"{'0' * 64}  a..b/c\n{'1' * 64} *d\n"
    (tmp_path / manifest.NAME).write_text(good)
    assert manifest.read(tmp_path) == {"a..b/c": "0" * 64, "d": "1" * 64}
    (tmp_path / manifest.NAME).write_text(f"{good}{line}\n")
    with pytest.raises(WmlceError, match="SHA256SUMS:3 is not a line of a checksum list"):
        manifest.read(tmp_path)


# ------------------------------------------------------------------------------ images


class Apptainer:
    """Answers as apptainer does: the keyring's keys, and who signed each image."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *keys: str) -> None:
        self.keys = keys
        self.signer: dict[str, Any] = {"Fingerprint": "a" * 40, "KeyCheck": True, "DataCheck": True}
        self.code = 0
        self.asked: list[list[str]] = []
        monkeypatch.setattr(image_signature.apptainer, "ask", self.ask)

    def ask(self, runtime: Runtime, arguments: list[str], **options: Any) -> Any:
        self.asked.append(arguments)
        if arguments[:2] == ["key", "list"]:
            text = "".join(f"   Fingerprint:     {key}\n" for key in self.keys)
            return SimpleNamespace(returncode=0, stdout=text, stderr="")
        if arguments[:2] == ["key", "import"]:
            return SimpleNamespace(returncode=0, stdout="", stderr="")
        assert arguments[:4] == ["verify", "--local", "--all", "--json"]
        answer = json.dumps({"SignerKeys": [{"Signer": self.signer}]})
        return SimpleNamespace(returncode=self.code, stdout=answer, stderr="FATAL: why")


RUNTIME = Runtime(Path("/apptainer"), "")


def test_images_are_signed_by_the_key_that_the_record_names(
    release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    apptainer = Apptainer(monkeypatch, "A" * 40)
    checked = release.check(RUNTIME)
    assert checked.images_checked and checked.image_key == "A" * 40
    assert [words[-1] for words in apptainer.asked if words[0] == "verify"] == [
        str(release.folder / "images/a.sif")
    ]
    release.sign(image_key="B" * 40)
    with pytest.raises(
        WmlceError, match=f"are signed by the key {'A' * 40}, and release.json names {'B' * 40}"
    ):
        release.check(RUNTIME)
    release.sign()
    assert not release.check(RUNTIME).images_checked


@pytest.mark.parametrize(
    ("signer", "code"),
    [
        ({"Fingerprint": "B" * 40}, 0),
        ({"KeyCheck": False}, 0),
        ({"DataCheck": False}, 0),
        ({}, 1),
    ],
)
def test_an_image_that_the_key_did_not_sign(
    release: Release, monkeypatch: pytest.MonkeyPatch, signer: dict[str, Any], code: int
) -> None:
    apptainer = Apptainer(monkeypatch, "A" * 40)
    apptainer.signer |= signer
    apptainer.code = code
    with pytest.raises(WmlceError, match=r"is not what the key A+ signed") as error:
        release.check(RUNTIME)
    assert error.value.detail == ["FATAL: why"]


@pytest.mark.parametrize("listed", [(), ("A" * 40, "B" * 40)])
def test_a_keyring_has_one_key(
    release: Release, monkeypatch: pytest.MonkeyPatch, listed: tuple[str, ...]
) -> None:
    Apptainer(monkeypatch, *listed)
    with pytest.raises(WmlceError, match=f"holds {len(listed)} keys"):
        release.check(RUNTIME)


def test_a_passphrase_is_the_first_line_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("secret\nmore\n")
    monkeypatch.setenv(image_signature.PASSPHRASE, "variable")
    assert image_signature.passphrase(file) == "secret"
    assert image_signature.passphrase(None) == "variable"
    with pytest.raises(WmlceError, match="cannot be read"):
        image_signature.passphrase(tmp_path / "absent")
    with pytest.raises(WmlceError, match="is not a keyring with a private key"):
        image_signature.fingerprint(RUNTIME, image_signature.ImageKey(tmp_path))


# ------------------------------------------------------------------------------ channels that must be signed


@pytest.fixture
def required(release: Release, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The channel of a release, where only signed ones may be used."""
    monkeypatch.setattr(trust, "_on_command_line", False)
    monkeypatch.setenv(trust.VARIABLE, str(release.key.signers))
    monkeypatch.delenv(trust.REVOKED, raising=False)
    return release.folder / "channel"


def test_whom_this_user_trusts(required: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert trust.required() == Trust(Path(os.environ[trust.VARIABLE]))
    monkeypatch.setenv(trust.REVOKED, str(tmp_path / "list"))
    assert trust.required() == Trust(Path(os.environ[trust.VARIABLE]), tmp_path / "list")
    monkeypatch.delenv(trust.VARIABLE)
    assert trust.required() is None and trust.open_channel(tmp_path) is None
    trust.export(None)
    assert trust.required() is None and not trust._on_command_line
    monkeypatch.chdir(tmp_path)
    trust.export(Path("signers"))
    assert os.environ[trust.VARIABLE] == str(tmp_path / "signers") and trust._on_command_line


def test_a_channel_that_must_be_signed(required: Path, tmp_path: Path) -> None:
    listed = trust.open_channel(required)
    assert listed is not None and set(listed) == {"noarch/repodata.json", "noarch/a-1-0.conda"}
    package = required / "noarch/a-1-0.conda"
    package.write_text("other\n")  # packages are looked at when they are installed
    assert trust.open_channel(required) == listed
    digest = hashlib.sha256(b"package\n").digest()
    record: Any = SimpleNamespace(subdir="noarch", file_name=package.name, sha256=digest)
    with pytest.raises(WmlceError, match="is not what was signed: changed"):
        trust.check_packages(required, [record], listed)
    trust.check_packages(required, [record], None)
    package.unlink()
    with pytest.raises(WmlceError, match="is not what was signed: missing"):
        trust.check_packages(required, [record], listed)
    package.write_text("package\n")
    trust.check_packages(required, [record], listed)
    of_another_index: Any = SimpleNamespace(**{**vars(record), "sha256": hashlib.sha256(b"x").digest()})
    with pytest.raises(WmlceError, match="is not what was signed: changed"):
        trust.check_packages(required, [of_another_index], listed)
    digest = hashlib.sha256(b"new\n").digest()
    new: Any = SimpleNamespace(subdir="noarch", file_name="new-1-0.conda", sha256=digest)
    (required / "noarch/new-1-0.conda").write_text("new\n")
    with pytest.raises(WmlceError, match="is not what was signed: changed"):
        trust.check_packages(required, [record, new], listed)
    (required / "noarch/repodata.json").write_text("{} \n")
    with pytest.raises(WmlceError, match=r"the index of .* is not what was signed: changed: noarch/repodata"):
        trust.open_channel(required)
    with pytest.raises(WmlceError, match="is not signed, and WMLCE_REQUIRE_SIGNATURE"):
        trust.open_channel(tmp_path)


def test_the_clones_own_channel_needs_a_signature_only_if_the_command_line_says_so(
    required: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    assert trust.open_channel(mine, mine / "../mine") is None
    for folder, own in ((mine, tmp_path), (mine, None)):
        with pytest.raises(WmlceError, match="is not signed"):
            trust.open_channel(folder, own)
    assert trust.open_channel(required, required) is not None  # what is signed is checked
    monkeypatch.setattr(trust, "_on_command_line", True)
    with pytest.raises(WmlceError, match="is not signed"):
        trust.open_channel(mine, mine)


@pytest.mark.parametrize(
    "words",
    [
        ["channel", "mirror", "DIR", "--from", "https://me:secret@host/channel"],
        ["channel", "mirror", "DIR", "--from=https://secret@host/channel"],
        ["env", "lock", "powerai", "--channel", "HTTPS://me:secret@host/channel"],
        ["--debian-mirror", "http://me:secret@host/debian", "source", "fetch"],
        ["source", "fetch", "--pytorch-index=https://me:secret@host/whl"],
    ],
)
def test_a_login_on_the_command_line_is_refused(words: list[str]) -> None:
    done = wmlce(*words)
    assert done.returncode == 1 and "which every user of this machine can see" in done.stderr, done.stderr
    assert "machine HOST login USER password PASSWORD" in done.stderr
    assert "secret" not in done.stdout + done.stderr


def test_a_lowest_version_is_one_of_something_signed(tmp_path: Path) -> None:
    done = wmlce("--minimum", "2.0", "env", "list")
    assert done.returncode == 2 and "--minimum is about what is signed" in done.stderr, done.stderr
    done = wmlce("--require-signature", str(tmp_path / "signers"), "env", "list", "--minimum", "new")
    assert done.returncode == 1 and "'new' is not a version" in done.stderr, done.stderr


@pytest.mark.parametrize(("day", "says"), [("2020-01-01", "is over"), ("soon", "'soon' is not a day")])
def test_a_day_that_a_release_cannot_expire_on(day: str, says: str) -> None:
    done = wmlce("release", "make", "--expires", day)
    assert done.returncode in (1, 2) and says in done.stderr, done.stderr


def wmlce(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "ci"), *sys.path]),
        "COLUMNS": "200",
    }
    command = [sys.executable, "-m", "wmlce", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_a_lock_of_packages_that_were_signed() -> None:
    listed = {"noarch/a.conda": "1", "noarch/b.conda": "2"}
    trust.check_lock({"noarch/a.conda": "1"}, listed)
    trust.check_lock({"noarch/c.conda": "3"}, None)
    with pytest.raises(
        WmlceError, match="2 packages of the lock are not among those that were signed"
    ) as error:
        trust.check_lock({"noarch/a.conda": "2", "noarch/b.conda": "2", "noarch/c.conda": "3"}, listed)
    assert error.value.detail == ["noarch/c.conda"]
