"""Options that people know from torchrun, horovodrun and mpirun."""

from __future__ import annotations

import os
import shlex
import time
from dataclasses import replace
from pathlib import Path

import pytest
from ddlrun import survey
from ddlrun.command_line.options import Options
from ddlrun.command_line.parser import parse
from ddlrun.environment import Environment
from ddlrun.errors import LaunchError
from ddlrun.hosts.host_list import Host, HostList
from ddlrun.placement.slots import Placement, Slot
from ddlrun.runfolder import KEPT_DAYS, RunFolder
from ddlrun.ssh import Ssh
from ddlrun.start import command
from ddlrun_program import Ddlrun

HOSTS = HostList((Host("a", 2), Host("b", 2), Host("c", 2)), "-H a,b,c")
ENVIRONMENT = Environment(Path("/e"), Path("/e/ddl"), Path("/e/bin/mpirun"))
PLACED = Placement((Slot(0, "a", (0,)), Slot(1, "b", (0,))), bound=True, oversubscribed=False)


def names(options: Options) -> list[str]:
    return [host.name for host in survey._chosen(HOSTS, options).hosts]


def test_hosts_are_chosen() -> None:
    assert names(Options()) == ["a", "b", "c"]
    assert names(Options(nnodes=2)) == ["a", "b"]
    assert names(Options(exclude="b")) == ["a", "c"]
    assert names(Options(exclude=" a , b ")) == ["c"]
    assert names(Options(exclude="a", nnodes=1)) == ["b"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (Options(nnodes=4), "3 hosts are left"),
        (Options(exclude="d"), "d is none of the hosts"),
        (Options(exclude="a,b,c"), "0 hosts are left"),
        (Options(exclude="a", nnodes=3), "2 hosts are left"),
    ],
)
def test_hosts_that_cannot_be_chosen(options: Options, words: str) -> None:
    with pytest.raises(LaunchError, match=words) as caught:
        survey._chosen(HOSTS, options)
    assert caught.value.exit_code == 2


def test_the_names_of_torchrun() -> None:
    made = parse(["--nproc_per_node=4", "--nnodes", "2", "train.py", "--lr", "1"])
    assert (made.accelerators, made.nnodes, made.program) == (4, 2, ("train.py", "--lr", "1"))
    assert parse(["--nproc-per-node", "3", "p"]).accelerators == 3
    made = parse(["--module", "package.train", "-m", "x"])
    assert made.program == ("python", "-m", "package.train", "-m", "x")
    # The image's ddlrun reads the line again.
    assert parse(list(made.inside)).program == made.program


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-m package.train --lr 1", "--module package.train"),
        ("-m train", "--module train"),
        ("-module ../x p", "no name of a module"),
        ("-interface 'a b' p", "no name of a network interface"),
        ("-interface $(id) p", "no name of a network interface"),
        ("-ssh-port 65536 p", "no port"),
        ("-ssh-identity '/my key' p", "has a blank"),
        ("-quiet -verbose p", "exclude each other"),
        ("-rankfile f -nnodes 2 p", "already places every rank"),
        ("-nnodes 0 p", "whole number"),
    ],
)
def test_what_is_refused(line: str, words: str) -> None:
    with pytest.raises(LaunchError) as caught:
        parse(shlex.split(line))
    assert words in str(caught.value) and caught.value.exit_code == 2


def test_modes_are_still_modes() -> None:
    for text in (
        "p",
        "b:4x2",
        "n",
        "q",
        "p:x",
    ):  # what is no mode is said later, with the modes that there are
        assert parse(["-m", text, "program"]).mode == text


def test_ssh_is_the_same_everywhere() -> None:
    ssh = Ssh(2222, "/keys/id")
    words = ssh.command("host", "true")
    assert parse(["-ssh-port", "65535", "p"]).ssh_port == 65535
    assert words[-3:] == ["--", "host", "true"] and words[:2] == ["ssh", "-T"]
    assert "-p 2222" in shlex.join(words) and "-i /keys/id" in shlex.join(words)
    line = command.mpirun_line(
        replace(ENVIRONMENT, remote_shell=ssh),
        Options(program=("p",)),
        PLACED,
        Path("/run"),
        {"DDLRUN_JOB": "j"},
        remote=True,
        stdin_is_tty=False,
    )
    agent = line[line.index("plm_ssh_agent") + 1]
    assert agent.split() == ["ssh", *ssh.options]


