"""The environment of ddlrun reaches every rank alike, whatever launched it; a program's words are its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ddlrun.command_line.options import Options
from ddlrun.errors import LaunchError
from ddlrun.start import command, rank_start
from ddlrun_program import Ddlrun, environment_of_rank
from hypothesis import given, settings
from hypothesis import strategies as st

names = st.text(st.characters(exclude_characters="=\0", exclude_categories=["Cs"]), min_size=1, max_size=12)
values = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)


@settings(max_examples=40)
@given(st.dictionaries(names, values, max_size=30), st.data())
def test_what_is_handed_on_arrives(variables: dict[str, str], data: st.DataObject) -> None:
    chosen = [name for name in variables if data.draw(st.booleans())]
    handed, kept = rank_start.decode(rank_start.encode(variables, chosen))
    assert set(kept) == set(chosen)
    for name, value in handed.items():
        assert variables[name] == value
    missing = set(variables) - set(handed)
    assert all(name not in chosen for name in missing)


def test_large_environments_are_compressed_and_the_largest_are_refused() -> None:
    large = {f"V{number}": "/a/long/path/of/a/module" * 20 for number in range(300)}
    text = command.handed_on(large, Options())
    assert len(text) < 32 << 10 and rank_start.decode(text)[0] == large
    with pytest.raises(LaunchError, match="NOISE has 200000 bytes") as refused:
        command.handed_on({**large, "NOISE": os.urandom(100_000).hex()}, Options())
    assert refused.value.exit_code == 2


def test_odd_names_and_bytes_arrive() -> None:
    """Exported functions of bash, and what is no UTF-8."""
    odd = {"BASH_FUNC_module%%": "() { echo; }", "a.b": "1", "BYTES": os.fsdecode(b"\xff\xfe\n'\"$x")}
    seen = environment_of_rank(odd, {"PMIX_RANK": "0"})
    assert {name: seen[name] for name in odd} == odd


def test_what_belongs_to_a_host_stays_and_start_files_of_a_host_add_nothing() -> None:
    here = {
        "KERAS_BACKEND": "torch",
        "OMP_NUM_THREADS": "1",
        "DISPLAY": ":0",
        "SSH_AUTH_SOCK": "/here",
        "HOSTNAME": "here",
        "CUDA_VISIBLE_DEVICES": "GPU-of-here",
        "SLURM_JOB_ID": "7",
        "SLURM_PROCID": "0",
        "OMPI_MCA_pml": "ob1",
    }
    there = {
        "PMIX_RANK": "1",
        "OMPI_COMM_WORLD_RANK": "1",
        "HOSTNAME": "there",
        "PYTHONPATH": "/opt/py",
        "KERAS_BACKEND": "jax",
        "LD_LIBRARY_PATH": "/env/lib",
        "SLURM_PROCID": "3",
        "UCX_NET_DEVICES": "mlx5_1:1",
    }
    seen = environment_of_rank(here, there)
    assert seen.pop("PATH") == os.defpath
    assert seen == {
        "KERAS_BACKEND": "torch",
        "OMP_NUM_THREADS": "1",
        "SLURM_JOB_ID": "7",
        "OMPI_MCA_pml": "ob1",
        "PMIX_RANK": "1",
        "OMPI_COMM_WORLD_RANK": "1",
        "HOSTNAME": "there",
        "SLURM_PROCID": "3",
        "UCX_NET_DEVICES": "mlx5_1:1",
        "RANK": "1",
    }
    # what -x names counts everywhere
    named = environment_of_rank(here, there, chosen=["HOSTNAME", "DISPLAY", "SLURM_PROCID"])
    assert (named["HOSTNAME"], named["DISPLAY"], named["SLURM_PROCID"]) == ("here", ":0", "0")


def test_folders_are_the_users_where_they_exist(tmp_path: Path) -> None:
    present, absent = str(tmp_path), str(tmp_path / "none")
    for here, there, expected in (
        (present, "/", present),
        (absent, present, present),
        (absent, absent + "2", absent + "2"),
    ):
        seen = environment_of_rank({"TMPDIR": here}, {"PMIX_RANK": "0", "TMPDIR": there})
        assert seen["TMPDIR"] == expected
    assert environment_of_rank({"TMPDIR": absent}, {"PMIX_RANK": "0"}, chosen=["TMPDIR"])["TMPDIR"] == absent
    assert "TMPDIR" not in environment_of_rank({}, {"PMIX_RANK": "0"})


@given(st.lists(st.one_of(st.text(max_size=5), st.sampled_from([":", "\\:", "\\\\:", "a:", "\\"]))))
def test_no_word_is_a_lone_colon_and_all_come_back(words: list[str]) -> None:
    sent = rank_start.escaped(words)
    assert ":" not in sent and rank_start.unescaped(sent) == words


@pytest.mark.slow
def test_words_are_the_programs_own(ddlrun: Ddlrun) -> None:
    """mpirun begins another program after a lone colon."""
    words = ["a", ":", "b", "--", "\\:", "-np", "3", "", "é"]
    show = "import sys; print(ascii(sys.argv[1:]))"
    run = ddlrun("-np", "2", "python", "-c", show, *words)
    assert run.code == 0 and run.lines == [ascii(words)] * 2, run.out + run.err


@pytest.mark.slow
def test_exported_functions_reach_the_ranks(ddlrun: Ddlrun) -> None:
    script = 'greet() { echo hello $1; }; export -f greet; exec "$@"'
    run = ddlrun.by_script(script, "-q", "-np", "2", "bash", "-c", "greet you")
    assert run.code == 0 and run.out == "hello you\nhello you\n", run.err


@pytest.mark.slow
def test_who_starts_no_program_is_told_by_the_usual_code(ddlrun: Ddlrun, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program\n")
    for name, code in (("/nowhere/at-all", 127), (str(plain), 126)):
        ended = subprocess.run(
            [sys.executable, "-I", "-S", rank_start.__file__, name],
            env={"PMIX_RANK": "0"},
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert ended.returncode == code and name in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "message"),
    [("RANK=7", "every rank has its own"), ("WORLD_SIZE=16", "the job has 2 ranks")],
)
def test_what_a_rank_is_cannot_be_set(ddlrun: Ddlrun, setting: str, message: str) -> None:
    run = ddlrun("-np", "2", "-x", setting, "true")
    assert run.code == 2 and message in run.err, run.err


@pytest.mark.slow
def test_the_users_meeting_place_counts(ddlrun: Ddlrun) -> None:
    run = ddlrun(
        *("-np", "2", "-x", "WORLD_SIZE=2", "-x", "MASTER_ADDR=10.9.8.7", "-x", "MASTER_PORT=1234"),
        *("sh", "-c", 'echo "$RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT"'),
    )
    assert run.lines == ["0 2 10.9.8.7 1234", "1 2 10.9.8.7 1234"], run.out + run.err
