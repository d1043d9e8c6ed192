"""After a failure ddlrun says which rank stopped at which call, from the records that the ranks left."""

from __future__ import annotations

import html.parser
import json
import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from ddlrun.errors import LaunchError
from ddlrun.report.flight_record import fetch, page, records
from ddlrun.report.flight_record.collect import show, tell
from ddlrun_program import Ddlrun
from emulated import shared_folders

from ddl_validate.cluster import Cluster, ClusterSpec, HostSpec, missing_requirements

STOPS = """
import os, signal, sys, time, ddl, numpy as np
x = np.ones(8, "f")
ddl.allreduce(x, name="first")
if ddl.rank() == int(sys.argv[2]):
    if sys.argv[1] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif sys.argv[1] == "raise":
        raise RuntimeError("bad data")
    time.sleep(600)
ddl.allreduce(x, name="second")
"""


def call(
    number: int, state: str = "done", *, began: float = 0.0, of: int = 1, name: str = "x"
) -> dict[str, Any]:
    return {
        "communicator": of,
        "number": number,
        "kind": "allreduce",
        "call": f"allreduce of 3 float32 elements (op sum, name '{name}')",
        "bytes": 12,
        "name": name,
        "state": state,
        "began": 1000.0 + began,
        "ended": None if state == "running" else 1000.0 + began + 0.5,
    }


def record(rank: int, *calls: dict[str, Any], size: int = 4, **other: Any) -> str:
    made = {
        "format": 1,
        "rank": rank,
        "size": size,
        "host": f"h{rank // 2}",
        "pid": 1,
        "written": 1010.0,
        "reason": "asked for",
        "communicators": {
            "1": {"ranks": f"0-{size - 1}", "instance": 1},
            "2": {"ranks": "0,2", "instance": 1},
        },
        "calls": list(calls),
    }
    return json.dumps(made | other)


def parsed(texts: Sequence[str]) -> list[records.Record]:
    found, wrong = records.parse_all({f"{number}": text for number, text in enumerate(texts)})
    assert not wrong
    return found


def sentences(texts: Sequence[str]) -> list[str]:
    return [text for stop in records.findings(parsed(texts)) for text in stop.sentences({2: "h1"})]


def test_who_did_not_come() -> None:
    waiting = [record(rank, call(6), call(7, "running", began=2, name="y")) for rank in (0, 1, 3)]
    assert sentences([*waiting, record(2, call(5), call(6))]) == [
        "3 ranks were in call 7 of ranks 0-3, allreduce of 3 float32 elements (op sum, name 'y'), for 8.0 s",
        "rank 2 (host h1) never entered it: its last was call 6, allreduce of 3 float32 elements (op sum, "
        "name 'x'), done",
    ]


def test_who_left_no_record() -> None:
    said = sentences([record(rank, call(7, "running")) for rank in (0, 1, 3)])
    assert said[1:] == ["rank 2 (host h1) left no record: killed, or its host cannot be reached"]


def test_different_calls() -> None:
    said = sentences([record(rank, call(7, "failed", name="abb"[rank])) for rank in range(3)])
    assert "ranks 1, 2 (host h1) made it as allreduce of 3 float32 elements (op sum, name 'b')" in said
    assert "rank 0 made it as allreduce of 3 float32 elements (op sum, name 'a')" in said


def test_groups_stop_by_themselves() -> None:
    """Ranks 0 and 2 stopped in a group of their own, which is why the others wait for them."""
    texts = [
        record(0, call(7), call(4, "running", of=2, began=1)),
        record(1, call(7), call(8, "running", began=3)),
        record(2, call(7), call(3, of=2)),
        record(3, call(7), call(8, "running", began=3)),
    ]
    said = sentences(texts)
    assert said[0].startswith("rank 0 was in call 4 of ranks 0,2,") and said[0].endswith("for 9.0 s")
    assert said[1].startswith("rank 2 (host h1) never entered it: its last was call 3,")
    assert said[2].startswith("2 ranks were in call 8 of ranks 0-3,")
    assert len(said) == 5


def test_nothing_stopped() -> None:
    assert sentences([record(rank, call(7)) for rank in range(4)]) == []


def test_a_thousand_ranks_are_counted() -> None:
    texts = [record(rank, call(7, "running"), size=1000) for rank in range(0, 1000, 2)]
    texts += [record(rank, call(6), size=1000) for rank in range(1, 401, 2)]
    said = sentences(texts)
    assert said[0].startswith("500 ranks were in call 7 of ranks 0-999")
    assert "192 more ranks never entered it" in said
    assert said[-1].startswith("ranks 401, 403, 405, 407, 409, 411, 413, 415 and 292 more left no record")
    assert len(page.html(parsed(texts), records.findings(parsed(texts)))) < 1 << 20


