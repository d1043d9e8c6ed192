"""The single-file installer: it works on systems that have nothing, says why where it cannot, and leaves a whole
environment or nothing.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from bare_roots import RELEASES, BareSystem, bare_system
from images import CROWDED
from scratch_clone import Clone
from tree import ROOT
from wmlce.channel import published
from wmlce.envs import environments

CHANNEL = ROOT / "build/channel"
SCRATCH = ".ibm-wml-ce-installer"
#: What of the system's own the tests stand in for; the rest is this machine's.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SUM = "import ddl, numpy as np; x = np.full(3, ddl.rank() + 1.0, 'f'); print(ddl.allreduce(x))"
Result = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Installer:
    """A single-file installer on this machine."""

    file: Path

    @property
    def record(self) -> dict[str, object]:
        record: dict[str, object] = json.loads(self.file.with_name(f"{self.file.name}.json").read_text())
        return record

    def command(self, *words: object, interpreter: str = "sh", file: Path | None = None) -> list[str]:
        return [interpreter, str(file or self.file), *map(str, words)]

    def start(self, *words: object, interpreter: str = "sh", path: str = PATH) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*words, interpreter=interpreter),
            env=variables(path),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Tests in the background of a shell are deaf to this signal, and so would be the command.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def __call__(
        self,
        *words: object,
        interpreter: str = "sh",
        file: Path | None = None,
        cwd: Path | None = None,
        path: str = PATH,
        **more: str,
    ) -> Result:
        return subprocess.run(
            self.command(*words, interpreter=interpreter, file=file),
            env={**variables(path), **more},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )


def variables(path: str = PATH) -> dict[str, str]:
    return {"PATH": path, "HOME": "/nonexistent", "LANG": "C.UTF-8", **CROWDED}


def build(name: str, *specs: str) -> Installer:
    if not (CHANNEL / "channel.json").is_file():
        pytest.skip(f"no channel in {CHANNEL}: wmlce channel build")
    output = ROOT / "build/installers" / name
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "wmlce",
            "--root",
            str(ROOT),
            "installer",
            "build",
            *specs,
            "--output",
            str(output),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Installer(output)


@pytest.fixture(scope="session")
def small() -> Installer:
    """DDL with what it needs, and a package for any Python with a program."""
    return build("test-small.sh", "ddl", "numpy", "wheel")


@pytest.fixture(scope="session")
def tiny() -> Installer:
    """Two packages without programs: most of it is the installer itself."""
    return build("test-tiny.sh", "libzlib")


@pytest.fixture(scope="module")
def installed(small: Installer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment, on this machine."""
    prefix = tmp_path_factory.mktemp("installed") / "env"
    done = small("--batch", "--prefix", prefix)
    assert done.returncode == 0, done.stdout + done.stderr
    return prefix


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# -- on systems that have nothing ------------------------------------------------------------------------------


@pytest.mark.parametrize("release", RELEASES)
def test_it_installs_on_a_bare_system_without_a_network(
    small: Installer, release: str, tmp_path: Path
) -> None:
    system = bare_system(release, tmp_path / "home")
    shutil.copy(small.file, system.home / "installer.sh")
    done = system.run("sh", "installer.sh", "--batch")
    assert done.returncode == 0, done.stdout + done.stderr
    assert names(system.home) == {"installer.sh", "ibm-wml-ce"}  # nothing but what was asked for
    version = (ROOT / "VERSION").read_text().strip()
    assert f"/home/user/ibm-wml-ce/{version}/bin/ddlrun -np 2" in done.stdout
    prefix = Path("/home/user/ibm-wml-ce") / version
    summed = system.run(prefix / "bin/ddlrun", "-np", "2", "-timeout", "100", "python", "-c", SUM)
    assert summed.returncode == 0 and summed.stdout == "[3. 3. 3.]\n" * 2, summed.stdout + summed.stderr
    # as the last lines say, in the system's own shell
    used = system.run(
        "sh", "-euc", f". {prefix}/bin/activate; command -v ddlrun; deactivate; ! command -v ddlrun"
    )
    assert used.returncode == 0 and used.stdout == f"{prefix}/bin/ddlrun\n", used.stderr


