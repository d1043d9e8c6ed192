"""The mpirun line and the ranks' environment: every word whole, nothing through a shell."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from ddlrun.checks.remote_probe import read_answer, remote_command, step_command
from ddlrun.command_line.options import Options
from ddlrun.environment import Environment
from ddlrun.errors import LaunchError
from ddlrun.placement.slots import Placement, Slot
from ddlrun.start import command, rank_start
from hypothesis import given, settings
from hypothesis import strategies as st

ENVIRONMENT = Environment(Path("/opt/my env"), Path("/opt/my env/ddl"), Path("/opt/my env/bin/mpirun"))
BOUND = Placement((Slot(0, "a", (0,)), Slot(1, "b", (0,))), bound=True, oversubscribed=False)


def line(options: Options, *, remote: bool = False, placed: Placement = BOUND, **variables: str) -> list[str]:
    variables["DDLRUN_JOB"] = "job"
    return command.mpirun_line(
        ENVIRONMENT, options, placed, Path("/run"), variables, remote=remote, stdin_is_tty=False
    )


def test_line() -> None:
    words = line(
        Options(program=("p", "-np", "x y"), mpiarg=("--nolocal", "--mca a 'b c'"), x=("FOO=1",)), PATH="/b"
    )
    text = shlex.join(words)
    assert text.startswith("'/opt/my env/bin/mpirun' --hostfile /run/HOSTFILE -np 2 ")
    assert "--map-by rankfile:file=/run/RANKFILE" in text
    assert text.endswith(
        "-x DDLRUN_JOB --nolocal --mca a 'b c' "
        "'/opt/my env/bin/python3' -I -S '/opt/my env/ddlrun/start/rank_start.py' p -np 'x y'"
    )
    assert "plm_ssh_agent" not in text
    assert "BatchMode=yes" in shlex.join(line(Options(program=("p",)), remote=True))
    assert "--bind-to none" in shlex.join(
        line(Options(program=("p",)), placed=Placement(BOUND.slots, False, True))
    )
    assert "--mca btl self,sm,tcp" in shlex.join(line(Options(program=("p",), tcp=True)))
    assert "rankfile:file=/my/file" in shlex.join(line(Options(program=("p",), rankfile="/my/file")))


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=15), max_size=4
    )
)
def test_the_printed_line_can_be_typed(words: list[str]) -> None:
    made = line(Options(program=("prog", *words)))
    assert shlex.split(command.as_typed(made).removeprefix("+ ")) == made


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMIX_RANK", "0")
    monkeypatch.setenv("PATH", "/usr/bin:/opt/my env/bin")
    monkeypatch.setenv("DDL_RANK_PROCESS", "1:x")
    monkeypatch.setenv("DDL_DEBUG", "1")
    made = command.job_environment(ENVIRONMENT, Options(x=("A=b=c",)), "-mode p", job="j")
    assert "PMIX_RANK" not in made and "DDL_RANK_PROCESS" not in made
    assert made["PATH"] == "/opt/my env/bin:/usr/bin"
    assert made["OMPI_MCA_mpi_yield_when_idle"] == "1" and made["A"] == "b=c"
    handed, chosen = rank_start.decode(command.handed_on(made, Options(x=("A=b=c",))))
    assert {"PATH", "DDL_DEBUG", "DDL_OPTIONS", "DDLRUN_JOB"} <= set(handed) and chosen == ["A"]
    plain = command.job_environment(ENVIRONMENT, Options(), None, job="j")
    assert "DDL_OPTIONS" not in plain
    monkeypatch.setenv("OMPI_MCA_mpi_yield_when_idle", "0")
    chosen = command.job_environment(ENVIRONMENT, Options(), None, job="j")
    assert chosen["OMPI_MCA_mpi_yield_when_idle"] == "0"
    for bad in ("1A=2", "A B", "NOT_SET_ANYWHERE", "=x", "RANK=3", "PMIX_RANK=0"):
        with pytest.raises(LaunchError, match="-x"):
            command.job_environment(ENVIRONMENT, Options(x=(bad,)), None, job="j")


def test_tensorflow_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """-tf1 sets the variable where the environment has what it needs; else it says what is missing."""
    monkeypatch.delenv("DDL_TF1", raising=False)
    environment = Environment(tmp_path, tmp_path / "ddl", tmp_path / "mpirun")

    def variable() -> str | None:
        made = command.job_environment(environment, Options(tf1=True), None, job="j")
        return made.get("DDL_TF1")

    for folder, package in (("tensorflow", "tensorflow"), ("ddl_tf1", "ddl-tensorflow")):
        with pytest.raises(LaunchError, match=f"-tf1: the package {package} is not installed"):
            variable()
        (tmp_path / folder).mkdir()
    assert variable() == "1"
    for value in ("", "0", "no", "off", "False", " 0 "):
        monkeypatch.setenv("DDL_TF1", value)
        assert variable() == "1", value
    for value, expected in (("0", "1"), ("baselines", "baselines")):
        monkeypatch.setenv("DDL_TF1", value)
        assert variable() == expected
    made = command.job_environment(environment, Options(), None, job="j")
    assert made["DDL_TF1"] == "baselines"


def test_root_and_others_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(f"{name}_CONFIRM", raising=False)
    for user, expected in ((0, True), (1000, False)):
        monkeypatch.setattr("os.geteuid", lambda user=user: user)
        made = command.job_environment(ENVIRONMENT, Options(), None, job="j")
        assert ("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM" in made) is expected


hostile = st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1, max_size=12)


@settings(max_examples=30)
@given(hostile)
def test_the_remote_command_survives_any_folder_name(name: str) -> None:
    """What a login shell gets is one word for /bin/sh, and that looks for exactly this path: here, in
    vain.
    """
    environment = Environment(Path("/nowhere") / name, Path("/nowhere/ddl"), Path("/nowhere/mpirun"))
    words = remote_command("host", environment, "0f")
    assert words[-3:-1] == ["--", "host"]
    done = subprocess.run(
        ["/bin/sh", "-c", words[-1]], capture_output=True, text=True, timeout=10, check=False
    )
    assert done.returncode == 0 and done.stderr == ""
    assert read_answer("noise\n" + done.stdout + "noise", "0f") is None


def test_answers_without_marks_are_no_answers() -> None:
    with pytest.raises(ValueError):
        read_answer("@@ddlrun:aa@@null@@ddlrun:aa@@", "bb")


@settings(max_examples=20)
@given(hostile)
def test_the_step_of_slurm_survives_any_folder_name(name: str) -> None:
    """Every host answers by its own name in Slurm."""
    environment = Environment(Path("/nowhere") / name, Path("/nowhere/ddl"), Path("/nowhere/mpirun"))
    words = step_command(["n1", "n2"], environment, "0f", ["n1", "n2"])
    assert words[0] == "srun" and "--nodelist=n1,n2" in words
    done = subprocess.run(
        words[words.index("/bin/sh") :],
        env={"SLURMD_NODENAME": "n2", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    assert done.returncode == 0 and done.stderr == ""
    assert read_answer(done.stdout, "n2.0f") is None
