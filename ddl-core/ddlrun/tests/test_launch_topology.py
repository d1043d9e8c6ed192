"""-show-topology: what it shows is what DDL sees, and it starts nothing."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from ddlrun.checks.inventory import HostInventory
from ddlrun.hosts.host_list import Host, HostList
from ddlrun.placement.slots import Placement, place
from ddlrun.placement.topology_preview import request
from ddlrun.report import topology_diagram
from ddlrun_program import Ddlrun
from fake_machine import AC922_6, CROSSED_PAIRS, DGX_A100, DGX_H100
from nvml_standin import Look

from ddl_validate.cluster import Cluster, ClusterSpec, missing_requirements

ROOT = Path(__file__).resolve().parents[3]
SVG = "{http://www.w3.org/2000/svg}"


def placed(facts: dict[str, HostInventory], ranks: int) -> Placement:
    return place(HostList(tuple(Host(name, ranks) for name in facts), "-H"), facts)


def two_hosts(ranks: int) -> dict[str, Any]:
    """As DDL tells of two hosts."""
    first, second = list(range(ranks)), list(range(ranks, 2 * ranks))
    return {
        "tiers": ["host", "rack"],
        "links": [
            {"bandwidth_mbit": None, "latency_us": None},
            {"bandwidth_mbit": 100000.0, "latency_us": 2.0},
        ],
        "groups": [
            {"tier": "rack", "name": "r1", "ranks": first + second},
            {"tier": "host", "name": "a", "ranks": first},
            {"tier": "host", "name": "b", "ranks": second},
        ],
        "tree": [first, second],
    }


def test_the_tree_as_text(look_at: Look) -> None:
    facts = {name: look_at(DGX_H100, name) for name in ("a", "b")}
    slots = placed(facts, 2).slots
    text = topology_diagram.as_text(topology_diagram.boxes(two_hosts(2), slots, facts))
    lines = text.splitlines()
    assert lines[:7] == [
        "rack r1: 2 hosts, 4 ranks, each host linked by 100 Gbit/s, 2 us",
        "├─ host a: ib0 200 Gbit/s, a processor",
        "│  ├─ NVLink island 0: 8 GPUs (0-7) by NVSwitch, 18 links each",
        "│  ├─ socket 0, NUMA node 0: cores 0-55",
        "│  │  ├─ rank 0: cores 0-27, GPU 0 NVIDIA H100 80GB HBM3 at 0000:1b:00.0, near mlx5_0:1",
        "│  │  ├─ rank 1: cores 28-55, GPU 1 NVIDIA H100 80GB HBM3 at 0000:43:00.0, near mlx5_1:1",
        "│  │  ├─ GPU 2: NVIDIA H100 80GB HBM3 at 0000:52:00.0, no rank",
    ]
    assert lines[13] == "└─ host b: ib0 200 Gbit/s, a processor"
    for rank in range(4):
        assert text.count(f"rank {rank}: ") == 1


def test_ranks_on_several_nodes_and_unbound_ones_are_shown_once(look_at: Look) -> None:
    facts = {name: replace(look_at(DGX_A100, name), gpus=()) for name in ("a", "b")}
    text = topology_diagram.as_text(topology_diagram.boxes(two_hosts(2), placed(facts, 2).slots, facts))
    assert "│  ├─ socket 0: cores 0-63\n│  │  ├─ NUMA node 0: cores 0-15\n" in text
    assert "│  │  └─ rank 0: cores 0-63\n│  └─ socket 1: cores 64-127" in text
    unbound = placed({}, 2).slots or placed(facts, 200).slots[:4]
    lone = [replace(slot, rank=at, host="ab"[at // 2], cores=()) for at, slot in enumerate(unbound)]
    text = topology_diagram.as_text(topology_diagram.boxes(two_hosts(2), lone, {"a": facts["a"]}))
    assert "rank 0: not bound" in text and "└─ host b: not looked at\n   ├─ rank 2: not bound" in text


def test_the_picture_is_svg_with_every_rank_inside_its_host(look_at: Look, tmp_path: Path) -> None:
    facts = {name: look_at(DGX_H100, name) for name in ("a", "b")}
    drawing = topology_diagram.boxes(two_hosts(8), placed(facts, 8).slots, facts)
    topology_diagram.write_svg(drawing, str(tmp_path / "x.svg"))
    root = ElementTree.parse(tmp_path / "x.svg").getroot()
    assert root.tag == f"{SVG}svg"
    seen: dict[str, tuple[float, float, float, float]] = {}

    def walk(element: ElementTree.Element, x: float, y: float, outer: tuple[float, ...]) -> None:
        if element.get("transform"):
            dx, dy = map(float, str(element.get("transform"))[10:-1].split())
            x, y = x + dx, y + dy
        frame = element.find(f"{SVG}rect")
        if element.tag == f"{SVG}g" and frame is not None:
            mine = (x, y, x + float(str(frame.get("width"))), y + float(str(frame.get("height"))))
            assert outer[0] <= mine[0] and outer[1] <= mine[1] and mine[2] <= outer[2] and mine[3] <= outer[3]
            outer = mine
            seen[str(frame.findtext(f"{SVG}title"))] = mine
        for child in element:
            walk(child, x, y, outer)

    walk(root, 0, 0, (0, 0, float(str(root.get("width"))), float(str(root.get("height")))))
    assert {f"rank {rank}" for rank in range(16)} | {"host a", "host b", "rack r1"} <= set(seen)
    ranks = [seen[f"rank {rank}"] for rank in range(16)]
    for at, one in enumerate(ranks):
        for other in ranks[at + 1 :]:
            assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


def test_what_ddl_is_asked(look_at: Look) -> None:
    facts = {"a": replace(look_at(DGX_H100, "a"), name="node-a")}
    slots = placed(facts, 2).slots
    asked = request(slots, facts, {"DDL_OPTIONS": "-mode p:2", "DDL_HOST_ORDER": "node-a,b"})
    assert asked == {
        "options": "-mode p:2",
        "order": ["node-a", "b"],
        "ranks": [
            {"host": "node-a", "numa": 0, "package": 0, "gpu": f"0000:{bus}:00.0/0"} for bus in ("1b", "43")
        ],
    }


def one_host(ranks: int) -> dict[str, Any]:
    everyone = list(range(ranks))
    return {
        "tiers": ["host"],
        "links": [{"bandwidth_mbit": None, "latency_us": None}],
        "groups": [{"tier": "host", "name": "a", "ranks": everyone}],
        "tree": everyone,
    }


def drawn(facts: HostInventory, ranks: int) -> list[str]:
    known = {"a": facts}
    return topology_diagram.as_text(
        topology_diagram.boxes(one_host(ranks), placed(known, ranks).slots, known)
    ).splitlines()


def test_an_island_in_a_socket_is_drawn_there(look_at: Look) -> None:
    lines = drawn(look_at(AC922_6, "a"), 6)
    assert lines[1:6] == [
        "├─ socket 0, NUMA node 0: cores 0-21",
        "│  └─ NVLink island 0: 3 GPUs (0-2) by NVLink, 2 links a pair",
        "│     ├─ rank 0: cores 0-6, GPU 0 Tesla V100-SXM2-16GB at 0004:04:00.0, near mlx5_0:1",
        "│     ├─ rank 1: cores 7-13, GPU 1 Tesla V100-SXM2-16GB at 0004:05:00.0, near mlx5_0:1",
        "│     └─ rank 2: cores 14-20, GPU 2 Tesla V100-SXM2-16GB at 0004:06:00.0, near mlx5_0:1",
    ]
    assert lines[7].endswith("NVLink island 1: 3 GPUs (3-5) by NVLink, 2 links a pair")


def test_an_island_across_sockets_and_gpus_at_one_switch(look_at: Look) -> None:
    above = ("pci0000:10", "0000:10:01.0", "0000:11:00.0")
    gpus = [replace(gpu, above=(*above, f"0000:12:0{at}.0")) for at, gpu in enumerate(CROSSED_PAIRS.gpus)]
    lines = drawn(look_at(replace(CROSSED_PAIRS, gpus=(*gpus[:2], *CROSSED_PAIRS.gpus[2:])), "a"), 4)
    assert lines[1:3] == [
        "├─ NVLink island 0: 2 GPUs (0, 2) by NVLink, 4 links a pair",
        "├─ NVLink island 1: 2 GPUs (1, 3) by NVLink, 4 links a pair",
    ]
    assert lines[4:7] == [
        "│  └─ PCIe switch 0000:11:00.0",
        "│     ├─ rank 0: cores 0-3, GPU 0 NVIDIA A40 at 0000:3b:00.0",
        "│     └─ rank 2: cores 4-7, GPU 1 NVIDIA A40 at 0000:5e:00.0",
    ]
    assert lines[8].endswith("rank 1: cores 8-11, GPU 2 NVIDIA A40 at 0000:b1:00.0")


# ---- against DDL itself


@pytest.fixture(scope="module")
def hosts(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    reasons = missing_requirements()
    if reasons:
        pytest.skip("; ".join(reasons))
    shared = tuple(str(path) for path in (prefix, ROOT) if path.is_relative_to("/tmp"))
    spec = ClusterSpec.even(hosts=4, shared=shared, environment={"SHLVL": "1"}, life_seconds=400)
    with Cluster(spec, tmp_path_factory.mktemp("cluster") / "state") as cluster:
        yield cluster


Start = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def start(hosts: Cluster, ddlrun: Ddlrun) -> Start:
    def on_h1(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return hosts.run("h1", [*ddlrun.words, *words], timeout=90, env={**ddlrun.variables, **more})

    return on_h1


# Without blanks: it is a word of DDL_OPTIONS.
FILE = '{"version":1,"groups":[{"name":"x","hosts":["h1","h4"]},{"name":"y","hosts":["h[2-3]"]}]}'


@pytest.mark.parametrize(
    "words",
    [
        ["-H", "h1:2,h2:2,h3:2,h4:2", "-racks", "2"],
        ["-H", "h4:1,h2:2,h3:1,h1:2", "-ddlarg", "-topology none"],
        ["-H", "h1:1,h2:1,h3:1,h4:1", "-ddlarg", f"-topology '{FILE}'"],
        ["-H", "h1:2,h2:2", "-m", "p:1x2x2"],
    ],
    ids=["racks", "uneven", "file", "divided hosts"],
)
def test_it_is_what_ddl_sees_in_a_real_start(start: Start, words: list[str]) -> None:
    told = start(*words, "-show-topology", "-json")
    assert told.returncode == 0, told.stderr
    foreseen = json.loads(told.stdout)["topology"]
    seen = "print('SEEN', json.dumps(ddl.describe()['topology']))"
    script = f"import ddl, json\nddl.init()\nif ddl.rank() == 0: {seen}"
    run = start(*words, "python", "-c", script)
    assert run.returncode == 0, run.stderr
    line = next(line for line in run.stdout.splitlines() if line.startswith("SEEN "))
    assert foreseen == json.loads(line.removeprefix("SEEN "))


def test_it_shows_the_job_and_starts_nothing(start: Start, tmp_path: Path) -> None:
    run = start("-H", "h1:2,h2:2", "-show-topology")
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert lines[0] == "topology from -mode" and lines[1].endswith("2 hosts, 4 ranks")
    assert sum("eth0 10 Gbit/s" in line for line in lines) == 2
    assert [sum(f"rank {rank}: " in line for line in lines) for rank in range(4)] == [1] * 4
    assert "+ " not in run.stderr


def test_errors_are_those_of_the_start(ddlrun: Ddlrun) -> None:
    run = ddlrun("-H", "localhost:2", "-show-topology", "-ddlarg", "-topology /absent.json", "-m", "p")
    assert run.code == 1
    assert "[ERROR DDL-2-3] DDL refuses this topology: " in run.err and "/absent.json" in run.err
    run = ddlrun("-H", "localhost:2", "-topology-picture", "/absent/x.svg")
    assert run.code == 1 and "the picture cannot be written" in run.err
