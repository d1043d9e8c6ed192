"""Ranks and GPUs: what forbids a start, each by its code, and what every rank is told of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ddlrun.checks import gpu_checks, remote_probe
from ddlrun.checks.inventory import HostInventory
from ddlrun.checks.preflight import Report
from ddlrun.command_line.options import Options
from ddlrun.environment import Environment
from ddlrun.errors import Code, LaunchError
from ddlrun.hosts.host_list import Host, HostList
from ddlrun.placement import gpu_use
from ddlrun.placement.gpu_use import GpuUse
from ddlrun.placement.slots import Placement, Slot, place
from ddlrun.start import gpu_environment
from ddlrun_program import Ddlrun, environment_of_rank
from emulated import shared_folders
from fake_machine import AC922_6, CROSSED_PAIRS, DGX_A100, DGX_H100, TWO_PCIE, VM, Machine
from nvml_standin import Look, install

from ddl_validate.cluster import Cluster, ClusterSpec, missing_requirements

ROOT = Path(__file__).resolve().parents[3]

OLD = replace(TWO_PCIE, driver="470.57.02", cuda=11040)
FAILED = replace(TWO_PCIE, said=("init 18",))
CLOSED = replace(TWO_PCIE, gpus=(), said=("closed", "closed"))
LOST = replace(TWO_PCIE, gpus=(), said=("lost",))


# ---- what forbids a start


@pytest.mark.parametrize(
    ("kind", "visible", "library", "code", "said"),
    [
        (
            replace(VM, driver=""),
            None,
            False,
            Code.NO_DRIVER,
            "there is no NVIDIA driver; host a; install driver 525",
        ),
        (
            replace(TWO_PCIE, driver=""),
            None,
            False,
            Code.NO_DRIVER,
            "driver, though 2 GPUs of NVIDIA are on its bus",
        ),
        (
            TWO_PCIE,
            None,
            False,
            Code.NO_DRIVER,
            "not its library libnvidia-ml.so.1; host a; start a container with --nv",
        ),
        (
            replace(TWO_PCIE, driver="470.57.02", cuda=11040),
            None,
            True,
            Code.OLD_DRIVER,
            "470.57.02 and can do CUDA 11.4",
        ),
        (
            replace(TWO_PCIE, driver="525.60.11"),
            None,
            False,
            Code.OLD_DRIVER,
            "CUDA 12 needs 525.60.13 or newer",
        ),
        (FAILED, None, True, Code.GPU_FAILURE, "Driver/library version mismatch"),
        (VM, None, True, Code.NO_GPU, "driver 550.54.15 is there, but no GPU; host a"),
        (CLOSED, None, True, Code.NO_GPU, "the job may use none of the GPUs there (2)"),
        (LOST, None, True, Code.NO_GPU, "no GPU works: nvmlDeviceGetHandleByIndex_v2: GPU is lost"),
        (TWO_PCIE, "", True, Code.VISIBLE_GPUS, "CUDA_VISIBLE_DEVICES is empty"),
        (TWO_PCIE, "2", True, Code.VISIBLE_GPUS, "'2' is none of them (the job has GPUs 0 to 1)"),
        (TWO_PCIE, "1,1", True, Code.VISIBLE_GPUS, "names 1 twice"),
    ],
    ids=lambda value: value.name if isinstance(value, Code) else None,
)
def test_one_error_each(
    look_at: Look, kind: Machine, visible: str | None, library: bool, code: Code, said: str
) -> None:
    facts = look_at(kind, visible=visible, library=library)
    error = gpu_checks.problem("a", facts)
    assert error and error.code == code and said in str(error), error
    assert "-gpus none" in str(error)
    # It takes the host out where GPUs are needed, and nowhere else.
    for use, fails in (
        (GpuUse.OWN, True),
        (GpuUse.SHARED, True),
        (GpuUse.FOUND, False),
        (GpuUse.NONE, False),
    ):
        report = Report({"a": facts}, {})
        gpu_use.settle(report, use)
        assert bool(report.failed) == fails


@pytest.mark.parametrize("kind", [TWO_PCIE, replace(TWO_PCIE, driver="525.60.13", cuda=12000)])
def test_a_host_that_fits(look_at: Look, kind: Machine) -> None:
    assert gpu_checks.problem("a", look_at(kind)) is None


def test_a_driver_that_is_made_fit_for_cuda_12_is_not_too_old(look_at: Look) -> None:
    """By NVIDIA's package cuda-compat."""
    assert gpu_checks.problem("a", look_at(replace(TWO_PCIE, driver="470.57.02", cuda=12020))) is None


