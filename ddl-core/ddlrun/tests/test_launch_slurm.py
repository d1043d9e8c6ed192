"""Starts in jobs of a real Slurm: three hosts of two CPUs below two switches, a slurmd on each."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ddlrun_program import PROGRAMS, Ddlrun
from emulated import shared_folders, started_slurm
from rank_processes import ALLOW_ROOT

from ddl_validate.cluster import ClusterSpec, HostSpec
from ddl_validate.cluster.slurm import Slurm

# What mpirun and PMIx need for ranks of root, and for more ranks than cores.
ENVIRONMENT = {"SHLVL": "1", **ALLOW_ROOT, "OMPI_MCA_mpi_yield_when_idle": "1"}
RACKS = [
    ["rack", "rack0", [0, 1, 2, 3]],
    ["host", "h1", [0, 1]],
    ["host", "h2", [2, 3]],
    ["rack", "rack1", [4, 5]],
    ["host", "h3", [4, 5]],
]
# The first two hosts by name: Slurm takes h3 where h1 is still busy with the end of the test before.
TWO = "-w h1,h2"
LINES = [f"{rank} of 6 on h{1 + rank // 2} sum 21" for rank in range(6)]


@pytest.fixture(scope="module")
def slurm(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    spec = ClusterSpec.uneven(
        [2, 2, 2], racks=2, shared=shared_folders(prefix), environment=ENVIRONMENT, life_seconds=600
    )
    with started_slurm(spec, tmp_path_factory.mktemp("cluster") / "state") as made:
        yield made


Job = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def salloc(slurm: Slurm, ddlrun: Ddlrun) -> Job:
    """salloc(resources, words…): ddlrun with these words in a job."""

    def run(resources: str, *words: str, limit: float = 60, **more: str) -> subprocess.CompletedProcess[str]:
        line = ["salloc", "--quiet", *resources.split(), *ddlrun.words, *words]
        return slurm.run(line, timeout=limit, env={**ddlrun.variables, **more})

    return run


@pytest.fixture
def sbatch(slurm: Slurm) -> Job:
    """sbatch(resources, script): the batch script's code and its output."""

    def run(resources: str, script: str) -> subprocess.CompletedProcess[str]:
        output = slurm.cluster.state / "output"
        words = ["sbatch", "--parsable", *resources.split(), "-o", str(output), "--wrap", script]
        job = slurm.run(words, timeout=20, check=True).stdout.strip()
        end = time.monotonic() + 60
        while time.monotonic() < end:  # `sbatch -W` looks every ten seconds only
            told = slurm.run(["scontrol", "show", "job", "-o", job], timeout=20, check=True).stdout
            if re.search(r"JobState=(?!PENDING|CONFIGURING|RUNNING|COMPLETING)", told):
                code = re.search(r" ExitCode=(\d+):", told)
                assert code
                return subprocess.CompletedProcess(words, int(code[1]), output.read_text(), "")
            time.sleep(0.2)
        raise AssertionError(f"the batch job did not end: {told}\n{output.read_text()}")

    return run


def reduced(text: str) -> tuple[list[str], list[object]]:
    """The ranks' lines without their cores, and the groups, of reduced.py."""
    lines = sorted(re.findall(r"^(\d+ of .*) cores", text, re.MULTILINE))
    groups = re.search(r"^groups (.*)$", text, re.MULTILINE)
    return lines, json.loads(groups[1]) if groups else []


def cores(text: str) -> list[str]:
    return [found[1] for found in sorted(re.findall(r"^(\d+) of .* cores (\S+)", text, re.MULTILINE))]


def processes(slurm: Slurm, pattern: str) -> str:
    """What runs on any of the hosts."""
    found = [
        slurm.cluster.run(host.name, ["pgrep", "-f", pattern], timeout=10).stdout
        for host in slurm.cluster.spec.hosts
    ]
    return "".join(found)


def test_sbatch_with_ddlrun(sbatch: Job, ddlrun: Ddlrun) -> None:
    run = sbatch("-N3 --ntasks-per-node=2", f"{' '.join(ddlrun.words)} python {PROGRAMS / 'reduced.py'}")
    assert run.returncode == 0, run.stdout
    assert reduced(run.stdout) == (LINES, RACKS)
    assert "/bin/mpirun " in run.stdout and "WARN" not in run.stdout


