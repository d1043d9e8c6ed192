"""The check `environment` of `wmlce validate`: hosts that differ from the others, or do not answer."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from program_runner import Environment

from ddl_validate.suite import occupied, racks
from ddl_validate.suite.bench import hosts_of, ranks_of
from ddl_validate.suite.checks import environment
from ddl_validate.suite.checks.environment import Checked
from ddl_validate.suite.errors import ValidateError
from ddl_validate.suite.kinds import by_kind, kinds_of
from ddl_validate.suite.model import Finding, Kind, Severity, Status, status_of

_GB = 10**9


def host(name: str, **facts: Any) -> Checked:
    """One that is like all others but for these facts."""
    usual = {
        "machine": "x86_64",
        "cpu": "EPYC",
        "glibc": "glibc 2.36",
        "python": "3.11.2",
        "release": "2.0.0",
        "loaded_mpi": "Open MPI 5.0.11",
        "fabrics": ["mlx5_0"],
        "quota": None,
        "gpus": [],
        "memory_bytes": 64 * _GB,
        "memory_free_bytes": 60 * _GB,
        "clock_s": 0.01,
        "domains": [{"cores": [0, 1, 2, 3]}, {"cores": [4, 5, 6, 7]}],
    }
    return Checked(name, "ok", "", {**usual, **facts})


def found(*hosts: Checked) -> list[Finding]:
    result = environment.check(hosts, "ddlrun -check")
    assert result.status is status_of(result.findings)
    assert all(finding.kind is Kind.ENVIRONMENT for finding in result.findings)
    return result.findings


def test_hosts_that_are_alike_pass() -> None:
    assert found(host("a")) == [] and found(host("a"), host("b", clock_s=-0.5), host("c")) == []


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"release": "1.9.0"}, "another release of the environment"),
        ({"loaded_mpi": "Open MPI 4.1"}, "another MPI"),
        ({"fabrics": []}, "b has another network fabrics than the others: none, not mlx5_0"),
        ({"quota": 0.5}, "another limit of processor time"),
        (
            {"memory_bytes": 32 * _GB, "memory_free_bytes": 30 * _GB},
            "b has 32.0 GB of memory; others have 64.0",
        ),
        ({"memory_free_bytes": 6 * _GB}, "b has 6.0 GB of its 64.0 GB of memory free"),
        ({"clock_s": -7.0}, "the clock of b is 7 s behind"),
    ],
)
def test_the_host_that_differs_is_named(facts: dict[str, Any], told: str) -> None:
    (finding,) = found(host("a"), host("b", **facts), host("c"))
    assert (finding.where, finding.hosts) == ("host b", ("b",))
    assert told in finding.text


def test_a_newer_patch_of_the_system_is_a_warning() -> None:
    result = environment.check([host("a"), host("b", glibc="glibc 2.28"), host("c")], "")
    (finding,) = result.findings
    assert "b has another C library than the others: glibc 2.28, not glibc 2.36" in finding.text
    assert (finding.severity, finding.hosts, finding.figure) == (Severity.WARN, (), "glibc")
    assert result.status is Status.PASSED


def test_memory_that_a_job_uses_is_no_fault() -> None:
    busy = host("a", memory_free_bytes=6 * _GB)
    assert [finding.hosts for finding in environment.check([busy], "").findings] == [("a",)]
    assert environment.check([busy], "", occupied=True).findings == []


def test_jobs_of_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        b"slurmstepd: [1234.batch]",
        b"slurmstepd: [1234.0]",
        b"slurmstepd: [99.extern]",
        b"bash\0slurmstepd: [5.",
    ]
    for number, line in enumerate(lines):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "cmdline").write_bytes(line)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.delenv("SLURMD_NODENAME", raising=False)
    assert occupied.by(tmp_path) == "job 99, 1234 runs here"
    monkeypatch.setenv("SLURM_JOB_ID", "99")
    assert occupied.by(tmp_path) == "job 1234 runs here"
    # a node that a job has, without a step there
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/sh\necho 77\necho 99\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert occupied.by(tmp_path) == "job 77, 1234 runs here"
    squeue.write_text("#!/bin/sh\necho 'Invalid node name specified' >&2\nexit 1\n")
    assert occupied.by(tmp_path) == "job 1234 runs here"
    # a controller that does not answer: at first, ever, and not to a job, here 99
    squeue.write_text("#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact' >&2\nexit 1\n")
    assert occupied.by(tmp_path) == "job 1234 runs here"
    monkeypatch.delenv("SLURM_JOB_ID")
    text = "jobs may run here, squeue did not say (slurm_load_jobs error: Unable to contact)"
    assert occupied.by(tmp_path) == text
    squeue.write_text(f"#!/bin/sh\nmkdir {tmp_path}/tried 2>/dev/null && exit 1\necho 77\n")
    assert occupied.by(tmp_path) == "job 77, 99, 1234 runs here"
    # a health check of slurmd, whose squeue has no configuration, or is not on PATH
    squeue.write_text("#!/bin/sh\necho 'Could not establish a configuration source' >&2\nexit 1\n")
    assert occupied.by(tmp_path) == "job 99, 1234 runs here"
    monkeypatch.setenv("SLURMD_NODENAME", "a")
    assert "did not say (Could not establish a configuration source)" in occupied.by(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert "No such file or directory: 'squeue'" in occupied.by(tmp_path)


def many(number: int, letter: str, **facts: Any) -> list[Checked]:
    return [host(f"{letter}{index}", **facts) for index in range(number)]


def test_a_host_with_more_memory_says_nothing_of_the_others() -> None:
    """One large node among nine others drained all nine."""
    large = {"memory_bytes": 1024 * _GB, "memory_free_bytes": 1000 * _GB}
    usual = {"memory_bytes": 256 * _GB, "memory_free_bytes": 250 * _GB}
    assert found(*many(9, "n", **usual), host("large", **large)) == []
    (finding,) = found(*many(9, "n", **large), host("small", **usual))
    assert finding.hosts == ("small",) and "others have 1024.0" in finding.text
    # a module that is missing
    less = {"memory_bytes": 224 * _GB, "memory_free_bytes": 220 * _GB}
    assert [one.hosts for one in found(*many(9, "n", **usual), host("less", **less))] == [("less",)]


def test_two_kinds_of_hosts() -> None:
    """Each is held against its like alone: neither is the other one's fault."""
    milan = {"cpu": "EPYC 7763", "glibc": "glibc 2.28", "fabrics": ["hfi1_0"], "memory_bytes": 256 * _GB}
    milan["memory_free_bytes"] = 250 * _GB
    hosts = [*many(6, "genoa"), *many(5, "milan", **milan)]
    assert found(*hosts) == []
    strange = host("milan5", **{**milan, "fabrics": []})
    (finding,) = found(*hosts, strange)
    assert finding.hosts == ("milan5",) and "none, not hfi1_0" in finding.text
    # what a job needs on all of them
    (finding,) = found(*hosts, host("milan5", **{**milan, "release": "1.9.0"}))
    assert finding.hosts == ("milan5",) and "another release" in finding.text


