"""More hosts than mpirun starts its daemons on by itself: real ssh, which leads from the first host to the
others and from none of these to another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ddlrun_program import Ddlrun
from emulated import assert_nothing_left, shared_folders

from ddl_validate.cluster import Cluster, ClusterSpec, missing_requirements


@contextmanager
def started_from_h1(prefix: Path, folder: Path, count: int) -> Iterator[Cluster]:
    """Only h1 has the key."""
    reasons = missing_requirements()
    if reasons:
        pytest.skip("; ".join(reasons))
    spec = ClusterSpec.even(
        hosts=count, shared=shared_folders(prefix), environment={"SHLVL": "1"}, life_seconds=300
    )
    with Cluster(spec, folder / "state") as cluster:
        hide = ["mount", "--bind", "/dev/null", str(cluster.state / "id")]
        for host in spec.hosts[1:]:
            cluster.run(host.name, hide, timeout=20, user="root", check=True)
        closed = cluster.run("h3", ["ssh", "-o", "BatchMode=yes", "h2", "true"], timeout=20)
        assert closed.returncode == 255, closed.stderr
        yield cluster


@pytest.fixture(scope="module")
def hosts(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started_from_h1(prefix, tmp_path_factory.mktemp("cluster"), 6) as cluster:
        yield cluster


def test_all_daemons_are_started_from_here(hosts: Cluster, ddlrun: Ddlrun) -> None:
    """Six hosts stand for hundreds: each daemon has two below it instead of 64."""
    names = [host.name for host in hosts.spec.hosts]
    words = ["-skip-checks", "-timeout", "40", "-H", ",".join(names), "hostname"]
    variables = {**ddlrun.variables, "PRTE_MCA_rml_base_radix": "2"}
    run = hosts.run("h1", [*ddlrun.words, *words], timeout=80, env=variables)
    assert run.returncode == 0 and sorted(run.stdout.split()) == names, run.stderr
    assert_nothing_left(hosts, names)


def test_the_users_own_settings_of_the_daemons_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ddlrun.command_line.options import Options
    from ddlrun.environment import Environment
    from ddlrun.start import command

    environment = Environment(Path("/env"), Path("/env/ddl"), Path("/env/bin/mpirun"))
    made = command.job_environment(environment, Options(), None, job="j")
    assert made["PRTE_MCA_plm_ssh_no_tree_spawn"] == "1"
    assert int(made["PRTE_MCA_plm_ssh_num_concurrent"]) > 10_000
    monkeypatch.setenv("PRTE_MCA_plm_ssh_no_tree_spawn", "0")
    assert (
        command.job_environment(environment, Options(), None, job="j")["PRTE_MCA_plm_ssh_no_tree_spawn"]
        == "0"
    )


@pytest.mark.long
def test_seventy_hosts(prefix: Path, ddlrun: Ddlrun, tmp_path: Path) -> None:
    """mpirun's own radix is 64; the checks look at all of them, too."""
    with started_from_h1(prefix, tmp_path, 70) as cluster:
        names = [host.name for host in cluster.spec.hosts]
        words = ["-timeout", "100", "-H", ",".join(names), "hostname"]
        run = cluster.run("h1", [*ddlrun.words, *words], timeout=140, env=ddlrun.variables)
        assert run.returncode == 0 and sorted(run.stdout.split()) == sorted(names), run.stderr
        assert_nothing_left(cluster, names, within=60)