@pytest.mark.parametrize("launcher", ["mpirun", "srun"])
def test_salloc(launcher: str, salloc: Job) -> None:
    run = salloc("-N3 --ntasks-per-node=2", "-launcher", launcher, "python", str(PROGRAMS / "reduced.py"))
    assert run.returncode == 0, run.stderr
    assert reduced(run.stdout) == (LINES, RACKS)
    assert cores(run.stdout) == ["0", "1"] * 3
    line = next(line for line in run.stderr.splitlines() if line.startswith("+ "))
    assert line.startswith("+ srun --mpi=pmix") if launcher == "srun" else "/bin/mpirun " in line, line
    assert "Sorry" not in run.stderr and "WARN" not in run.stderr


@pytest.mark.parametrize("launcher", ["mpirun", "srun"])
def test_a_cluster_of_tensorflow(launcher: str, salloc: Job) -> None:
    """Parameter servers beside the ranks of a step; a task that fails comes back."""
    words = ("-launcher", launcher, "-ps", "2", "-max-restarts", "1", "python", str(PROGRAMS / "task.py"))
    run = salloc(f"-N2 {TWO} --ntasks-per-node=1", *words, "worker.0=meet", "worker.1=meet", "ps.1@0=exit.3")
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("has reached all") == 2
    assert "ps 1 on h2 ended with exit code 3; started again (1 of 1)" in run.stderr, run.stderr
    told = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert {(one["task"], one["host"]) for one in told} == {
        *(("worker 0", "h1"), ("worker 1", "h2"), ("ps 0", "h1"), ("ps 1", "h2"))
    }


@pytest.mark.long
def test_sbatch_with_srun_by_ddlrun(sbatch: Job, ddlrun: Ddlrun) -> None:
    """A batch script that gets nothing of the user's environment, on a part of the hosts."""
    words = f"{' '.join(ddlrun.words)} -launcher srun python {PROGRAMS / 'reduced.py'}"
    run = sbatch("--export=NONE -N3 -n4", f"export OMPI_MCA_mpi_yield_when_idle=1; {words}")
    assert run.returncode == 0, run.stdout
    lines, groups = reduced(run.stdout)
    assert lines == [f"{rank} of 4 on {host} sum 10" for rank, host in enumerate(["h1", "h1", "h2", "h3"])]
    assert groups[0] == ["rack", "rack0", [0, 1, 2]]


@pytest.mark.long
@pytest.mark.parametrize("launcher", ["mpirun", "srun"])
def test_uneven_tasks(launcher: str, salloc: Job) -> None:
    """Hosts in another order than Slurm's, with different numbers of ranks."""
    words = ["-launcher", launcher, "-H", "h3:1,h1:2", "python", str(PROGRAMS / "reduced.py")]
    run = salloc("-N3 --ntasks-per-node=2", *words)
    assert run.returncode == 0, run.stderr
    assert reduced(run.stdout)[0] == ["0 of 3 on h3 sum 6", "1 of 3 on h1 sum 6", "2 of 3 on h1 sum 6"]


def test_more_ranks_than_cpus(salloc: Job) -> None:
    run = salloc(
        f"{TWO} --ntasks-per-node=2", "-launcher", "srun", "-H", "h1:3", "python", str(PROGRAMS / "joined.py")
    )
    assert run.returncode == 0, run.stderr
    assert sorted(run.stdout.splitlines()) == [f"{rank} on h1 sum 3" for rank in range(3)]
    assert "--overcommit --cpu-bind=none" in run.stderr


def test_srun_without_ddlrun(slurm: Slurm, prefix: Path) -> None:
    words = ["srun", "-N3", "-n6", "--mpi=pmix", str(prefix / "bin/python3"), str(PROGRAMS / "reduced.py")]
    run = slurm.run(words, timeout=60, env={"PMIX_MCA_psec": "native"})
    assert run.returncode == 0, run.stderr
    assert reduced(run.stdout) == (LINES, RACKS)
    assert run.stderr == ""


