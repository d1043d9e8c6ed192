"""Output with marks, output in files, and what a terminal is shown of a start."""

from __future__ import annotations

import os
import pty
import shlex
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from ddlrun.run.output_streams import RankFiles, Tagger
from ddlrun.run.rank_output import WholeLines
from ddlrun_program import PROGRAMS, Ddlrun
from hypothesis import given, settings
from hypothesis import strategies as st

# With a file as its argument, rank 1 kills itself once rank 0 has written everything, and rank 0 stays.
CHATTER = (
    "import os, pathlib, sys, time\n"
    "rank = os.environ['OMPI_COMM_WORLD_RANK']\n"
    "for i in range(50):\n"
    "    sys.stdout.write(f'{rank} says '); sys.stdout.flush(); time.sleep(0.002)\n"
    "    sys.stdout.write(f'{i}\\n'); sys.stdout.flush()\n"
    "sys.stderr.write(f'{rank} ends'); sys.stderr.flush()\n"
    "if len(sys.argv) < 2: sys.exit()\n"
    "all_written, end = pathlib.Path(sys.argv[1]), time.monotonic() + 30\n"
    "if rank == '0': all_written.touch()\n"
    "while not all_written.exists() and time.monotonic() < end: time.sleep(0.01)\n"
    "if rank == '1': os.kill(os.getpid(), 9)\n"
    "time.sleep(20)\n"
)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.text("ab\r\n", max_size=12).map(str.encode)), max_size=20),
)
def test_marked_lines_are_whole_and_nothing_is_lost(written: list[tuple[int, bytes]]) -> None:
    tagger = Tagger(lambda rank: b"<%d>" % rank)
    shown = b"".join(tagger.feed(rank, data) for rank, data in written) + tagger.rest()
    for rank in range(4):
        all_of_it = b"".join(data for owner, data in written if owner == rank)
        pieces = [part for part in shown.split(b"<") if part.startswith(b"%d>" % rank)]
        got = b"".join(part.partition(b">")[2] for part in pieces)
        assert got.rstrip(b"\r\n") == all_of_it.rstrip(b"\r\n")
        assert len(pieces) == len(all_of_it.splitlines())
        assert all(part.endswith((b"\r", b"\n")) for part in pieces)


def test_every_line_has_its_rank(ddlrun: Ddlrun) -> None:
    run = ddlrun("-np", "3", "-tag-output", "python", "-c", CHATTER)
    assert run.code == 0, run.err
    expected = [f"[{rank}] {rank} says {i}" for rank in range(3) for i in range(50)]
    assert sorted(run.out.splitlines()) == sorted(expected)
    for rank in range(3):
        assert f"[{rank}] {rank} ends\n" in run.err


def test_with_verbose_also_its_host(ddlrun: Ddlrun) -> None:
    run = ddlrun("-np", "2", "-prefix", "-v", "echo", "hello")
    assert run.code == 0 and run.lines == ["[0 localhost] hello", "[1 localhost] hello"], run.err


@pytest.mark.parametrize("tagged", [(), ("-tag-output",)])
def test_files_are_complete_although_the_rank_is_killed(ddlrun: Ddlrun, tagged: tuple[str, ...]) -> None:
    folder, all_written = ddlrun.folder / "out", ddlrun.folder / "written"
    run = ddlrun(
        "-np", "2", *tagged, "-output-folder", str(folder), "python", "-c", CHATTER, str(all_written)
    )
    assert run.code == 137
    assert "rank 1 was killed by signal 9 (SIGKILL); on host localhost; its last lines:" in run.err
    assert "  | 1 says 49\n  | 1 ends\n" in run.err
    assert sorted(path.name for path in folder.iterdir()) == ["rank-0.log", "rank-1.log"]
    for rank in range(2):
        said = "".join(f"{rank} says {i}\n" for i in range(50))
        assert (folder / f"rank-{rank}.log").read_text() == f"{said}{rank} ends"


def test_files_are_complete_although_ddlrun_is_killed(ddlrun: Ddlrun) -> None:
    folder = ddlrun.folder / "out"
    script = "import time; print('written', flush=True); time.sleep(60)"
    child = ddlrun.start("-np", "1", "-output-folder", str(folder), "python", "-c", script)
    assert child.stdout and child.stdout.readline() == "written\n"
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=20)
    assert (folder / "rank-0.log").read_text() == "written\n"


def test_each_run_of_a_restarted_job_has_its_files(ddlrun: Ddlrun) -> None:
    folder = ddlrun.folder / "out"
    script = "echo run $DDL_RESTART_COUNT; exit 3"
    run = ddlrun("-np", "1", "-max-restarts", "1", "-output-folder", str(folder), "sh", "-c", script)
    assert run.code == 3
    assert (folder / "rank-0.log").read_text() == "run 0\n"
    assert (folder / "restart-1/rank-0.log").read_text() == "run 1\n"


