"""Locks as other programs read them. Clients that this machine has install from them; readers of the two YAML
formats come from the Python package index.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from scratch_clone import Clone
from small_channel import index, make_package
from web_server import Files

pytestmark = pytest.mark.slow
LIMIT_S = 240
FORMATS = {"explicit": "explicit.txt", "conda-lock": "conda-lock.yml", "pixi": "pixi.lock"}
READERS = ("conda-lock==4.0.3", "pixi-sbom==1.15.0")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A clone with a channel, and with an environment out of it."""
    place = tmp_path_factory.mktemp("lock-clients")
    clone = Clone(place / "clone", place / "cache")
    channel = clone.root / "build/channel"
    make_package(channel, "low", size=5000)
    make_package(channel, "top", depends=["low >=1.0", "__unix"], subdir="linux-64")
    index(channel)
    clone.ok("env", "create", "first", "top")
    # no client may take it for the one that the locks name
    make_package(channel, "low", "2.0")
    index(channel)
    return clone


@pytest.fixture(scope="module", params=["file", "http"])
def locks(
    request: pytest.FixtureRequest, clone: Clone, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A folder with a lock of each format, whose channel is there while the tests run."""
    folder = tmp_path_factory.mktemp(request.param)
    channel = clone.root / "build/channel"
    if request.param == "file":
        write(clone, folder, channel.as_uri())
        yield folder
        return
    with Files(channel).served() as files:
        write(clone, folder, files.url)
        yield folder


def write(clone: Clone, folder: Path, url: str) -> None:
    for form, name in FORMATS.items():
        words = ["--format", form, "--channel", url, "--output", str(folder / name)]
        assert clone.ok("env", "lock", "first", *words)["packages"] == 2


def digests(prefix: Path) -> dict[str, str]:
    """Of every file that packages installed."""
    files = [path for path in (prefix / "share").rglob("*") if path.is_file()]
    return {str(path.relative_to(prefix)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def run(words: list[str], folder: Path) -> str:
    """A client with a home of its own: it reads no settings and no caches of the user."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "CONDA_PKGS_DIRS": str(home / "pkgs")}
    done = subprocess.run(
        words,
        env={**env, "MAMBA_ROOT_PREFIX": str(home / "mamba"), "CONDA_CHANNELS": ""},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def by_conda(program: str, form: str) -> Callable[[Path, Path], Path]:
    def install(locks: Path, folder: Path) -> Path:
        prefix = folder / "prefix"
        run(
            [program, "create", "--yes", "--prefix", str(prefix), "--file", str(locks / FORMATS[form])],
            folder,
        )
        return prefix

    return install


def by_conda_lock(locks: Path, folder: Path) -> Path:
    prefix = folder / "prefix"
    run(["conda-lock", "install", "--prefix", str(prefix), str(locks / FORMATS["conda-lock"])], folder)
    return prefix


def by_pixi(locks: Path, folder: Path) -> Path:
    shutil.copy(locks / FORMATS["pixi"], folder)
    environment = yaml.safe_load((folder / "pixi.lock").read_text())["environments"]["default"]
    [url] = {channel["url"] for channel in environment["channels"]}
    (folder / "pixi.toml").write_text(
        f'[workspace]\nname = "small"\nchannels = ["{url}"]\nplatforms = ["linux-64"]\n'
        '[dependencies]\ntop = "*"\n'
    )
    run(["pixi", "install", "--frozen"], folder)
    return folder / ".pixi/envs/default"


CLIENTS = {
    "conda": (("conda",), by_conda("conda", "explicit")),
    "mamba": (("mamba",), by_conda("mamba", "explicit")),
    "micromamba": (("micromamba",), by_conda("micromamba", "explicit")),
    "micromamba, conda-lock.yml": (("micromamba",), by_conda("micromamba", "conda-lock")),
    "conda-lock": (("conda-lock", "conda"), by_conda_lock),
    "pixi": (("pixi",), by_pixi),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_of_this_machine_install_the_same_bytes(
    clone: Clone, locks: Path, client: str, tmp_path: Path
) -> None:
    programs, install = CLIENTS[client]
    if missing := [program for program in programs if shutil.which(program) is None]:
        pytest.skip(f"no {', '.join(missing)} on PATH; PyPI, Debian and npm have no current one")
    prefix = install(locks, tmp_path)
    wanted = digests(clone.root / "build/envs/first")
    assert len(wanted) == 2 and digests(prefix) == wanted


def test_wmlce_installs_the_same_bytes_from_each(clone: Clone, locks: Path) -> None:
    wanted = digests(clone.root / "build/envs/first")
    for form, name in FORMATS.items():
        env = f"{locks.name}-{form}"
        clone.ok("env", "create", env, "--lock", str(locks / name))
        assert digests(clone.root / "build/envs" / env) == wanted


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of READERS."""
    folder = tmp_path_factory.mktemp("readers")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
    words = [str(folder / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", *READERS]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        pytest.skip(f"pip cannot install {', '.join(READERS)}: {done.stderr[-200:].strip()}")
    return folder / "bin"


@pytest.mark.long
def test_conda_lock_reads_its_format(clone: Clone, locks: Path, readers: Path, tmp_path: Path) -> None:
    """What it hands to conda is the explicit lock, with the digests that old releases of conda know."""
    lock = str(locks / FORMATS["conda-lock"])
    run(
        [str(readers / "conda-lock"), "render", "--kind", "explicit", "--platform", "linux-64", lock],
        tmp_path,
    )
    rendered = [
        line for line in (tmp_path / "conda-linux-64.lock").read_text().splitlines() if "#" in line[1:]
    ]
    ours = (locks / FORMATS["explicit"]).read_text().splitlines()
    addresses = [line.partition("#")[0] for line in ours if "#sha256:" in line]
    channel = clone.root / "build/channel"
    assert len(addresses) == 2
    files = {url: channel / "/".join(url.split("/")[-2:]) for url in addresses}
    wanted = [f"{url}#{hashlib.md5(file.read_bytes()).hexdigest()}" for url, file in files.items()]
    assert sorted(rendered) == sorted(wanted)


@pytest.mark.long
def test_another_reader_of_pixi_lock_finds_the_same_packages(
    locks: Path, readers: Path, tmp_path: Path
) -> None:
    """pixi-sbom, which lists what pixi would install."""
    bill = tmp_path / "bill.json"
    lock = str(locks / FORMATS["pixi"])
    run([str(readers / "pixi-sbom"), "--lockfile", lock, "--output", str(bill)], tmp_path)
    found = {
        component["name"]: {one["alg"]: one["content"] for one in component["hashes"]}["SHA-256"]
        for component in json.loads(bill.read_text())["components"]
    }
    ours = (locks / FORMATS["explicit"]).read_text().splitlines()
    listed = [line.split("/")[-1].partition("#sha256:") for line in ours if "#sha256:" in line]
    assert found == {file.split("-")[0]: digest for file, _, digest in listed}
