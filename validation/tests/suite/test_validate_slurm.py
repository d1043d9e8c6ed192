"""`wmlce validate` in a job of a real Slurm over emulated hosts in two racks, of which it is told nothing."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from program_runner import ROOT, Environment

from ddl_validate.cluster import Cluster, ClusterSpec, HostSpec, missing_requirements
from ddl_validate.cluster.slurm import Slurm, missing_slurm
from ddl_validate.common.mpi import MPI_AS_ROOT
from ddl_validate.suite import document as documents
from ddl_validate.suite.model import Figure, Status

HOSTS = [f"h{number}" for number in range(1, 9)]
#: Emulated hosts have no hardware ports and no GPUs, nobody has named a module or an image, and there is no
#: load for minutes at this level.
ELSEWHERE = {"rails", "fabric", "gpu", "sustained", "module", "image"}


def specification(env: Environment, folder: Path, hosts: Sequence[HostSpec], **options: Any) -> ClusterSpec:
    """Emulated hosts that see what a test needs."""
    reasons = missing_requirements() + missing_slurm()
    if reasons:
        pytest.skip("; ".join(reasons))
    shared = [path for path in (folder, env.prefix, ROOT) if path.is_relative_to("/tmp")]
    return ClusterSpec(
        hosts=tuple(hosts),
        shared=tuple(map(str, shared)),
        # the hosts share the processors of this machine
        environment={**MPI_AS_ROOT, "OMPI_MCA_mpi_yield_when_idle": "1"},
        life_seconds=2400,
        **options,
    )


def alike(number: int) -> HostSpec:
    """A host of a rack of four."""
    return HostSpec(HOSTS[number], rack=number // 4)


def of_two_kinds(folder: Path) -> list[HostSpec]:
    """Hosts of a processor with half a core, in both racks, and one of four times the memory."""
    cpuinfo, meminfo = folder / "cpuinfo", folder / "meminfo"
    cpuinfo.write_text(
        re.sub(r"(?m)^(model name\s*: ).*", r"\1Slower 9000", Path("/proc/cpuinfo").read_text())
    )
    meminfo.write_text(
        re.sub(
            r"(?m)^(MemTotal:\s*)(\d+)", lambda m: f"{m[1]}{4 * int(m[2])}", Path("/proc/meminfo").read_text()
        )
    )
    slower = {"cores": 0.5, "overlays": (("/proc/cpuinfo", str(cpuinfo)),)}
    hosts = [replace(alike(number), **(slower if number % 4 < 2 else {})) for number in range(len(HOSTS))]
    hosts[-1] = replace(hosts[-1], overlays=(("/proc/meminfo", str(meminfo)),))
    return hosts


def validated(
    env: Environment, folder: Path, *options: str, hosts: Sequence[HostSpec] | None = None
) -> tuple[documents.Document, str]:
    """The document of a run in a job on all hosts, and what was printed. An uplink has a quarter of the rate
    of a rack's hosts.
    """
    chosen = hosts or [alike(number) for number in range(len(HOSTS))]
    spec = specification(env, folder, chosen, link_rate="400mbit", uplink_rate="400mbit")
    report, told = folder / "report", folder / "job.out"
    script = folder / "job.sh"
    command = [
        f"{env.prefix}/bin/wmlce-validate",
        "--ranks",
        "1",
        "--tolerance",
        "0.8",
        "--output",
        str(report),
    ]
    script.write_text(f"#!/bin/sh\nexec {shlex.join([*command, *options])}\n")
    with Cluster(spec) as cluster:
        slurm = Slurm(cluster)
        slurm.up()
        words = ["sbatch", "-W", "-N", str(len(HOSTS)), "-o", str(told), str(script)]
        done = slurm.run(words, timeout=2000, cwd=folder)
    output = told.read_text() if told.exists() else done.stderr
    assert done.returncode == 0, output
    document = documents.read(report / "validation.json")
    assert document.hosts == HOSTS and document.verdict == "passed", output
    assert document.racks == [0, 0, 0, 0, 1, 1, 1, 1], output
    return document, output


def figures(document: documents.Document, name: str) -> list[Figure]:
    return [figure for result in document.results for figure in result.figures if figure.name == name]


def test_racks_are_those_of_slurm(ddl_env: Environment, tmp_path: Path) -> None:
    document, output = validated(ddl_env, tmp_path, "--only", "links")
    assert "2 racks" in output
    assert {figure.where for figure in figures(document, "rack.bandwidth")} == {"rack 0", "rack 1"}
    assert {figure.where for figure in figures(document, "link.bandwidth")} == {
        f"host {host}" for host in HOSTS
    }


@pytest.mark.long
@pytest.mark.parametrize("kinds", [1, 2])
def test_smoke_on_the_hosts_of_a_job(ddl_env: Environment, tmp_path: Path, kinds: int) -> None:
    hosts = of_two_kinds(tmp_path) if kinds == 2 else None
    document, output = validated(ddl_env, tmp_path, "--site", "emulated", hosts=hosts)
    slower = {host for host, kind in zip(document.hosts, document.kinds, strict=True) if "Slower" in kind}
    assert slower == ({"h1", "h2", "h5", "h6"} if kinds == 2 else set())
    states = {result.name: result.status for result in document.results}
    assert {name for name, status in states.items() if status is Status.SKIPPED} == ELSEWHERE, output
    assert {name for name, status in states.items() if status is not Status.SKIPPED} >= {
        *("environment", "imports", "hosts", "links", "sums", "allreduce", "training", "frameworks"),
    }
    trained = {figure.scale["hosts"] for figure in figures(document, "training.ddl.images_per_sec")}
    assert trained == {1, 8} or trained == {8}, trained
    page = (tmp_path / "report/index.html").read_text()
    assert all(host in page for host in HOSTS) and "<svg" in page


_HEALTH_CHECK = """#!/bin/sh
export PATH SLURM_CONF={conf}  # where slurm.conf is in its usual place, slurmd's commands find it
host=$(hostname)
exec 9>{folder}/"$host".lock
flock -n 9 || exit 0  # that of before is still at work
{{ {validate} --ranks 1 --tolerance 0.8 --only environment,hosts --baseline {baseline} \\
    --output {folder}/reports/"$host" --drain-reason >{folder}/"$host".part 2>{folder}/"$host".err
mv {folder}/"$host".part {folder}/"$host"; }}
while IFS="$(printf '\\t')" read -r name reason; do
    scontrol update NodeName="$name" State=DRAIN Reason="$reason"
