"""Faults that are put into emulated hosts: each is named, and nothing else is."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from program_runner import PYTHONPATH, ROOT, Environment

from ddl_validate.cluster import Cluster, ClusterSpec, HostSpec, missing_requirements
from ddl_validate.cluster.errors import ClusterError
from ddl_validate.cluster.scheduling import make_limited_group, remove_group
from ddl_validate.common.mpi import MPI_AS_ROOT

NATIVE = Path(__file__).parent / "native"
TOLERANCE = 0.6  # the faults take nine tenths; what this machine does meanwhile takes less

# runs on h1, in the environment under test; measures shortly
VALIDATE = """
import importlib, json, sys
from pathlib import Path
from ddl_validate.suite.bench import Bench, Host
from ddl_validate.suite.levels import Level

prefix, tree, folder, hosts, racks, checks, tolerance, seconds, rails = sys.argv[1:]
level = Level(
    name="smoke", title="as short as can be", seconds=float(seconds), steps=1, ways=("ddl",), limit=120,
    scales=False, budget=120, sustained=3
)
bench = Bench(
    prefix=Path(prefix),
    options=("-x", "PYTHONPATH=" + tree, "-x", "PYTHONDONTWRITEBYTECODE=1"),
    hosts=tuple(Host(name, 1, int(rack), {}) for name, rack in zip(hosts.split(","), racks.split(","))),
    has_racks=len(set(racks.split(","))) > 1,
    ranks=1,
    gpus=0,
    level=level,
    tolerance=float(tolerance),
    folder=Path(folder),
    say=print,
    rails=tuple(rails.split(",")) if rails else (),
)
results = []
for name in checks.split(","):
    results.append(importlib.import_module("ddl_validate.suite.checks." + name).check(bench, results))
print(json.dumps([result.as_json() for result in results]))
"""


@pytest.fixture
def able() -> None:
    reasons = missing_requirements()
    if reasons:
        pytest.skip("; ".join(reasons))


def compiled(name: str, folder: Path) -> str:
    """A library to preload."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = folder / f"{name}.so"
    words = [compiler, "-shared", "-fPIC", "-O1", "-fno-builtin", "-o", library, NATIVE / f"{name}.c", "-ldl"]
    subprocess.run(words, check=True, timeout=60)
    return str(library)


def preloading(env: Environment, library: str, folder: Path) -> HostSpec:
    """h3, where ranks have this library in place of others. What starts ranks there gives it to them: the
    environment of h3 does not reach them.
    """
    script = env.prefix / "lib/python3.11/site-packages/ddlrun/start/rank_start.py"
    begin = "os.execvpe(command[0], command, variables)"
    text = script.read_text()
    assert text.count(begin) == 1
    copy = folder / "rank_start.py"
    copy.write_text(
        text.replace(begin, begin.replace("variables", f"{{**variables, 'LD_PRELOAD': {library!r}}}"))
    )
    return HostSpec("h3", overlays=((str(script), str(copy)),))


