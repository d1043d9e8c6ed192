"""The tree that real ranks discover, on emulated hosts and through every source; the schema of its files."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rank_processes import ALLOW_ROOT, ROOT, compiled_program

from ddl_validate.cluster import Cluster, ClusterSpec, missing_requirements

SCHEMA = json.loads((ROOT / "docs/reference/topology.schema.json").read_text())
RACKS = {
    "version": 1,
    "tiers": [{}, {"name": "rack"}, {"name": "room", "bandwidth_mbit": 200}],
    "groups": [{"name": "A", "hosts": ["emulated[0-1]"]}, {"name": "B", "hosts": ["emulated[2-9]"]}],
}

Start = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def program() -> Path:
    """The C++ program that prints what its ranks discover."""
    return compiled_program("topology_ranks")


@pytest.fixture(scope="session")
def start(mpirun: Any, program: Path) -> Start:
    """Runs the program with a number of ranks, which the emulated hosts divide."""

    def ranks(number: int, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        command = [str(mpirun.mpirun), "-np", str(number), "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
        ours = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "DDL_", "SLURM_")
        clean = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        return subprocess.run(
            [*command, str(program), *words],
            env={**clean, **ROOT_ALLOWED, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return ranks


ROOT_ALLOWED = {**ALLOW_ROOT, "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl": "^ofi"}


def seen(run: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert run.returncode == 0, run.stdout + run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def test_the_machine(start: Start) -> None:
    topology = seen(start(3))
    assert topology["tree"] == [0, 1, 2] and topology["source"] == "hosts"


def test_emulated_racks(start: Start) -> None:
    topology = seen(start(6, DDL_EMULATE_HOSTS="2,1/1//1,1"))
    assert topology["tree"] == [[[[0, 1], [2]], [[3]]], [[[4], [5]]]]
    assert topology["tiers"] == ["host", "rack", "aisle", "cluster"]
    assert seen(start(3, "--topology", "none", DDL_EMULATE_HOSTS="1,1/1"))["tree"] == [[0], [1], [2]]


def test_file(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "site.json"
    file.write_text(json.dumps(RACKS))
    topology = seen(start(5, "--topology", str(file), DDL_EMULATE_HOSTS="2,1,1,1"))
    assert topology["tree"] == [[[0, 1], [2]], [[3], [4]]] and topology["tiers"] == ["host", "rack", "room"]
    assert topology["links"][2]["bandwidth_mbit"] == 200
    text = start(3, "--text", "--topology", str(file), DDL_EMULATE_HOSTS="1,1,1").stdout
    assert "room: 2 racks, 3 ranks, a rack is linked by 200 Mbit/s\n  rack A: 2 hosts, 2 ranks\n" in text


def test_an_error_is_every_ranks(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "site.json"
    file.write_text(json.dumps({**RACKS, "groups": RACKS["groups"][1:]}))  # type: ignore[index]
    run = start(2, "--topology", str(file), DDL_EMULATE_HOSTS="1,1")
    assert run.returncode != 0
    assert run.stderr.count(f"of the job are not in the file; in topology file {file}; add them") == 2, (
        run.stderr
    )


SAY_WHERE = """
import os, sys
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
# Each rank of this machine is told that it is on another node.
os.environ["SLURM_TOPOLOGY_ADDR"] = sys.argv[1].split()[rank]
os.environ["SLURM_TOPOLOGY_ADDR_PATTERN"] = "switch.switch.node"
os.execv(sys.argv[2], sys.argv[2:])
"""


def test_slurm_that_contradicts_itself(mpirun: Any, program: Path) -> None:
    """Ranks that share memory cannot be on two nodes: said, not believed."""
    run = mpirun(2, SAY_WHERE, "s0.s1.n1 s0.s2.n2", str(program))
    assert run.status == 0, run.output
    topology = json.loads(run.stdout)
    assert topology["source"] == "hosts" and topology["tree"] == [0, 1]
    assert "rank 1 has another SLURM_TOPOLOGY_ADDR than rank 0" in topology["notes"][0]


PERMUTED = """
import os, sys
# Rank i of MPI pretends to be on the host that comes i-th in the permutation.
ours = sys.argv[1].split(",")[int(os.environ["OMPI_COMM_WORLD_RANK"])]
rename = 'hostname "$0" && exec "$@"'
os.execvp("unshare", ["unshare", "--uts", "sh", "-c", rename, ours, *sys.argv[2:]])
"""


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.permutations([f"n{i}" for i in (1, 1, 2, 3, 10, 11)]))
def test_any_placement_gives_the_same_groups(order: list[str], mpirun: Any, program: Path) -> None:
    """Processes with host names of their own, in any order; sizes group them by name."""
    reasons = missing_requirements()
    if reasons:
        pytest.skip("; ".join(reasons))
    names: dict[str, list[int]] = {f"n{i}": [] for i in (1, 2, 3, 10, 11)}
    for rank, name in enumerate(order):
        names[name].append(rank)
    text = json.dumps({"version": 1, "groups": [{"hosts": ["n[1,10]"]}, {"hosts": ["n[2-3]", "n11"]}]})
    file = Path(os.environ.get("TMPDIR", "/tmp")) / f"ddl-topology-{os.getpid()}.json"
    file.write_text(text)
    try:
        run = mpirun(6, PERMUTED, ",".join(order), str(program), "--topology", str(file))
    finally:
        file.unlink()
    assert run.status == 0, run.output
    topology = json.loads(run.stdout)
    groups = {group["name"]: group["ranks"] for group in topology["groups"] if group["tier"] == "host"}
    assert groups == names
    racks = {tuple(group["ranks"]) for group in topology["groups"] if group["tier"] == "rack"}
    assert racks == {
        tuple(sorted(names["n1"] + names["n10"])),
        tuple(sorted(names["n2"] + names["n3"] + names["n11"])),
    }


# ---- measured on real links


@pytest.fixture(scope="module", params=[2, 1], ids=["two racks", "one rack"])
def hosts(request: pytest.FixtureRequest, mpirun: Any, program: Path) -> Iterator[tuple[Cluster, int]]:
    reasons = missing_requirements()
    if reasons:
        pytest.skip("; ".join(reasons))
    racks = request.param
    seen_by_all = [mpirun.mpirun.parents[1], program.parent, ROOT]
    spec = ClusterSpec.even(
        hosts=4,
        racks=racks,
        link_rate="1gbit",
        uplink_rate="200mbit" if racks > 1 else None,
        shared=tuple(str(path) for path in seen_by_all if path.is_relative_to("/tmp")),
        environment={"SHLVL": "1", **ROOT_ALLOWED, "OMPI_MCA_btl": "self,sm,tcp", "OMPI_MCA_pml": "ob1"},
        life_seconds=300,
    )
    with Cluster(spec) as cluster:
        yield cluster, racks


def test_measured_groups(hosts: tuple[Cluster, int], mpirun: Any, program: Path) -> None:
    """h1 and h2 share a switch, h3 and h4 another one; ranks are placed across."""
    cluster, racks = hosts
    command = [str(mpirun.mpirun), "--prefix", str(mpirun.mpirun.parents[1]), "-np", "4", "--bind-to", "none"]
    command += ["--host", "h1,h3,h2,h4", str(program), "--topology", "measure"]
    run = cluster.run("h1", command, timeout=90)
    topology = seen(run)
    by_name = {host["name"]: host["ranks"] for host in topology["hosts"]}
    assert topology["source"] == "measurement" and len(by_name) == 4
    took = re.search(r"measured in ([0-9.]+) s", run.stderr)
    assert took and float(took[1]) < 6, run.stderr
    groups = {tuple(group["ranks"]) for group in topology["groups"] if group["tier"] == "rack"}
    wanted = {tuple(sorted(by_name[a] + by_name[b])) for a, b in (("h1", "h2"), ("h3", "h4"))}
    assert groups == (wanted if racks == 2 else set()), run.stderr
    assert topology["tiers"] == (["host", "rack", "cluster"] if racks == 2 else ["host", "cluster"])


TELLS = """
import json, sys, ddl
stats = ddl.stats()["topology"]
if ddl.rank() == 0:
    print(json.dumps({**stats, "groups": [g["ranks"] for g in ddl.describe()["topology"]["groups"]]}))
