"""Installers with signatures."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from installers import PATH, Installer
from wmlce.release import signature
from wmlce.util.files import link_or_copy

pytestmark = pytest.mark.slow


@pytest.fixture
def signed(tiny: Installer, tmp_path: Path) -> tuple[Installer, Path]:
    """An installer with its signature, and the file for those who check."""
    key = signature.new_key(tmp_path / "keys" / "key", passphrase=False)
    copy = tmp_path / "installer.sh"
    link_or_copy(tiny.file, copy)
    signature.sign([copy], key.private)
    return Installer(copy), key.signers


def test_it_checks_its_signature(signed: tuple[Installer, Path], tmp_path: Path) -> None:
    installer, signers = signed
    done = installer("-b", "-p", tmp_path / "env", "--signers", signers)
    assert done.returncode == 0, done.stderr
    assert 'Good "ibm-wml-ce" signature for release@ibm-wml-ce with ED25519 key' in done.stdout
    assert (tmp_path / "env/lib/libz.so.1").exists()
    done = installer("-b", "-p", "second", "--signers=key.allowed_signers", cwd=signers.parent)
    assert done.returncode == 0, done.stderr


def test_signatures_that_it_refuses(signed: tuple[Installer, Path], tmp_path: Path) -> None:
    installer, signers = signed
    place = signature.signature_of(installer.file)

    def refused(said: str, code: int = 1, path: str = PATH) -> None:
        done = installer("-b", "-p", tmp_path / "env", "--signers", signers, path=path)
        assert done.returncode == code and done.stderr.count("error: ") == 1, done.stderr
        assert said in done.stderr, done.stderr
        assert not (tmp_path / "env").exists()

    other = signature.new_key(tmp_path / "other", passphrase=False)
    good = place.read_text()
    signature.sign([installer.file], other.private)
    refused("is of no key of release@ibm-wml-ce")
    note = tmp_path / "note"
    note.write_text("something else")
    key = signers.parent / "key"
    signature.sign([note], key)
    shutil.copy(signature.signature_of(note), place)
    refused("does not match")
    place.write_text(good)
    signature.revoke(key.with_name("key.pub"), signers.parent / "revoked_keys")
    refused("is revoked in")
    (signers.parent / "revoked_keys").unlink()
    bare = tmp_path / "bin"
    bare.mkdir()
    for folder in PATH.split(":"):
        for program in Path(folder).iterdir() if Path(folder).is_dir() else ():
            if program.name != "ssh-keygen" and not (bare / program.name).is_symlink():
                (bare / program.name).symlink_to(program)
    refused("no command ssh-keygen", path=str(bare))
    place.unlink()
    refused("is not signed")
    os.rename(signers, signers.with_name("elsewhere"))
    refused("cannot be read")
