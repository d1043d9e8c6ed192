"""Real starts on this machine: real mpirun, real ranks."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from ddlrun_program import PROGRAMS, Ddlrun, is_alive

CORES = len(os.sched_getaffinity(0))


def field(line: str, name: str) -> str:
    found = re.search(rf"\b{name} (\S+)", line)
    assert found, line
    return found[1]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_start_and_talk(ddlrun: Ddlrun, ranks: int) -> None:
    run = ddlrun("-np", str(ranks), "python", str(PROGRAMS / "joined.py"))
    assert run.code == 0, run.err
    total = sum(range(ranks))
    assert [line.split(" on ")[0] for line in run.lines] == [str(rank) for rank in range(ranks)]
    assert all(line.endswith(f"sum {total}") for line in run.lines)
    assert re.search(r"^\+ \S+/mpirun .* -np " + str(ranks), run.err, re.M)


def test_the_environments_own_programs_are_taken_without_activation(ddlrun: Ddlrun) -> None:
    run = ddlrun("-np", "1", "python", str(PROGRAMS / "show.py"), PATH="/usr/bin:/bin")
    assert run.code == 0, run.err
    assert field(run.lines[0], "python").startswith(str(ddlrun.prefix / "bin"))
    assert f"+ {ddlrun.prefix}/bin/mpirun" in run.err


def test_without_a_home(ddlrun: Ddlrun) -> None:
    ddlrun.words = ["env", "-u", "HOME", *ddlrun.words]
    run = ddlrun("-np", "2", "python", "-c", "import os; print(os.environ['HOME'])")
    assert run.code == 0, run.err
    assert run.lines == [pwd.getpwuid(os.getuid()).pw_dir] * 2


@pytest.mark.skipif(CORES < 2, reason=f"binding two ranks needs 2 cores, this machine gives {CORES}")
def test_each_rank_has_its_own_cores(ddlrun: Ddlrun) -> None:
    run = ddlrun("-np", "2", "python", str(PROGRAMS / "show.py"))
    assert run.code == 0, run.err
    first, second = ({*field(line, "cores").split(",")} for line in run.lines)
    assert first and second and not first & second
    assert all(field(line, "yield") == "1" for line in run.lines)
    assert "options -mode p:2x1x1x1" in run.lines[0]
    assert list(ddlrun.folder.glob("DDLRUN.*/*/RANKFILE"))


def test_crowded_ranks_are_not_bound(ddlrun: Ddlrun) -> None:
    run = ddlrun("-H", f"localhost:{CORES + 1}", "python", str(PROGRAMS / "show.py"))
    assert run.code == 0, run.err
    assert len(run.lines) == CORES + 1
    for line in run.lines:
        assert len(field(line, "cores").split(",")) == CORES
        assert field(line, "yield") == "1"


def test_a_rankfile_is_used_as_it_is(ddlrun: Ddlrun) -> None:
    ranks = ddlrun.folder / "ranks"
    ranks.write_text("rank 0=localhost slot=0\n")
    run = ddlrun("-rf", str(ranks), "python", str(PROGRAMS / "show.py"))
    assert run.code == 0, run.err
    assert len(run.lines) == 1 and f"rankfile:file={ranks}" in run.err


@pytest.mark.parametrize("code", [1, 7, 200])
def test_the_first_failing_ranks_code_comes_through(ddlrun: Ddlrun, code: int) -> None:
    run = ddlrun("-np", "3", "python", str(PROGRAMS / "obey.py"), "2", "exit", str(code))
    assert run.code == code
    assert f"[ERROR DDL-2-13] rank 2 ended with exit code {code}; on host localhost" in run.err
    assert "  | rank 2 is here" in run.err and "  | the end is near" in run.err
    assert "  | rank 0 is here" not in run.err
    log = re.search(r"The log is (\S+)\s*$", run.err)
    assert log and "rank 2 ended" in Path(log[1]).read_text()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_rank_is_named(ddlrun: Ddlrun, number: signal.Signals) -> None:
    run = ddlrun("-np", "2", "python", str(PROGRAMS / "obey.py"), "1", "signal", str(int(number)))
    assert run.code == 128 + number
    assert f"rank 1 was killed by signal {int(number)} ({number.name}); on host localhost" in run.err


def test_the_time_limit(ddlrun: Ddlrun) -> None:
    began = time.monotonic()
    run = ddlrun("-np", "2", "--timeout", "1.5", "sleep", "60")
    assert run.code == 124 and "[ERROR DDL-2-14]" in run.err
    assert time.monotonic() - began < 15


STUBBORN = (
    "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; "
    "print('up', flush=True); time.sleep(60)"
)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_whole_job(ddlrun: Ddlrun, number: signal.Signals) -> None:
    child = ddlrun.start("-np", "2", "python", "-c", STUBBORN)
    assert child.stdout and child.stdout.readline() == "up\n"
    members = psutil.Process(child.pid).children(recursive=True)
    assert len(members) >= 3  # mpirun and two ranks
    child.send_signal(number)
    run = ddlrun.finish(child, 20)
    assert run.code == 128 + number and "[ERROR DDL-2-15]" in run.err
    assert not psutil.wait_procs(members, timeout=5)[1]


def test_user_signals_reach_the_ranks(ddlrun: Ddlrun) -> None:
    script = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: (print('got it', flush=True), os._exit(0)))\n"
        "print('up', flush=True); time.sleep(60)"
    )
    child = ddlrun.start("-np", "2", "python", "-c", script)
    assert child.stdout and [child.stdout.readline() for _ in "ab"] == ["up\n"] * 2
    child.send_signal(signal.SIGUSR1)
    run = ddlrun.finish(child, 20)
    assert run.out.count("got it") == 2, run.err


def test_a_killed_mpirun_leaves_nothing_behind(ddlrun: Ddlrun) -> None:
    child = ddlrun.start("-np", "2", "python", "-c", STUBBORN)
    assert child.stdout and child.stdout.readline() == "up\n"
    launcher = psutil.Process(child.pid).children()[0]
    members = launcher.children(recursive=True)
    launcher.kill()
    run = ddlrun.finish(child, 20)
    assert run.code == 137
    assert not psutil.wait_procs(members, timeout=5)[1]


def test_output_is_handed_through_byte_by_byte(ddlrun: Ddlrun) -> None:
    script = (
        "import sys; b = bytes((i * 7) % 256 for i in range(200_000)); "
        "sys.stdout.buffer.write(b + b'\\nno line end'); sys.stderr.buffer.write(b'to stderr\\n')"
    )
    target = ddlrun.folder / "output"
    with target.open("wb") as out:
        done = subprocess.run(
            [*ddlrun.words, "-np", "1", "python", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE,
            env=ddlrun.environment(),
            timeout=60,
            check=False,
        )
    assert target.read_bytes() == bytes((i * 7) % 256 for i in range(200_000)) + b"\nno line end"
    assert b"to stderr\n" in done.stderr


def test_reading_standard_input_does_not_hang(ddlrun: Ddlrun) -> None:
    run = ddlrun("-np", "2", "-timeout", "30", "python", "-c", "import sys; print(len(sys.stdin.read()))")
    assert run.code == 0 and run.lines == ["0", "0"]


def test_arguments_and_variables_arrive_whole(ddlrun: Ddlrun) -> None:
    nasty = "a b'c\"d$HOME;e`id`*\n"
    script = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['NASTY']]))"
    run = ddlrun("-np", "1", "-x", f"NASTY={nasty}", "python", "-c", script, nasty, "", "--np", "3")
    assert run.code == 0, run.err
    assert json.loads(run.out) == [[nasty, "", "--np", "3"], nasty]


def test_dry_run_starts_nothing_and_tells_the_plan(ddlrun: Ddlrun) -> None:
    flag = ddlrun.folder / "started"
    run = ddlrun("-np", "2", "--dry-run", "touch", str(flag))
    assert run.code == 0 and "localhost: 2 ranks" in run.out and not flag.exists()
    plan = json.loads(ddlrun("-H", "localhost:3", "--json", "touch", str(flag)).out)
    assert [slot["rank"] for slot in plan["ranks"]] == [0, 1, 2]
    assert plan["ddl_options"] == "-mode p:3x1x1x1" and not flag.exists()


def test_nested_starts_are_refused(ddlrun: Ddlrun) -> None:
    run = ddlrun("-np", "1", *ddlrun.words, "-np", "2", "true")
    assert run.code == 1
    assert "[ERROR DDL-2-11] ddlrun was started inside rank 0 of a running job" in run.err


def test_bad_input(ddlrun: Ddlrun) -> None:
    for words, code, text in (
        (["-np", "2", "no-such-program"], 1, "[ERROR DDL-2-5] the program 'no-such-program' was not found"),
        (["-nodes", "3", "-np", "1", "true"], 1, "3 x 1 x 1 = 3, but the job has 1 hosts"),
        (["-H", "localhost:1", "-np", "2", "true"], 1, "2 ranks asked for, 1 slots there"),
        (["-m", "p:3x1", "-np", "2", "true"], 1, "but the job has 2 ranks"),
        (["-hots", "x", "true"], 2, "unknown option -hots"),
        (["-hostfile", "/absent", "true"], 1, "cannot read the file"),
    ):
        run = ddlrun(*words)
        assert (run.code, text in run.err) == (code, True), run.err
        assert "Traceback" not in run.err


def test_an_unusable_tmpdir_is_named(ddlrun: Ddlrun) -> None:
    run = ddlrun("-np", "1", "true", TMPDIR="/absent/folder")
    assert run.code == 1
    assert "[ERROR DDL-2-12]" in run.err and "TMPDIR /absent/folder" in run.err


def test_help_is_quick_and_imports_nothing_heavy(ddlrun: Ddlrun) -> None:
    run = ddlrun("--help")
    assert run.code == 0 and "Usage: ddlrun" in run.out
    script = next(word for word in ddlrun.words if word.endswith("ddlrun"))
    listed = subprocess.run(
        [str(ddlrun.prefix / "bin/python3"), "-X", "importtime", script, "--help"],
        env=ddlrun.environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    ).stderr
    loaded = {line.rpartition("|")[2].strip() for line in listed.splitlines()}
    assert "ddlrun.cli" in loaded
    assert not loaded & {"numpy", "tensorflow", "mpi4py", "ddl._core", "ddl._hooks"}
    # 118 with click, a tenth of a second; what asks hosts, Slurm and the network waits until there is a job
    assert len(loaded) < 160, sorted(loaded)


def test_verbose_tells_what_ddl_chose(ddlrun: Ddlrun) -> None:
    python = str(ddlrun.prefix / "bin/python3")
    tried = subprocess.run([python, "-c", "import ddl._core"], capture_output=True, timeout=60, check=False)
    if tried.returncode:
        pytest.skip(f"DDL is not installed in {ddlrun.prefix}")
    run = ddlrun("-np", "2", "-v", "python", "-c", "import ddl; print(ddl.size())")
    assert run.code == 0 and run.lines == ["2", "2"], run.err
    assert re.search(r"^\[DDL\] topology \{", run.err, re.M)
    quiet = ddlrun("-np", "2", "python", "-c", "import ddl; print(ddl.size())")
    assert "[DDL]" not in quiet.err


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_as_another_user(ddlrun: Ddlrun) -> None:
    setpriv = shutil.which("setpriv") or pytest.skip("setpriv not found (Debian package util-linux)")
    nobody = pwd.getpwnam("nobody")
    os.chmod(ddlrun.folder, 0o777)
    become = [str(setpriv), "--reuid", str(nobody.pw_uid), "--regid", str(nobody.pw_gid), "--clear-groups"]
    # The tests' own folders may be root's alone; a user's job has a place of its own.
    home = Path("/tmp") / f"ddlrun-test-{os.getpid()}"
    home.mkdir(mode=0o777)
    home.chmod(0o777)
    environment = ddlrun.environment(HOME=str(home), TMPDIR=str(home), USER="nobody", LOGNAME="nobody")
    words, python = ddlrun.words, str(ddlrun.prefix / "bin/python3")
    try:
        # env, because setpriv itself still finds files with root's rights.
        runs = [*become, "env", python, "-c", f"open({str(PROGRAMS / 'show.py')!r})"]
        if subprocess.run(runs, env=environment, cwd="/", capture_output=True, timeout=30).returncode:
            pytest.skip(f"the user nobody cannot run {python} or read {PROGRAMS}")
        done = subprocess.run(
            [*become, *words, "-np", "2", "python", str(PROGRAMS / "show.py")],
            env=environment,
            cwd=home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) == 2
        assert list(home.glob("DDLRUN.*/*.nobody.*/ddlrun.log"))
    finally:
        shutil.rmtree(home)


def test_version(ddlrun: Ddlrun) -> None:
    run = ddlrun("-version")
    assert run.code == 0 and f"environment {ddlrun.prefix}" in run.out
    assert "Open MPI" in run.out


def test_a_slow_reader_gets_everything(ddlrun: Ddlrun) -> None:
    child = ddlrun.start(
        "-np", "1", "python", "-c", "print('x' * 100 + '\\n', end='' ); print('y' * 400_000)"
    )
    time.sleep(5)  # the job is long over, and its end still in the pipes
    run = ddlrun.finish(child)
    assert run.code == 0 and run.out == "x" * 100 + "\n" + "y" * 400_000 + "\n"


def test_a_process_left_behind_is_ended_and_told(ddlrun: Ddlrun) -> None:
    script = "import subprocess as s; print(s.Popen(['setsid', 'sleep', '300'], stdout=-3, stderr=-3).pid)"
    began = time.monotonic()
    run = ddlrun("-np", "1", "python", "-c", script)
    assert run.code == 0 and time.monotonic() - began < 20
    assert "[WARN DDL-2-20] 1 processes of the job" in run.err
    assert not is_alive(int(run.out))


def test_two_signals_at_once_are_one(ddlrun: Ddlrun) -> None:
    child = ddlrun.start("-np", "1", "python", "-c", STUBBORN)
    assert child.stdout and child.stdout.readline() == "up\n"
    child.send_signal(signal.SIGTERM)
    child.send_signal(signal.SIGHUP)
    run = ddlrun.finish(child, 20)
    assert run.code == 128 + signal.SIGTERM or run.code == 128 + signal.SIGHUP
    assert "killing it" not in ddlrun.log()


@pytest.mark.slow
def test_programs_one_after_the_other_in_a_rank(ddlrun: Ddlrun) -> None:
    """A script that prepares and then trains: MPI lets a rank start once, under its launcher."""
    program = (
        "import os, ddl, numpy as np; "
        "print(ddl.rank(), ddl.size(), int(ddl.allreduce(np.ones(1))[0]), os.environ['OMPI_COMM_WORLD_RANK'])"
    )
    one = f'python -c "{program}"'
    run = ddlrun("-q", "-np", "2", "sh", "-c", f"{one} && {one} && {one}")
    assert run.code == 0 and run.lines == ["0 2 2 0"] * 3 + ["1 2 2 1"] * 3, run.out + run.err


LISTENS = """
import os, ddl
ddl.barrier()
fds = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
own = {os.readlink(path) for path in fds if os.path.exists(path)}
rows = [line.split() for name in ("tcp", "tcp6") for line in open(f"/proc/self/net/{name}").readlines()[1:]]
print(os.environ["RANK"], sum(row[3] == "0A" and f"socket:[{row[9]}]" in own for row in rows))
ddl.barrier()
"""


@pytest.mark.slow
def test_ranks_of_one_host_listen_at_no_port(ddlrun: Ddlrun) -> None:
    """With -tcp they do, which shows that the program finds it."""
    assert ddlrun("-q", "-np", "2", "python", "-c", LISTENS).lines == ["0 0", "1 0"]
    by_tcp = ddlrun("-q", "-np", "2", "-tcp", "python", "-c", LISTENS)
    assert by_tcp.lines and "0 0" not in by_tcp.lines, by_tcp.out + by_tcp.err


def test_settings_of_another_mpi(ddlrun: Ddlrun, tmp_path: Path) -> None:
    """They are named by -check, and where MPI does not start with them; one that only breaks mpirun works."""
    (tmp_path / ".openmpi").mkdir()
    (tmp_path / ".openmpi/mca-params.conf").write_text("pml = nothing_has_this_name\n")
    home = {"HOME": str(tmp_path), "OMPI_MCA_coll_hcoll_enable": "1"}
    names = f"OMPI_MCA_coll_hcoll_enable=1, {tmp_path}/.openmpi/mca-params.conf"
    checked = ddlrun("-check", **home)
    assert f"settings of Open MPI from outside, which all ranks get: {names}" in checked.out, checked.out
    assert json.loads(ddlrun("-check", "-json", **home).out)["mpi_settings"] == names.split(", ")
    job = ddlrun("-q", "-np", "2", "python", "-c", "import ddl", **home)
    assert job.code != 0
    assert f"settings of Open MPI from outside, which may be for another one: {names}" in job.err, job.err
    listed = {"OMPI_MCA_mca_base_env_list": "FIRST=1;SECOND;THIRD=a b"}
    job = ddlrun("-q", "-np", "2", "bash", "-c", 'echo "$FIRST $THIRD"', **listed)
    assert job.code == 0 and job.out == "1 a b\n" * 2, job.err


@pytest.mark.skipif(os.geteuid() != 0, reason="a file system of its own needs root")
@pytest.mark.parametrize("free", ["0", "8k"])
def test_a_full_file_system(ddlrun: Ddlrun, tmp_path: Path, free: str) -> None:
    """Where no file can be made, and where only the first ones can."""
    fill = (
        'mount -t tmpfs -o size=16k none "$0" && head -c 100k /dev/zero >"$0/full"; truncate -s -$1 "$0/full"'
    )
    small = tmp_path / "small"
    small.mkdir()
    ddlrun.words = ["unshare", "-m", "sh", "-c", f'{fill}; shift; exec "$@"', str(small), free, *ddlrun.words]
    for word in ("-v", "-check"):
        run = ddlrun(word, "-np", "2", "true", TMPDIR=str(small))
        assert run.code == 1 or (word, free) == ("-check", "8k"), run.err
        assert "Traceback" not in run.err and len(re.findall(r"\[ERROR DDL-2-12\]", run.err)) == run.code, (
            run.err
        )
        assert run.code == 0 or "No space left on device" in run.err, run.err


def test_what_is_named_by_other_ways(ddlrun: Ddlrun, tmp_path: Path) -> None:
    """A hostfile by a pipe or with a mark of its encoding, an address of IPv6, a program beside -wdir."""
    run = ddlrun.by_script('printf "localhost:2\\n" | "$@"', "-q", "-hostfile", "/dev/stdin", "echo", "x")
    assert run.code == 0 and run.out == "x\nx\n", run.err
    (tmp_path / "hosts").write_text("\ufefflocalhost:2\n")
    run = ddlrun("-q", "-hostfile", str(tmp_path / "hosts"), "echo", "x")
    assert run.code == 0 and run.out == "x\nx\n", run.err
    run = ddlrun("-q", "-interface", "none0", "true")
    assert run.code == 2 and "there is no network interface none0, but " in run.err, run.err
    run = ddlrun("-q", "-H", "[::1]:2", "echo", "x")
    assert run.code == 0 and run.out == "x\nx\n", run.err
    shutil.copy("/bin/echo", tmp_path / "program")
    run = ddlrun("-q", "-wdir", str(tmp_path), "./program", "x")
    assert run.code == 0 and run.out == "x\n", run.err
