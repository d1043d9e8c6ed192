"""Taking mpirun's marks off: every byte of the ranks survives, however the stream is cut."""

from __future__ import annotations

from ddlrun.run.output import Tails
from ddlrun.start.launchers.marks import MarkSplitter
from hypothesis import example, given
from hypothesis import strategies as st

PID = 4711
pieces = st.lists(st.tuples(st.integers(0, 12), st.binary(max_size=40)), max_size=12)


def mark(rank: int, stream: str = "stdout") -> bytes:
    return f"[prterun-node.x-{PID}@1,{rank}]<{stream}>: ".encode()


def as_mpirun(written: list[tuple[int, bytes]]) -> bytes:
    """mpirun marks every line of a rank; a piece without a line end is followed by the next mark at once."""
    return b"".join(
        mark(rank) + line
        for rank, data in written
        for line in (data.splitlines(keepends=True) if b"\n" in data else [data])
    )


@given(pieces, st.lists(st.integers(1, 60), min_size=1, max_size=20))
@example([(0, b"[prterun-"), (1, b"[prterun-node.x-4711@1,")], [1])
def test_bytes_and_ranks_survive(written: list[tuple[int, bytes]], cuts: list[int]) -> None:
    written = [(rank, data.replace(b"\r", b"").replace(b"\x0b", b"")) for rank, data in written]
    stream = as_mpirun(written)
    splitter, got, at = MarkSplitter(PID), [], 0
    while at < len(stream):
        step = cuts[len(got) % len(cuts)]
        got += list(splitter.feed(stream[at : at + step]))
        at += step
    got += list(splitter.feed(b"", last=True))
    for rank in range(13):
        assert b"".join(d for r, d in got if r == rank) == b"".join(d for r, d in written if r == rank)
    assert b"".join(d for _, d in got) == b"".join(d for _, d in written)


def test_lines_without_a_mark_are_mpiruns() -> None:
    splitter = MarkSplitter(PID)
    stream = mark(3) + b"hello\nmpirun says\n" + mark(3, "stderr") + b"x\n"
    assert list(splitter.feed(stream, last=True)) == [(3, b"hello\n"), (None, b"mpirun says\n"), (3, b"x\n")]


def test_anothers_marks_are_a_ranks_text() -> None:
    other = b"[prterun-node.x-1@1,0]<stdout>: deep\n"
    assert list(MarkSplitter(PID).feed(mark(0) + other, last=True)) == [(0, other)]


def test_last_lines() -> None:
    tails = Tails()
    for number in range(100):
        tails.add(1, False, f"line {number}\n".encode())
    tails.add(1, True, b"10%\r20%\r\x1b[31mred")
    assert tails.of(1)[-2:] == ["line 99", "[31mred"]
    assert len(tails.of(1)) == 12
    assert tails.of(2) == []


def test_a_long_line_keeps_its_beginning_and_its_end() -> None:
    """Which say what is wrong, and the remedy; also where it comes in pieces."""
    line = b"[ERROR DDL-1-7] " + b"x" * 5000 + b" the remedy"
    for piece in (7, 600, len(line)):
        tails = Tails()
        for at in range(0, len(line), piece):
            tails.add(0, True, line[at : at + piece])
        (unfinished,) = tails.of(0)
        tails.add(0, True, b"\n")
        (shown,) = tails.of(0)
        assert shown == unfinished and len(shown) < 1100
        assert shown.startswith("[ERROR DDL-1-7] x") and " ... " in shown and shown.endswith("x the remedy")
    tails.add(0, False, b"10%\r")
    tails.add(0, False, b"20%\r")
    assert tails.of(0)[-1] == "20%"