def test_kinds() -> None:
    gpus = [{"name": "A100"}] * 4
    facts = {
        **{f"a{number}": {"cpu": "EPYC", "memory_bytes": 500 << 30, "gpus": gpus} for number in range(3)},
        "missing-gpu": {"cpu": "EPYC", "memory_bytes": 512 << 30, "gpus": gpus[:3]},
        "without": {"cpu": "EPYC", "memory_bytes": 512 << 30},
        "half": {"cpu": "EPYC", "memory_bytes": 250 << 30, "gpus": gpus},
        "other": {"cpu": "Xeon", "memory_bytes": 250 << 30, "gpus": gpus},
        "unknown": {},
    }
    kinds = kinds_of(facts)
    usual = "EPYC, 512 GiB of memory, A100"
    assert {name for name, kind in kinds.items() if kind == usual} == {
        "a0",
        "a1",
        "a2",
        "missing-gpu",
        "half",
    }
    assert kinds["without"] == "EPYC, 512 GiB of memory" and kinds["other"] == "Xeon, 256 GiB of memory, A100"
    assert by_kind(["a0", "other", "a1"], kinds) == [["a0", "a1"], ["other"]]
    # three of a size are a kind, as are two where no other kind has more
    assert len(set(kinds_of({**facts, "half2": facts["half"], "half3": facts["half"]}).values())) == 5
    assert len(set(kinds_of({name: facts[name] for name in ("a0", "half")}).values())) == 2