@pytest.mark.long
@pytest.mark.parametrize("release", RELEASES)
def test_the_whole_distribution_trains_on_a_bare_system(release: str, tmp_path: Path) -> None:
    whole = build("test-whole.sh")
    system = bare_system(release, tmp_path / "home")
    os.link(whole.file, system.home / "installer.sh")
    done = system.run("sh", "installer.sh", "--batch", "--prefix", "env", limit=900)
    assert done.returncode == 0, done.stdout + done.stderr
    print(re.findall(r"packages in .*", done.stdout))
    shutil.copytree(ROOT / "ddl-core/examples", system.home / "examples")
    for script, words in (
        ("tensorflow/keras_digits.py", ["--epochs", "3", "--rate", "0.01"]),
        ("pytorch/digits.py", []),
    ):
        run = ["env/bin/ddlrun", "-np", "2", "-timeout", "250", "python", f"examples/{script}", *words]
        trained = system.run(*run, limit=300)
        assert trained.returncode == 0, trained.stdout + trained.stderr
        assert "ranks 2" in trained.stdout, trained.stdout
    shutil.rmtree(system.home)


def test_too_little_space_is_told_before_anything_is_written(tiny: Installer, tmp_path: Path) -> None:
    system = bare_system("bookworm", tmp_path / "home")
    shutil.copy(tiny.file, system.home / "installer.sh")
    done = system.run(
        "sh", "-c", "sh installer.sh -b -p /mnt/env; code=$?; ls -A /mnt; exit $code", small="20m"
    )
    assert done.returncode == 1 and done.stdout == "", done.stdout
    assert "/mnt/env has 20 MiB of free space, and the installation needs" in done.stderr
    assert "choose a folder on another file system" in done.stderr


def test_space_that_runs_out_on_the_way(tiny: Installer, tmp_path: Path) -> None:
    """Somebody else writes into the same file system."""
    system = bare_system("bookworm", tmp_path / "home")
    shutil.copy(tiny.file, system.home / "installer.sh")
    script = """
mkdir bin
printf '#!/bin/sh\\necho\\necho x 1 1 99999999 1%% /\\n' >bin/df
chmod +x bin/df
PATH=$HOME/bin:$PATH sh installer.sh -b -p /mnt/a/env; code=$?
ls -A /mnt
exit $code
"""
    done = system.run("sh", "-c", script, small="100m")
    assert done.returncode == 1 and "No space left" in done.stderr, done.stderr
    assert done.stdout.splitlines()[-1].startswith("unpacking"), done.stdout  # and /mnt is empty


def test_a_file_system_that_runs_no_programs(tiny: Installer, tmp_path: Path) -> None:
    system = bare_system("bookworm", tmp_path / "home")
    shutil.copy(tiny.file, system.home / "installer.sh")
    words = system.command(
        "sh", "-c", "sh installer.sh -b -p /mnt/env; code=$?; ls -A /mnt; exit $code", small="900m"
    )
    words = [word.replace("mode=1777,size", "noexec,mode=1777,size") for word in words]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode == 1 and "'noexec'" in done.stderr, done.stderr
    assert done.stdout.splitlines()[-1].startswith("unpacking"), done.stdout


# -- the environment -------------------------------------------------------------------------------------------


def test_it_is_an_environment_of_conda(small: Installer, installed: Path) -> None:
    assert not (installed / SCRATCH).exists()
    meta = {record["name"]: record for record in map(_read, (installed / "conda-meta").glob("*.json"))}
    listed = {package["name"]: package for package in small.record["packages"]}  # type: ignore[attr-defined]
    assert {name: record["sha256"] for name, record in meta.items()} == {
        name: package["sha256"] for name, package in listed.items()
    }
    assert meta["ddl"]["url"] == f"https://ibm-wml-ce.invalid/linux-64/{listed['ddl']['file']}"
    assert meta["ddl"]["requested_specs"] == ["ddl"] and not meta["python"].get("requested_specs")
    assert '# update specs: ["ddl", "numpy", "wheel"]' in (installed / "conda-meta/history").read_text()
    assert SCRATCH not in "".join(json.dumps(record) for record in meta.values())
    # packages for any Python: programs, and compiled modules for those who cannot write here
    assert subprocess.run([installed / "bin/wheel", "version"], timeout=60).returncode == 0
    site = installed / "lib/python3.11/site-packages/wheel"
    assert len(list(site.glob("__pycache__/*.pyc"))) == len(list(site.glob("*.py"))) > 0
    # files are the environment's own: none has a second name in a cache
    assert all(path.stat().st_nlink == 1 for path in (installed / "bin").iterdir() if not path.is_symlink())


