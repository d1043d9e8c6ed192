"""The single-file installer says no before it writes anything, in words that help."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from bare_roots import bare_system
from installers import PATH, SCRATCH, Installer, names


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
        *[(["--batch", "--prefix", f"a{one}b"], 1, "a character in its path") for one in "&(|<>[{!^="],
        (["--batch", "--prefix", "~nobody/x"], 1, "write the whole path"),
        (["--batch", "--prefix", "full"], 1, "is not empty"),
        (["--batch", "--prefix", "full/../full/."], 1, "is not empty"),
        (["--batch", "--prefix", "file"], 1, "exists and is not a folder"),
        (["--batch", "--prefix", "file/env"], 1, "is not a folder that you can write to"),
        (["--batch", "--prefix", "broken"], 1, "exists and is not a folder"),
        (["--batch", "--prefix", "busy"], 1, "another installer (process 1 on"),
        (["--batch", "--prefix", "/proc/env"], 1, "/proc/env cannot be made"),
        (["--batch", "--prefix", "/"], 1, "is not empty" if os.geteuid() == 0 else "may not write into /"),
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


def test_help_and_list_install_nothing(small: Installer, tmp_path: Path) -> None:
    helped = small("--help", cwd=tmp_path)
    assert helped.returncode == 0 and helped.stdout.startswith("usage: sh test-small.sh [--batch]")
    listed = small("--list", cwd=tmp_path)
    assert re.search(r"^ddl +2\.0\.0 +\w+ +[0-9.]+  Apache-2\.0 AND MIT$", listed.stdout, re.MULTILINE)
    assert len(listed.stdout.splitlines()) == 1 + len(list(small.record["packages"]))
    assert names(tmp_path) == set()
    # not as a file, but read from standard input
    with small.file.open() as stream:
        piped = subprocess.run(
            ["sh", "-s", "--", "-b", "-p", tmp_path / "env"], stdin=stream, capture_output=True
        )
    assert piped.returncode == 1 and b"does not say which file it runs" in piped.stderr
