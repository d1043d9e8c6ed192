"""Images: what they hold, that they work for users, and that they are whole or as they were before."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

import images
import pytest
from images import NOBODY, TRAIN, Singularity
from scratch_clone import Clone
from tree import ROOT
from wmlce.envs import environments
from wmlce.images import debian
from wmlce.images.debian import listed_names
from wmlce.sources.model import read_lock
from wmlce.util.layout import Layout

EXAMPLE = ROOT / "ddl-core/examples/tensorflow/keras_digits.py"


@pytest.mark.long
def test_what_an_image_holds(singularity: Singularity, image: Path) -> None:
    said = singularity("exec", image, "cat", "/usr/share/ibm-wml-ce/image.json")
    assert said.returncode == 0, said.stderr
    inside = json.loads(said.stdout)
    solved = {record.file_name for record in environments.solve_channel(images.CHANNEL, ["powerai"])}
    assert set(inside["environment"]) == solved
    assert list(inside["debian"]) == sorted(listed_names(ROOT / "containers/debian-packages.txt"))
    beside = json.loads(image.with_name("ddl.sif.json").read_text())
    assert {name: beside[name] for name in inside} == inside
    labels = json.loads(singularity("inspect", "--json", image).stdout)["data"]["attributes"]["labels"]
    assert labels["ibm-wml-ce.lock"] == inside["lock"] and len(inside["lock"]) == 64
    assert labels["ibm-wml-ce.release"] == (ROOT / "VERSION").read_text().strip()
    licenses = labels["org.opencontainers.image.licenses"].split(" AND ")
    # of bash, the C library, and the oneMKL in PyTorch
    assert {"GPL-3.0-or-later", "LGPL-2.1-or-later", "LicenseRef-Intel-Simplified-Software"} <= {*licenses}
    assert str(ROOT) not in json.dumps(labels)
    help_text = singularity("run-help", image).stdout
    assert "ddlrun -np 2 python train.py" in help_text
    assert singularity("run", image, "-version").stdout.startswith("DDL ")
    # nothing is looked for in the home folder, the host's settings, or another environment
    found = singularity("exec", image, "python", "-c", "import sys; print(sys.prefix, *sys.path)")
    assert all(part.startswith("/opt/ibm-wml-ce") for part in found.stdout.split()), found.stdout


@pytest.mark.long
def test_two_ranks_train_as_an_ordinary_user(
    singularity: Singularity, image: Path, public_folder: Path
) -> None:
    before = images.open_fuse(public_folder)
    singularity, image = images.for_everybody(singularity, image, public_folder)
    script = Path(shutil.copy(EXAMPLE, public_folder))
    home = public_folder / "own" if os.geteuid() == 0 else Path.home()
    words = ["ddlrun", "-np", "2", "-timeout", "200", "python", script, "--epochs", "3", "--rate", "0.01"]
    run = singularity("exec", image, *words, before=before, user=NOBODY, cwd=home, limit=240, HOME=str(home))
    assert run.returncode == 0, run.stderr
    assert "ranks 2  test accuracy 0." in run.stdout


@pytest.mark.parametrize("way", ["mounted by FUSE", "unpacked at each start", "unpacked once"])
def test_an_ordinary_user_needs_only_user_namespaces(
    singularity: Singularity, small_image: Path, public_folder: Path, way: str
) -> None:
    """And no program with setuid."""
    before = images.open_fuse(public_folder) if way == "mounted by FUSE" else []
    singularity, image = images.for_everybody(singularity, small_image, public_folder)
    own = public_folder / "own" if os.geteuid() == 0 else public_folder
    options = ["--unsquash"] if way == "unpacked at each start" else []
    if way == "unpacked once":
        box = own / "ddl"
        made = singularity("build", "--sandbox", box, image, user=NOBODY, cwd=own, limit=300, HOME=str(own))
        assert made.returncode == 0, made.stderr
        image = box
    words = ["exec", "--userns", *options, image, "ddlrun", "-np", "2", "-timeout", "100", "python", TRAIN]
    run = singularity(*words, before=before, user=NOBODY, cwd=own, limit=200, HOME=str(own))
    assert run.returncode == 0 and run.stdout.count("good=True") == 2, run.stderr
    assert ("temporary sandbox" in run.stderr) is (way == "unpacked at each start"), run.stderr


def test_its_own_test_trains(singularity: Singularity, small_image: Path, tmp_path: Path) -> None:
    run = singularity("test", small_image, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert sorted(line[:11] for line in run.stdout.splitlines()) == ["rank 0 of 2", "rank 1 of 2"]
    wrong = singularity("exec", small_image, "python", TRAIN, cwd=tmp_path)
    assert wrong.returncode == 1 and "good=False" in wrong.stdout  # a single rank is no success


def test_what_is_set_outside_does_not_mislead(
    singularity: Singularity, small_image: Path, tmp_path: Path
) -> None:
    """Settings of another Python and another MPI, folders that are not in the image, packages of the host."""
    for folder in (".local/lib/python3.11/site-packages", "host", "userbase/lib/python3.11/site-packages"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "numpy.py").write_text("raise SystemExit('the wrong numpy')\n")
    (tmp_path / "startup.py").write_text("print('the startup file of the host')\n")
    (tmp_path / "wanted").mkdir()
    (tmp_path / "wanted/own.py").write_text("print('own')\n")
    other = tmp_path / "other/share/openmpi"
    other.mkdir(parents=True)
    (other / "help-mpi-runtime.txt").touch()
    outside = {
        "HOME": str(tmp_path),
        "OPAL_PREFIX": str(tmp_path / "other"),
        "PYTHONHOME": "/usr",
        "PYTHONPATH": str(tmp_path / "host"),
        "PYTHONSTARTUP": str(tmp_path / "startup.py"),
        "PYTHONUSERBASE": str(tmp_path / "userbase"),
        "TMPDIR": "/nowhere",
        "LD_LIBRARY_PATH": "/usr/lib/x86_64-linux-gnu",
        "LC_ALL": "de_DE.UTF-8",
        "CONDA_PREFIX": "/opt/conda",
    }
    words = ["exec", small_image, "ddlrun", "-np", "2", "-timeout", "60", "python", TRAIN]
    run = singularity(*words, cwd=tmp_path, **outside)
    assert run.returncode == 0 and run.stdout.count("good=True") == 2, run.stderr
    program = "import numpy, site, sys; print(numpy.__file__, site.ENABLE_USER_SITE, sys.path.count(''))"
    alone = singularity("exec", small_image, "ddlrun", "-np", "1", "python", "-c", program, **outside)
    packages = "/opt/ibm-wml-ce/lib/python3.11/site-packages"
    assert alone.stdout.split() == [f"{packages}/numpy/__init__.py", "False", "1"], alone.stderr
    asked = singularity("exec", small_image, "python", "-i", **outside)
    assert "startup file" not in asked.stdout, asked.stdout
    # and what is meant for the image counts
    words = ["exec", small_image, "ddlrun", "-np", "2", "python", "-c", "import own"]
    wanted = singularity(*words, APPTAINERENV_PYTHONPATH=str(tmp_path / "wanted"), cwd=tmp_path, **outside)
    assert wanted.stdout == "own\n" * 2, wanted.stderr
    asked = singularity("exec", small_image, "env", APPTAINERENV_TMPDIR="/var/tmp", **outside)
    assert "TMPDIR=/var/tmp" in asked.stdout.splitlines()
    assert "CONDA_PREFIX=/opt/ibm-wml-ce" in asked.stdout.splitlines()


@pytest.fixture
def tiny(clone: Clone) -> Clone:
    """A clone with one package, whose images need no test of their own."""
    clone.recipe(
        "tool",
        script=["mkdir -p $PREFIX/bin", "echo 'echo tool' > $PREFIX/bin/tool", "chmod +x $PREFIX/bin/tool"],
    )
    clone.built()
    shutil.copytree(ROOT / "containers", clone.root / "containers")
    clone.write("containers/test.sh", "tool\n")
    # Debian's packages are the same for all: fetched once
    clone.cache.mkdir(exist_ok=True)
    cache = Path(os.environ.get("WMLCE_CACHE") or Path.home() / ".cache/wmlce")
    for name in ("sources", "apt"):
        (cache / name).mkdir(parents=True, exist_ok=True)
        (clone.cache / name).symlink_to(cache / name)
    return clone


@pytest.fixture
def builder(tiny: Clone, singularity: Singularity) -> Clone:
    tiny.env["WMLCE_APPTAINER"] = str(singularity.program)
    return tiny


def test_an_image_is_built_when_something_in_it_changes(builder: Clone, singularity: Singularity) -> None:
    clone, image = builder, builder.root / "build/images/ddl.sif"
    first = clone.ok("image", "build", "ddl", "tool")
    assert first["built"] and singularity("exec", image, "tool").stdout == "tool\n"
    before = image.stat()
    again = clone.ok("image", "build", "ddl", "tool")
    assert not again["built"] and image.stat().st_mtime_ns == before.st_mtime_ns
    listed = clone.ok("image", "list")
    assert [(one["image"], one["lock"]) for one in listed] == [(str(image), first["lock"])]

    # a test that fails leaves what was there
    clone.write("containers/test.sh", "echo the test says no >&2\nexit 3\n")
    assert "the test says no" in clone.fails("image", "build", "ddl", "tool")
    assert image.stat().st_ino == before.st_ino and len(list(image.parent.iterdir())) == 2
    clone.write("containers/test.sh", "tool\ntool\n")
    assert clone.ok("image", "build", "ddl", "tool")["lock"] == first["lock"]  # the same packages
    assert image.stat().st_ino != before.st_ino

    gpu = clone.ok("image", "build", "ddl-gpu", "tool")
    assert gpu["built"] and Path(gpu["image"]).name == "ddl-gpu.sif"
    run = singularity("exec", "--nv", gpu["image"], "sh", "-c", "tool; test -e /usr/bin/nvidia-smi")
    assert run.returncode == 0 and run.stdout == "tool\n", run.stderr
    told = singularity("run-help", gpu["image"]).stdout
    assert "--nv ddl-gpu.sif ddl-gpu-check" in told and "has not been run on a GPU" in told


@pytest.mark.long
def test_a_killed_build_leaves_what_was_there(builder: Clone, singularity: Singularity) -> None:
    folder = builder.root / "build/images"
    builder.write("containers/test.sh", "sleep 60\n")
    process = builder.start("image", "build", "ddl", "tool", start_new_session=True)
    try:
        limit = time.monotonic() + 90
        while not list(folder.glob(".ddl.sif.part-*/root/opt/ibm-wml-ce/bin/tool")):
            assert process.poll() is None and time.monotonic() < limit, process.communicate()
            time.sleep(0.05)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=30)
    assert not (folder / "ddl.sif").exists()
    builder.write("containers/test.sh", "tool\n")
    assert builder.ok("image", "build", "ddl", "tool")["built"]
    assert sorted(path.name for path in folder.iterdir()) == ["ddl.sif", "ddl.sif.json"]


def test_wishes_that_cannot_be_fulfilled(tiny: Clone, tmp_path: Path) -> None:
    assert "name one of: ddl, ddl-gpu" in tiny.fails("image", "build", "../ddl")
    assert "is not a channel" in tiny.fails("image", "build", "--from", str(tmp_path))
    assert "is a folder" in tiny.fails("image", "build", "--output", str(tmp_path))
    tiny.env["WMLCE_APPTAINER"] = "/nowhere/apptainer"
    assert "WMLCE_APPTAINER names /nowhere/apptainer" in tiny.fails("image", "build", "ddl", "tool")


def test_programs_without_their_libraries_are_refused(builder: Clone) -> None:
    listing = builder.root / "containers/debian-packages.txt"
    lines = listing.read_text().splitlines(keepends=True)
    listing.write_text("".join(line for line in lines if not line.startswith("libtinfo6")))
    error = builder.fails("image", "build", "ddl", "tool")
    assert "libtinfo.so.6: usr/bin/bash" in error and "containers/debian-packages.txt" in error
    listing.write_text("no-such-package-anywhere  for nothing\n")
    error = builder.fails("image", "build", "ddl", "tool")
    assert "debian.lock.yaml has no no-such-package-anywhere" in error and "wmlce lock image" in error


def test_everything_of_debian_in_images_is_locked() -> None:
    layout = Layout.locate(ROOT)
    names = listed_names(ROOT / "containers/debian-packages.txt")
    entries = {entry.package: entry for entry in read_lock(debian.lock_path(layout))}
    assert set(entries) == {*names, *debian.TOOLS}
    for name, suite in debian.TOOLS.items():
        assert (entries[name].suite, entries[name].recipes) == (suite, [name])


def test_a_locked_package_with_other_content_is_refused(builder: Clone) -> None:
    """So is a lock file that a hand has spoiled."""
    path = builder.root / "containers/debian.lock.yaml"
    text = path.read_text()
    (entry,) = (e for e in read_lock(path) if e.package == "hostname")
    path.write_text(text.replace(entry.files[0].sha256, "ab" * 32))
    assert "hostname" in builder.fails("image", "build", "ddl", "tool")
    path.write_text(text.replace(entry.files[0].sha256, "0" * 64))  # to YAML a number
    error = builder.fails("image", "build", "ddl", "tool")
    assert "containers/debian.lock.yaml is damaged" in error and "wmlce lock image" in error
    assert not (builder.root / "build/images/ddl.sif").exists()
