"""Hosts from the environments of schedulers. LSF and PBS are recorded environments, Flux is a stand-in for
its command; the real Slurm is in test_launch_slurm.py.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from ddlrun.command_line.options import Options
from ddlrun.errors import LaunchError
from ddlrun.hosts.host_list import Host
from ddlrun.hosts.schedulers import ask, find_hosts
from ddlrun.hosts.schedulers.flux import parse_resource_set
from ddlrun.hosts.schedulers.slurm import expand_nodelist, expand_tasks
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("h1", ["h1"]),
        ("h[1-3,7]", ["h1", "h2", "h3", "h7"]),
        ("h[08-11]", ["h08", "h09", "h10", "h11"]),
        ("a,b[1-2]-ib[0-1],c", ["a", "b1-ib0", "b1-ib1", "b2-ib0", "b2-ib1", "c"]),
        (
            "r[1-2]n[01-02].site.example",
            ["r1n01.site.example", "r1n02.site.example", "r2n01.site.example", "r2n02.site.example"],
        ),
    ],
)
def test_nodelists(text: str, names: list[str]) -> None:
    assert expand_nodelist(text) == names


@pytest.mark.parametrize(
    "text", ["h[1-", "h[3-1]", "h[a]", "h[]", "h[1-999999999]", "h]1", "h[1-50000][1-50000]", "a,,b;c"]
)
def test_bad_nodelists_are_refused(text: str) -> None:
    with pytest.raises(LaunchError, match="SLURM_JOB_NODELIST"):
        expand_nodelist(text)


@given(st.integers(0, 5000), st.integers(0, 60), st.integers(1, 5))
def test_a_range_is_its_numbers(first: int, count: int, width: int) -> None:
    low, high = str(first).zfill(width), str(first + count)
    assert expand_nodelist(f"n[{low}-{high}]") == [
        f"n{str(i).zfill(len(low))}" for i in range(first, first + count + 1)
    ]


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(1, 9)), min_size=1, max_size=6))
def test_tasks_are_run_lengths(runs: list[tuple[int, int]]) -> None:
    text = ",".join(f"{value}(x{times})" if times > 1 else f"{value}" for value, times in runs)
    assert expand_tasks(text) == [value for value, times in runs for _ in range(times)]


@given(st.text(alphabet="h[]-,0129a ", max_size=16))
def test_any_nodelist_is_expanded_or_refused(text: str) -> None:
    try:
        names = expand_nodelist(text)
    except LaunchError:
        return
    assert all(name and name[0].isalnum() for name in names)


def test_slurm_job() -> None:
    found = find_hosts(
        Options(), {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "h[1-3]", "SLURM_TASKS_PER_NODE": "2(x2),1"}
    )
    assert found.hosts == (Host("h1", 2), Host("h2", 2), Host("h3", 1))
    assert found.origin == "Slurm job 7" and not found.explicit_slots
    with pytest.raises(LaunchError, match="2 numbers of tasks for 3 nodes"):
        find_hosts(Options(), {"SLURM_JOB_NODELIST": "h[1-3]", "SLURM_TASKS_PER_NODE": "2(x2)"})


def test_a_slurm_job_without_tasks_has_a_slot_a_host() -> None:
    found = find_hosts(Options(), {"SLURM_JOB_NODELIST": "h[1-3]"})
    assert found.hosts == (Host("h1", 1), Host("h2", 1), Host("h3", 1))


def test_lsf_job(tmp_path: Path) -> None:
    listed = tmp_path / "hosts"
    listed.write_text("batch5\nh1\nh1\nh2\nh2\n")
    for variables in (
        {"LSB_DJOB_HOSTFILE": str(listed)},
        {"LSB_MCPU_HOSTS": "batch5 1 h1 2 h2 2"},
        {"LSB_HOSTS": "batch5 h1 h1 h2 h2"},
    ):
        # Only where LSF has launch nodes is a first host with one slot none of the job's.
        found = find_hosts(Options(), {"LSB_JOBID": "12", "CSM_ALLOCATION_ID": "7", **variables})
        assert found.hosts == (Host("h1", 2), Host("h2", 2)), variables
        assert found.origin == "LSF job 12"
        found = find_hosts(Options(), {"LSB_JOBID": "12", **variables})
        assert found.hosts[0].name == "batch5" and found.hosts[1:] == (Host("h1", 2), Host("h2", 2)), (
            variables
        )
    alike = find_hosts(Options(), {"LSB_JOBID": "12", "LSB_MCPU_HOSTS": "h1 1 h2 1"})
    assert alike.hosts == (Host("h1", 1), Host("h2", 1))
    # nor one among hosts that all have one, nor the only one
    launch_nodes = {"LSB_JOBID": "12", "CSM_ALLOCATION_ID": "7"}
    alike = find_hosts(Options(), {**launch_nodes, "LSB_MCPU_HOSTS": "h1 1 h2 1"})
    assert alike.hosts == (Host("h1", 1), Host("h2", 1))
    assert find_hosts(Options(), {**launch_nodes, "LSB_MCPU_HOSTS": "h1 1"}).hosts == (Host("h1", 1),)
    beside = find_hosts(Options(), {**launch_nodes, "LSB_MCPU_HOSTS": "batch5 1 h1 2"})
    assert beside.hosts == (Host("h1", 2),)
    with pytest.raises(LaunchError, match="a host without its slots"):
        find_hosts(Options(), {"LSB_JOBID": "12", "LSB_MCPU_HOSTS": "h1 1 h2"})


def test_pbs_job(tmp_path: Path) -> None:
    """Torque lists a host once for each processor, PBS Pro once for each mpiproc, in blocks or dealt out."""
    listed = tmp_path / "12.server"
    job = {"PBS_JOBID": "12.server", "PBS_NODEFILE": str(listed)}
    for text in ("n1\nn1\nn2.site.example\nn2.site.example\n", "n1\nn2.site.example\n" * 2):
        listed.write_text(text)
        found = find_hosts(Options(), job)
        assert found.hosts == (Host("n1", 2), Host("n2.site.example", 2))
        assert found.origin == "PBS job 12.server" and not found.explicit_slots
    listed.write_text("n1\nn2\n")
    assert find_hosts(Options(), job).hosts == (Host("n1"), Host("n2"))
    with pytest.raises(LaunchError, match="PBS_NODEFILE"):
        find_hosts(Options(), {**job, "PBS_NODEFILE": str(tmp_path / "gone")})
    assert find_hosts(Options(), {"PBS_NODEFILE": str(listed)}).origin == "this machine"


STANDINS = Path(__file__).parent / "standins"
FLUX_R = {
    "version": 1,
    "execution": {
        "R_lite": [
            {"rank": "0-1", "children": {"core": "0-3", "gpu": "0"}},
            {"rank": "2", "children": {"core": "0,2"}},
        ],
        "nodelist": ["n[07-08],gpu1"],
    },
}


@pytest.mark.parametrize("more", [{}, {"FLUX_JOB_ID": "fX"}])
def test_flux_instance(more: dict[str, str]) -> None:
    path = f"{STANDINS}:{os.environ['PATH']}"
    environment = {
        "FLUX_URI": "local:///run/flux",
        "PATH": path,
        "FLUX_STANDIN_R": json.dumps(FLUX_R),
        **more,
    }
    # Inside a job of another scheduler, an instance may have some of its hosts.
    found = find_hosts(Options(), {**environment, "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[07-09]"})
    assert found.hosts == (Host("n07", 4), Host("n08", 4), Host("gpu1", 2))
    assert found.origin == "Flux" and not found.explicit_slots


def test_flux_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"FLUX_URI": "local:///run/flux", "PATH": f"{STANDINS}:{os.environ['PATH']}"}
    with pytest.raises(LaunchError, match=r"`flux resource R` ended with code 1: .*no R; asking Flux"):
        find_hosts(Options(), environment)
    monkeypatch.setattr(ask, "SECONDS", 0.3)
    began = time.monotonic()
    text, reason = ask.ask(("sleep", "5"), environment)
    assert text is None and reason == "`sleep 5` did not answer within 0.3 s" and time.monotonic() < began + 3
    assert ask.ask(("no-such-command",), environment) == (None, "no-such-command was not found on PATH")
    monkeypatch.setattr(ask, "SECONDS", 30)
    text, reason = ask.ask(("sh", "-c", "echo first >&2; printf %0400d 1 >&2; exit 3"), environment)
    assert text is None and reason.endswith(f"ended with code 3: {'0' * 299}1")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"execution": {"nodelist": ["n1"], "R_lite": [{"rank": "7", "children": {"core": "0"}}]}}',
        '{"execution": {"nodelist": ["n[1-"], "R_lite": []}}',
        '{"execution": {"nodelist": ["-oProxy"], "R_lite": [{"rank": "0", "children": {"core": "0"}}]}}',
        '{"execution": {"nodelist": ["n1"], "R_lite": [{"rank": "0", "children": {}}]}}',
    ],
)
def test_bad_resource_sets_are_refused(text: str) -> None:
    with pytest.raises(LaunchError, match=r"DDL-2-1\].*in flux"):
        parse_resource_set(text, "in flux")


def test_options_come_before_schedulers() -> None:
    found = find_hosts(Options(host="a:2"), {"SLURM_JOB_NODELIST": "h[1-3]"})
    assert found.hosts == (Host("a", 2),) and found.explicit_slots


def test_without_anything_it_is_this_machine() -> None:
    assert find_hosts(Options(), {}).hosts == (Host("localhost"),)