"""


def test_racks_that_nobody_told(hosts: tuple[Cluster, int], mpirun: Any) -> None:
    """Without any option, and kept for the next job; what is spoilt, or of another network, is replaced."""
    cluster, racks = hosts
    # One of its own, as the cluster outlives an attempt.
    cache = cluster.run("h1", ["mktemp", "-d", "/tmp/cache.XXXXXX"], timeout=20).stdout.strip()

    def found(**more: str) -> dict[str, Any]:
        words = [str(mpirun.mpirun), "--prefix", str(mpirun.mpirun.parents[1]), "-np", "4"]
        for name in ("DDL_CACHE_DIR", *more):
            words += ["-x", name]
        words += ["--bind-to", "none", "--host", "h1,h3,h2,h4", str(mpirun.python), "-c", TELLS]
        run = cluster.run("h1", words, timeout=90, env={"DDL_CACHE_DIR": cache, **more})
        assert run.returncode == 0, run.stderr
        told: dict[str, Any] = json.loads(run.stdout)
        wanted = [[0, 2], [1, 3]] if racks == 2 and more.get("DDL_OPTIONS") != "-topology none" else []
        assert [ranks for ranks in told["groups"] if len(ranks) == 2] == wanted, (told, run.stderr)
        return told

    first = found()
    assert first["source"] == "measurement"
    assert re.match("2 racks, measured in" if racks == 2 else "no racks, measured in", first["notes"][0])
    # On a busy machine, figures that contradict each other are not kept.
    for _ in range(8):
        if "not kept" not in first["notes"][0]:
            break
        first = found()
    again = found()
    # Nor do they always agree with what was measured before: then it is measured anew, with the same result.
    assert re.search("as found before, checked|measured anew", again["notes"][0]), (first, again)
    kept = cluster.run("h1", ["sh", "-c", f"ls {cache}/racks-*"], timeout=20).stdout.split()
    assert len(kept) == 1 and kept[0] in first["notes"][0]

    def spoil(text: str) -> None:
        cluster.run("h1", ["sh", "-c", f"printf '{text}' > {kept[0]}"], timeout=20)

    spoil("ddl-racks-1\\n1 1\\n0 1 2 3 4")
    assert ", measured in" in found()["notes"][0]
    spoil("ddl-racks-1\\n900 100\\n0 1 1 0")
    assert "measured anew, as figures have changed" in found()["notes"][0]
    assert found(DDL_OPTIONS="-topology none") == {
        "source": "hosts",
        "notes": [],
        "groups": [[0, 1, 2, 3], [0], [1], [2], [3]],
    }


def test_emulated_hosts_are_not_measured(mpirun: Any) -> None:
    run = mpirun(4, TELLS, hosts="1,1,1,1")
    assert run.status == 0 and json.loads(run.stdout)["source"] != "measurement", run.output


def test_a_budget_that_is_too_small_is_refused(start: Start) -> None:
    run = start(4, "--topology", "measure", "--budget", "0.05", DDL_EMULATE_HOSTS="1,1,1,1")
    assert run.returncode != 0
    assert "4 hosts takes 3 rounds of at least 0.02 s, but may take 0.05 s" in run.stderr, run.stderr


# ---- files


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


names = st.from_regex(r"x[a-z0-9]{0,5}(\[[0-9]{1,2}\])?", fullmatch=True)
wrong = st.sampled_from([None, 1, "x", [], {}, [1], {"x": 1}, "a b", True])
group = st.recursive(
    st.fixed_dictionaries({"hosts": st.lists(names, min_size=1, max_size=2)}),
    lambda inner: st.fixed_dictionaries(
        {"groups": st.lists(inner, min_size=1, max_size=2)},
        optional={"hosts": st.lists(names, min_size=1, max_size=2), "name": names},
    ),
    max_leaves=3,
)


@st.composite
def files(draw: st.DrawFn) -> Any:
    """Topology files, most of them with something wrong somewhere."""
    file: dict[str, Any] = {"version": 1, **draw(group)}
    if draw(st.booleans()):
        tier = st.fixed_dictionaries(
            {}, optional={"bandwidth_mbit": st.integers(-1, 9), "latency_us": st.floats(-1, 9), "name": wrong}
        )
        file["tiers"] = draw(st.lists(tier, min_size=1, max_size=2))
    key = draw(st.sampled_from(["", "version", "hosts", "groups", "tiers", "name", "description", "more"]))
    if key:
        file[key] = draw(wrong)
    return file


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batch=st.lists(files(), min_size=8, max_size=8))
def test_the_schema_agrees_with_the_parser(batch: list[Any], program: Path, tmp_path: Path) -> None:
    """What the schema refuses the parser refuses; what only the parser refuses is about hosts and names."""
    validator = jsonschema.Draft202012Validator(SCHEMA)
    file = tmp_path / "file.json"
    for content in batch:
        file.write_text(json.dumps(content))
        # Alone the program needs no launcher. Its host is in no such file, which is looked at last.
        run = subprocess.run(
            [str(program), "--topology", str(file)],
            env={**os.environ, **ROOT_ALLOWED},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert run.returncode == 3, run.stdout + run.stderr
        accepted = "is not in the file" in run.stderr
        reserved = (
            "is there twice" in run.stderr
            or "two tiers have" in run.stderr
            or "hosts and groups make" in run.stderr
        )
        if validator.is_valid(content):
            assert accepted or reserved, (content, run.stderr)
        else:
            assert not accepted, (content, run.stderr)


def test_the_example_of_the_documentation() -> None:
    page = (ROOT / "docs/cluster/topology.md").read_text()
    examples = re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert examples
    for example in examples:
        jsonschema.validate(json.loads(example), SCHEMA)
