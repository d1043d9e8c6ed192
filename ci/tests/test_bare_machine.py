"""ci/bare-machine: what comes along from the machine, what a system sees, what passed before; with --long
real ones. The trials themselves are `ci/bare-machine --short` and `--long`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest
from bare_machine import clone, copies, other_systems, packages
from bare_machine.__main__ import main
from bare_machine.mirrors import Mirrors, configured
from bare_machine.report import MARKS, Passed, Report, record, table
from bare_machine.settings import Settings, of_machine
from bare_machine.system import BareSystem, User
from bare_machine.trial import Conditions, Result, Trial, named_packages
from tree import ROOT
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="entering a system needs root")


def _nothing(text: str) -> None:
    del text


def test_mirrors_of_old_and_new_notation(tmp_path: Path) -> None:
    folder = tmp_path / "sources.list.d"
    folder.mkdir()
    (tmp_path / "sources.list").write_text(
        "# deb http://old.invalid/debian bookworm main\n"
        "deb-src http://sources.invalid/debian bookworm main\n"
        "deb [arch=amd64 signed-by=/x] http://other.invalid/apt nodistro main\n"
    )
    (folder / "debian.sources").write_text(
        "Types: deb\nURIs: http://off.invalid/debian\nSuites: bookworm\nEnabled: no\n\n"
        "# a comment\nTypes: deb deb-src\nURIs: http://mirror.invalid/debian\n"
        "Suites: bookworm\n bookworm-updates\nComponents: main\n\n"
        "Types: deb\nURIs: https://mirror.invalid/security\nSuites: bookworm-security\n"
        "Components: main\n"
    )
    found = configured(tmp_path)
    assert found.lines("trixie") == [
        "deb http://mirror.invalid/debian trixie main",
        "deb http://mirror.invalid/debian trixie-updates main",
        "deb https://mirror.invalid/security trixie-security main",
    ]
    assert found.encrypted
    (tmp_path / "sources.list").write_text("deb http://plain.invalid/debian bullseye main\n")
    (folder / "debian.sources").unlink()
    assert configured(tmp_path).lines("trixie") == [
        "deb http://plain.invalid/debian trixie main",
        "deb http://plain.invalid/debian trixie-updates main",
    ]
    (tmp_path / "sources.list").unlink()
    with pytest.raises(WmlceError, match="no mirror of Debian"):
        configured(tmp_path)


def test_only_what_leads_to_package_archives_comes_along(tmp_path: Path) -> None:
    wheels, index, bundle = tmp_path / "wheels", tmp_path / "index/simple", tmp_path / "ca.crt"
    wheels.mkdir()
    index.mkdir(parents=True)
    bundle.write_text("certificates\n")
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / ".config/pip/pip.conf").write_text(
        f"[global]\ncert = {bundle}\nextra-index-url = {index.as_uri()} https://index.invalid/simple\n"
    )
    given = {
        "PIP_FIND_LINKS": str(wheels),
        "PIP_CERT": str(bundle),
        "SSL_CERT_FILE": str(tmp_path / "absent"),
        "https_proxy": "http://proxy.invalid:3128",
        "WMLCE_CACHE": str(tmp_path),
        "SECRET_TOKEN": "mine",
        "PATH": "/somewhere",
    }
    found = of_machine(given, tmp_path)
    assert found.environment == {
        "PIP_FIND_LINKS": str(wheels),
        "PIP_CERT": "/etc/ssl/machine/ca.crt",
        "https_proxy": "http://proxy.invalid:3128",
    }
    # an index links to files beside it
    assert {wheels, index.parent} <= found.folders
    assert "cert = /etc/ssl/machine/ca.crt" in found.pip and "https://index.invalid/simple" in found.pip
    system = tmp_path / "system"
    (system / "etc").mkdir(parents=True)
    found.install(system)
    assert (system / "etc/ssl/machine/ca.crt").read_text() == "certificates\n"
    assert (system / "etc/pip.conf").read_text() == found.pip


@pytest.fixture
def system(tmp_path: Path) -> Iterator[BareSystem]:
    """A system that has nothing but this machine's /usr, so that it costs no time to make."""
    folder = Path(tempfile.mkdtemp(prefix="bare-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    for name in ("proc", "sys", "dev", "run", "tmp", "etc", "root", "home/joe", "usr"):
        (folder / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        (folder / name).symlink_to(f"usr/{name}")
    (folder / "etc/passwd").write_text(
        "root:x:0:0::/root:/bin/bash\njoe:x:12345:12345::/home/joe:/bin/bash\n"
    )
    (folder / "etc/group").write_text("root:x:0:\njoe:x:12345:\n")
    os.chown(folder / "home/joe", 12345, 12345)
    made = BareSystem(folder, Settings(folders={Path("/usr")}), _nothing)
    yield made
    made.remove()
    assert not folder.exists()


@NEEDS_ROOT
def test_a_command_sees_the_system_and_nothing_of_the_machine(
    system: BareSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "mine")
    code = "id -un; pwd; ls /; env; echo pid $$; ls /proc | grep -c '^[0-9]'; cat /proc/mounts; exit 7"
    ended = system.run(["bash", "-c", code], system.user("joe"), limit_s=60)
    lines = ended.output.splitlines()
    assert ended.code == 7 and lines[:2] == ["joe", "/home/joe"]
    assert sorted(lines[2 : lines.index("usr") + 1]) == sorted(
        ["bin", "dev", "etc", "home", "lib", "lib64", "proc", "root", "run", "sbin", "sys", "tmp", "usr"]
    )
    assert "SECRET_TOKEN" not in ended.output and str(ROOT) not in ended.output
    assert "HOME=/home/joe" in lines and "USER=joe" in lines
    assert int(lines[next(i for i, line in enumerate(lines) if line.startswith("pid ")) + 1]) < 10
    targets = [line.split()[1] for line in lines if line.startswith(("proc ", "tmpfs ", "/dev/"))]
    assert "/proc" in targets and not any("outside" in target for target in targets)
    assert str(system.folder) not in Path("/proc/self/mountinfo").read_text()


@NEEDS_ROOT
@pytest.mark.parametrize("name", ["root", "joe"])
def test_users_can_make_namespaces_in_a_system(system: BareSystem, name: str) -> None:
    """Which sandboxed builds need, and which the kernel forbids in a chroot."""
    allowed = Path("/proc/sys/user/max_user_namespaces").read_text().strip() != "0"
    inner = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "true"]
    if subprocess.run(inner, user=65534, check=False, capture_output=True).returncode or not allowed:
        pytest.skip("this machine lets no ordinary user make namespaces")
    ended = system.run(inner, system.user(name), limit_s=60)
    assert ended.code == 0, ended.output


@NEEDS_ROOT
def test_the_network_can_be_cut_off(system: BareSystem) -> None:
    look = ["bash", "-c", "ls /sys/class/net; cat /proc/net/route | wc -l"]
    run = subprocess.run(system.command(look, network=False), capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert set(run.stdout.split()) <= {"lo", "1", "0"}, run.stdout


@NEEDS_ROOT
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_a_killed_run(system: BareSystem, number: signal.Signals) -> None:
    """Not even a daemon that has left its session: the system's processes and mounts end with the command."""
    # a number of seconds that nobody else sleeps: it finds the processes
    seconds = f"4321.{time.monotonic_ns()}"
    words = ["bash", "-c", f"setsid sleep {seconds} & mount -t tmpfs x /tmp; sleep {seconds}"]
    runner = f"import sys; sys.path.insert(0, {str(ROOT / 'ci')!r})\n"
    runner += "from bare_machine.system import BareSystem\nfrom bare_machine.settings import Settings\n"
    runner += "from pathlib import Path\n"
    runner += f"s = BareSystem(Path({str(system.folder)!r}), Settings(folders={{Path('/usr')}}), print)\n"
    runner += f"s.run({words!r}, limit_s=100)\n"

    def sleeping() -> list[psutil.Process]:
        every = psutil.process_iter(["cmdline"])
        return [one for one in every if one.info["cmdline"] == ["sleep", seconds]]

    process = subprocess.Popen(["python3", "-c", runner], start_new_session=True)
    try:
        _until(lambda: len(sleeping()) == 2, lambda: "the command")
        family = [*psutil.Process(process.pid).children(recursive=True), *sleeping()]
        process.send_signal(number)
        process.wait(20)
        _until(lambda: not _living(family), lambda: f"the end of {_living(family)}")
    finally:
        process.kill()
        process.wait(20)
        system.folder.with_name(system.folder.name + ".log").unlink(missing_ok=True)


def _living(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [one for one in processes if _lives(one)]


def _lives(one: psutil.Process) -> bool:
    try:
        return bool(one.is_running() and one.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _until(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, f"waited 30 s for {what()}"
        time.sleep(0.05)


@NEEDS_ROOT
def test_a_killed_making_leaves_no_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool mounts /proc and /sys in the tree it makes, and cannot unmount them when it is killed: on the
    machine itself they would stay, and whoever deletes the tree would go through them.
    """
    folder = tmp_path / "made"
    program = tmp_path / "bin/mmdebstrap"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/bash\nmkdir -p '{folder}/proc'; mount -t tmpfs x '{folder}/proc'\n"
        f"touch '{tmp_path}/mounted'; setsid sleep 100\n"
    )
    program.chmod(0o755)
    runner = f"import sys; sys.path.insert(0, {str(ROOT / 'ci')!r})\n"
    runner += "from bare_machine.system import BareSystem\nfrom bare_machine.settings import Settings\n"
    runner += "from bare_machine.mirrors import Mirrors\nfrom pathlib import Path\n"
    runner += f"s = BareSystem(Path({str(folder)!r}), Settings(), print)\n"
    runner += "s.make('bookworm', Mirrors('http://m.invalid', None))\n"
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    process = subprocess.Popen(["python3", "-c", runner])
    try:
        _until((tmp_path / "mounted").exists, lambda: "the mount")
        family = psutil.Process(process.pid).children(recursive=True)
        assert family
    finally:
        process.kill()
        process.wait(20)
    mounted = str(folder) in Path("/proc/self/mountinfo").read_text()
    subprocess.run(["umount", str(folder / "proc")], check=False, capture_output=True)
    assert not mounted
    _until(lambda: not _living(family), lambda: f"the end of {_living(family)}")
    BareSystem(folder, Settings(), _nothing).remove()
    assert not folder.exists()


@NEEDS_ROOT
def test_a_tree_with_something_mounted_is_not_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    (folder / "pro c").mkdir(parents=True)
    (folder / "kept").touch()
    subprocess.run(["mount", "-t", "tmpfs", "x", str(folder / "pro c")], check=True)
    try:
        (folder / "pro c/mine").touch()
        with pytest.raises(WmlceError, match="mounted") as told:
            BareSystem(folder, Settings(), _nothing).remove()
        assert (folder / "pro c/mine").exists() and (folder / "kept").exists()
        assert f"umount '{folder}/pro c'" in (told.value.remedy or "")
    finally:
        subprocess.run(["umount", str(folder / "pro c")], check=True)
    BareSystem(folder, Settings(), _nothing).remove()
    assert not folder.exists()


@NEEDS_ROOT
def test_a_command_that_does_not_end_is_ended(system: BareSystem) -> None:
    with pytest.raises(WmlceError, match="not ended within 1 s"):
        system.run(["sleep", "100"], limit_s=1)
    system.folder.with_name(system.folder.name + ".log").unlink(missing_ok=True)


@NEEDS_ROOT
def test_a_clone_of_the_project_is_the_users_own(system: BareSystem) -> None:
    inside = system.bring_clone(system.user("joe"), uncommitted=True)
    folder = system.outside(inside)
    assert (folder / "ci/quickstart").read_bytes() == (ROOT / "ci/quickstart").read_bytes()
    assert folder.stat().st_uid == 12345 and (folder / ".git").is_dir()
    listed = ["git", "-c", f"safe.directory={folder}", "-C", str(folder), "remote"]
    assert subprocess.run(listed, capture_output=True, check=True, timeout=20).stdout == b""


def test_what_a_build_cannot_see_does_not_count() -> None:
    counted = {name for name in clone.working_files() if clone.needed_by_builds(name)}
    assert {"ci/bootstrap.sh", "ci/quickstart", "recipes/sources.lock.yaml", "VERSION"} <= counted
    assert any(name.startswith("ddl-core/libddl/src/") for name in counted)
    assert not {name for name in counted if name.endswith(".md") or "/tests/" in name}
    assert not counted & {"conftest.py", "ci/test"}


def test_the_hash_follows_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@t.invalid"]
        subprocess.run(["git", *identity, "-C", str(tmp_path), *words], check=True, capture_output=True)

    monkeypatch.setattr(clone, "ROOT", tmp_path)
    git("init")
    (tmp_path / "a").write_text("1\n")
    (tmp_path / "page.md").write_text("1\n")
    git("add", "-A")
    git("commit", "-m", "x")

    def now(*, uncommitted: bool) -> str:
        return clone.content_hash(clone.needed_by_builds, uncommitted=uncommitted)

    first = now(uncommitted=False)
    assert now(uncommitted=True) == first
    (tmp_path / "page.md").write_text("2\n")
    assert now(uncommitted=True) == first
    (tmp_path / "a").write_text("2\n")
    second = now(uncommitted=True)
    assert second != first and now(uncommitted=False) == first
    (tmp_path / "a").chmod(0o755)
    assert now(uncommitted=True) != second
    (tmp_path / "b").write_text("new\n")
    third = now(uncommitted=True)
    git("add", "-A")
    git("commit", "-m", "y")
    assert now(uncommitted=False) == third


def _finished(cache: Path, recipe: str, digest: str, text: str) -> None:
    file = cache / f"packages/linux-64/{recipe}-{digest}.conda"
    manifest = cache / f"packages/finished/{recipe}/{digest}.json"
    for path in (file, manifest):
        path.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    manifest.write_text(json.dumps({"packages": [{"subdir": "linux-64", "file": file.name, "entry": {}}]}))


def test_packages_go_from_cache_to_cache_with_their_manifests(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "deep/two"
    _finished(one, "a", "1", "a of one")
    _finished(one, "b", "2", "b of one")
    _finished(two, "a", "1", "a of two")
    # a package whose manifest is not there is not finished, whatever lies under its name
    (two / "packages/linux-64/b-2.conda").write_text("half")
    (one / "packages/finished/b/damaged.json").write_text("{ half")
    assert packages.copy(one, two, os.getuid(), os.getgid()) == 1
    assert (two / "packages/linux-64/a-1.conda").read_text() == "a of two"
    assert (two / "packages/linux-64/b-2.conda").read_text() == "b of one"
    assert (two / "packages/finished/b/2.json").exists()
    assert packages.copy(one, two, os.getuid(), os.getgid()) == 0
    _finished(one, "b", "3", "b of a later release")
    _finished(one, "c", "4", "c of one")
    wanted = {"c": "4", "b": "1", "absent": "2"}
    assert packages.copy(one, two, os.getuid(), os.getgid(), wanted) == 1
    assert (two / "packages/finished/c/4.json").exists() and not (two / "packages/finished/b/3.json").exists()
    assert not list(two.rglob(".*part*"))
    assert packages.copy(tmp_path / "absent", two, os.getuid(), os.getgid()) == 0


def test_the_message_of_bootstrap_is_understood() -> None:
    text = (
        "error: this machine lacks: git g++\nremedy: sudo apt-get install --no-install-recommends git g++\n"
    )
    assert named_packages(text) == ["git", "g++"]
    assert named_packages("remedy: sudo apt-get install --no-install-recommends git; reboot") == []
    assert named_packages("all is well") == []


def _result(**changes: object) -> Result:
    facts = {
        "form": "long",
        "release": "trixie",
        "user": "root",
        "commit": "abc",
        "content": "c1",
        "date": "d",
    }
    return Result(**{**facts, **changes})  # type: ignore[arg-type]


def test_the_table_keeps_the_last_result_of_each_trial(tmp_path: Path) -> None:
    report = Report(tmp_path)
    report.add(_result(error="could not\nmore"))
    report.add(
        _result(user="newcomer", steps={"quickstart": 125.0, "test": 61.0}, tests="5 passed", trained="1: 9")
    )
    lines = report.where.read_text().splitlines()
    assert len(lines) == 4
    assert "failed: could not |" in lines[3] and "2:05" in lines[2] and "1:01: 5 passed" in lines[2]
    report.add(_result(steps={"quickstart": 1.0}))
    assert "failed" not in report.where.read_text()
    (tmp_path / "bare-machine.json").write_text("{ half")
    report.add(_result())
    assert len(report.where.read_text().splitlines()) == 3
    assert table([]).count("\n") == 2


def test_the_page_gets_the_table_of_other_systems(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n")
    with pytest.raises(WmlceError, match="no system was tried"):
        record(tmp_path, page)
    report = Report(tmp_path)
    report.add(_result())
    report.add(_result(form="system", release="no-namespaces"))
    steps = {"quickstart": 125.0}
    report.add(_result(form="system", release="rhel-9", steps=steps, trained="1: 9", commit="first"))
    with pytest.raises(WmlceError, match="no place for the table"):
        record(tmp_path, page)
    elsewhere = "| sles-15 | Debian | root | 1:00 | trained | of another clone |"
    page.write_text(f"before\n{MARKS[0]}\nold\n{elsewhere}\n{MARKS[1]}\nafter\n")
    for commit in ("first", "second"):
        report.add(_result(form="system", release="rhel-9", steps=steps, trained="1: 9", commit=commit))
        record(tmp_path, page)
    lines = page.read_text().splitlines()
    assert lines[0] == "before" and lines[-1] == "after" and "old" not in lines
    rows = [line for line in lines if line.startswith("|")][2:]
    assert rows.pop() == elsewhere
    assert len(rows) == 2 and "refused, with the remedy" in rows[0] and "seccomp" in rows[0]
    assert "ca-bundle.crt" in rows[1] and "2:05 | trained: 1: 9" in rows[1] and "second, d" in rows[1]


_BUNDLE = "etc/ssl/certs/ca-certificates.crt"


def _debian(folder: Path) -> BareSystem:
    """The places of a Debian that other systems are made from."""
    for name in (
        *("usr/bin/apt-get", "usr/bin/dpkg", "usr/bin/git", "usr/bin/python3.11", "etc/apt/sources.list"),
        *("usr/share/keyrings/debian-archive-keyring.gpg", "var/lib/dpkg/status", "etc/ssl/machine/own.crt"),
        *(_BUNDLE, "usr/lib/os-release"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name}\n")
    with (folder / _BUNDLE).open("a") as bundle:
        bundle.write("-----END CERTIFICATE-----\n")
    (folder / "usr/bin/python3").symlink_to("python3.11")
    (folder / "etc/os-release").symlink_to("../usr/lib/os-release")
    (folder / "etc/pip.conf").write_text("[global]\ncert = /etc/ssl/machine/own.crt\n")
    return BareSystem(folder, Settings(environment={"PIP_CERT": "/etc/ssl/machine/own.crt"}), _nothing)


@pytest.mark.parametrize("name", list(other_systems.SYSTEMS))
def test_what_makes_another_system_of_a_debian(tmp_path: Path, name: str) -> None:
    other, made = other_systems.SYSTEMS[name], _debian(tmp_path)
    other_systems.emulate(other, made, hidden=not other.apt)
    assert (tmp_path / "etc/os-release").read_text() == f"{other.os_release}\n"
    assert (tmp_path / "usr/lib/os-release").read_text() == "usr/lib/os-release\n"
    assert not list((tmp_path / "usr/share/keyrings").iterdir()), "Debian's keys"
    programs = {path.name for path in (tmp_path / "usr/bin").iterdir()}
    assert programs >= {"apt-get", "dpkg", "git"} if other.apt else not programs & {"apt-get", "dpkg", "git"}
    assert (tmp_path / "var/lib/dpkg").exists() == bool(other.apt)
    bundle = tmp_path / other.certificates.lstrip("/")
    of_debian = f"{_BUNDLE}\n-----END CERTIFICATE-----\n"
    assert bundle.read_text() == f"{of_debian}etc/ssl/machine/own.crt\n"
    if bundle != tmp_path / _BUNDLE:
        left = (tmp_path / _BUNDLE).read_text() if (tmp_path / _BUNDLE).exists() else ""
        assert left == (of_debian if other.base == "trixie" else ""), "what lets Debian's own pip start"
    assert made.settings.environment["PIP_CERT"] == other.certificates
    assert f"cert = {other.certificates}\n" in (tmp_path / "etc/pip.conf").read_text()
    if other.own_python:
        python = tmp_path / "usr/bin/python3"
        assert subprocess.check_output([python, "--version"], text=True) == f"Python {other.own_python}\n"
        assert subprocess.run([python, "-c", "pass"], capture_output=True, check=False).returncode == 1


def test_a_container_without_namespaces() -> None:
    """None of a user's own; processes and threads are made as before."""
    before = [sys.executable, str(Path(other_systems.__file__).with_name("deny_namespaces.py"))]
    refused = subprocess.run(
        [*before, "unshare", "--user", "true"], capture_output=True, text=True, check=False
    )
    assert refused.returncode != 0 and "not permitted" in refused.stderr
    script = "import subprocess, threading; one = threading.Thread(target=print); one.start(); one.join()\n"
    script += "subprocess.run(['true'], check=True)"
    subprocess.run([*before, sys.executable, "-c", script], check=True, capture_output=True)


def test_other_systems_are_chosen_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert ", ".join(other_systems.SYSTEMS) in capsys.readouterr().out
    for only in ("rhel-9", "rhel-9-root", "no-namespaces-newcomer"):
        assert any(only in (name, f"{name}-{user}") for name, user in other_systems.TRIALS)
    if os.geteuid() == 0:
        assert main(["--systems", "--only", "beos"]) == 1
        assert "--only beos: the system form has no such trial" in capsys.readouterr().err


def test_only_what_passed_is_left_out(tmp_path: Path) -> None:
    passed = Passed(tmp_path / "x")
    passed.add(_result(error="no"))
    assert passed.find("c1") is None
    passed.add(_result())
    found = passed.find("c1")
    assert found is not None and asdict(found) == asdict(_result())
    (tmp_path / "x/c1.json").write_text("{ half")
    assert passed.find("c1") is None


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--short", "--long"], ["run", "potato", "--", "true"], ["run", "trixie"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
    assert "usage: ci/bare-machine" in capsys.readouterr().err


def test_without_root_it_says_so_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["--short"]) == 1
    error = capsys.readouterr().err
    assert error.count("error: ") == 1 and "sudo ci/bare-machine" in error


def test_copies_need_what_is_built(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    layout = Layout.locate(tmp_path)
    bare = BareSystem(tmp_path / "system", Settings(), _nothing)
    result = copies.CopyTrial("bullseye", bare, Mirrors("http://m.invalid", None), layout, _nothing).run()
    assert not result.passed and "./ci/test --quick makes it" in (result.error or "")


@NEEDS_ROOT
def test_a_copy_trains_and_passes_the_tests_of_the_clone(
    system: BareSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With programs that do in a moment what the real ones do in minutes."""
    monkeypatch.setattr(system, "make", lambda *_: None)
    monkeypatch.setattr(system, "remove", lambda: None)
    monkeypatch.setattr(copies, "ORDINARY_USER", "joe")
    root = tmp_path / "clone"
    record = '{"rows": [{"title": "Keras 3", "figures": {"best_accuracy": 0.975}}]}'
    programs = {
        "build/envs/powerai/bin/ddlrun": "",
        # PYTHON -P -m ddl_validate.trainings examples … --output FILE
        "build/envs/powerai/bin/python": f"id -un; echo '{record}' >\"${{@: -1}}\"",
        "build/envs/dev/bin/ctest": 'ls -R "$2"; touch "$2/log"; echo "100% tests passed out of 7"',
    }
    for name, text in programs.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/bash\nset -e\n{text}\n")
        file.chmod(0o755)
    (root / "recipes").mkdir()
    for place in ("", "libddl/", "libddl/tests/"):
        (root / f"build/ddl-core/{place}").mkdir(parents=True, exist_ok=True)
        (root / f"build/ddl-core/{place}CTestTestfile.cmake").write_text("subdirs(tests)\n")
    layout = Layout.locate(root)
    result = copies.CopyTrial("trixie", system, Mirrors("http://m.invalid", None), layout, _nothing).run()
    assert result.passed, result.error
    assert result.trained == "Keras 3: 0.97" or result.trained == "Keras 3: 0.98"
    assert result.tests == "7 C++ tests passed"
    said = (layout.logs / "bare-copy-trixie.log").read_text()
    assert said.count("CTestTestfile.cmake") == 3 and "joe" in said
    (root / "build/envs/dev/bin/ctest").write_text("#!/bin/bash\nexit 8\n")
    result = copies.CopyTrial("trixie", system, Mirrors("http://m.invalid", None), layout, _nothing).run()
    assert not result.passed and "exit code 8" in (result.error or "")


@NEEDS_ROOT
@pytest.mark.long
@pytest.mark.parametrize("release", ["bullseye", "bookworm", "trixie"])
def test_a_real_system(release: str) -> None:
    if shutil.which("mmdebstrap") is None:
        pytest.skip("mmdebstrap is missing: apt-get install mmdebstrap")
    script = ". /etc/os-release; echo $VERSION_CODENAME; id -un; git --version; ls ci/quickstart"
    words = [str(ROOT / "ci/bare-machine"), "run", release, "--user", "joe", "--package", "git"]
    run = subprocess.run(
        [*words, "--", "bash", "-c", script], capture_output=True, text=True, timeout=900, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split()[:4] == [release, "joe", "git", "version"] and "ci/quickstart" in run.stdout
    assert not list((ROOT / "build/bare").glob("run-*"))


@NEEDS_ROOT
def test_a_user_of_the_system_is_looked_up(system: BareSystem) -> None:
    assert system.user("joe") == User("joe", 12345, 12345, "/home/joe")


# A project whose commands do in a moment what the real ones do in half an hour.
_BOOTSTRAP = """
bootstrap() { WMLCE=ci/tool; }
"""
_TOOL = """#!/bin/bash
set -eu
cache=$HOME/.cache/wmlce/packages
if [ "$*" = "--json channel build --dry-run" ]; then
  echo '{"recipes": {"python": {"hash": "1"}, "ddl": {"hash": "1"},'
  echo ' "torch": {"hash": "1"}, "powerai": {"hash": "1"}}}'
  exit
fi
shift 2
for name in "$@"; do
  mkdir -p $cache/finished/$name $cache/linux-64
  [ -e $cache/finished/$name/1.json ] || echo "built $name"
  echo $name >$cache/linux-64/$name.conda
  echo '{"packages": [{"subdir": "linux-64", "file": "'$name'.conda"}]}' >$cache/finished/$name/1.json
done
"""
_QUICKSTART = """#!/bin/bash
set -eu
[ ! -e ci/broken ] || { echo "error: it is broken" >&2; exit 1; }
ci/tool channel build python ddl torch powerai
mkdir -p build/report
echo '{"rows": [{"ranks": 1, "figures": {"images_per_sec": 10.4}},' >build/report/scaling.json
echo ' {"ranks": 2, "figures": {"images_per_sec": 19}}]}' >>build/report/scaling.json
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    for name, text in (("bootstrap.sh", _BOOTSTRAP), ("tool", _TOOL), ("quickstart", _QUICKSTART)):
        file = root / "ci" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    subprocess.run(["git", "init", "-q", root], check=True)
    _commit(root)
    monkeypatch.setattr(clone, "ROOT", root)
    return root


def _commit(root: Path) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@t.invalid"]
    for words in (["add", "-A"], ["commit", "-q", "-m", "x"]):
        subprocess.run(["git", *identity, "-C", str(root), *words], check=True, timeout=20)


@NEEDS_ROOT
def test_a_trial_from_nothing_to_the_cache(
    system: BareSystem, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def make(release: str, mirrors: Mirrors, packages: object = ()) -> None:
        del mirrors, packages
        made.append(release)
        system.folder.with_name(system.folder.name + ".made").touch()

    monkeypatch.setattr(system, "make", make)
    removed: list[bool] = []
    monkeypatch.setattr(system, "remove", lambda: removed.append(True))
    cache = tmp_path / "cache"
    _finished(cache, "torch", "1", "of the machine")
    _finished(cache, "torch", "0", "of an earlier release")
    conditions = Conditions("short", "bookworm", "root", Mirrors("http://m.invalid", None), "")

    def trial() -> Result:
        return Trial(conditions, system, tmp_path / "logs", cache, _nothing).run()

    (project / "ci/broken").touch()
    _commit(project)
    failed = trial()
    assert failed.error and "it is broken" in failed.error and str(system.folder) in failed.error
    assert failed.steps.keys() == {"minimal Debian", "python and ddl from nothing", "packages from the cache"}
    assert not removed and not (cache / "packages/finished/ddl").exists()
    taken = system.outside("/root/.cache/wmlce/packages/finished/torch")
    assert [file.name for file in taken.iterdir()] == ["1.json"]

    # the same command goes on in the same system while nothing has changed
    built = (tmp_path / "logs/bare-short-bookworm-root.log").read_text()
    assert "built python" in built and "built ddl" in built
    inside = system.outside(f"/root/{clone.NAME}")
    (inside / "ci/broken").unlink()
    passed = trial()
    assert passed.passed and made == ["bookworm"] and removed
    assert passed.trained == "1: 10, 2: 19"
    assert "quickstart" in passed.steps
    said = (tmp_path / "logs/bare-short-bookworm-root.log").read_text()
    # torch came from the machine's cache; what that lacked is there afterwards
    assert "built powerai" in said and "built torch" not in said and said.count("built python") == 1
    assert (cache / "packages/finished/ddl/1.json").exists()
    assert (cache / "packages/finished/powerai/1.json").exists()
    shutil.rmtree(inside)

    # and anew when something has
    (project / "ci/broken").unlink()
    _commit(project)
    assert trial().passed and made == ["bookworm", "bookworm"]
