"""`ddlrun -simulate`: tables, JSON, picture; what is asked wrongly."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree

import pytest
from ddlrun.command_line.parser import parse
from ddlrun.errors import LaunchError
from ddlrun.report.simulate import full_hosts, parse_ranks, seconds, size
from ddlrun_program import Ddlrun


def test_the_nmt_run_as_a_table(ddlrun: Ddlrun) -> None:
    run = ddlrun("--simulate", "ac922-4-ethernet", "--bytes", "717MB", "--calibrate", "nmt-ac922")
    assert run.code == 0, run.err
    off = {
        int(match[1]): float(match[2])
        for match in re.finditer(r"^ +(\d+) .*ms +([+-][\d.]+)%", run.out, re.MULTILINE)
    }
    assert set(off) == {1, 2, 4, 8, 12, 16} and all(abs(value) < 10 for value in off.values())
    planned = run.out.partition("planned:")[2].partition("\n\n")[0].splitlines()
    assert planned[-1].split()[:2] == ["16", "4"] and planned[-1].endswith("cluster")
    for algorithm in ("ring:", "recursive:", "tree:", "mpi:"):
        assert f"\n{algorithm}" in run.out


def test_all_sizes_as_json_and_picture(ddlrun: Ddlrun) -> None:
    run = ddlrun("-simulate", "summit", "-bytes", "1GiB", "-ranks", "all", "-json", "-picture", "curve.svg")
    assert run.code == 0, run.err
    result = json.loads(run.out)
    planned = [row["ranks"] for row in result["predictions"] if row["algorithm"] == "planned"]
    assert planned == [1, 2, 3, 4, 5, *range(6, 5725, 6)]
    assert result["bytes"] == 1 << 30
    picture = xml.etree.ElementTree.parse(ddlrun.folder / "curve.svg").getroot()
    lines = picture.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == len(result["algorithms"])


def test_shipped_names_are_listed(ddlrun: Ddlrun) -> None:
    run = ddlrun("-simulate", "list")
    names = {line.split()[0] for line in run.lines if line.startswith("  ")}
    assert {"ac922-4-ethernet", "summit", "dgx-h100-infiniband", "nmt-ac922"} <= names


def test_errors_name_file_and_place(ddlrun: Ddlrun) -> None:
    path = ddlrun.folder / "site.json"
    path.write_text('{"version": 1, "tiers": [{"name": "host", "members": 2, "bandwidth": "1 Gb/s"}]}')
    run = ddlrun("-simulate", "site.json", "-bytes", "1MB")
    assert run.code == 1 and run.out == ""
    assert run.err.startswith("[ERROR DDL-2-25] bandwidth is")
    assert "in cluster description site.json at /tiers/0/bandwidth; write" in run.err
    for words, said in (
        (("-simulate", "none.json"), "cannot be read"),
        (("-simulate", "summit", "-ranks", "9999"), "the cluster has 5724"),
        (("-simulate", "summit", "-picture", "none/x.svg"), "cannot be written"),
        (("-simulate", "summit", "-calibrate", "site.json"), "in step times site.json"),
    ):
        run = ddlrun(*words)
        assert run.code == 1 and said in run.err, run.err
    for words, said in (
        (("-bytes", "3MB", "true"), "only go with -simulate"),
        (("-simulate", "summit", "python"), "starts no program"),
        (("-simulate", "summit", "-ranks", "1,x"), "'x' is not a whole number"),
    ):
        run = ddlrun(*words)
        assert run.code == 2 and said in run.err, run.err


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(
            ("717MB", 717_000_000),
            ("1.5 kB", 1500),
            ("2KB", 2000),
            ("1GB", 10**9),
            ("1TB", 10**12),
            ("1000", 1000),
        ),
        *(("1KiB", 1 << 10), ("1MiB", 1 << 20), ("1GiB", 1 << 30), ("7B", 7), ("1000TB", 10**15)),
    ],
)
def test_sizes(text: str, value: int) -> None:
    assert parse(["-simulate", "x", "-bytes", text]).bytes == value


@pytest.mark.parametrize("text", ["0", "-1", "1e3", "3x", "MB", "1..2MB", "nan", "9999999TB", "٣"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(LaunchError, match="is not a size"):
        parse(["-simulate", "x", f"-bytes={text}"])


def test_ranks() -> None:
    assert parse_ranks("8,1,2,2") == [1, 2, 8]
    assert full_hosts([3, 2, 1]) == [1, 2, 3, 5, 6]
    for words in ("", "0", "1,,2", "-1", "1 2", "٣", "1234567890"):
        with pytest.raises(LaunchError):
            parse_ranks(words)


def test_figures_for_people() -> None:
    assert [seconds(value) for value in (1.5, 0.36, 0.0901, 12e-6, 0, 0.9999)] == [
        "1.50 s", "360 ms", "90.1 ms", "12.0 us", "0 us", "1.00 s",
    ]  # fmt: skip
    assert [size(value) for value in (717_000_000, 64, 1 << 30)] == ["717 MB", "64 bytes", "1.074 GB"]