@pytest.mark.long
def test_mpirun_without_ddlrun(slurm: Slurm, prefix: Path) -> None:
    mpirun = [str(prefix / "bin/mpirun"), "-n", "4", str(prefix / "bin/python3")]
    words = ["salloc", "--quiet", *TWO.split(), "--ntasks-per-node=2", *mpirun, str(PROGRAMS / "reduced.py")]
    run = slurm.run(words, timeout=60)
    assert run.returncode == 0, run.stderr
    assert reduced(run.stdout)[0] == [f"{rank} of 4 on h{1 + rank // 2} sum 10" for rank in range(4)]


@pytest.mark.parametrize(
    ("deed", "number", "code", "said"),
    [
        ("exit", 9, 9, "ended with exit code 9"),
        ("signal", 9, 137, "was killed by signal 9 (SIGKILL)"),
    ],
)
@pytest.mark.parametrize("launcher", ["mpirun", "srun"])
def test_a_rank_that_dies_is_named(
    launcher: str, deed: str, number: int, code: int, said: str, salloc: Job, slurm: Slurm
) -> None:
    began = time.monotonic()
    words = ["-launcher", launcher, "python", str(PROGRAMS / "obey.py"), "3", deed, str(number)]
    run = salloc(f"{TWO} --ntasks-per-node=2", *words)
    assert run.returncode == code, run.stderr
    assert time.monotonic() - began < 20
    assert f"[ERROR DDL-2-13] rank 3 {said}; on host h2; its last lines:" in run.stderr, run.stderr
    assert "  | rank 3 is here" in run.stderr and "STEP" not in run.stderr
    assert processes(slurm, "obey.py") == ""


def test_a_limit_ends_all(salloc: Job, slurm: Slurm) -> None:
    run = salloc("-N2 --ntasks-per-node=1", "-launcher", "srun", "-timeout", "3", "sleep", "4243")
    assert run.returncode == 124, run.stderr
    assert processes(slurm, "sleep 4243") == ""


def test_a_program_that_does_not_exist_there(salloc: Job, slurm: Slurm, tmp_path: Path) -> None:
    run = salloc("-N2", "-launcher", "srun", "-skip-checks", "/nowhere/program")
    assert run.returncode not in (0, 13)
    assert "/nowhere/program" in run.stderr and "[ERROR DDL-2-" in run.stderr


def test_ddlrun_as_a_task_is_refused(slurm: Slurm, ddlrun: Ddlrun) -> None:
    run = slurm.run(["srun", "-N2", *ddlrun.words, "true"], timeout=60, env=ddlrun.variables)
    assert run.returncode == 1
    assert run.stderr.count("[ERROR DDL-2-11]") == 2


def test_ddlrun_in_an_interactive_step(slurm: Slurm, ddlrun: Ddlrun) -> None:
    """`srun --pty bash` holds the CPUs of the job; the ranks' step must not wait for it."""
    words = ["-launcher", "srun", "-H", "h1:2", "python", str(PROGRAMS / "joined.py")]
    run = slurm.run(
        ["srun", "-w", "h1", "-n1", "-c2", *ddlrun.words, *words], timeout=60, env=ddlrun.variables
    )
    assert run.returncode == 0, run.stderr
    assert sorted(run.stdout.splitlines()) == ["0 on h1 sum 1", "1 on h1 sum 1"]


def test_ddlrun_in_the_shell_of_a_step_has_the_tasks_of_the_job(slurm: Slurm, ddlrun: Ddlrun) -> None:
    """srun writes the numbers of its step in place of the job's."""
    shell = ["srun", "--mpi=none", "--overlap", "-N1", "-n1", *ddlrun.words, "-q"]
    program = ["python", str(PROGRAMS / "joined.py")]
    for resources in (["-N2", "--ntasks-per-node=2"], ["-N2", "-n4"]):
        line = ["salloc", "--quiet", *resources, "-w", "h1,h2", *shell, *program]
        run = slurm.run(line, timeout=60, env=ddlrun.variables)
        assert run.returncode == 0, run.stderr
        assert sorted(run.stdout.splitlines()) == [f"{rank} on h{1 + rank // 2} sum 6" for rank in range(4)]