def test_a_folder_that_cannot_be_made_is_named(ddlrun: Ddlrun) -> None:
    run = ddlrun("-np", "1", "-output-folder", "/proc/none", "true")
    assert run.code == 1 and "[ERROR DDL-2-12]" in run.err and "; in -output-folder; " in run.err


def test_more_ranks_than_open_files(tmp_path: Path) -> None:
    files = RankFiles(tmp_path / "out", 1000, pytest.fail)
    for turn in range(2):
        for rank in range(1000):
            files.add(rank, b"%d.%d\n" % (rank, turn))
    files.close()
    assert (tmp_path / "out/rank-007.log").read_text() == "7.0\n7.1\n"
    assert (tmp_path / "out/rank-999.log").read_text() == "999.0\n999.1\n"


@pytest.mark.parametrize(
    ("deed", "number", "code", "words"),
    [
        ("signal", signal.SIGSEGV, 139, "was killed by signal 11 (SIGSEGV)"),
        ("raise", 0, 1, "ended with exit code 1"),
        ("leave", 0, 1, "left before MPI was finalised, while the others went on"),
        ("abort", 5, 5, "called MPI_Abort with code 5"),
    ],
)
def test_how_a_rank_ended(ddlrun: Ddlrun, deed: str, number: int, code: int, words: str) -> None:
    run = ddlrun("-np", "3", "-timeout", "60", "python", str(PROGRAMS / "fail.py"), "1", deed, str(number))
    assert run.code == code, run.err
    assert f"[ERROR DDL-2-13] rank 1 {words}; on host localhost; its last lines:" in run.err, run.err
    assert "  | rank 1 is here" in run.err


def terminal_shows(ddlrun: Ddlrun, *words: str) -> str:
    """What a terminal gets on standard error."""
    ours, theirs = pty.openpty()
    seen = bytearray()

    def read() -> None:
        try:
            while data := os.read(ours, 4096):
                seen.extend(data)
        except OSError:
            pass  # Linux' way of saying that the other side is closed

    reader = threading.Thread(target=read)
    reader.start()
    try:
        subprocess.run(
            [*ddlrun.words, *words],
            env=ddlrun.environment(),
            cwd=ddlrun.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            timeout=60,
            check=True,
        )
    finally:
        os.close(theirs)
        reader.join(10)
        os.close(ours)
    return seen.decode()


def test_a_terminal_is_shown_the_start(ddlrun: Ddlrun) -> None:
    seen = terminal_shows(ddlrun, "-np", "2", "true")
    for text in ("checking 1 hosts", "checked 1 of 1 hosts", "starting 2 ranks on 1 hosts"):
        assert f"\r\x1b[K[DDL] {text}" in seen
    assert seen.endswith("\r\x1b[K")


def test_others_are_not(ddlrun: Ddlrun) -> None:
    run = ddlrun("-np", "2", "true")
    assert run.code == 0 and "\x1b" not in run.err and "[DDL]" not in run.err


# ---- as they are written


