"""What ci/quickstart and ci/test do before wmlce can run: on unfit machines one message that says what to do,
and tool environments that are whole however often a run is stopped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from bootstrap_machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_apt_programs_and_ways_out_are_named(machine: Machine) -> None:
    machine.lacks("apt-get", "apt-cache", "bwrap")
    error = machine.refuses()
    assert "no apt-get" in error and "bwrap (shuts builds in)" in error and "git (" not in error
    assert "installer" in error and "glibc 2.28" in error


@pytest.mark.parametrize(
    ("lines", "command"),
    [
        ('ID="rhel"\nID_LIKE="fedora"', "dnf install git python3.12 ca-certificates"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"', "dnf install git python3.12 ca-certificates"),
        ("ID=fedora", "dnf install git python3 ca-certificates"),
        ('ID="sles"\nID_LIKE="suse"', "zypper install git python311 ca-certificates"),
        ("ID=arch", "pacman -S --needed git python ca-certificates"),
        ("ID=other\nID_LIKE='$(touch /pwned)'", "install these by the system's own means. Or"),
    ],
)
def test_the_systems_own_command_is_named(machine: Machine, lines: str, command: str) -> None:
    machine.os_release.write_text(lines + "\n")
    machine.packages(
        *(
            f"build  {name}  cmd:no-{name}  what"
            for name in ("git", "python3", "python3-venv", "ca-certificates")
        )
    )
    machine.lacks("apt-get", "apt-cache")
    assert f"remedy: sudo {command}. Or" in (error := machine.refuses()) or f"remedy: {command}" in error, (
        error
    )
    # what tests need has other names there
    machine.packages("build  chromium  cmd:chromium  pages")
    assert "install these by the system's own means" in machine.refuses()


def test_without_apt_a_mirror_is_asked_for_before_anything_is_fetched(machine: Machine) -> None:
    machine.lacks("apt-get", "apt-cache")
    error = machine.refuses()
    assert "no mirror of Debian is named" in error and "WMLCE_DEBIAN_MIRROR=URL" in error
    for name in ("WMLCE_DEBIAN_MIRROR", "WMLCE_SOURCES"):
        machine.ready(**{name: "/somewhere"})


def test_where_nothing_is_built_nothing_is_asked_for_that_builds_need(machine: Machine) -> None:
    """As the page of a release says it: the tools alone, which install what others have built."""
    machine.lacks("git", "bwrap", "apt-get", "apt-cache")
    machine.command("df", "echo Avail; echo 2500")
    code, out, err = machine.end(machine.start("tools"))
    assert code == 0 and "tools: " in out, out + err


def test_without_apt_but_with_all_packages_it_goes_on(machine: Machine) -> None:
    """An apt-get of rpm packages, as ALT Linux has it, is no apt."""
    machine.lacks("apt-cache", "dpkg")
    (machine.home / ".cache/wmlce/packages/finished/powerai").mkdir(parents=True)
    machine.ready()


def test_an_ordinary_user_is_told_what_root_has_to_install(machine: Machine) -> None:
    machine.lacks("bwrap", "git")
    machine.command("id", "echo 1000")
    error = machine.refuses()
    assert "this machine lacks: git bubblewrap\n" in error
    assert "remedy: sudo apt-get install --no-install-recommends git bubblewrap\n" in error


def test_root_installs_what_is_missing(machine: Machine) -> None:
    machine.lacks("bwrap")
    machine.packages(
        "build  bubblewrap  cmd:bwrap  x", "test  bubblewrap  cmd:bwrap  x", "test  zsh  cmd:zsh  x"
    )
    machine.command("dpkg", "exit 0")
    code, out, err = machine.end(machine.start("build test"))
    assert code == 0, out + err
    [line] = machine.installed()
    assert line.endswith("install -y -q --no-install-recommends bubblewrap zsh")


def test_an_interrupted_installation_is_finished_first(machine: Machine) -> None:
    machine.lacks("bwrap")
    done = machine.home / "configured"
    machine.command("dpkg", f'[ "$1" = --audit ] && echo "half installed" || touch {done}')
    machine.ready()
    assert done.exists()


def test_package_lists_that_another_apt_holds_are_waited_for(machine: Machine) -> None:
    machine.lacks("bwrap")
    machine.command("dpkg", "exit 0")
    held = machine.home / "held"
    held.touch()
    machine.command(
        "apt-get",
        f'echo "$@" >>{machine.calls}\n'
        f"if [ -e {held} ]; then rm {held}; [ $LC_ALL = C ] || exit 100\n"
        "echo 'E: Could not get lock /var/lib/apt/lists'; exit 100; fi",
    )
    machine.ready(LC_ALL="de_DE.UTF-8")
    assert machine.calls.read_text().splitlines()[:2] == ["update -q", "update -q"]


@pytest.mark.parametrize("version", [(3, 9), (3, 10)])
def test_too_old_a_python(machine: Machine, version: tuple[int, int]) -> None:
    machine.lacks("python3.11")
    number = ".".join(map(str, version))
    machine.command("python3", f'case "$*" in *--version*) echo "Python {number}.2" ;; *) exit 1 ;; esac')
    error = machine.refuses()
    assert f"found: Python {number}.2" in error and "3.11" in error and "Debian 12" in error


def test_no_python_at_all(machine: Machine) -> None:
    machine.lacks("python3.11")
    assert "there is no python3 at all" in machine.refuses()


@pytest.mark.parametrize("user", [0, 1000])
@pytest.mark.parametrize("offered", ["3.9.2-3", "3.10.6-1~22.04"])
def test_a_distribution_whose_python_is_too_old_is_told_before_installing(
    machine: Machine, user: int, offered: str
) -> None:
    machine.lacks("python3.11")
    machine.packages("build  python3  cmd:python3  runs wmlce", "build  python3-venv  py:ensurepip  tools")
    machine.command("id", f"echo {user}")
    others = 'python3.11-venv) echo "  Candidate: (none)" ;;'
    script = f'case $2 in python3) printf "  Installed: (none)\\n  Candidate: {offered}\\n" ;; {others} esac'
    machine.command("apt-cache", script)
    error = machine.refuses()
    assert offered in error and "3.11" in error and "sudo apt-get" not in error
    # Ubuntu 22.04 has a newer one beside it
    machine.command("apt-cache", script.replace("Candidate: (none)", "Candidate: 3.11.0~rc1"))
    error = machine.refuses()
    assert "remedy: sudo apt-get install --no-install-recommends python3.11-venv; or use" in error, error


def test_another_architecture(machine: Machine) -> None:
    machine.command("uname", "echo Linux aarch64")
    assert "aarch64" in machine.refuses()


def test_another_c_library(machine: Machine) -> None:
    machine.command("getconf", "exit 1")
    assert "glibc" in machine.refuses()


def test_too_little_disk_is_said_before_anything_starts(machine: Machine) -> None:
    machine.command("df", "echo Avail; echo 3900")
    error = machine.refuses()
    assert "3 GB free" in error and str(machine.root) in error and "WMLCE_CACHE" in error
    # with everything built and installed before, little more is needed
    for made in ("clone/build/envs/powerai/bin/python", "home/.cache/wmlce/packages/finished/powerai/x"):
        (machine.root.parent / made).parent.mkdir(parents=True)
        (machine.root.parent / made).touch()
    machine.ready()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_too_little_disk_for_the_cache_alone(machine: Machine) -> None:
    """A real file system of 3 GB where the cache is to be."""
    machine.lacks("df")
    machine.link("df")
    cache = machine.home / ".cache"
    cache.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3g", "tmpfs", cache], check=True, timeout=20)
    try:
        error = machine.refuses()
    finally:
        subprocess.run(["umount", cache], check=True, timeout=20)
    assert "3 GB free at" in error and str(cache / "wmlce") in error and "WMLCE_CACHE=FOLDER" in error


def _wait_for_words(process: subprocess.Popen[str], words: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return
    pytest.fail(f"ended without saying {words!r}: {process.stderr and process.stderr.read()}")


def _ended(family: list[psutil.Process]) -> bool:
    return not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in family)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_stops_what_it_started_and_goes_on(machine: Machine, number: signal.Signals) -> None:
    process = machine.start(VENV_SECONDS="60")
    _wait_for_words(process, "making the tool environment")
    time.sleep(0.3)
    family = psutil.Process(process.pid).children(recursive=True)
    assert family
    process.send_signal(number)
    code, _, err = machine.end(process)
    assert code == 130 and "the same command resumes from there" in err
    deadline = time.monotonic() + 20
    while not _ended(family):
        assert time.monotonic() < deadline, family
        time.sleep(0.05)
    machine.ready()


def test_a_killed_run_is_waited_for_and_made_good(machine: Machine) -> None:
    """Killed without a chance to stop its children, it leaves one at work: the next run must not meet it."""
    process = machine.start(VENV_SECONDS="3")
    _wait_for_words(process, "making the tool environment")
    time.sleep(0.3)
    process.kill()
    process.wait(20)
    began = time.monotonic()
    machine.ready()
    assert time.monotonic() - began > 1, "did not wait for what the killed run had left at work"


def test_two_runs_at_once_share_one_tool_environment(machine: Machine) -> None:
    one, two = machine.start(VENV_SECONDS="1"), machine.start(VENV_SECONDS="1")
    answers = [machine.end(one), machine.end(two)]
    assert [code for code, _, _ in answers] == [0, 0], answers
    tools = {out.split("tools: ")[1].strip() for _, out, _ in answers}
    assert len(tools) == 1
    machine.whole(Path(tools.pop()))


def test_tools_that_a_run_still_uses_are_kept(machine: Machine) -> None:
    first = machine.ready()
    go = machine.home / "go"
    user = machine.start(
        then=f"until [ -e {go} ]; do sleep 0.1; done; test -x $TOOLS/bin/python && echo still there"
    )
    _wait_for_words(user, "tools: ")
    (machine.root / "ci/requirements.lock").write_text("# changed\n")
    second = machine.ready()
    assert second != first and first.is_dir()
    go.touch()
    code, out, err = machine.end(user)
    assert code == 0 and "still there" in out, out + err
    (machine.root / "ci/requirements.lock").write_text("# changed again\n")
    third = machine.ready()
    assert [path for path in (first, second, third) if path.is_dir()] == [third]


def test_an_older_clones_folder_of_tools_gives_way(machine: Machine) -> None:
    (machine.root / "build/tools/bin").mkdir(parents=True)
    machine.ready()