def validate(
    env: Environment,
    folder: Path,
    checks: Sequence[str],
    odd: HostSpec | None = None,
    racks: Sequence[int] = (0, 0, 0, 0),
    seconds: float = 0.2,
    **more: Any,
) -> tuple[list[dict[str, Any]], set[tuple[str, str, tuple[str, ...]]]]:
    """What the checks say of h1 … h4, where one host may be odd; and what they name."""
    names = [f"h{number + 1}" for number in range(len(racks))]
    hosts = tuple(
        odd if odd is not None and odd.name == name else HostSpec(name, slots=1, rack=rack)
        for name, rack in zip(names, racks, strict=True)
    )
    shared = [path for path in (folder, env.prefix, ROOT) if path.is_relative_to("/tmp")]
    spec = ClusterSpec(
        hosts,
        link_rate="200mbit",
        shared=tuple(map(str, shared)),
        environment={
            **MPI_AS_ROOT,
            "PATH": f"{env.prefix}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "PYTHONPATH": PYTHONPATH,
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        life_seconds=300,
        **more,
    )
    words = [env.prefix / "bin/python", "-c", VALIDATE, env.prefix, PYTHONPATH, folder, ",".join(names)]
    words += [",".join(map(str, racks)), ",".join(checks), TOLERANCE, seconds]
    words.append(",".join(f"eth{rail}" for rail in range(more.get("rails", 0))))
    with Cluster(spec) as cluster:
        done = cluster.run("h1", list(map(str, words)), timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    results: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    named = {
        (finding["kind"], finding["where"], tuple(finding["hosts"]))
        for result in results
        for finding in result["findings"]
    }
    return results, named


def values(result: dict[str, Any], name: str) -> dict[str, float]:
    return {one["where"]: one["value"] for one in result["figures"] if one["name"] == name}


def test_nothing_is_named_on_healthy_hosts(env: Environment, able: None, tmp_path: Path) -> None:
    results, named = validate(env, tmp_path, ["settings", "hosts", "links", "sums", "sustained"])
    assert named == set(), results
    assert [result["status"] for result in results] == ["passed"] * 5
    settings, hosts, links, sums, sustained = results
    assert settings["facts"]["hosts"].keys() == {"h1", "h2", "h3", "h4"}
    assert len(values(sustained, "sustained.compute")) == 4
    assert sustained["not_judged"] == {"sustained": "hosts share a machine, and disturb each other"}
    everywhere = {f"host h{number}" for number in range(1, 5)}
    for name in ("host.compute", "host.core", "host.memory", "host.jitter"):
        assert values(hosts, name).keys() == everywhere
    assert min(values(hosts, "host.memory").values()) > 1e8
    # 200 Mbit/s
    bandwidth = values(links, "link.bandwidth")
    assert bandwidth.keys() == everywhere
    assert all(0.5 * 25e6 < rate < 1.2 * 25e6 for rate in bandwidth.values()), bandwidth
    assert all(0 < seconds < 0.1 for seconds in values(links, "link.latency").values())
    assert all(one["expected"]["source"] == "peers" for one in links["figures"])
    assert values(hosts, "host.compute.share").keys() == everywhere
    assert links["not_judged"] == {
        "link.share": "hosts share a machine, and no port carries what they exchange"
    }
    assert sums["facts"]["sums"] > 10 and sums["facts"]["elements"] == 0
    assert all("ddlrun" in command for result in results for command in result["commands"])


def test_a_link_at_a_tenth(env: Environment, able: None, tmp_path: Path) -> None:
    results, named = validate(env, tmp_path, ["hosts", "links"], HostSpec("h3", link_rate="20mbit"))
    assert named == {("slow-link", "host h3", ("h3",))}, results
    (finding,) = results[1]["findings"]
    slow = values(results[1], "link.bandwidth")["host h3"]
    assert 0.5 * 2.5e6 < slow < 1.2 * 2.5e6
    assert "h3 sends and receives 2" in finding["text"] and "are expected" in finding["text"]
    assert finding["remedy"]


def test_a_rail_of_a_host_at_a_tenth(env: Environment, able: None, tmp_path: Path) -> None:
    """Over both together messages would go by the other one, too."""
    odd = HostSpec("h3", rail_rates=((1, "20mbit"),))
    [result], named = validate(env, tmp_path, ["rails"], odd, rails=2)
    assert named == {("slow-link", "host h3", ("h3",))}, result
    [finding] = result["findings"]
    assert finding["text"].startswith("rail eth1: h3 sends and receives 2")
    assert result["facts"] == {"rails": ["eth0", "eth1"]} and result["not_judged"] == {}
    rates = {(one["where"], one["scale"]["rail"]): one["value"] for one in result["figures"]}
    assert rates.keys() == {(f"host h{host}", rail) for host in range(1, 5) for rail in range(2)}
    assert 0.5 * 2.5e6 < rates.pop(("host h3", 1)) < 1.2 * 2.5e6
    assert all(0.5 * 25e6 < rate < 1.2 * 25e6 for rate in rates.values()), rates
    words = [command.split() for command in result["commands"]]
    assert [command[command.index("-interface") + 1] for command in words] == ["eth0", "eth1"]


def test_a_rack_whose_uplink_is_slow(env: Environment, able: None, tmp_path: Path) -> None:
    racks = (0, 0, 1, 1, 2, 2)
    rates = {"uplink_rate": "200mbit", "uplink_rates": ((1, "20mbit"),)}
    results, named = validate(env, tmp_path, ["links"], racks=racks, seconds=1.0, **rates)
    assert named == {("slow-tier", "rack 1", ())}, results
    carried = values(results[0], "rack.bandwidth")
    # Each of the two flows that share it has at most its rate: on a busy machine one may follow the other.
    assert 0.5 * 2.5e6 < carried["rack 1"] < 2.2 * 2.5e6
    assert all(0.5 * 25e6 < carried[rack] < 1.8 * 25e6 for rack in ("rack 0", "rack 2")), carried


def test_of_two_racks_nobody_is_named(env: Environment, able: None, tmp_path: Path) -> None:
    """Nobody can say which uplink is slow; its rate is there."""
    rates = {"racks": (0, 0, 1, 1), "uplink_rate": "20mbit"}
    results, named = validate(env, tmp_path, ["links"], seconds=1.0, **rates)
    assert named == set(), results
    carried = values(results[0], "rack.bandwidth")
    assert carried.keys() == {"rack 0", "rack 1"}
    # A second's bytes have in them what buckets and queues held; a host's link carries 50 times as much.
    assert all(0.5 * 2.5e6 < rate < 3 * 2.5e6 for rate in carried.values()), carried


def test_a_host_with_a_quota(env: Environment, able: None, tmp_path: Path) -> None:
    """That it copies and sends slowly, too, is an effect."""
    try:
        remove_group(make_limited_group("h3", 1))
    except ClusterError as error:
        pytest.skip(str(error))
    results, named = validate(env, tmp_path, ["hosts", "links"], HostSpec("h3", cores=0.15))
    assert named == {("slow-host", "host h3", ("h3",))}, results
    (finding,) = results[0]["findings"]
    assert "a quota of processor time stopped it" in finding["text"]
    assert "control group" in finding["remedy"]
    compute = values(results[0], "host.compute")
    assert compute["host h3"] < 0.4 * compute["host h2"]


def test_a_host_with_little_memory_bandwidth(env: Environment, able: None, tmp_path: Path) -> None:
    library = compiled("slow_memcpy", tmp_path)
    odd = preloading(env, library, tmp_path)
    results, named = validate(env, tmp_path, ["hosts", "links"], odd)
    assert named == {("slow-memory", "host h3", ("h3",))}, results
    memory = values(results[0], "host.memory")
    assert memory["host h3"] < 0.4 * memory["host h2"]


@pytest.mark.parametrize("fault", ["wrong_sum", "wrong_copy"])
def test_a_host_that_corrupts_a_sum(env: Environment, able: None, tmp_path: Path, fault: str) -> None:
    library = compiled(fault, tmp_path)
    odd = preloading(env, library, tmp_path)
    checks = ["links", "sums"] if fault == "wrong_sum" else ["sums"]
    results, named = validate(env, tmp_path, checks, odd)
    assert named == {("wrong-result", "host h3", ("h3",))}, results
    told = results[-1]["facts"]
    # the sums of halves, and then with each of two hosts that are good
    assert told["culprits"] == [2] and told["rounds"] == 3 and told["products"] == []
    if fault == "wrong_sum":
        assert len(told["wrong"]) > 1, told
    else:
        assert told["wrong"] == [2], told


def test_a_host_that_stops_answering(env: Environment, able: None, tmp_path: Path) -> None:
    """Nobody waits for it for ever, and the others are measured."""
    odd = preloading(env, compiled("hangs", tmp_path), tmp_path)
    results, named = validate(env, tmp_path, ["links"], odd)
    assert named == {("slow-link", "host h3", ("h3",))}, results
    (finding,) = results[0]["findings"]
    assert finding["text"] == "h3 did not answer any other host in time"
    bandwidth = values(results[0], "link.bandwidth")
    assert all(0.5 * 25e6 < bandwidth[f"host {name}"] < 1.2 * 25e6 for name in ("h1", "h2", "h4"))