def pieces(
    ddlrun: Ddlrun, *words: str, stdin: bytes = b"", terminal: bool = False
) -> list[tuple[float, bytes]]:
    """When which part of ddlrun's output came, in seconds after the first."""
    command = [*ddlrun.words, "-q", *words]
    if terminal:
        command = ["script", "-qec", shlex.join(command), "/dev/null"]
    child = subprocess.Popen(
        command,
        env=ddlrun.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert child.stdin and child.stdout
    child.stdin.write(stdin)
    child.stdin.close()
    found: list[tuple[float, bytes]] = []
    while data := os.read(child.stdout.fileno(), 1 << 16):
        found.append((time.monotonic(), data))
    assert child.wait(30) == 0, found
    return found


@pytest.mark.slow
def test_a_progress_bar_moves(ddlrun: Ddlrun) -> None:
    """Each piece comes before the program has written the next one."""
    steps = (
        "import sys, time\n"
        "for i in range(4): sys.stderr.write(f'\\r{i}/4'); sys.stderr.flush(); time.sleep(0.6)"
    )
    found = [data for _, data in pieces(ddlrun, "-np", "1", "python", "-c", steps)]
    assert found == [f"\r{i}/4".encode() for i in range(4)]


@pytest.mark.slow
def test_a_prompt_is_shown_before_its_answer_is_read(ddlrun: Ddlrun) -> None:
    ask = "import sys, time; x = input('Go on? '); time.sleep(0.6); print(x)"
    assert [data for _, data in pieces(ddlrun, "-np", "1", "python", "-c", ask, stdin=b"y\n")] == [
        b"Go on? ",
        b"y\n",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("terminal", [False, True])
def test_ranks_have_a_terminal_where_ddlrun_has_one(ddlrun: Ddlrun, terminal: bool) -> None:
    if terminal and shutil.which("script") is None:
        pytest.skip("no `script`, which makes a terminal: install the Debian package bsdutils")
    show = "import sys; print(sys.stdout.isatty(), sys.stderr.isatty())"
    shown = b"".join(data for _, data in pieces(ddlrun, "-np", "1", "python", "-c", show, terminal=terminal))
    assert shown.split() == [str(terminal).encode()] * 2


@pytest.mark.slow
def test_long_lines_of_several_ranks_stay_whole(ddlrun: Ddlrun) -> None:
    """mpirun takes time with the square of the length: 8 MB took it half a minute."""
    program = "import os, sys; sys.stdout.write(os.environ['RANK'] * (16 << 20) + '\\n')"
    run = ddlrun("-q", "-np", "2", "python", "-c", program)
    assert run.code == 0 and run.lines == ["0" * (16 << 20), "1" * (16 << 20)]


@pytest.mark.slow
def test_what_a_rank_leaves_behind_does_not_hold_the_job(ddlrun: Ddlrun) -> None:
    """A helper that has the rank's output; the time is that of the helper, which is ended."""
    program = "import subprocess; subprocess.Popen(['sleep', '600']); print('done')"
    run = ddlrun("-q", "-np", "2", "python", "-c", program)
    assert run.code == 0 and run.lines == ["done", "done"]
    assert "2 processes of the job were still running" in run.err


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["0", "1", "2", "012"])
def test_closed_streams(ddlrun: Ddlrun, closed: str) -> None:
    """The job runs to its end, and says by its code how that was."""
    script = f'"$@" {" ".join(f"{number}<&-" for number in closed)}'
    run = ddlrun.by_script(script, "-np", "2", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert run.code == 3, run.err
    assert run.out.count("out") == (0 if "1" in closed else 2)
    assert ("Traceback" not in run.err) and ("[ERROR DDL-2-13]" in run.err) == ("2" not in closed)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=60)), max_size=30))
def test_lines_are_whole_and_nothing_is_lost(written: list[tuple[int, bytes]]) -> None:
    """Of whole lines each comes in one piece; and what a rank wrote comes in its order."""
    lines, shown, by_rank = WholeLines(), [], {0: b"", 1: b"", 2: b""}
    for now, (rank, data) in enumerate(written):
        by_rank[rank] += data
        shown.append(lines.feed(rank, data, now * 1e-6))
    shown.append(lines.take_all())
    assert sorted(b"".join(shown)) == sorted(b"".join(by_rank.values()))
    for piece in shown[:-1]:
        assert not piece or piece.endswith(b"\n")


def test_beginnings_of_lines_wait_a_moment() -> None:
    lines = WholeLines()
    assert lines.feed(0, b"50%", 1.0) == b"" and lines.take_due(1.01) == b"" and lines.due == 1.05
    assert lines.feed(1, b"whole\n", 1.02) == b"whole\n" and lines.take_due(1.06) == b"50%"
    # a full buffer has been cut somewhere
    assert lines.feed(0, b"x" * 8192, 2.0) == b"" and lines.take_due(3.0) == b""
    assert lines.feed(0, b"y\n", 3.1) == b"x" * 8192 + b"y\n" and lines.due is None


@pytest.mark.parametrize(
    ("shell", "code", "told"),
    [
        ('"$@" sh -c "echo x; sleep 0.5; echo y" | head -1 >&2; exit ${PIPESTATUS[0]}', 0, ""),
        ('"$@" echo x >/dev/full', 1, "a part of its output is lost: No space left on device"),
        ('"$@" -dry-run true >/dev/full', 1, "standard output cannot be written: No space left on device"),
        ('"$@" -help | true; exit ${PIPESTATUS[0]}', 141, ""),
    ],
    ids=["reader", "full", "plan", "help"],
)
def test_output_that_nobody_takes(ddlrun: Ddlrun, shell: str, code: int, told: str) -> None:
    """The job goes on. What is lost is said, but not that a reader has had enough."""
    run = ddlrun.by_script(shell, "-np", "2", *(["-q"] if "help" not in shell else []))
    assert run.code == code, run.err
    assert told in run.err and "Exception ignored" not in run.err and run.err.count("[ERROR") == bool(told)