done <{folder}/"$host"
"""


def states(slurm: Slurm) -> dict[str, str]:
    lines = slurm.run(["sinfo", "-h", "-N", "-o", "%N %T"], timeout=30, check=True).stdout.splitlines()
    return dict(line.split() for line in lines)


@pytest.mark.long
def test_a_health_check_of_slurm(ddl_env: Environment, tmp_path: Path) -> None:
    """On idle nodes it compares with the baseline, on busy ones it measures nothing; neither is drained. One
    that was faster at the time of the baseline is.
    """
    names = HOSTS[:2]
    baseline, script, reports = (
        tmp_path / "first/validation.json",
        tmp_path / "check.sh",
        tmp_path / "reports",
    )
    reports.mkdir()
    validate = f"{ddl_env.prefix}/bin/wmlce-validate"
    lines = [f"HealthCheckProgram={script}", "HealthCheckInterval=5", "HealthCheckNodeState=ANY"]
    spec = specification(ddl_env, tmp_path, [HostSpec(name) for name in names])

    def checked(end: float) -> dict[str, documents.Document]:
        """The next report of each host."""
        for name in names:
            (tmp_path / name).unlink(missing_ok=True)
        while not all((tmp_path / name).exists() for name in names):
            assert time.monotonic() < end, [path.read_text() for path in tmp_path.glob("*.err")]
            time.sleep(0.2)
        return {name: documents.read(reports / name / "validation.json") for name in names}

    with Cluster(spec) as cluster:
        hostfile = ["--hostfile", str(cluster.hostfile)]
        command = [validate, *hostfile, "--ranks", "1", "--tolerance", "0.8", "--only", "environment,hosts"]
        cluster.run(names[0], [*command, "--output", str(baseline.parent)], timeout=300, check=True)
        slurm = Slurm(cluster, settings=lines)
        script.write_text(
            _HEALTH_CHECK.format(conf=slurm.conf, validate=validate, baseline=baseline, folder=tmp_path)
        )
        script.chmod(0o755)
        slurm.up()
        end = time.monotonic() + 900
        for document in checked(end).values():
            measured = [figure for result in document.results for figure in result.figures]
            assert measured and any(figure.expected is not None for figure in measured)
        assert set(states(slurm).values()) == {"idle"}
        slurm.run(["sbatch", "-N", "2", "-o", "/dev/null", "--wrap", "sleep 900"], timeout=60, check=True)
        while set(states(slurm).values()) != {"allocated"}:
            assert time.monotonic() < end, states(slurm)
            time.sleep(0.2)
        checked(end)  # may have begun before the job began
        for document in checked(end).values():
            assert not [figure for result in document.results for figure in result.figures]
        assert set(states(slurm).values()) == {"allocated"}
        slurm.run(["scancel", "-u", "root"], timeout=60, check=True)
        was_faster = json.loads(baseline.read_text())
        for figure in (figure for check in was_faster["checks"] for figure in check["figures"]):
            if figure["where"] == "host h1":
                figure["value"] *= 20
        baseline.write_text(json.dumps(was_faster))
        while "drained" not in states(slurm).values():
            assert time.monotonic() < end, (
                states(slurm),
                [path.read_text() for path in tmp_path.glob("*.err")],
            )
            time.sleep(0.2)
        assert states(slurm) == {"h1": "drained", "h2": "idle"}
        assert "h1" in slurm.run(["sinfo", "-R", "-h", "-o", "%N %E"], timeout=30, check=True).stdout


_SITE = """
site_configuration = {{
    "systems": [
        {{
            "name": "emulated",
            "hostnames": [".*"],
            "partitions": [
                {{
                    "name": "all",
                    "scheduler": "squeue",  # there is no accounting
                    "launcher": "local",
                    "environs": ["this"],
                    "max_jobs": 1,
                }},
            ],
        }},
    ],
    "environments": [{{"name": "this", "features": ["wmlce"]}}],
    "general": [{{"report_file": "{folder}/reframe.json"}}],
}}
"""


@pytest.mark.long
def test_reframe_starts_checks_in_jobs(ddl_env: Environment, tmp_path: Path) -> None:
    """ReFrame submits them, each to two nodes, and has their results and figures."""
    site = tmp_path / "site.py"
    site.write_text(_SITE.format(folder=tmp_path))
    checks = ROOT / "validation/ddl_validate/reframe/cluster.py"
    words = ["reframe", "--nocolor", "-C", str(site), "-c", str(checks), "--tag", "smoke", "--run"]
    words += ["--name", "check=(environment|hosts|links|sums|gpu)", "--setvar", "num_nodes=2"]
    words += ["--setvar", "options=--ranks 1 --tolerance 0.8"]
    path = os.pathsep.join([str(Path(sys.executable).parent), f"{ddl_env.prefix}/bin", os.environ["PATH"]])
    spec = specification(ddl_env, tmp_path, [HostSpec(name) for name in HOSTS[:2]], link_rate="400mbit")
    with Cluster(spec) as cluster:
        slurm = Slurm(cluster)
        slurm.up()
        done = slurm.run(words, timeout=900, cwd=tmp_path, env={"PATH": path, "HOME": str(tmp_path)})
    assert done.returncode == 0, done.stdout + done.stderr
    [run] = json.loads((tmp_path / "reframe.json").read_text())["runs"]
    cases = {case["check"]: case for case in run["testcases"]}
    assert {name: case["result"] for name, case in cases.items()} == {
        **dict.fromkeys(("environment", "hosts", "links", "sums"), "pass"),
        "gpu": "skip",
    }
    assert {case["scheduler"] for case in cases.values()} == {"squeue"}
    reports = [
        Path(case["outputdir"]) / "report/validation.json"
        for case in cases.values()
        if case["result"] == "pass"
    ]
    assert all(documents.read(report).hosts == HOSTS[:2] for report in reports)
    assert [name for name in cases["links"]["perfvalues"] if "link.bandwidth" in name]