def test_the_network_interface_reaches_everybody() -> None:
    options = Options(program=("p",), interface="ib0")
    made = command.job_environment(ENVIRONMENT, options, None, "j")
    assert made["OMPI_MCA_btl_tcp_if_include"] == made["GLOO_SOCKET_IFNAME"] == "ib0"
    assert {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"} <= set(command.chosen(options))


def test_a_module_runs_quietly_in_another_folder(ddlrun: Ddlrun) -> None:
    """Its own arguments are its own, also those that look like ddlrun's."""
    package = ddlrun.folder / "elsewhere" / "package"
    package.mkdir(parents=True)
    (package / "train.py").write_text("import os, sys; print(os.getcwd(), *sys.argv[1:])\n")
    where = package.parent
    run = ddlrun("-np", "2", "-quiet", "-wdir", str(where), "-module", "package.train", "-np", "7")
    assert run.code == 0 and run.lines == [f"{where} -np 7"] * 2, run.out + run.err
    assert run.err == ""


def test_what_is_wrong_is_said_in_quiet_too(ddlrun: Ddlrun) -> None:
    run = ddlrun("-np", "2", "-quiet", "sh", "-c", "exit 3")
    assert run.code == 3 and "[ERROR DDL-2-" in run.err and "mpirun --" not in run.err, run.err


CHECKPOINT = """
import os, signal, subprocess, sys, time
def save(number, frame):
    time.sleep(2.5)  # a checkpoint takes its time
    open(f"checkpoint-{os.environ['RANK']}", "w").write("whole")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
# What a rank has started, such as a loader of data, goes on until the rank ends it.
loader = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open(f"ready-{os.environ['RANK']}", "w").close()
loader.wait()
open(f"loader-ended-{os.environ['RANK']}", "w").close()
"""


WRAPPER = "#!/bin/sh\n. ./module\npython train.py\nexit $?\n"


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (("-grace", "15", "python", "train.py"), 2),
        (("-grace", "15", "./wrapper"), 2),
        (("-grace", "15", "bash", "-c", "./wrapper; true"), 2),
        (("python", "train.py"), 0),
    ],
)
def test_a_checkpoint_at_preemption(ddlrun: Ddlrun, words: tuple[str, ...], kept: int) -> None:
    """SIGTERM to ddlrun, as schedulers send it: the ranks get it too, and have their time of grace; also the
    program of a script, which waits for it and would hand nothing on.
    """
    (ddlrun.folder / "train.py").write_text(CHECKPOINT)
    (ddlrun.folder / "module").touch()
    (ddlrun.folder / "wrapper").write_text(WRAPPER)
    (ddlrun.folder / "wrapper").chmod(0o755)
    child = ddlrun.start("-np", "2", *words)
    end = time.monotonic() + 60
    while len(list(ddlrun.folder.glob("ready-*"))) < 2:
        assert time.monotonic() < end and child.poll() is None
        time.sleep(0.05)
    child.terminate()
    run = ddlrun.finish(child)
    assert len(list(ddlrun.folder.glob("checkpoint-*"))) == kept, run.err
    assert not list(ddlrun.folder.glob("loader-ended-*")), run.err
    assert run.code == 143, run.err


def test_the_time_of_grace_ends(ddlrun: Ddlrun) -> None:
    """A rank that does not end is ended."""
    program = "trap '' TERM; echo ready; while :; do sleep 1; done"
    child = ddlrun.start("-np", "1", "-grace", "1.5", "-timeout", "2", "sh", "-c", program)
    run = ddlrun.finish(child, 40)
    assert run.code == 124 and "ready" in run.out, run.err


@pytest.mark.slow
def test_words_of_older_versions(ddlrun: Ddlrun) -> None:
    """Horovod's published line has one dash; -t was the short form of -tcp."""
    line = "-bind-to none -map-by slot -x LD_LIBRARY_PATH=/x -mca pml ob1 -mca btl ^openib"
    run = ddlrun("-np", "2", "-mpiarg", line, "sh", "-c", "echo $RANK")
    assert run.code == 0 and run.lines == ["0", "1"], run.err
    assert parse(["-t", "true"]).tcp
    words = Options(mpiarg=("-bind-to none -map-by slot -mca a b",)).launcher_words()
    assert words == ["--bind-to", "none", "--map-by", "slot", "-mca", "a", "b"]
    assert Options(launcher="srun", mpiarg=("-bind-to none",)).launcher_words() == ["-bind-to", "none"]


@pytest.mark.slow
def test_folders_that_cannot_be_used_are_named(ddlrun: Ddlrun) -> None:
    odd = ddlrun.folder / "a:b"
    odd.mkdir()
    run = ddlrun("-np", "1", "true", TMPDIR=str(odd))
    assert run.code == 1 and "does not take a folder with a colon" in run.err, run.err
    gone = ddlrun.folder / "gone"
    gone.mkdir()
    run = ddlrun.by_script(f'cd {gone} && rmdir {gone} && exec "$@"', "-np", "1", "true")
    assert run.code == 1 and "the current folder cannot be found" in run.err, run.err
    run = ddlrun("-np", "1", "-wdir", "/nowhere", "true")
    assert run.code == 1 and "the folder of -wdir: it does not exist" in run.err, run.err


@pytest.mark.slow
def test_folders_of_starts_are_removed_after_a_month(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with RunFolder() as first, RunFolder() as second:
        first.log("x")
    other = first.path.with_name("notes-of-mine")
    other.mkdir()
    long_ago = time.time() - (KEPT_DAYS + 1) * 86400
    for path in (first.log_path, first.path, second.path, other):
        os.utime(path, (long_ago, long_ago))
    with RunFolder() as third:
        left = {path.name for path in third.path.parent.iterdir()}
    # the second's log was written to since
    assert left == {second.path.name, third.path.name, other.name}
