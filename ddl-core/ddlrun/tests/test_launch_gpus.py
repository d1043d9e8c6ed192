"""What ddlrun finds out about GPUs, on machines that fake_machine.py and nvml.c stand in for."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ddlrun.checks import gpus, probe
from ddlrun.checks.gpus import Gpu, GpuReport
from fake_machine import AC922_6, CROSSED_PAIRS, DGX_A100, DGX_H100, DRIVER, TWO_PCIE, VM, FakeGpu, Machine
from hypothesis import given
from hypothesis import strategies as st
from nvml_standin import install


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The report on a machine, as ddlrun's probe finds it."""

    def at(
        machine: Machine, *, seconds: float = 20.0, visible: str | None = None, **how: bool
    ) -> GpuReport | None:
        monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)  # of an earlier machine
        for name, value in install(machine, tmp_path / str(len(list(tmp_path.iterdir()))), **how).items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        root = Path(os.environ["DDLRUN_SYSTEM_ROOT"])
        return gpus.parse(probe.GpuProbe(root, seconds).answer())

    return at


def test_a_machine_without_nvidia_is_not_asked(look: Any) -> None:
    assert look(replace(VM, driver="")) is None


def test_eight_gpus_on_switches_are_one_island(look: Any) -> None:
    told = look(DGX_H100)
    assert (told.nvml, told.driver, told.cuda, told.on_bus) == ("ok", DRIVER, 12040, 8)
    assert [(gpu.number, gpu.island, gpu.links, gpu.node) for gpu in told.chosen] == [
        (at, 0, 18, at // 4) for at in range(8)
    ]
    first = told.chosen[0]
    assert (first.bus, first.model, first.memory_bytes) == ("0000:1b:00.0", "NVIDIA H100 80GB HBM3", 80 << 30)
    assert first.uuid == DGX_H100.gpus[0].uuid() and first.pcie == "32.0 GT/s PCIe x16"
    # Each has a switch of its own, and a network device at it.
    assert len({gpu.switch for gpu in told.chosen}) == 8 and first.switch == "0000:18:00.0"
    assert [gpu.nics for gpu in told.chosen] == [(f"mlx5_{at}:1",) for at in range(8)]
    assert [len(island) for island in told.islands()] == [8]


def test_three_gpus_of_a_socket_are_an_island(look: Any) -> None:
    told = look(AC922_6)
    assert [gpu.island for gpu in told.chosen] == [0, 0, 0, 1, 1, 1]
    assert told.chosen[0].peers == (("0004:05:00.0", 2), ("0004:06:00.0", 2))
    # The links to the processor join no GPUs.
    assert {gpu.links for gpu in told.chosen} == {4}
    assert [gpu.nics for gpu in told.chosen] == [("mlx5_0:1",)] * 3 + [("mlx5_3:1",)] * 3
    old = look(replace(AC922_6, said=("old",)))
    assert [gpu.island for gpu in old.chosen] == [0, 0, 0, 1, 1, 1]


def test_ranks_use_the_gpus_island_by_island(look: Any) -> None:
    told = look(CROSSED_PAIRS)
    assert [gpu.number for gpu in told.usable] == [0, 1, 2, 3]
    assert [gpu.number for gpu in told.chosen] == [0, 2, 1, 3]
    assert [gpu.island for gpu in told.chosen] == [0, 0, 1, 1]
    # The user's own order is kept.
    assert [gpu.number for gpu in look(CROSSED_PAIRS, visible="0,1,2,3").chosen] == [0, 1, 2, 3]


def test_without_nvlink_there_is_no_island(look: Any) -> None:
    told = look(TWO_PCIE)
    assert [(gpu.island, gpu.links, gpu.switch) for gpu in told.chosen] == [(-1, 0, "")] * 2
    # With one network device there is nothing to choose.
    assert [gpu.nics for gpu in told.chosen] == [(), ()]


def test_links_that_are_down_join_nothing_and_are_told(look: Any) -> None:
    cut = [
        replace(gpu, links=("0 gpu 00000000:00:00.0",) * 2 + gpu.links[2:]) for gpu in CROSSED_PAIRS.gpus[:1]
    ]
    cut += [replace(CROSSED_PAIRS.gpus[3], links=("0 gpu 00000000:00:00.0",) * 4)]
    pairs = (cut[0], replace(CROSSED_PAIRS.gpus[1], links=()), CROSSED_PAIRS.gpus[2], cut[1])
    told = look(replace(CROSSED_PAIRS, gpus=pairs))
    assert [(gpu.island, gpu.links, gpu.links_down) for gpu in told.usable] == [
        (0, 2, 2),
        (-1, 0, 0),
        (0, 4, 0),
        (-1, 0, 4),
    ]


def test_a_gpu_in_parts_is_shown_as_its_parts(look: Any) -> None:
    first, *rest = DGX_A100.gpus
    told = look(
        replace(DGX_A100, gpus=(replace(first, parts=("A100 MIG 3g.20gb", "A100 MIG 4g.20gb")), *rest))
    )
    assert len(told.usable) == 9
    parts = [gpu for gpu in told.usable if gpu.part_of]
    assert [(gpu.uuid, gpu.model, gpu.number) for gpu in parts] == [
        ("MIG-07-0", "A100 MIG 3g.20gb", 0),
        ("MIG-07-1", "A100 MIG 4g.20gb", 0),
    ]
    # NVLink does not serve parts; the others keep theirs.
    assert {gpu.island for gpu in parts} == {-1} and [len(one) for one in told.islands()] == [7]
    assert {gpu.part_of for gpu in parts} == {first.uuid()}


def test_closed_lost_and_prohibited_gpus_are_not_used(look: Any) -> None:
    two = TWO_PCIE.gpus
    told = look(replace(TWO_PCIE, said=("closed", "lost"), gpus=(two[0], replace(two[1], mode=2))))
    assert [gpu.bus for gpu in told.usable] == ["0000:17:00.0"] and told.closed == 1
    assert told.broken == (
        "nvmlDeviceGetHandleByIndex_v2: GPU is lost",
        "GPU 0000:ca:00.0: compute mode prohibited",
    )
    assert look(replace(TWO_PCIE, gpus=(replace(two[0], mode=3),))).usable[0].exclusive
    # CUDA numbers a prohibited one as well.
    later = look(replace(TWO_PCIE, gpus=(replace(two[0], mode=2), two[1])))
    assert [(gpu.bus, gpu.number) for gpu in later.chosen] == [("0000:ca:00.0", 1)]


def test_a_driver_that_hangs_is_left_behind_in_time(look: Any) -> None:
    began = time.monotonic()
    told = look(replace(DGX_H100, said=("init hang",)), seconds=1.5)
    assert time.monotonic() - began < 15
    assert (told.nvml, told.driver) == ("late", DRIVER) and "1.5 s" in told.said
    # The kernel's files tell the rest.
    assert [gpu.number for gpu in told.chosen] == list(range(8)) and told.chosen[0].island == -1
    assert told.chosen[0].nics == ("mlx5_0:1",)


def test_what_the_library_says_of_its_failure_is_told(look: Any) -> None:
    told = look(replace(TWO_PCIE, said=("init 18",)))
    assert (told.nvml, told.said) == ("failed", "nvmlInit_v2: Driver/library version mismatch")
    absent = look(TWO_PCIE, library=False)
    assert absent.nvml == "absent" and "libnvidia-ml.so.1" in absent.said and len(absent.chosen) == 2


def test_gpus_on_the_bus_without_a_driver(look: Any) -> None:
    told = look(replace(TWO_PCIE, driver=""), library=False)
    assert (told.driver, told.on_bus, told.usable) == (None, 2, ())


def test_the_node_follows_from_the_processors_near(look: Any, tmp_path: Path) -> None:
    """Some firmware tells no node, and yet which processors are near."""
    machine = replace(TWO_PCIE, gpus=(TWO_PCIE.gpus[1],))
    look(machine)
    root = next(tmp_path.iterdir())
    (root / "sys/bus/pci/devices/0000:ca:00.0/numa_node").write_text("-1\n")
    answer = probe.GpuProbe(root).answer()
    nodes = {cpu: node for node, _, cores in TWO_PCIE.nodes for core in cores for cpu in core}
    told, unknown = gpus.parse(answer, nodes), gpus.parse(answer, dict.fromkeys(range(16), 0))
    assert told and unknown
    assert (told.usable[0].node, unknown.usable[0].node) == (1, -1)
    (root / "sys/bus/pci/devices/0000:ca:00.0/local_cpulist").write_text("4-11\n")  # of both nodes
    spread = gpus.parse(probe.GpuProbe(root).answer(), nodes)
    assert spread and spread.usable[0].node == -1


# ---- CUDA_VISIBLE_DEVICES


def named(*uuids: str) -> list[Gpu]:
    return [Gpu(f"0000:{at:02x}:00.0", "", 0, uuid=uuid, number=at) for at, uuid in enumerate(uuids)]


FOUR = named("GPU-aa00", "GPU-ab00", "GPU-b000", "MIG-c000")


@pytest.mark.parametrize(
    ("visible", "numbers", "problem"),
    [
        ("2,0", [2, 0], ""),
        (" 1 , 3", [1, 3], ""),
        ("GPU-ab,MIG-c000", [1, 3], ""),
        ("1,-1,2", [1], ""),
        ("", [], "is empty, which hides all GPUs"),
        ("-1", [], "=-1 hides all GPUs"),
        ("NoDevFiles", [], "=NoDevFiles hides all GPUs"),
        ("0,4", [0], "'4' is none of them (the job has GPUs 0 to 3)"),
        ("0,,1", [0], "'' is none of them"),
        ("GPU-a", [], "'GPU-a' fits several GPUs"),
        ("GPU-ff", [], "'GPU-ff' is none of them"),
        ("1,0,1", [1, 0], "names 1 twice"),
        ("0,GPU-aa00", [0], "names GPU-aa00 twice"),
        ("x\x1b[31m", [], "is none of them"),
    ],
)
def test_cuda_visible_devices(visible: str, numbers: list[int], problem: str) -> None:
    chosen, said = gpus.choose(FOUR, visible)
    assert [gpu.number for gpu in chosen] == numbers
    assert problem in said and bool(problem) == bool(said)


@given(st.lists(st.integers(0, 3), unique=True, min_size=1))
def test_any_order_of_numbers_is_kept(numbers: list[int]) -> None:
    chosen, said = gpus.choose(FOUR, ",".join(map(str, numbers)))
    assert [gpu.number for gpu in chosen] == numbers and not said


@given(st.lists(st.integers(-1, 2), max_size=9))
def test_islands_stay_together_and_none_is_lost(islands: list[int]) -> None:
    many = [Gpu(f"{at}", "", 0, number=at, island=island) for at, island in enumerate(islands)]
    order = gpus.in_order(many)
    assert sorted(gpu.number for gpu in order) == list(range(len(many)))
    for island in {0, 1, 2} & set(islands):
        at = [place for place, gpu in enumerate(order) if gpu.island == island]
        assert at == list(range(at[0], at[0] + len(at)))
        assert [order[place].number for place in at] == sorted(order[place].number for place in at)


# ---- network


@pytest.mark.parametrize(
    ("nics", "nearest"),
    [
        ({"a": ("pci0", "r", "s")}, ()),  # nothing to choose
        ({"a": ("pci0", "r", "s"), "b": ("pci1",)}, ("a:1",)),
        ({"a": ("pci0", "x"), "b": ("pci0", "r", "s"), "c": ("pci0", "r")}, ("b:1",)),
        ({"a": ("pci0", "r", "s", "1"), "b": ("pci0", "r", "s", "2"), "c": ("pci1",)}, ("a:1", "b:1")),
        ({"a": ("pci1",), "b": ("pci2",)}, ()),  # equally far
    ],
)
def test_the_nearest_device_of_the_fabric(nics: dict[str, tuple[str, ...]], nearest: tuple[str, ...]) -> None:
    there = [gpus.Nic(name, 1, 100000, name, path, -1) for name, path in nics.items()]
    there.append(gpus.Nic("eth0", 0, 10000, "e", ("pci0", "r", "s"), -1))
    assert gpus.nearest({"path": ["pci0", "r", "s", "0"]}, -1, there) == nearest


def test_the_numa_node_tells_where_the_bus_does_not() -> None:
    there = [gpus.Nic(name, 1, 0, name, (f"pci{node}",), node) for name, node in (("a", 0), ("b", 1))]
    assert gpus.nearest({"path": ["pci7"]}, 1, there) == ("b:1",)
    assert gpus.nearest({"path": ["pci7"]}, -1, there) == ()


def test_fake_gpus_have_names_of_their_own() -> None:
    """Else the tests above could mistake one for another."""
    assert len({gpu.uuid() for gpu in (*DGX_H100.gpus, FakeGpu("0000:00:00.0", 0))}) == 9