def _read(path: Path) -> dict[str, object]:
    record: dict[str, object] = json.loads(path.read_text())
    return record


def test_packages_can_be_added_and_it_can_be_cloned(clone: Clone, installed: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    clone.ok("env", "clone", str(installed), str(copy))
    assert f"{copy}" in (copy / "bin/activate").read_text()
    # what `conda install -p` does: solve with what is there, and install what is missing
    from rattler import Channel, Gateway, MatchSpec, PrefixRecord, VirtualPackage, VirtualPackageOverrides
    from rattler import install, solve

    async def add() -> None:
        there = [PrefixRecord.from_path(path) for path in sorted((copy / "conda-meta").glob("*.json"))]
        records = await solve(
            sources=[Channel(CHANNEL.as_uri())],
            specs=[MatchSpec("packaging"), *(MatchSpec(s) for r in there for s in r.requested_specs)],
            gateway=Gateway(),
            platforms=["linux-64", "noarch"],
            locked_packages=there,
            virtual_packages=VirtualPackage.detect(VirtualPackageOverrides.from_env()),
        )
        await install(records, target_prefix=copy, cache_dir=tmp_path / "pkgs", show_progress=False)

    asyncio.run(add())
    program = "import packaging, sys, ddl; print(sys.prefix)"
    asked = subprocess.run([copy / "bin/python", "-c", program], capture_output=True, text=True, timeout=60)
    assert asked.stdout == f"{copy}\n", asked.stderr
    run = [copy / "bin/ddlrun", "-np", "2", "-timeout", "100", "python", "-c", SUM]
    summed = subprocess.run(run, env=variables(), capture_output=True, text=True, timeout=120)
    assert summed.stdout == "[3. 3. 3.]\n" * 2, summed.stderr


@pytest.mark.parametrize("shell", ["dash", "bash", "zsh"])
def test_activation_is_undone(installed: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is missing: apt-get install {shell}")
    for kind in ("activate.d", "deactivate.d"):
        folder = installed / "etc/conda" / kind
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "test.sh").write_text(f'TEST_OF_ACTIVATION="{kind} $CONDA_PREFIX"\n')
    script = f"""
set -eu
PS1='> '
CONDA_PREFIX=/opt/other
set >"$HOME/before"
. {installed}/bin/activate
. {installed}/bin/activate
printf '%s\\n' "$CONDA_PREFIX $CONDA_SHLVL $PS1$TEST_OF_ACTIVATION"
command -v ddlrun
deactivate
printf '%s\\n' "$PATH $CONDA_PREFIX ${{CONDA_SHLVL-unset}} $PS1$TEST_OF_ACTIVATION"
unset TEST_OF_ACTIVATION
set >"$HOME/after"
"""
    home = installed.parent / shell
    home.mkdir()
    try:
        done = subprocess.run(
            [shell, "-c", script],
            env={"PATH": PATH, "HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        shutil.rmtree(installed / "etc/conda/deactivate.d")
        (installed / "etc/conda/activate.d/test.sh").unlink()
    assert done.returncode == 0, done.stderr
    version = (ROOT / "VERSION").read_text().strip()
    assert done.stdout.splitlines() == [
        f"{installed} 1 (ibm-wml-ce {version}) > activate.d {installed}",
        f"{installed}/bin/ddlrun",
        f"{PATH} /opt/other unset > deactivate.d {installed}",
    ]
    left = set((home / "after").read_text().splitlines()) - set((home / "before").read_text().splitlines())
    assert not [line for line in left if "wmlce" in line.lower() or "CONDA" in line], left


def test_a_prefix_of_the_greatest_length(small: Installer, tmp_path: Path) -> None:
    limit = int(str(small.record["prefix_limit"]))
    room = limit - len(str(tmp_path)) - 1
    prefix = (
        tmp_path / "x" * (room // 2) / ("y" * (room - room // 2 - 1))
        if room > 200
        else tmp_path / ("x" * room)
    )
    assert len(str(prefix)) == limit
    done = small("-b", "-p", f"{prefix}z")
    assert done.returncode == 1 and f"has {limit + 1} bytes, and programs in the packages" in done.stderr
    done = small("-b", "-p", prefix)
    assert done.returncode == 0, done.stdout + done.stderr
    run = [prefix / "bin/ddlrun", "-np", "2", "-timeout", "100", "python", "-c", SUM]
    summed = subprocess.run(run, env=variables(), capture_output=True, text=True, timeout=120)
    assert summed.stdout == "[3. 3. 3.]\n" * 2, summed.stderr


# -- what is refused -------------------------------------------------------------------------------------------


def damage_content(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.seek(file.stat().st_size // 2)
        byte = stream.read(1)
        stream.seek(-1, os.SEEK_CUR)
        stream.write(bytes([byte[0] ^ 1]))


def damage_text(file: Path) -> None:
    """A message of the script: everything else would work."""
    with file.open("r+b") as stream:
        start = stream.read(20000)
        stream.seek(start.index(b"unpacking the installer's own Python"))
        stream.write(b"U")


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1)


def cut_between_functions(file: Path) -> None:
    with file.open("rb") as stream:
        text = stream.read(20000)
    os.truncate(file, text.index(b"\nmain() {"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_content, "is damaged: its sha256 is"),
        (damage_text, "is damaged: its sha256 is"),
        (cut, "the copy is not complete"),
        (cut_between_functions, "yntax error"),
    ],
)
@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_a_damaged_file_installs_nothing(
    tiny: Installer, tmp_path: Path, shell: str, damage: Callable[[Path], None], message: str
) -> None:
    file = Path(shutil.copy(tiny.file, tmp_path / "installer.sh"))
    damage(file)
    done = tiny("-b", "-p", tmp_path / "new/env", file=file, interpreter=shell)
    assert done.returncode != 0 and message in done.stderr, done.stderr
    assert names(tmp_path) == {"installer.sh"}


def stand_in(folder: Path, name: str, script: str) -> str:
    """A PATH on which a program of the system is another."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return f"{folder}:{PATH}"


def test_another_system(tiny: Installer, tmp_path: Path) -> None:
    prefix, programs = tmp_path / "env", tmp_path / "programs"
    floor = str(tiny.record["glibc"])
    old = tiny("-b", "-p", prefix, path=stand_in(programs, "getconf", "echo glibc 2.9"))
    assert old.returncode == 1
    assert f"this system has glibc 2.9, and ibm-wml-ce 2.0.0 needs {floor} or newer" in old.stderr
    # where there is no getconf, ldd tells
    stand_in(programs, "getconf", "exit 127")
    old = tiny("-b", "-p", prefix, path=stand_in(programs, "ldd", "echo 'ldd (GNU libc) 2.17'"))
    assert old.returncode == 1 and "this system has glibc 2.17," in old.stderr
    other = tiny("-b", "-p", prefix, path=stand_in(programs, "ldd", "echo 'musl libc (x86_64)' >&2; exit 1"))
    assert other.returncode == 1 and "is not glibc" in other.stderr
    (programs / "getconf").unlink()
    machine = 'case $1 in -m) echo aarch64 ;; *) exec /usr/bin/uname "$@" ;; esac'
    arm = tiny("-b", "-p", prefix, path=stand_in(programs, "uname", machine))
    assert arm.returncode == 1 and "this is Linux on aarch64" in arm.stderr
    (programs / "uname").unlink()
    lacking = "/".join([str(programs)])
    for name in (
        "cat",
        "date",
        "df",
        "env",
        "grep",
        "head",
        "ls",
        "mkdir",
        "rm",
        "rmdir",
        "sha256sum",
        "tail",
        "tar",
    ):
        (programs / name).symlink_to(shutil.which(name, path=PATH) or "/nowhere")
    bare = tiny("-b", "-p", prefix, path=lacking, interpreter="/bin/sh")
    assert bare.returncode == 1 and "this system has no program gzip" in bare.stderr
    assert names(tmp_path) == {"programs"}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--batch", "--prefix", "a b"], 1, "has a blank in its path"),
        (["--batch", "--prefix", "a\tb"], 1, "has a blank in its path"),
        (["--batch", "--prefix=a\nb"], 1, "has a blank in its path"),
        (["--batch", "--prefix", "a;b"], 1, "a character in its path"),
        (["--batch", "--prefix", "$(touch hacked)x'`"], 1, "has a blank in its path"),
        (["--batch", "--prefix", "~nobody/x"], 1, "write the whole path"),
        (["--batch", "--prefix", "full"], 1, "is not empty"),
        (["--batch", "--prefix", "full/../full/."], 1, "is not empty"),
        (["--batch", "--prefix", "file"], 1, "is there already and is no folder"),
        (["--batch", "--prefix", "file/env"], 1, "is no folder that you may write into"),
        (["--batch", "--prefix", "broken"], 1, "is there already and is no folder"),
        (["--batch", "--prefix", "busy"], 1, "another installer (process 1 on"),
        (["--batch", "--prefix", "/proc/env"], 1, "/proc/env cannot be made"),
        (["--batch", "--prefix", "/"], 1, "is not empty"),
        (["--batch", "--prefix", ""], 2, "--prefix needs a folder"),
        (["--batch", "--prefix"], 2, "--prefix needs a folder"),
        (["--batch", "extra"], 2, "unknown option extra"),
        (["--prefix", "new"], 2, "no terminal to ask on: add --batch"),
    ],
)
def test_wishes_that_cannot_be_fulfilled(
    tiny: Installer, tmp_path: Path, words: list[str], code: int, message: str
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").touch()
    (tmp_path / "file").touch()
    (tmp_path / "broken").symlink_to("nowhere")
    (tmp_path / f"busy/{SCRATCH}").mkdir(parents=True)
    (tmp_path / f"busy/{SCRATCH}/owner").write_text(f"{os.uname().nodename} 1\n")
    before = sorted(tmp_path.rglob("*"))
    done = tiny(*words, cwd=tmp_path)
    assert done.returncode == code, done.stdout + done.stderr
    assert message in done.stderr and done.stderr.count("error: ") == 1, done.stderr
    assert "remedy: " in done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_help_and_list_install_nothing(small: Installer, tmp_path: Path) -> None:
    helped = small("--help", cwd=tmp_path)
    assert helped.returncode == 0 and helped.stdout.startswith("usage: sh test-small.sh [--batch]")
    listed = small("--list", cwd=tmp_path)
    assert re.search(r"^ddl +2\.0\.0 +\w+ +[0-9.]+  Apache-2\.0 AND MIT$", listed.stdout, re.MULTILINE)
    assert len(listed.stdout.splitlines()) == 1 + len(list(small.record["packages"]))  # type: ignore[call-overload]
    assert names(tmp_path) == set()
    # not as a file, but read from standard input
    with small.file.open() as stream:
        piped = subprocess.run(
            ["sh", "-s", "--", "-b", "-p", tmp_path / "env"], stdin=stream, capture_output=True
        )
    assert piped.returncode == 1 and b"does not say which file it runs" in piped.stderr


# -- where it is installed -------------------------------------------------------------------------------------


def test_an_empty_folder_and_a_folder_of_home(tiny: Installer, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = tiny("-b", "-p", "empty/.//x/..", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "empty/lib/libz.so.1").exists() and not (tmp_path / "empty" / SCRATCH).exists()
    done = tiny("-b", "--prefix=~/of-home", HOME=str(tmp_path))
    assert done.returncode == 0 and (tmp_path / "of-home/conda-meta").is_dir(), done.stderr
    done = tiny("-b", HOME="")
    assert done.returncode == 2 and "HOME is not set" in done.stderr


def test_two_at_once(tiny: Installer, tmp_path: Path) -> None:
    apart = [tiny.start("-b", "-p", tmp_path / f"env{number}") for number in range(2)]
    for process in apart:
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 0, out
    same = [tiny.start("-b", "-p", tmp_path / "same") for _ in range(2)]
    said = [process.communicate(timeout=300)[0] for process in same]
    # the second one is refused, and does no harm to what the first one makes
    assert sorted(process.returncode for process in same) == [0, 1], said
    for name in ("env0", "env1", "same"):
        assert (tmp_path / name / "lib/libz.so.1").exists()
        assert not (tmp_path / name / SCRATCH).exists()


# -- interrupted -----------------------------------------------------------------------------------------------


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    limit = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None and time.monotonic() < limit, process.communicate()
        time.sleep(0.005)


def at_work_in(folder: Path) -> list[int]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if process.pid != os.getpid() and any(str(folder) in word for word in process.info["cmdline"] or []):
            found.append(process.pid)
    return found


@pytest.mark.parametrize("moment", ["bootstrap", "bootstrap/channel/linux-64", "environment/bin"])
@pytest.mark.parametrize(
    ("number", "shell"), [(signal.SIGTERM, "dash"), (signal.SIGTERM, "bash"), (signal.SIGINT, "dash")]
)
def test_a_stopped_installation_leaves_what_was_there(
    small: Installer, tmp_path: Path, moment: str, number: signal.Signals, shell: str
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/empty").mkdir()
    (tmp_path / "mine/file").touch()
    for prefix in (tmp_path / "mine/new/deep/env", tmp_path / "mine/empty"):
        process = small.start("-b", "-p", prefix, interpreter=shell)
        try:
            wait_for(prefix / SCRATCH / moment, process)
            process.send_signal(number)
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode == 128 + number, out
        assert "stopped: removing" in out and "error" not in out
        assert names(tmp_path / "mine") == {"empty", "file"} and names(tmp_path / "mine/empty") == set()
        assert not at_work_in(prefix)


def test_a_killed_installation_is_made_anew(small: Installer, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    process = small.start("-b", "-p", prefix)
    wait_for(prefix / SCRATCH / "environment/bin", process)
    # while it is at work nobody else may touch it
    other = small("-b", "-p", prefix)
    assert other.returncode == 1 and f"another installer (process {process.pid} on" in other.stderr
    process.kill()
    process.wait(timeout=30)
    limit = time.monotonic() + 30
    while at_work_in(prefix):  # the kernel ends the rest of it
        assert time.monotonic() < limit
        time.sleep(0.05)
    assert not (prefix / "conda-meta").exists()  # no half of an environment that looks like one
    again = small("-b", "-p", prefix)
    assert again.returncode == 0 and "removing what a killed installer left" in again.stdout, again.stderr
    assert (prefix / "bin/ddlrun").exists() and not (prefix / SCRATCH).exists()


# -- asked on a terminal ---------------------------------------------------------------------------------------


@dataclass
class Terminal:
    """A process on a terminal of its own."""

    process: subprocess.Popen[bytes]
    master: int
    said: str = ""

    def until(self, text: str) -> str:
        """What it says up to this text."""
        limit = time.monotonic() + 120
        while text not in self.said:
            assert time.monotonic() < limit, self.said
            if select.select([self.master], [], [], 1)[0]:
                self.said += self._read()
        before, _, self.said = self.said.partition(text)
        return before

    def _read(self) -> str:
        try:
            return os.read(self.master, 4096).decode()
        except OSError as error:
            assert error.errno == errno.EIO
            raise AssertionError(f"it ended: {self.said}") from error

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())


@pytest.fixture
def terminal(tiny: Installer, tmp_path: Path) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        tiny.command(),
        env={**variables(), "HOME": str(tmp_path)},
        cwd=tmp_path,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),  # makes it the controlling terminal
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait(timeout=30)
        os.close(master)


def test_questions_on_a_terminal(terminal: Terminal, tmp_path: Path) -> None:
    before = terminal.until(f"Folder to install into [{tmp_path}/ibm-wml-ce/2.0.0]: ")
    assert "MiB of disk space" in before and "every package its own: see --list" in before
    terminal.type("a b\n")
    assert "has a blank in its path" in terminal.until("Folder to install into")
    terminal.type("~/here\n")
    assert f"ibm-wml-ce 2.0.0 is in {tmp_path}/here: " in terminal.until("Remove it:")
    assert terminal.process.wait(timeout=30) == 0
    assert (tmp_path / "here/lib/libz.so.1").exists()


def test_ctrl_c_on_a_terminal(terminal: Terminal, tmp_path: Path) -> None:
    terminal.until("Folder to install into")
    terminal.type("\n")
    terminal.until("unpacking the installer's own Python")
    terminal.type("\x03")
    terminal.until("stopped: removing what was installed so far")
    assert terminal.process.wait(timeout=30) == 130
    assert names(tmp_path) == set()


# -- making it -------------------------------------------------------------------------------------------------


def test_the_same_packages_give_the_same_file(clone: Clone, tiny: Installer, tmp_path: Path) -> None:
    command = ["installer", "build", "libzlib", "--from", str(CHANNEL)]
    clone.write("VERSION", (ROOT / "VERSION").read_text())
    first = clone.ok(*command)
    file = clone.root / "build/installers/ibm-wml-ce-2.0.0-linux-64.sh"
    assert first["built"] and first["installer"] == str(file) and os.access(file, os.X_OK)
    assert first["sha256"] == tiny.record["sha256"]
    assert str(clone.root).encode() not in file.read_bytes()
    inode = file.stat().st_ino
    assert not clone.ok(*command)["built"] and file.stat().st_ino == inode
    other = clone.ok(*command, "--channel", "file:///sw/channel/")
    assert other["built"] and other["sha256"] != first["sha256"]
    prefix = tmp_path / "env"
    done = subprocess.run(
        ["sh", file, "-b", "-p", prefix], env=variables(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    records = [_read(path) for path in (prefix / "conda-meta").glob("*.json")]
    assert {record["channel"] for record in records} == {"file:///sw/channel"}
    assert names(file.parent) == {file.name, f"{file.name}.json"}


def test_a_package_that_is_not_the_indexed_one(clone: Clone, tmp_path: Path) -> None:
    channel = tmp_path / "channel"
    records = environments.solve_channel(CHANNEL, ["python", "libzlib"])
    for record in records:
        (channel / record.subdir).mkdir(parents=True, exist_ok=True)
        os.link(CHANNEL / record.subdir / record.file_name, channel / record.subdir / record.file_name)
    published.index(channel)
    (zlib,) = channel.glob("linux-64/libzlib-*.conda")
    content = bytearray(zlib.read_bytes())
    content[-30] ^= 1
    zlib.unlink()
    zlib.write_bytes(content)
    error = clone.fails("installer", "build", "libzlib", "--from", str(channel))
    assert "libzlib" in error
    assert not list((clone.root / "build/installers").iterdir())


def test_channels_that_an_installer_cannot_be_made_of(clone: Clone, tmp_path: Path) -> None:
    assert "wmlce channel build" in clone.fails("installer", "build")
    assert "is no channel" in clone.fails("installer", "build", "--from", str(tmp_path))
    clone.recipe("a")
    clone.built()
    # without Python in the channel there is nothing to install with
    assert "cannot give an environment with: python" in clone.fails("installer", "build", "a")
    assert "cannot give an environment with: b" in clone.fails("installer", "build", "b")
    assert "is a folder" in clone.fails("installer", "build", "a", "--output", str(tmp_path))
    bad = clone.fails("installer", "build", "a", "--channel", "a b")
    assert "is no address of a channel" in bad


@pytest.mark.parametrize("script", ["installer.sh", "activate.sh"])
def test_shellcheck(script: str) -> None:
    beside = Path(sys.executable).parent / "shellcheck"
    program = str(beside) if beside.exists() else shutil.which("shellcheck")
    if program is None:
        pytest.fail("shellcheck is not in the tool environment: ci/requirements.lock must hold it")
    file = ROOT / "ci/wmlce/installer" / script
    done = subprocess.run([program, str(file)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
