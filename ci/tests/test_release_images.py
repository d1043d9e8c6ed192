"""Images of a release are signed by Apptainer with a key of its own keyring, and `release check` asks it."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from images import Singularity
from scratch_clone import Clone
from test_release import committed
from tree import ROOT
from wmlce.images.apptainer import Runtime
from wmlce.release import image_signature, manifest

pytestmark = pytest.mark.slow
SECRET = "a secret"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory, singularity: Singularity) -> Clone:
    """A clone whose image holds one program, with a keyring for images and a key for releases."""
    place = tmp_path_factory.mktemp("signed-images")
    clone = Clone(place / "clone", place / "cache")
    clone.recipe(
        "powerai",
        script=["mkdir -p $PREFIX/bin", "echo 'echo it' > $PREFIX/bin/it", "chmod +x $PREFIX/bin/it"],
    )
    shutil.copytree(ROOT / "containers", clone.root / "containers")
    clone.write("containers/test.sh", "it\n")
    cache = Path(os.environ.get("WMLCE_CACHE") or Path.home() / ".cache/wmlce")
    for name in ("sources", "apt"):  # Debian's packages are the same for all: fetched once
        (cache / name).mkdir(parents=True, exist_ok=True)
        (clone.cache / name).symlink_to(cache / name)
    committed(clone)
    clone.built()
    # a home of its own: nothing may read or write the user's keyring
    (place / "home").mkdir()
    clone.env |= {"WMLCE_APPTAINER": str(singularity.program), "HOME": str(place / "home")}
    for name in ("keyring", "other"):
        words = [
            "--keysdir",
            place / name,
            "--name",
            "Images",
            "--email",
            "images@example.org",
            "--push=false",
        ]
        made = singularity("key", "newpair", *words, "--bit-length", "2048", "--password", SECRET)
        assert made.returncode == 0, made.stderr
    clone.ok("release", "key", "new", str(place / "key"), "--no-passphrase")
    return clone


@pytest.fixture(scope="module")
def signed(clone: Clone) -> Path:
    place = clone.root.parent
    (place / "passphrase").write_text(f"{SECRET}\n")
    made = clone.ok(*make(clone), "--image-passphrase", str(place / "passphrase"))
    return Path(made["folder"])


def make(clone: Clone) -> list[str]:
    place = clone.root.parent
    words = ["release", "make", "--no-installers", "--no-sources", "--package", "powerai", "--image", "ddl"]
    return [*words, "--key", str(place / "key"), "--image-key", str(place / "keyring")]


def test_apptainer_verifies_the_image_of_a_release(
    clone: Clone, signed: Path, singularity: Singularity, tmp_path: Path
) -> None:
    image = signed / "images/ddl.sif"
    assert singularity("exec", image, "it").stdout == "it\n"
    public = signed / "images/signing-key.asc"
    keyring = {"APPTAINER_KEYSDIR": str(tmp_path / "keyring")}
    unknown = singularity("verify", "--local", image, **keyring)
    assert unknown.returncode != 0 and "unknown entity" in unknown.stderr
    assert singularity("key", "import", public, **keyring).returncode == 0
    said = singularity("verify", "--local", image, **keyring)
    assert said.returncode == 0, said.stderr
    record = json.loads((signed / "release.json").read_text())
    assert f"Fingerprint: {record['made_of']['image_key']}" in re.sub(" +", " ", said.stdout)
    beside = json.loads((signed / "images/ddl.sif.json").read_text())
    assert beside["size"] == image.stat().st_size and beside["sha256"] != beside["unsigned_sha256"]
    # that of build/images, which is no release's, has none
    own = clone.root / "build/images/ddl.sif"
    assert "signature not found" in singularity("verify", "--local", own, **keyring).stderr
    assert "PRIVATE" not in public.read_text()
    assert not list((clone.root.parent / "home").rglob("pgp-*"))
    assert {path.name for path in (signed / "images").iterdir()} == {"ddl.sif", "ddl.sif.json", public.name}
    assert "apptainer exec ddl.sif ddlrun" in (signed / "index.html").read_text()


def test_check_looks_at_the_signatures(
    clone: Clone, signed: Path, singularity: Singularity, tmp_path: Path
) -> None:
    trusted = ["--key", f"{clone.root.parent / 'key'}.allowed_signers"]
    checked = clone.ok("release", "check", str(signed), *trusted)
    assert checked["images_checked"]
    assert checked["image_key"] == json.loads((signed / "release.json").read_text())["made_of"]["image_key"]
    # without Apptainer it says what it did not look at
    clone.env |= {"WMLCE_APPTAINER": "/nowhere/apptainer"}
    try:
        done = clone.run("release", "check", str(signed), *trusted)
        assert done.returncode == 0 and "NOT looked at: there is no Apptainer here" in done.stdout
    finally:
        clone.env |= {"WMLCE_APPTAINER": str(singularity.program)}

    def refused(image: Path, said: str) -> None:
        """A release that its maker signed as it is now, with this file as its image."""
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(signed, copy)
        shutil.copy(image, tmp_path / "image")
        (copy / "images/ddl.sif").unlink()
        shutil.move(tmp_path / "image", copy / "images/ddl.sif")
        # the list is made anew, so that the image's own signature alone can tell
        record = json.loads((copy / "release.json").read_text())
        record["sizes"].pop("images/ddl.sif")
        error = signed_anew(copy, record)
        assert "ddl.sif is not what the key" in error and said in error, error

    def signed_anew(copy: Path, record: dict[str, Any]) -> str:
        """What `release check` says of a release with another record, which its maker signed."""
        (copy / "release.json").unlink()
        (copy / "release.json").write_text(json.dumps(record))
        manifest.write(copy)
        clone.ok("release", "sign", str(copy), "--key", str(clone.root.parent / "key"))
        return clone.fails("release", "check", str(copy), *trusted)

    changed = tmp_path / "changed.sif"
    data = bytearray((signed / "images/ddl.sif").read_bytes())
    data[data.index(b"hsqs") + 4000] ^= 1
    changed.write_bytes(data)
    refused(changed, "integrity")
    refused(clone.root / "build/images/ddl.sif", "signature not found")
    stranger = Path(shutil.copy(clone.root / "build/images/ddl.sif", tmp_path / "stranger.sif"))
    other = image_signature.ImageKey(clone.root.parent / "other", SECRET)
    image_signature.sign(Runtime(singularity.program, ""), stranger, other)
    refused(stranger, "unknown entity")
    copy = shutil.copytree(signed, tmp_path / "another-key")
    record = json.loads((copy / "release.json").read_text())
    signer, record["made_of"]["image_key"] = record["made_of"]["image_key"], "0" * 40
    error = signed_anew(copy, record)
    assert f"are signed by the key {signer}, and release.json names {'0' * 40}" in error


def test_keys_that_cannot_sign(clone: Clone, signed: Path, tmp_path: Path) -> None:
    """Nothing is made, and no passphrase is on a command line or in what is said."""
    kept = signed.with_name("kept")
    signed.rename(kept)
    try:
        clone.env["WMLCE_IMAGE_PASSPHRASE"] = "a wrong one"
        error = clone.fails(*make(clone))
        assert "could not be signed" in error and "WMLCE_IMAGE_PASSPHRASE" in error
        assert "a wrong one" not in error and not signed.exists()
        del clone.env["WMLCE_IMAGE_PASSPHRASE"]
        error = clone.fails(*make(clone)[:-1], str(tmp_path))
        assert "is not a keyring with a private key" in error and "apptainer key newpair --keysdir" in error
        error = clone.fails(*make(clone), "--image-passphrase", str(tmp_path / "none"))
        assert "cannot be read" in error
        done = clone.run("release", "make", "--image-key", str(tmp_path))
        assert done.returncode == 2 and "name them with --image" in done.stderr
        # the same run with the right one goes on
        clone.env["WMLCE_IMAGE_PASSPHRASE"] = SECRET
        assert clone.ok(*make(clone))["made"]
        shutil.rmtree(signed)
    finally:
        clone.env.pop("WMLCE_IMAGE_PASSPHRASE", None)
        kept.rename(signed)