class Tags(html.parser.HTMLParser):
    """Checks that what is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag in ("script", "img")
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, (self.open, tag)
        self.open.pop()


def test_names_of_others_do_nothing_to_the_page() -> None:
    bad = "<script>alert(1)</script>\"'&<img src=x>"
    evil = call(7, "running", name=bad) | {"state": 'x" onload="alert(1)', "kind": bad}
    texts = [record(0, evil, host=bad, reason=bad), record(1, call(7))]
    texts[0] = texts[0].replace('"ended": 1000.5', '"ended": null')
    made = page.html(parsed(texts), records.findings(parsed(texts)), [bad])
    tags = Tags()
    tags.feed(made)
    tags.close()
    assert tags.open == [] and tags.scripts == 0
    svg = made[made.index("<svg") : made.index("</svg>") + 6]
    assert ElementTree.fromstring(svg).tag.endswith("svg")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '"x"',
        '{"format": 2}',
        '{"format": 1}',
        record(0) + "x",
        record(0, {"number": 1}),
    ],
)
def test_what_is_no_record(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        records.parse(text)
    (tmp_path / "rank-0.json").write_text(text)
    assert tell(tmp_path) is None
    with pytest.raises(LaunchError, match="no flight records"):
        show(tmp_path, as_json=False)


def test_fetch_reads_records_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rank-1.json").write_text("one")
    (tmp_path / "rank-x.json").write_text("no")
    (tmp_path / "secret").write_text("no")
    (tmp_path / "rank-2.json").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "rank-3.json")
    (tmp_path / "rank-4.json").mkdir()
    assert fetch.main([str(tmp_path), "n0", "remove"]) == 0
    assert capsys.readouterr().out == '\n@@ddlrun:n0@@{"rank-1.json": "one"}@@ddlrun:n0@@\n'
    assert (tmp_path / "secret").exists() and not (tmp_path / "rank-1.json").exists()
    assert fetch.records(str(tmp_path / "none")) == {}


def made_page(run_folders: Path) -> tuple[Path, list[int]]:
    (made,) = run_folders.glob("DDLRUN.*/*/flight-record/flight-record.html")
    return made, sorted(int(path.stem[5:]) for path in made.parent.glob("rank-*.json"))


@pytest.mark.parametrize("case", ["kill", "raise"])
def test_told_after_a_failure(ddlrun: Ddlrun, case: str) -> None:
    run = ddlrun("-np", "3", "python", "-c", STOPS, case, "1")
    assert run.code != 0
    assert "[DDL] flight record: 2 ranks were in call 2 of ranks 0-2, allreduce of 8 float32" in run.err
    if case == "kill":
        assert "[DDL] flight record: rank 1 left no record" in run.err
    else:
        assert ") never entered it: its last was call 1, allreduce of 8 float32 elements" in run.err
    made, there = made_page(ddlrun.folder)
    assert str(made) in run.err and {0, 2} <= set(there)
    assert list(ddlrun.folder.glob("ddl-flight-record.*")) == [], "collected, not copied"

    again = ddlrun("-read-flight-record", str(made.parent))
    assert again.code == 0 and "2 ranks were in call 2 of ranks 0-2" in again.err
    data = json.loads(ddlrun("-read-flight-record", str(made.parent), "-json").out)
    assert data["ranks"] == 3 and data["stops"][0]["waiting"] == [0, 2] and data["stops"][0]["number"] == 2


def test_job_that_is_ended_by_its_limit(ddlrun: Ddlrun) -> None:
    """Nothing has failed, but the ranks hang: who is to blame is known all the same."""
    run = ddlrun("-np", "2", "-timeout", "9", "python", "-c", STOPS, "sleep", "1")
    assert run.code == 124
    assert "[DDL] flight record: rank 0 was in call 2 of ranks 0-1" in run.err
    assert "[DDL] flight record: rank 1 (host " in run.err and "never entered it" in run.err


def test_shared_folder(ddlrun: Ddlrun) -> None:
    run = ddlrun("-np", "2", "-flight-record", "kept", "python", "-c", STOPS, "raise", "1")
    assert run.code != 0
    (made,) = ddlrun.folder.glob("kept/*/start/flight-record.html")
    assert str(made) in run.err
    (ddlrun.folder / "file").write_text("")
    refused = ddlrun("-np", "2", "-flight-record", "file", "python", "-c", "0")
    assert refused.code != 0 and "in -flight-record; name a folder" in refused.err


def test_nothing_is_told_of_programs_without_ddl(ddlrun: Ddlrun) -> None:
    run = ddlrun("-np", "2", "false")
    assert run.code == 1 and "flight record" not in run.err
    assert not list(ddlrun.folder.glob("DDLRUN.*/*/flight-record"))


@pytest.fixture(scope="module")
def hosts(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    reasons = missing_requirements()
    if reasons:
        pytest.skip("; ".join(reasons))
    spec = ClusterSpec(
        (HostSpec("h1", slots=2), HostSpec("h2", slots=2)), shared=shared_folders(prefix), life_seconds=300
    )
    with Cluster(spec, tmp_path_factory.mktemp("cluster") / "state") as cluster:
        yield cluster


def test_records_of_other_hosts(hosts: Cluster, ddlrun: Ddlrun) -> None:
    """Each host has its own /tmp: the records come by ssh, and nothing stays there."""
    words = [*ddlrun.words, "-H", "h1:2,h2:2", "python", "-c", STOPS, "raise", "2"]
    run = hosts.run("h1", words, timeout=90, env={**ddlrun.variables, "TMPDIR": "/tmp"})
    assert run.returncode != 0
    assert "[DDL] flight record: 3 ranks were in call 2 of ranks 0-3" in run.stderr, run.stderr
    assert "[DDL] flight record: rank 2 (host h2) never entered it" in run.stderr, run.stderr
    assert "the last calls of 4 of 4 ranks are in /tmp/DDLRUN." in run.stderr
    for host in ("h1", "h2"):
        left = hosts.run(host, ["sh", "-c", "ls -d /tmp/ddl-flight-record.* 2>/dev/null; true"], timeout=20)
        assert left.stdout == "", left.stdout
