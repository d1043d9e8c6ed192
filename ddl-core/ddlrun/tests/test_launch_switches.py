"""Slurm's switches as a topology of DDL; the texts are what `scontrol show topology` prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ddlrun.command_line.options import Options
from ddlrun.hosts.schedulers.slurm_switches import parse_switches, switches
from ddlrun.placement.tiers import Tiers, ddl_options, is_described
from ddlrun_program import Ddlrun
from hypothesis import given
from hypothesis import strategies as st

TREE = """\
SwitchName=leaf0 Level=0 LinkSpeed=1 Nodes=h[1-2]
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=h3,h4
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=h[5-6]
SwitchName=row0 Level=1 LinkSpeed=1 Nodes=h[1-4] Switches=leaf[0-1]
SwitchName=row1 Level=1 LinkSpeed=1 Nodes=h[5-6] Switches=leaf2
SwitchName=core Level=2 LinkSpeed=1 Nodes=h[1-6] Switches=row[0-1]
"""
BLOCKS = """\
BlockName=b1 BlockIndex=0 Nodes=h[1-2] BlockSize=2
BlockName=b2 BlockIndex=1 Nodes=h[3-4] BlockSize=2
AggregatedBlock=b[1-2] BlockIndex=2 Nodes=h[1-4] BlockSize=4
"""


def names(*hosts: str) -> dict[str, str]:
    return {host: host for host in hosts}


def test_a_tree_of_switches() -> None:
    assert parse_switches(TREE, names("h6", "h1", "h3", "h2")) == {
        "version": 1,
        "groups": [
            {
                "name": "row0",
                "groups": [{"name": "leaf0", "hosts": ["h1", "h2"]}, {"name": "leaf1", "hosts": ["h3"]}],
            },
            {"name": "leaf2", "hosts": ["h6"]},
        ],
    }


@pytest.mark.parametrize(("levels", "understood"), [(14, True), (15, False)])
def test_switches_on_switches(levels: int, understood: bool) -> None:
    chain = "".join(f"SwitchName=s{n} Switches=s{n + 1}\n" for n in range(levels - 1))
    text = f"{chain}SwitchName=s{levels - 1} Switches=a,b\nSwitchName=a Nodes=h1\nSwitchName=b Nodes=h2\n"
    grouped = {
        "version": 1,
        "groups": [{"name": name, "hosts": [host]} for name, host in (("a", "h1"), ("b", "h2"))],
    }
    assert parse_switches(text, names("h1", "h2")) == (grouped if understood else None)


def test_blocks() -> None:
    assert parse_switches(BLOCKS, {"h1": "own-name", "h3": "h3"}) == {
        "version": 1,
        "groups": [{"name": "b1", "hosts": ["own-name"]}, {"name": "b2", "hosts": ["h3"]}],
    }


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        (TREE, ["h1", "h2"]),  # all below one switch
        (TREE, ["h1", "h9"]),  # Slurm does not know one
        (TREE.replace("h3,h4", "h2,h3"), ["h2", "h5"]),  # below two switches
        ("", ["h1", "h2"]),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a\nSwitchName=c Nodes=h1\n", ["h1", "h2"]),
        ("SwitchName=a;b Nodes=h1\nSwitchName=c Nodes=h2\n", ["h1", "h2"]),
    ],
)
def test_nothing_to_group_by(text: str, hosts: list[str]) -> None:
    assert parse_switches(text, names(*hosts)) is None


@given(
    st.lists(
        st.sampled_from(["SwitchName=a", "Switches=a,b", "Nodes=h[1-2]", "Nodes=(null)", "\n", "=", "x"])
    )
)
def test_any_text_is_understood_or_not(words: list[str]) -> None:
    made = parse_switches(" ".join(words), names("h1", "h2"))
    assert made is None or "groups" in made


def test_a_controller_that_fails_is_no_error(tmp_path: Path) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text("#!/bin/sh\necho 'slurm_load_topo error: Unable to contact controller' >&2\nexit 1\n")
    scontrol.chmod(0o755)
    word, reason = switches(names("h1", "h2"), {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert word is None and "Unable to contact controller" in reason
    assert switches(names("h1", "h2"), {"PATH": "/nowhere"})[0] is None


def test_what_the_user_says_comes_first() -> None:
    tiers = Tiers(2, 1, 1)
    assert ddl_options(Options(), "", [1, 1], tiers, switches='{"a":1}')[0] == '-mode p -topology {"a":1}'
    assert not is_described(Options(mode="r"), "-mode b -timeout 9")
    assert is_described(Options(racks=2), "") and is_described(Options(mode="p:2"), "")
    assert is_described(Options(), "-mode p:2x1") and is_described(Options(), "-topology none")
    assert is_described(Options(ddlarg=("-topology=f",)), "")


SHOW = """
import json, ddl
if ddl.rank() == 0: print(json.dumps(ddl.describe()["topology"]))
"""


def test_ddl_reads_the_word(ddlrun: Ddlrun) -> None:
    hosts = names("emulated0", "emulated1", "emulated2")
    text = "SwitchName=leaf0 Nodes=emulated0\nSwitchName=leaf1 Nodes=emulated[1-2]\n"
    word = json.dumps(parse_switches(text, hosts))
    options = f"-topology {word.replace(' ', '')}"
    run = ddlrun("-np", "3", "python", "-c", SHOW, DDL_EMULATE_HOSTS="1,1,1", DDL_OPTIONS=options)
    assert run.code == 0, run.err
    shown = json.loads(run.out)
    assert shown["tree"] == [[[0]], [[1], [2]]]
    assert {group["name"] for group in shown["groups"] if group["tier"] == "rack"} == {"leaf0", "leaf1"}
    broken = ddlrun("-np", "2", "python", "-c", "import ddl", DDL_OPTIONS='-topology {"version":1,')
    assert broken.code != 0 and "topology file in -topology" in broken.err