def counted(facts: HostInventory, ranks: int, use: GpuUse) -> tuple[Placement, dict[str, HostInventory]]:
    known = {"a": gpu_use.as_used(facts, use)}
    return place(HostList((Host("a", ranks),), "-H"), known), known


def test_more_ranks_than_gpus(look_at: Look) -> None:
    facts = look_at(TWO_PCIE)
    placed, known = counted(facts, 3, GpuUse.OWN)
    found = gpu_checks.crowded(placed.counts, known)
    assert found["a"].code == Code.SHARED_GPUS
    assert "3 ranks for 2 GPUs; host a; lower the ranks there to 2" in str(found["a"])
    assert not gpu_checks.crowded(counted(facts, 2, GpuUse.OWN)[0].counts, known)
    placed, known = counted(facts, 3, GpuUse.SHARED)
    assert not gpu_checks.crowded(placed.counts, known)
    assert gpu_checks.sharing(placed.counts, known) == (
        "ranks share GPUs, and take turns on them: 3 ranks for 2 GPUs on a"
    )
    placed, known = counted(facts, 2, GpuUse.SHARED)
    assert gpu_checks.sharing(placed.counts, known) is None


def test_a_gpu_for_one_process_cannot_be_shared(look_at: Look) -> None:
    gpus = tuple(replace(gpu, mode=3) for gpu in TWO_PCIE.gpus)
    placed, known = counted(look_at(replace(TWO_PCIE, gpus=gpus)), 3, GpuUse.SHARED)
    assert "GPU 0000:17:00.0 serves one process at a time" in str(
        gpu_checks.crowded(placed.counts, known)["a"]
    )


def test_what_is_worth_knowing(look_at: Look) -> None:
    known = {
        "wrong": look_at(TWO_PCIE, "wrong", visible="0,7"),
        "lost": look_at(replace(TWO_PCIE, said=("lost",)), "lost"),
    }
    told = list(gpu_checks.warnings(known, needed=False))
    assert [code for code, _ in told] == [Code.VISIBLE_GPUS, Code.GPU_FAILURE]
    assert "'7' is none of them" in told[0][1] and "GPU is lost" in told[1][1]
    assert [code for code, _ in gpu_checks.warnings(known, needed=True)] == [Code.GPU_FAILURE]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (["ddl-2.0.0-py311h01_0", "python-3.11.2-h01_0"], False),
        (["ddl-2.0.0-cuda126_py311h01_0"], True),
        (["powerai-pytorch-2.9.0-cuda12_py311h01_0"], True),
        (["tensorflow-2.21.0-gpu_py311h01_0"], True),
        (["cuda-cudart-12.6-h01_0", "nccl-2.27-cuda12_0"], False),  # libraries alone compute nothing
    ],
)
def test_the_environment_tells_whether_gpus_are_needed(
    tmp_path: Path, records: Sequence[str], expected: bool
) -> None:
    (tmp_path / "conda-meta").mkdir()
    for name in records:
        (tmp_path / "conda-meta" / f"{name}.json").write_text("{}")
    environment = Environment(tmp_path, tmp_path, tmp_path)
    assert environment.is_for_gpus == expected
    assert gpu_use.of(Options(), environment) is (GpuUse.OWN if expected else GpuUse.FOUND)
    assert gpu_use.of(Options(gpus="none"), environment) is GpuUse.NONE


# ---- what each rank is told


NAMES = ("CUDA_VISIBLE_DEVICES", "DDL_LOCAL_GPU", "DDL_RANK_GPU", "UCX_NET_DEVICES")


def told(placed: Placement, made: dict[str, str], **around: str) -> list[list[str | None]]:
    """By rank the variables of NAMES, as the script that starts each rank sets them."""
    counts = ",".join(map(str, placed.counts.values()))
    found = []
    for slot in placed.slots:
        launched = {"PMIX_RANK": str(slot.rank), **around}
        values = environment_of_rank({"DDLRUN_HOST_RANKS": counts, **made}, launched)
        assert not any(name.startswith("DDLRUN_") for name in values)
        found.append([values.get(name) for name in NAMES])
    return found


