"""Settings that people have, and what ci/quickstart makes of them before anything is fetched: it works all
the same, or one message names what is in the way and the remedy.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from bare_machine.other_systems import SYSTEMS
from bootstrap_machine import Machine, base_python
from local_wheels import make_wheel, settings_of_pip, variables_of_pip
from tree import ROOT
from web_server import Files
from without_flock import library_without_flock
from wmlce.sources.relock_tools import PYTHONS, SETS

SCRIPTS = ("ci/quickstart", "ci/test", "ci/bench", "ci/bare-machine", "ci/pipelines/site-pipeline")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def asks(machine: Machine, script: str) -> str:
    """What a function of ci/bootstrap.sh says on that machine."""
    answer = subprocess.run(
        ["bash", "-euc", f". ci/bootstrap.sh; {script}"],
        cwd=machine.root,
        env={"PATH": str(machine.bin), "HOME": str(machine.home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return answer.stdout.strip()


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_any_shell_may_start_the_scripts(script: str, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"this machine has no {shell}")
    done = subprocess.run(
        [shell, script, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0 and f"usage: {script}" in done.stdout, done.stderr


def pretended(machine: Machine, version: str) -> None:
    """A python3 that takes itself for another version."""
    major, minor = version.split(".")
    machine.command(
        "python3",
        f"case $1 in --version) echo Python {version}.0 ;; -I) code=$3; shift 3\n"
        f'exec {base_python()} -c "import sys; sys.version_info = ({major}, {minor}, 0); $code" "$@" ;; esac',
    )


def test_the_pythons_that_the_tools_are_locked_for(machine: Machine) -> None:
    assert asks(machine, 'echo "${PYTHONS[@]}"').split() == list(PYTHONS)
    machine.lacks("python3.11")
    for version in PYTHONS:
        pretended(machine, version)
        assert asks(machine, "find_python") == str(machine.bin / "python3"), version
    # a newer one is not accepted, for the lock has no files for it
    major, minor = PYTHONS[-1].split(".")
    newer = f"{major}.{int(minor) + 1}"
    pretended(machine, newer)
    error = machine.refuses()
    assert f"found: Python {newer}.0" in error and f"version {PYTHONS[0]} to {PYTHONS[-1]}" in error


@pytest.mark.parametrize(
    "name", ["a b", "a&b", "a(b)", "a;b", "a'b", 'a"b', "a$b", "a|b", "a[b]", "a{b}", "a!b", "a=b"]
)
def test_paths_that_builds_cannot_cope_with(tmp_path: Path, name: str) -> None:
    machine = Machine(tmp_path / name)
    error = machine.refuses()
    assert "the path of the clone has a blank or another character" in error and name in error
    assert not (machine.root / "build").exists()


def test_a_cache_with_a_blank_in_its_path(machine: Machine) -> None:
    error = machine.refuses(WMLCE_CACHE=str(machine.home / "my cache"))
    assert "the path of the cache (WMLCE_CACHE) has a blank" in error


def test_a_path_without_room_for_packages(tmp_path: Path) -> None:
    long = tmp_path
    while len(str(long)) < 230:
        long /= "a" * min(100, 230 - len(str(long)))
    assert "packages have room for 220" in Machine(long).refuses()


def test_no_home(machine: Machine) -> None:
    assert "remedy: name a folder for them: WMLCE_CACHE=FOLDER" in machine.refuses(HOME="")
    machine.ready(HOME="", WMLCE_CACHE=str(machine.home / "cache"))


def test_a_relative_cache_folder_counts_for_nothing(machine: Machine) -> None:
    """So says the standard that XDG_CACHE_HOME comes from."""
    code, out, err = machine.end(machine.start(then='echo "cache: $CACHE"', XDG_CACHE_HOME="relative"))
    assert code == 0 and f"cache: {machine.home}/.cache/wmlce\n" in out, out + err
    assert not (machine.root / "relative").exists()


def test_a_home_that_nobody_can_write(machine: Machine) -> None:
    error = machine.refuses(HOME="/proc")
    assert "/proc/.cache/wmlce cannot be written" in error and "WMLCE_CACHE=FOLDER" in error


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True, timeout=20)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True, timeout=20)


@needs_root
def test_a_read_only_clone(machine: Machine) -> None:
    with mounted(machine.root / "build", "size=1m,ro"):
        error = machine.refuses()
    assert f"{machine.root}/build cannot be written" in error and "put the clone" in error


@needs_root
def test_a_file_system_that_runs_no_programs(machine: Machine) -> None:
    with mounted(machine.home / ".cache", "size=1m,noexec"):
        error = machine.refuses()
    assert "noexec" in error and "WMLCE_CACHE=FOLDER" in error


def test_no_folder_for_temporary_files(machine: Machine) -> None:
    assert "remedy: name another folder: TMPDIR=FOLDER" in machine.refuses(TMPDIR=str(machine.home / "none"))


@needs_root
def test_a_small_folder_for_temporary_files(machine: Machine) -> None:
    machine.lacks("df")
    machine.link("df")
    with mounted(machine.home / "tmp", "size=2m,noexec") as folder:
        assert "TMPDIR=FOLDER" in machine.refuses(TMPDIR=str(folder))


def test_little_memory(machine: Machine) -> None:
    pages = "case $1 in _PHYS_PAGES) echo {} ;; PAGE_SIZE) echo 4096 ;; *) echo glibc 2.36 ;; esac"
    machine.command("getconf", pages.format(200_000))
    assert "too little memory: 819 MB" in machine.refuses()
    machine.command("getconf", pages.format(1_000_000))
    machine.command("nproc", "echo 64")
    assert asks(machine, "default_jobs") == "2"
    machine.command("nproc", "echo 1")
    assert asks(machine, "default_jobs") == "1"


@pytest.mark.parametrize("code", ["ENOSYS", "EOPNOTSUPP", "ENOLCK"])
def test_a_file_system_without_locks(machine: Machine, tmp_path: Path, code: str) -> None:
    library = library_without_flock(tmp_path / "library", code)
    error = machine.refuses(LD_PRELOAD=str(library))
    assert "tools.lock cannot be locked" in error and "-o flock" in error


def test_certificates_of_other_systems(machine: Machine) -> None:
    """As on RHEL and SLES, whose bundles have other names; and none is needed where nothing is fetched."""
    bundle = machine.home / "bundle.pem"
    machine.packages(f"build  ca-certificates  certificates:{machine.home}/none.crt:{bundle}  certificates")
    machine.lacks("apt-get")
    assert "bundle.pem (certificates)" in machine.refuses()
    other = machine.home / "own.pem"
    other.write_text("a certificate")
    for name in ("SSL_CERT_FILE", "PIP_CERT"):
        machine.ready(**{name: str(other)}, WMLCE_DEBIAN_MIRROR="https://mirror.invalid/debian")
    machine.ready(WMLCE_OFFLINE=str(machine.home))
    bundle.write_text("a certificate")
    machine.ready(WMLCE_DEBIAN_MIRROR="https://mirror.invalid/debian")
    row = next(
        line
        for line in (ROOT / "ci/debian-packages.txt").read_text().splitlines()
        if "certificates:/" in line
    )
    assert all(f":{other.certificates}" in row for other in SYSTEMS.values())


def test_namespaces_are_asked_for_before_anything_is_fetched(machine: Machine) -> None:
    machine.command("bwrap", "echo 'bwrap: No permissions to create new namespace' >&2; exit 1")
    error = machine.refuses()
    assert "No permissions to create new namespace" in error and "user namespaces" in error
    # packages that are there need none, be they built or the channel of another machine
    for there in (machine.home / ".cache/wmlce/packages/finished/powerai", machine.root / "build/channel"):
        there.mkdir(parents=True)
        (there / "channel.json").touch()
        machine.ready()
        (there / "channel.json").unlink()
        there.rmdir()


@pytest.mark.parametrize("locale", [{"LANG": "C"}, {"LC_ALL": "POSIX"}, {"LC_ALL": "de_DE.ISO-8859-1"}])
def test_locales(machine: Machine, locale: dict[str, str]) -> None:
    (machine.root / "ci/wmlce/cli/main.py").write_text("assert open(__file__).read().endswith('ö\\n')\n# ö\n")
    machine.ready(**locale)


def test_pythons_own_variables(machine: Machine) -> None:
    stranger = machine.home / "modules/wmlce/__init__.py"
    stranger.parent.mkdir(parents=True)
    stranger.write_text("raise SystemExit('not this one')")
    machine.ready(PYTHONPATH=str(stranger.parents[1]), PYTHONHOME=str(machine.home))


def test_a_wmlce_of_an_older_version_is_replaced(machine: Machine) -> None:
    machine.ready()
    [wmlce] = machine.root.glob("build/tools-*/bin/wmlce")
    right = wmlce.read_text()
    wmlce.write_text("#!/bin/sh\nexec false\n")
    machine.ready()
    assert wmlce.read_text() == right and os.access(wmlce, os.X_OK)


@pytest.fixture
def with_pip(machine: Machine) -> Machine:
    """Its environments have the pip that comes with Python, and the lock names a wheel."""
    python = '{python} -I -m venv "$4"'
    machine.command(
        "python3.11",
        f'if [ "$1 $2 $3" = "-I -m venv" ]; then exec {python}; fi\nexec {{python}} "$@"'.format(
            python=base_python()
        ),
    )
    shutil.copy(ROOT / "ci/wmlce/sources/own_pip.py", machine.root / "ci/wmlce/sources/own_pip.py")
    for set_name, project in zip(SETS, ("quick", "pages", "checker"), strict=True):
        wheel = make_wheel(machine.home / "wheels", project, "1.0")
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        lock = machine.root / f"ci/{set_name}.lock"
        lock.write_text(f"{project}==1.0 \\\n    --hash=sha256:{digest}\n")
    (machine.root / "ci/wmlce/cli/main.py").write_text("import quick\n")
    return machine


@pytest.mark.parametrize("where", ["variables", "file"])
def test_settings_of_pip(with_pip: Machine, where: str) -> None:
    home = with_pip.home
    found = {"find-links": f"{home}/wheels", "no-index": "true"}
    asked = settings_of_pip(home)
    if where == "variables":
        env = variables_of_pip({**found, **asked})
    else:
        lines = [f"{name} = {value}" for name, value in found.items()]
        lines += ["[install]", *(f"{name} = {value}" for name, value in asked.items())]
        (home / "pip.conf").write_text("\n".join(["[global]", *lines]) + "\n")
        env = {"PIP_CONFIG_FILE": str(home / "pip.conf")}
    tools = with_pip.ready(**env)
    assert list(tools.glob("lib/python3*/site-packages/quick-1.0.dist-info"))
    assert not {"target", "prefix", "root", "report"} & {path.name for path in home.iterdir()}


def test_what_only_tests_need_is_added_for_them(with_pip: Machine) -> None:
    env = {"PIP_FIND_LINKS": f"{with_pip.home}/wheels", "PIP_NO_INDEX": "1"}
    tools = with_pip.ready(**env)
    site = next(tools.glob("lib/python3*/site-packages"))
    assert (site / "quick-1.0.dist-info").is_dir() and not list(site.glob("checker*"))
    assert with_pip.ready("tools docs", **env) == tools
    assert (site / "pages-1.0.dist-info").is_dir() and not list(site.glob("checker*"))
    python = (tools / "bin/python").lstat().st_ino
    # as a run that was killed while it added them leaves it
    (site / "checker-1.0.dist-info").mkdir()
    (site / "checker-1.0.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: checker\nVersion: 1.0\n"
    )
    assert with_pip.ready("build test", **env) == tools
    assert (site / "checker-1.0.dist-info/RECORD").is_file()
    assert (tools / "bin/python").lstat().st_ino == python, "made anew, under those who use it"
    shutil.rmtree(with_pip.home / "wheels")
    assert with_pip.ready("build", **env) == with_pip.ready("build test", **env) == tools


def test_no_index_and_no_folder_of_wheels(with_pip: Machine) -> None:
    code, _, err = with_pip.end(with_pip.start(PIP_NO_INDEX="1", PIP_CONFIG_FILE="/dev/null"))
    assert code == 1 and "name a folder of wheels (PIP_FIND_LINKS)" in err, err


@contextlib.contextmanager
def index_with_own_certificate(folder: Path, files: Path) -> Iterator[str]:
    """The address of a web server that nobody trusts."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with; Debian: apt-get install openssl")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1"]
    subprocess.run([*words, "-keyout", key, "-out", certificate], check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with Files(files).served(context) as server:
        yield server.url


@pytest.mark.parametrize(
    ("trouble", "remedy"),
    [
        ("unreachable", "see the network, the proxy (HTTPS_PROXY), and the index in the settings of pip"),
        ("proxy", "see the proxy: HTTPS_PROXY"),
        ("certificate", "name the file that has your site's certificates, PIP_CERT=FILE"),
        ("another file", "the index has another file than the one that is locked"),
        ("missing", "pip's index lacks it, or did not answer (python3 -m pip config list): name another one"),
    ],
)
def test_what_an_index_cannot_do_has_its_remedy(
    with_pip: Machine, tmp_path: Path, trouble: str, remedy: str
) -> None:
    wheels = with_pip.home / "wheels"
    env = {"PIP_CONFIG_FILE": "/dev/null", "PIP_RETRIES": "1"}
    if trouble in ("another file", "missing"):
        project = "quick" if trouble == "another file" else "slow"
        (with_pip.root / "ci/requirements.lock").write_text(f"{project}==1.0 --hash=sha256:{'0' * 64}\n")
        env |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    with socket.socket() as nobody, contextlib.ExitStack() as stack:
        nobody.bind(("127.0.0.1", 0))  # nobody listens there
        if trouble in ("unreachable", "proxy"):
            closed = f"127.0.0.1:{nobody.getsockname()[1]}"
            env |= {"PIP_INDEX_URL": f"http://{closed}/simple"}
            env |= {"PIP_PROXY": f"http://{closed}"} if trouble == "proxy" else {}
        if trouble == "certificate":
            env |= {"PIP_INDEX_URL": stack.enter_context(index_with_own_certificate(tmp_path, wheels))}
        code, _, err = with_pip.end(with_pip.start(**env))
    assert code == 1 and f"remedy: {remedy}" in err, err
    assert err.endswith("run the same command again: it goes on where it was\n")


def test_tools_that_cannot_be_imported_are_not_whole(machine: Machine) -> None:
    (machine.root / "ci/wmlce/cli/main.py").write_text("import not_installed_anywhere\n")
    code, _, err = machine.end(machine.start())
    assert code == 1 and "not_installed_anywhere" in err and "trying the tools: exit code 1" in err
    assert not list(machine.root.glob("build/tools-*/.complete"))
    (machine.root / "ci/wmlce/cli/main.py").write_text("")
    machine.ready()
