"""OCI archives: the same content as the image, by the OCI image specification, read by another program."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from images import TRAIN, Singularity
from tree import ROOT
from wmlce.images import oci
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout

pytestmark = pytest.mark.long

Result = subprocess.CompletedProcess[str]


def pack(*words: object, **variables: str) -> Result:
    return subprocess.run(
        [sys.executable, "-m", "wmlce", "--root", str(ROOT), "image", "oci", *map(str, words)],
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.fixture(scope="module")
def archive(small_image: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        oci.find_umoci(Layout.locate(ROOT), lambda text: print(text, file=sys.stderr))
    except WmlceError as error:
        pytest.skip(f"no umoci: {error.message}")
    output = tmp_path_factory.mktemp("oci") / "small.oci.tar"
    done = pack("small", "--image", small_image, "--output", output)
    assert done.returncode == 0, done.stdout + done.stderr
    return output


@pytest.fixture(scope="module")
def unpacked(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("layout")
    with tarfile.open(archive) as stream:
        stream.extractall(folder, filter="data")
    return folder


def blob(layout: Path, descriptor: dict[str, Any]) -> bytes:
    """The content that a descriptor names, after a look at its size and sha256."""
    kind, digest = descriptor["digest"].split(":")
    data = (layout / "blobs" / kind / digest).read_bytes()
    assert len(data) == descriptor["size"] and hashlib.sha256(data).hexdigest() == digest
    return data


def test_it_is_what_the_specification_says(unpacked: Path, small_image: Path) -> None:
    assert json.loads((unpacked / "oci-layout").read_text())["imageLayoutVersion"] == "1.0.0"
    (found,) = json.loads((unpacked / "index.json").read_text())["manifests"]
    assert found["annotations"]["org.opencontainers.image.ref.name"] == "small"
    manifest = json.loads(blob(unpacked, found))
    config = json.loads(blob(unpacked, manifest["config"]))
    layers = [gzip.decompress(blob(unpacked, layer)) for layer in manifest["layers"]]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(one).hexdigest()}" for one in layers]
    named = {found["digest"], manifest["config"]["digest"], *(one["digest"] for one in manifest["layers"])}
    assert {
        f"sha256:{path.name}" for path in (unpacked / "blobs/sha256").iterdir()
    } == named  # nothing left over
    assert (config["os"], config["architecture"]) == ("linux", "amd64")
    record = json.loads(small_image.with_name(f"{small_image.name}.json").read_text())
    assert config["config"]["Labels"]["ibm-wml-ce.lock"] == record["lock"]
    assert config["config"]["Labels"]["org.opencontainers.image.licenses"] == record["licenses"]
    variables = dict(entry.split("=", 1) for entry in config["config"]["Env"])
    assert variables["PATH"].startswith("/opt/ibm-wml-ce/bin:") and variables["LANG"] == "C.UTF-8"
    assert variables["OPAL_PREFIX"] == "/opt/ibm-wml-ce" and "PWD" not in variables
    assert str(Path.home()) not in json.dumps(config) and str(ROOT) not in json.dumps(config)


def test_it_holds_the_files_of_the_image(unpacked: Path, singularity: Singularity, small_image: Path) -> None:
    program = (
        "import hashlib,json,os\n"
        "found = {}\n"
        "for top in ('/opt', '/usr', '/etc/ssl'):\n"
        "    for folder, _, names in os.walk(top):\n"
        "        for name in names:\n"
        "            path = os.path.join(folder, name)\n"
        "            if os.path.islink(path): found[path] = os.readlink(path)\n"
        "            else: found[path] = hashlib.sha256(open(path, 'rb').read()).hexdigest()\n"
        "print(json.dumps(found))\n"
    )
    inside = singularity("exec", small_image, "/opt/ibm-wml-ce/bin/python", "-B", "-c", program)
    assert inside.returncode == 0, inside.stderr
    wanted = json.loads(inside.stdout)
    (found,) = json.loads((unpacked / "index.json").read_text())["manifests"]
    packed: dict[str, str] = {}
    for layer in json.loads(blob(unpacked, found))["layers"]:
        name = unpacked / "blobs/sha256" / layer["digest"].split(":")[1]
        with tarfile.open(name) as stream:
            for member in stream:
                path = "/" + member.name.removeprefix(".").strip("/")
                assert (member.uid, member.gid) == (0, 0) and ".singularity.d" not in path
                if member.issym():
                    packed[path] = member.linkname
                elif member.islnk():
                    packed[path] = packed["/" + member.linkname.removeprefix(".").strip("/")]
                elif member.isfile() and (content := stream.extractfile(member)) is not None:
                    packed[path] = hashlib.sha256(content.read()).hexdigest()
    assert len(wanted) > 3000
    assert {path: packed.get(path) for path in wanted} == wanted


def test_two_ranks_train_in_it(singularity: Singularity, archive: Path, tmp_path: Path) -> None:
    own = {"APPTAINER_CACHEDIR": str(tmp_path / "cache"), "APPTAINER_TMPDIR": str(tmp_path)}
    image = tmp_path / "again.sif"
    pulled = singularity("pull", image, f"oci-archive:{archive}", limit=400, **own)
    assert pulled.returncode == 0, pulled.stderr
    run = singularity("exec", image, "ddlrun", "-np", "2", "python", TRAIN, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert sorted(line[:11] for line in run.stdout.splitlines()) == ["rank 0 of 2", "rank 1 of 2"]


def test_it_is_packed_again_only_for_another_image(small_image: Path, archive: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copy(archive, tmp_path / "small.oci.tar"))
    shutil.copy(f"{archive}.json", f"{copy}.json")
    words = ("--image", small_image, "--output", copy)
    same = pack("small", *words)
    assert same.returncode == 0 and "unchanged" in same.stdout, same.stdout + same.stderr
    assert copy.read_bytes() == archive.read_bytes()
    other = pack("renamed", *words)
    assert other.returncode == 0 and "ready" in other.stdout, other.stdout + other.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small.oci.tar", "small.oci.tar.json"]


def test_wishes_that_cannot_be_fulfilled(small_image: Path, archive: Path, tmp_path: Path) -> None:
    output = tmp_path / "x.oci.tar"
    absent = pack("small", "--image", tmp_path / "none.sif", "--output", output)
    assert absent.returncode != 0 and "wmlce image build ddl" in absent.stderr
    unknown = Path(shutil.copy(small_image, tmp_path / "unknown.sif"))
    nothing = pack("small", "--image", unknown, "--output", output)
    assert nothing.returncode != 0 and "unknown.sif.json is missing" in nothing.stderr
    tag = pack("a b", "--image", small_image, "--output", output)
    assert tag.returncode != 0 and "'a b' cannot be a tag" in tag.stderr
    program = pack("small", "--image", small_image, "--output", output, WMLCE_UMOCI="/nowhere/umoci")
    assert program.returncode != 0 and "WMLCE_UMOCI names /nowhere/umoci" in program.stderr
    broken = pack("small", "--image", small_image, "--output", output, WMLCE_UMOCI="false")
    assert broken.returncode != 0 and "umoci" in broken.stderr and "Traceback" not in broken.stderr
    assert not output.exists() and not list(tmp_path.glob(".x.oci.tar*"))