def test_a_job_without_an_exported_environment(sbatch: Job, ddlrun: Ddlrun) -> None:
    """After `sbatch --export=NONE`, which many sites ask for, srun exports nothing by itself."""
    settings = f"export PATH={ddlrun.prefix}/bin:/usr/bin:/bin; " + " ".join(
        f"export {name}={value};" for name, value in ENVIRONMENT.items()
    )
    run = sbatch(
        "--export=NONE -N2 --ntasks-per-node=1",
        f"{settings} MY_SETTING=yes {' '.join(ddlrun.words)} -q sh -c 'echo $RANK $MY_SETTING'",
    )
    assert run.returncode == 0 and sorted(run.stdout.splitlines()) == ["0 yes", "1 yes"], run.stdout


def test_all_components_of_a_heterogeneous_job_take_part(slurm: Slurm, ddlrun: Ddlrun) -> None:
    line = ["salloc", "--quiet", "-N1", "-n1", "-w", "h1", ":", "-N1", "-n2", "-w", "h3"]
    run = slurm.run(
        [*line, *ddlrun.words, "-q", "python", str(PROGRAMS / "joined.py")], timeout=60, env=ddlrun.variables
    )
    assert run.returncode == 0, run.stderr
    expected = ["0 on h1 sum 3", "1 on h3 sum 3", "2 on h3 sum 3"]
    assert sorted(run.stdout.splitlines()) == expected, (
        run.stderr + slurm.run([*line, "env"], timeout=60).stdout
    )


def test_a_host_of_no_job(salloc: Job) -> None:
    run = salloc(TWO, "-launcher", "srun", "-H", "h1,h3", "true")
    assert run.returncode == 1
    assert re.search(r"\[ERROR DDL-2-24\] host h3 does not belong to Slurm job \d+; in -H", run.stderr)


def test_a_step_that_slurm_cannot_launch(prefix: Path, ddlrun: Ddlrun, tmp_path: Path) -> None:
    """srun itself ends with code 0 then; here its PMIx plug-in finds the path of its socket too long."""
    spec = ClusterSpec(
        (HostSpec("h1", slots=2),), shared=shared_folders(prefix), environment=ENVIRONMENT, life_seconds=200
    )
    with started_slurm(spec, tmp_path / "state", spool=f"/run/{'long' * 20}") as slurm:
        line = ["salloc", "--quiet", "-n2", *ddlrun.words, "-launcher", "srun", "python", "-c", "print(1)"]
        run = slurm.run(line, timeout=60, env=ddlrun.variables)
    assert run.returncode == 1, run.stdout + run.stderr
    assert "[ERROR DDL-2-" in run.stderr and "before the job was over" in run.stderr, run.stderr
    assert "log of slurmd" in run.stderr, run.stderr


def test_hosts_closed_to_ssh(prefix: Path, ddlrun: Ddlrun, tmp_path: Path) -> None:
    """h2 is looked at by a step of Slurm, whose daemons start the ranks, too."""
    spec = ClusterSpec(
        (HostSpec("h1", slots=2), HostSpec("h2", slots=2, accepts_key=False)),
        shared=shared_folders(prefix),
        environment=ENVIRONMENT,
        life_seconds=200,
    )
    with started_slurm(spec, tmp_path / "state") as slurm:
        for launcher in ("mpirun", "srun"):
            line = ["salloc", "--quiet", "-N2", "--ntasks-per-node=2", *ddlrun.words, "-launcher", launcher]
            run = slurm.run([*line, "python", str(PROGRAMS / "reduced.py")], timeout=60, env=ddlrun.variables)
            assert run.returncode == 0, run.stderr
            ranks = [f"{rank} of 4 on h{1 + rank // 2} sum 10" for rank in range(4)]
            assert reduced(run.stdout)[0] == ranks, run.stdout + run.stderr
            assert cores(run.stdout) == ["0", "1"] * 2
            assert "[WARN DDL-2-18]" not in run.stderr, run.stderr