def test_of_two_that_differ_nobody_knows_which_is_right() -> None:
    (finding,) = found(host("a"), host("b", python="3.11.9"))
    assert (finding.where, finding.hosts) == ("cluster", ())
    assert "a: 3.11.2; b: 3.11.9" in finding.text


def test_a_host_that_does_not_answer_is_named_with_ddlruns_words() -> None:
    silent = Checked("b", "failed", "ssh: connect to host b port 22: No route to host", {})
    (finding,) = found(host("a"), silent, host("c"))
    assert finding.hosts == ("b",) and finding.text.endswith("port 22: No route to host")


def test_this_machine_as_ddlrun_sees_it(env: Environment) -> None:
    (one,) = environment.ask(env.prefix, [])
    assert (one.name, one.state) == ("localhost", "ok")
    assert one.facts["release"] and one.facts["memory_bytes"] > 0
    (here,) = hosts_of([one], None)
    assert here.cores >= 1 and here.rack == 0


def test_what_cannot_be_asked(env: Environment, tmp_path: Path) -> None:
    with pytest.raises(ValidateError, match="name an environment by --prefix"):
        environment.ask(tmp_path, [])
    with pytest.raises(ValidateError, match="-no-such-option"):
        environment.ask(env.prefix, ["-no-such-option"])


def test_racks_are_those_that_ddl_sees(tmp_path: Path) -> None:
    """With a ddlrun that prints what `ddlrun -show-topology -json` does in a job of five hosts."""

    def program(text: str) -> None:
        file = tmp_path / "bin/ddlrun"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
        file.chmod(0o755)

    def topology(**changes: object) -> str:
        groups = [
            {"tier": "cluster", "name": "", "ranks": [0, 1, 2, 3]},
            {"tier": "rack", "name": "leaf7", "ranks": [0, 1]},
            {"tier": "host", "name": "a", "ranks": [0, 1]},
            {"tier": "rack", "name": "leaf3", "ranks": [2, 3]},
            {"tier": "host", "name": "b", "ranks": [2]},
            {"tier": "host", "name": "c", "ranks": [3]},
        ]
        seen = {"tiers": ["host", "rack", "cluster"], "source": "Slurm", "groups": groups, **changes}
        return json.dumps({"ranks": [{"host": name} for name in "aabc"], "topology": seen})

    program(topology())
    assert racks.seen_by_ddl(tmp_path, [], ["b", "a", "c"]) == ([1, 0, 1], "Slurm")
    assert racks.seen_by_ddl(tmp_path, [], ["a", "d"]) == (None, ""), "a host that is in no rack"
    program(topology(tiers=["host", "cluster"]))
    assert racks.seen_by_ddl(tmp_path, [], ["a", "b"]) == (None, "")
    program("error DDL-1-3: no")
    assert racks.seen_by_ddl(tmp_path, [], ["a", "b"]) == (None, "")


def test_racks_and_ranks_of_the_hosts() -> None:
    hosts = hosts_of([host(name) for name in "abcd"], racks.equal(4, 2))
    assert [(one.name, one.rack, one.cores) for one in hosts] == [
        ("a", 0, 8),
        ("b", 0, 8),
        ("c", 1, 8),
        ("d", 1, 8),
    ]
    with pytest.raises(ValidateError, match="--racks 3: 4 hosts are not 3 racks of one size"):
        racks.equal(4, 3)
    assert ranks_of(hosts, None) == 8 and ranks_of(hosts, 3) == 3
    few = hosts_of([host("a"), host("b", domains=[{"cores": [0, 1]}])], None)
    assert ranks_of(few, None) == 2, "as the host with the fewest cores"
    tight = hosts_of([host("a", memory_free_bytes=3 * 1024**3 + 1)], None)
    assert ranks_of(tight, None) == 3, "each needs memory"
    gpus = hosts_of([host("a", gpus=["V100"] * 4), host("b", gpus=["V100"] * 4)], None)
    assert ranks_of(gpus, None) == 4