def environment_of(
    facts: dict[str, HostInventory],
    ranks: int,
    use: GpuUse = GpuUse.OWN,
    launcher: str = "mpirun",
    **options: object,
) -> tuple[Placement, dict[str, str]]:
    known = gpu_use.all_as_used(facts, use)
    placed = place(HostList(tuple(Host(name, ranks) for name in known), "-H"), known)
    chosen = replace(Options(), **options)
    return placed, gpu_environment.variables(placed, known, chosen, launcher, use)


def test_equal_hosts_in_the_order_of_the_bus_need_no_list(look_at: Look) -> None:
    facts = {name: look_at(DGX_H100, name) for name in ("a", "b")}
    placed, made = environment_of(facts, 8)
    assert made["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID" and "CUDA_VISIBLE" not in made[gpu_environment.ROWS]
    assert made[gpu_environment.ROWS].count(";") == 7  # a row for each GPU, not for each rank
    ranks = told(placed, made)
    assert ranks[:8] == ranks[8:]
    assert ranks[3] == [None, "3", "0000:61:00.0/0", "mlx5_3:1"]
    assert [rank[1] for rank in ranks] == [str(at) for at in range(8)] * 2


def test_hosts_that_differ(look_at: Look) -> None:
    facts = {
        "a": look_at(CROSSED_PAIRS, "a"),
        "b": look_at(AC922_6, "b"),
        "c": look_at(TWO_PCIE, "c", visible="1,0"),
    }
    placed, made = environment_of(facts, 2)
    assert told(placed, made) == [
        ["0,2,1,3", "0", "0000:3b:00.0/0", None],
        ["0,2,1,3", "1", "0000:b1:00.0/0", None],
        [None, "0", "0004:04:00.0/0", "mlx5_0:1"],
        [None, "1", "0004:05:00.0/0", "mlx5_0:1"],
        ["1,0", "0", "0000:ca:00.0", None],
        ["1,0", "1", "0000:17:00.0", None],
    ]


def test_a_prohibited_gpu_is_hidden_from_the_ranks(look_at: Look) -> None:
    kind = replace(TWO_PCIE, gpus=(replace(TWO_PCIE.gpus[0], mode=2), TWO_PCIE.gpus[1]))
    placed, made = environment_of({"a": look_at(kind)}, 1)
    assert told(placed, made) == [["1", "0", "0000:ca:00.0", None]]


def test_shared_gpus_are_dealt_out_in_turn(look_at: Look) -> None:
    placed, made = environment_of({"a": look_at(TWO_PCIE)}, 4, GpuUse.SHARED)
    assert [rank[1:3] for rank in told(placed, made)] == [
        ["0", "0000:17:00.0"],
        ["1", "0000:ca:00.0"],
        ["0", "0000:17:00.0"],
        ["1", "0000:ca:00.0"],
    ]


def test_a_part_of_a_gpu_is_all_that_its_rank_sees(look_at: Look) -> None:
    first = replace(DGX_A100.gpus[0], parts=("MIG 3g.20gb", "MIG 4g.20gb"))
    kind = replace(DGX_A100, gpus=(first, DGX_A100.gpus[1]))
    placed, made = environment_of({"a": look_at(kind)}, 3)
    assert told(placed, made, CUDA_VISIBLE_DEVICES="x") == [
        ["MIG-07-0", "0", "0000:07:00.0", None],
        ["MIG-07-1", "0", "0000:07:00.0", None],
        [kind.gpus[1].uuid(), "0", "0000:0f:00.0", None],
    ]


def test_ranks_without_gpus_see_none(look_at: Look) -> None:
    placed, made = environment_of({"a": look_at(TWO_PCIE)}, 3, GpuUse.NONE)
    assert [rank[:3] for rank in told(placed, made, CUDA_VISIBLE_DEVICES="0")] == [["", None, None]] * 3


def test_network_devices_that_the_user_chose_stay(look_at: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"a": look_at(DGX_H100)}
    for options in ({"tcp": True}, {"interface": "ib0"}):
        placed, made = environment_of(facts, 8, **options)
        assert told(placed, made)[0][3] is None
    placed, made = environment_of(facts, 8)
    assert told(placed, made, UCX_NET_DEVICES="mlx5_9:1")[0][3] == "mlx5_9:1"
    monkeypatch.setenv("UCX_NET_DEVICES", "mlx5_8:1")
    placed, made = environment_of(facts, 8)
    assert told(placed, made)[0][3] is None


def test_schedulers_that_choose_gpus_are_not_overruled(look_at: Look) -> None:
    facts = {"a": look_at(CROSSED_PAIRS)}
    assert environment_of(facts, 2, launcher="srun")[1]
    assert not environment_of(facts, 2, launcher="srun", mpiarg=("--gpus-per-task=1",))[1]
    assert not environment_of(facts, 2, launcher="jsrun")[1]
    assert not environment_of(facts, 2, rankfile="x")[1]


def test_hosts_without_gpus_get_nothing(look_at: Look) -> None:
    assert environment_of({"a": look_at(replace(VM, driver=""))}, 2, GpuUse.FOUND)[1] == {}


@pytest.mark.parametrize("name", ["mlx5;0", "mlx5 0", "$(touch x)", "`id`", "a\nb", "*", "é", "a'b", "X=1"])
def test_a_hostile_name_of_a_device_reaches_no_rank(look_at: Look, name: str) -> None:
    facts = look_at(DGX_H100)
    for field, value in (("nics", (name,)), ("bus", name)):
        gpus = tuple(replace(gpu, **{field: value}) for gpu in facts.gpus)
        with pytest.raises(LaunchError, match="characters that no such name has") as refused:
            environment_of({"a": replace(facts, gpus=gpus)}, 8)
        assert refused.value.code is Code.GPU_FAILURE


def test_whatever_the_rows_hold_is_data(tmp_path: Path) -> None:
    """The script on the rank's host expands and runs nothing of a row, and goes on where there is none."""
    placed = Placement((Slot(0, "a"),), bound=True, oversubscribed=False)
    for value in (f"$(>{tmp_path}/x)", f"`>{tmp_path}/x`", "*", "~", "$HOME", "\"'\\&|<>()"):
        made = {gpu_environment.ROWS: f"DDL_RANK_GPU={value};", gpu_environment.ROW_OF_RANK: "0"}
        assert told(placed, made)[0][2] == value
    for row in ("", "1", "9"):
        made = {gpu_environment.ROWS: "DDL_RANK_GPU=a", gpu_environment.ROW_OF_RANK: row}
        assert told(placed, made) == [[None] * 4]
    assert not list(tmp_path.iterdir())


def test_a_mixed_job_of_thousands_of_ranks_fits_into_its_variables(look_at: Look) -> None:
    """The kernel takes 128 KiB for a variable; equal hosts share their rows."""
    kinds = look_at(DGX_H100, "a"), look_at(DGX_A100, "b")
    _, made = environment_of({f"n{at}": kinds[at % 2] for at in range(2000)}, 8)
    assert made[gpu_environment.ROWS].count(";") == 15
    assert all(len(value) < 128 << 10 for value in made.values())


# ---- the user's list on other hosts


@pytest.mark.parametrize(
    ("settings", "here", "there", "seen"),
    [
        ((), "0,1", None, "0,1"),
        ((), "0,1", "2", "2"),
        ((), "GPU-1", None, None),  # means nothing on another host
        ((), "", None, ""),
        ((), None, None, None),
        (("CUDA_VISIBLE_DEVICES=1",), "0", "2", "1"),
        (("CUDA_VISIBLE_DEVICES=GPU-2",), None, None, "GPU-2"),
        (("CUDA_VISIBLE_DEVICES", "A=b"), "3", "2", "3"),
        (("CUDA_VISIBLE_DEVICES=$(echo 1) '\"",), None, None, "$(echo 1) '\""),
    ],
)
def test_the_list_of_one_host_on_another(
    settings: Sequence[str], here: str | None, there: str | None, seen: str | None
) -> None:
    own = {} if here is None else {"CUDA_VISIBLE_DEVICES": here}
    visible = remote_probe.visible_gpus(settings, own)
    script = f"{visible.shell() if visible else ':'}; printf '%s' \"${{CUDA_VISIBLE_DEVICES-unset}}\""
    around = {} if there is None else {"CUDA_VISIBLE_DEVICES": there}
    run = subprocess.run(
        ["/bin/sh", "-c", script], env=around, capture_output=True, text=True, check=True, timeout=20
    )
    assert run.stdout == ("unset" if seen is None else seen)


# ---- the program


def test_it_starts_nothing_without_the_gpus_that_are_needed(ddlrun: Ddlrun, tmp_path: Path) -> None:
    pairs = install(CROSSED_PAIRS, tmp_path / "pairs", real_processors=True)
    for words, more, code in (
        (["-H", "localhost:5"], {}, "[ERROR DDL-2-31] 5 ranks for 4 GPUs; host localhost"),
        ([], {"CUDA_VISIBLE_DEVICES": ""}, "[ERROR DDL-2-30] CUDA_VISIBLE_DEVICES is empty"),
        ([], {"CUDA_VISIBLE_DEVICES": "0,4"}, "[ERROR DDL-2-30] CUDA_VISIBLE_DEVICES=0,4: '4' is none"),
    ):
        run = ddlrun("-gpus", "own", *words, "echo", "started", **pairs, **more)
        assert run.code == 1 and code in run.err and "started" not in run.out, (words, run.err)
    old = install(OLD, tmp_path / "old", real_processors=True)
    run = ddlrun("-gpus", "own", "echo", "started", **old)
    assert run.code == 1 and "[ERROR DDL-2-28] NVIDIA's driver is 470.57.02" in run.err and not run.out
    run = ddlrun("-gpus", "none", "-np", "1", "echo", "started", **old)
    assert run.code == 0 and run.out == "started\n"


SHOW = (
    "import os; print(*(os.environ.get(name) for name in ('RANK', 'CUDA_VISIBLE_DEVICES', 'DDL_RANK_GPU')))"
)


def test_real_ranks_get_the_gpus_that_are_shown(ddlrun: Ddlrun, tmp_path: Path) -> None:
    pairs = install(CROSSED_PAIRS, tmp_path / "pairs", real_processors=True)
    shown = ddlrun("-np", "2", "-gpus", "own", "-dry-run", "-json", "true", **pairs)
    assert shown.code == 0, shown.err
    plan = json.loads(shown.out)
    assert [rank["gpu"]["bus"] for rank in plan["ranks"]] == ["0000:3b:00.0", "0000:b1:00.0"]
    run = ddlrun("-np", "2", "-gpus", "own", "python", "-c", SHOW, **pairs)
    assert run.code == 0, run.err
    assert run.lines == ["0 0,2,1,3 0000:3b:00.0/0", "1 0,2,1,3 0000:b1:00.0/0"]
    run = ddlrun("-np", "5", "-gpus", "shared", "python", "-c", SHOW, **pairs)
    assert run.code == 0 and "[WARN DDL-2-31] ranks share GPUs" in run.err
    assert run.lines[4] == "4 0,2,1,3 0000:3b:00.0/0"


def test_ddl_knows_the_ranks_gpus(ddlrun: Ddlrun, tmp_path: Path) -> None:
    """What -show-topology says beforehand is what DDL says in the job."""
    pairs = install(CROSSED_PAIRS, tmp_path / "pairs", real_processors=True)
    words = ["-np", "3", "-ddlarg", "-topology none"]
    shown = ddlrun(*words, "-show-topology", "-json", **pairs)
    assert shown.code == 0, shown.err
    foreseen = json.loads(shown.out)["topology"]
    assert foreseen["hosts"][0]["gpus"] == ["0000:3b:00.0", "0000:b1:00.0", "0000:5e:00.0"]
    assert foreseen["hosts"][0]["islands"] == [0, 0, 1]
    script = "import ddl, json\nddl.init()\nprint(json.dumps(ddl.describe()['topology']['hosts']))"
    run = ddlrun(*words, "python", "-c", script, **pairs)
    assert run.code == 0, run.err
    seen = json.loads(run.lines[0])
    assert [seen[0][key] for key in ("gpus", "islands")] == [
        foreseen["hosts"][0][key] for key in ("gpus", "islands")
    ]


def doctor(ddlrun: Ddlrun, variables: dict[str, str]) -> dict[str, str]:
    run = ddlrun("-doctor", "-json", **variables)
    found = json.loads(run.out)
    wanted = ("GPU driver", "GPUs", "other GPUs", "NVLink")
    return {one["subject"]: f"{one['level']}: {one['found']}" for one in found if one["subject"] in wanted}


def test_the_doctor_tells_of_gpus(ddlrun: Ddlrun, tmp_path: Path) -> None:
    cut = replace(DGX_H100.gpus[5], links=("0 switch 00000000:C5:00.0",) * 2 + DGX_H100.gpus[5].links[2:])
    broken = replace(DGX_H100, gpus=(*DGX_H100.gpus[:5], cut, *DGX_H100.gpus[6:]), said=("closed",))
    assert doctor(ddlrun, install(broken, tmp_path / "1")) == {
        "GPU driver": "ok: 550.54.15, CUDA 12.4",
        "GPUs": "ok: 8 x NVIDIA H100 80GB HBM3 of 80.0 GiB",
        "other GPUs": "ok: 1 that this job may not use",
        "NVLink": "note: 8 GPUs (0-7) by NVSwitch, 16 to 18 links each; "
        "GPU 5 has 16 of 18 NVLinks, 2 are down",
    }
    assert doctor(ddlrun, install(replace(VM, driver=""), tmp_path / "2")) == {
        "GPU driver": "ok: the host has no NVIDIA driver"
    }
    old = install(OLD, tmp_path / "3")
    assert doctor(ddlrun, {**old, "CUDA_VISIBLE_DEVICES": "1"}) == {
        "GPU driver": "note: NVIDIA's driver is 470.57.02 and can do CUDA 11.4, "
        "and CUDA 12 needs 525.60.13 or newer",
        "GPUs": "ok: 2 x NVIDIA L40S of 48.0 GiB; CUDA_VISIBLE_DEVICES chooses 1",
        "NVLink": "ok: no GPUs are joined by NVLink",
    }
    bare = doctor(ddlrun, install(TWO_PCIE, tmp_path / "4", library=False))
    assert bare["GPU driver"].startswith("note: driver 550.54.15 is there, but not its library")


# ---- other hosts


@pytest.fixture
def hosts(prefix: Path, tmp_path: Path) -> Iterator[Cluster]:
    """Two emulated hosts, on which ddlrun finds four GPUs in two pairs."""
    if reasons := missing_requirements():
        pytest.skip("; ".join(reasons))
    variables = install(CROSSED_PAIRS, tmp_path / "pairs", real_processors=True)
    shared = (*shared_folders(prefix), str(tmp_path))
    spec = ClusterSpec.even(hosts=2, shared=shared, environment=variables, life_seconds=200)
    with Cluster(spec, tmp_path / "state") as cluster:
        yield cluster


def test_the_gpus_of_other_hosts(hosts: Cluster, ddlrun: Ddlrun, tmp_path: Path) -> None:
    """The probe that is sent to them looks at GPUs too; what the user hides here is hidden there."""
    library = f"LD_LIBRARY_PATH={tmp_path / 'pairs/lib'}"
    words = [*ddlrun.words, "-H", "h1,h2", "-gpus", "own", "-x", library]

    def plan(*more: str, **variables: str) -> Any:
        run = hosts.run(
            "h1",
            [*words, *more, "-dry-run", "-json", "true"],
            timeout=60,
            env={**ddlrun.variables, **variables},
        )
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout)["ranks"]

    ranks = plan()
    assert [(rank["host"], rank["gpu"]["bus"][5:7], rank["gpu"]["island"]) for rank in ranks] == [
        (host, bus, island)
        for host in ("h1", "h2")
        for bus, island in (("3b", 0), ("b1", 0), ("5e", 1), ("d8", 1))
    ]
    ranks = plan(CUDA_VISIBLE_DEVICES="3,1")
    assert [rank["gpu"]["bus"][5:7] for rank in ranks] == ["d8", "5e"] * 2
    ranks = plan("-x", "CUDA_VISIBLE_DEVICES=2")
    assert [rank["gpu"]["bus"][5:7] for rank in ranks] == ["b1"] * 2
    shown = ["python", "-c", SHOW]
    variables = {**ddlrun.variables, "CUDA_VISIBLE_DEVICES": "3,1"}
    run = hosts.run("h1", [*words, *shown], timeout=60, env=variables)
    assert run.returncode == 0, run.stderr
    assert sorted(run.stdout.splitlines()) == [
        f"{rank} 3,1 0000:{'d8' if rank % 2 == 0 else '5e'}:00.0/1" for rank in range(4)
    ]