@pytest.mark.parametrize(
    ("launcher", "to", "name", "code"),
    [
        ("mpirun", "--batch", "TERM", 143),
        ("srun", "--batch", "TERM", 143),
        ("mpirun", "--batch", "USR1", 0),
        ("srun", "--batch", "USR1", 0),
        ("srun", "", "USR2", 0),
    ],
)
def test_the_warning_before_preemption(
    launcher: str, to: str, name: str, code: int, slurm: Slurm, ddlrun: Ddlrun
) -> None:
    """What `--signal=B:TERM@60`, `B:USR1@60` and `USR2@60` bring: each rank gets it, and ends in its time."""
    program = f"-launcher {launcher} -grace 20 python {PROGRAMS / 'preempted.py'}"
    state, said = warned(slurm, ddlrun, program, to, name)
    hosts = re.findall(rf"^(\d) on (\S+) got SIG{name}$", said, re.MULTILINE)
    assert sorted(rank for rank, _ in hosts) == ["0", "1"] and len({host for _, host in hosts}) == 2, said
    assert re.search(rf" ExitCode={code}:0 ", state), state + said


def test_a_warning_to_mpiruns_daemons(slurm: Slurm, ddlrun: Ddlrun) -> None:
    """Without B: Slurm tells the steps, which are the daemons of the other hosts and the ranks there. It ends
    none of them.
    """
    program = (
        "trap 'echo warned' USR2; echo is ready; for i in 1 2 3 4 5 6 7 8; do sleep 0.5; done; echo over"
    )
    line = f"-launcher mpirun sh -c {shlex.quote(program)}"
    state, said = warned(slurm, ddlrun, line, "", "USR2")
    assert " ExitCode=0:0 " in state and said.count("over\n") == 2 and "warned\n" in said, state + said


@pytest.mark.parametrize("launcher", ["mpirun", "srun"])
def test_what_is_piped_into_ddlrun(launcher: str, slurm: Slurm, ddlrun: Ddlrun) -> None:
    """Rank 0 is on another host than ddlrun, in a step of Slurm."""
    data = bytes(range(256)) * 20_000
    read = "import hashlib, os, sys; data = sys.stdin.buffer.read(); "
    read += "print(os.environ['RANK'], os.uname().nodename, hashlib.sha256(data).hexdigest())"
    words = ["salloc", "--quiet", *TWO.split(), *ddlrun.words, "-launcher", launcher, "-H", "h2:1,h1:1"]
    variables = {**slurm.environment, **ddlrun.variables}
    line = slurm.cluster.command("h1", [*words, "python", "-c", read], env=variables)
    run = subprocess.run(line, input=data, capture_output=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    sums = [hashlib.sha256(known).hexdigest() for known in (data, b"")]
    assert sorted(run.stdout.decode().splitlines()) == [f"0 h2 {sums[0]}", f"1 h1 {sums[1]}"], run.stderr


def warned(slurm: Slurm, ddlrun: Ddlrun, line: str, to: str, name: str) -> tuple[str, str]:
    """A batch job of two hosts that becomes ddlrun, and gets a signal once both ranks are ready.

    Returns:
        Slurm's words on it, and its output.
    """
    output = slurm.cluster.state / "warned"
    output.unlink(missing_ok=True)
    words = ["sbatch", "--parsable", "-N2", "--ntasks-per-node=1", "-o", str(output)]
    words += ["--wrap", f"exec {' '.join(ddlrun.words)} {line}"]
    job = slurm.run(words, timeout=20, check=True).stdout.strip()
    end = time.monotonic() + 60

    def state() -> str:
        assert time.monotonic() < end, output.read_text()
        time.sleep(0.1)
        return slurm.run(["scontrol", "show", "job", "-o", job], timeout=20, check=True).stdout

    while not output.exists() or len(re.findall("is ready$", output.read_text(), re.MULTILINE)) < 2:
        assert "JobState=FAILED" not in state(), output.read_text()
    # Slurm's clock has minutes; so the signal is sent as it is at the time of --signal.
    slurm.run(["scancel", *filter(None, [to]), f"--signal={name}", job], timeout=20, check=True)
    while re.search(r"JobState=(RUNNING|COMPLETING)", told := state()):
        pass
    return told, output.read_text()
