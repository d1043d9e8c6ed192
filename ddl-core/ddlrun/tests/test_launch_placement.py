"""Ranks on hosts, cores for ranks, tiers and DDL_OPTIONS."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ddlrun.checks import probe
from ddlrun.checks.gpus import Gpu
from ddlrun.checks.inventory import Domain, HostInventory, parse
from ddlrun.command_line.options import Options
from ddlrun.errors import LaunchError
from ddlrun.hosts.host_list import Host, HostList
from ddlrun.placement.gpu_use import GpuUse, as_used
from ddlrun.placement.slots import place, rankfile_text, split_cores
from ddlrun.placement.tiers import ddl_options, mode, tiers
from fake_machine import AC922_4, AC922_6, ALTERNATING, DGX_A100, DGX_H100, TWO_PCIE, VM, Machine
from hypothesis import given
from hypothesis import strategies as st


def facts(cores: list[list[int]], accelerators: int = 0, quota: float | None = None) -> HostInventory:
    gpus = tuple(Gpu(f"0000:{at:02x}:00.0", "V100", -1) for at in range(accelerators))
    return HostInventory("h", packages_of(cores), gpus=gpus, quota=quota)


def packages_of(cores: list[list[int]]) -> tuple[Domain, ...]:
    """Packages of one NUMA node each."""
    return tuple(Domain(at, at, tuple(group)) for at, group in enumerate(cores))


def hosts(*given: Host, explicit_slots: bool = True) -> HostList:
    return HostList(given, "-H", explicit_slots)


packages = st.lists(st.integers(1, 9), min_size=1, max_size=4)


@given(packages, st.integers(1, 40))
def test_core_sets_are_equal_disjoint_and_real(sizes: list[int], ranks: int) -> None:
    numbers = iter(range(1000))
    groups = [[next(numbers) for _ in range(size)] for size in sizes]
    sets = split_cores(packages_of(groups), ranks)
    assert len(sets) == ranks
    if ranks > sum(sizes):
        assert set(sets) == {()}
        return
    taken = [core for cores in sets for core in cores]
    assert len(taken) == len(set(taken)) and set(taken) <= {core for group in groups for core in group}
    assert len({len(cores) for cores in sets}) == 1 and len(sets[0]) >= 1


def test_no_rank_spans_two_packages_when_it_need_not() -> None:
    assert split_cores(packages_of([[0, 1, 2], [3, 4, 5]]), 2) == [(0, 1, 2), (3, 4, 5)]
    assert split_cores(packages_of([[0, 1, 2], [3, 4, 5]]), 4) == [(0,), (1,), (3,), (4,)]
    assert split_cores(packages_of([[0, 1, 2], [3, 4, 5]]), 1) == [(0, 1, 2, 3, 4, 5)]


def test_cores_of_a_rank_are_limited_where_asked_for() -> None:
    assert split_cores(packages_of([[0, 1, 2, 3]]), 1, 1) == [(0,)]
    assert split_cores(packages_of([[0, 1, 2, 3], [4, 5, 6, 7]]), 4, 1) == [(0,), (2,), (4,), (6,)]
    known = {"a": facts([[0, 1, 2, 3]])}
    assert [slot.cores for slot in place(hosts(Host("a", 2)), known, cores=1).slots] == [(0,), (2,)]
    with pytest.raises(LaunchError, match=r"3 cores for each rank .* 2 to each of 2 ranks"):
        place(hosts(Host("a", 2)), known, cores=3)
    with pytest.raises(LaunchError, match="is not bound: the cores of b are not known"):
        place(hosts(Host("b", 2)), {}, cores=1)


def test_rankfile() -> None:
    two = facts([[0, 1, 2, 3]])
    placed = place(hosts(Host("a", 2), Host("b", 1)), {"a": two, "b": two})
    assert rankfile_text(placed) == "rank 0=a slot=0-1\nrank 1=a slot=2-3\nrank 2=b slot=0-3\n"
    assert placed.bound and not placed.oversubscribed


@pytest.mark.parametrize(
    ("list_", "np", "accelerators", "counts"),
    [
        (hosts(Host("a", 2), Host("b", 3)), None, None, {"a": 2, "b": 3}),
        (hosts(Host("a", 2), Host("b", 3)), 3, None, {"a": 2, "b": 1}),
        (hosts(Host("a", 2), Host("b", 3)), 2, None, {"a": 2}),
        (hosts(Host("a"), Host("b")), None, None, {"a": 1, "b": 1}),
        (hosts(Host("a"), Host("b")), 5, None, {"a": 3, "b": 2}),
        (hosts(Host("a"), Host("b")), 1, None, {"a": 1}),
        (hosts(Host("a", 1), Host("b")), 4, None, {"a": 1, "b": 3}),
        (hosts(Host("a"), Host("b")), None, 4, {"a": 4, "b": 4}),
        (hosts(Host("a", 42), Host("b", 42), explicit_slots=False), None, 6, {"a": 6, "b": 6}),
    ],
)
def test_ranks_of_hosts(
    list_: HostList, np: int | None, accelerators: int | None, counts: dict[str, int]
) -> None:
    known = {host.name: facts([[0, 1, 2, 3, 4, 5]]) for host in list_.hosts}
    assert place(list_, known, np, accelerators).counts == counts


def test_accelerators_come_before_a_schedulers_slots_but_not_before_the_users() -> None:
    known = {"a": facts([list(range(42))], accelerators=6)}
    assert place(hosts(Host("a", 42), explicit_slots=False), known).counts == {"a": 6}
    assert place(hosts(Host("a", 2)), known).counts == {"a": 2}
    assert place(hosts(Host("a")), known).counts == {"a": 6}


def test_too_many_ranks_are_refused_with_both_numbers() -> None:
    with pytest.raises(LaunchError, match=r"4 ranks asked for, 3 slots there \(a:2, b:1\)"):
        place(hosts(Host("a", 2), Host("b", 1)), {}, 4)


def test_crowded_hosts_are_not_bound() -> None:
    placed = place(hosts(Host("a")), {"a": facts([[0, 1]])}, 3)
    assert placed.oversubscribed and not placed.bound and "3 ranks on 2 cores" in placed.reason
    limited = place(hosts(Host("a", 4)), {"a": facts([list(range(8))], quota=2.0)})
    assert limited.oversubscribed and "time of 2" in limited.reason
    unknown = place(hosts(Host("a", 4)), {})
    assert not unknown.bound and not unknown.oversubscribed


def test_ranks_get_no_more_cores_than_a_quota_gives_time_for() -> None:
    """Threads of a rank are as many as its cores: more would wait for each other."""
    shared = place(hosts(Host("a", 2)), {"a": facts([list(range(8))], quota=4.5)})
    assert shared.bound and [slot.cores for slot in shared.slots] == [(0, 1), (4, 5)]
    asked = place(hosts(Host("a", 2)), {"a": facts([list(range(8))], quota=4.5)}, cores=1)
    assert [slot.cores for slot in asked.slots] == [(0,), (4,)]


@given(st.integers(1, 64), *[st.none() | st.integers(1, 12)] * 3)
def test_tiers_hold_all_hosts_or_are_refused_with_both_numbers(
    count: int, nodes: int | None, racks: int | None, aisles: int | None
) -> None:
    try:
        made = tiers(count, nodes, racks, aisles)
    except LaunchError as error:
        assert f"but the job has {count} hosts" in str(error)
        return
    assert made.nodes * made.racks * made.aisles == count
    assert nodes in (None, made.nodes) and racks in (None, made.racks) and aisles in (None, made.aisles)


def test_topology_error() -> None:
    with pytest.raises(LaunchError, match=r"\[ERROR DDL-2-3\] .* 4 x 3 x 1 = 12, but the job has 18 hosts"):
        tiers(18, 4, 3, None)
    assert tiers(18, 9, 2, 1).racks == 2
    assert tiers(18, None, 3, None).nodes == 6
    assert tiers(18, 9, None, None).racks == 2


def test_mode() -> None:
    assert mode(None, [6, 6], tiers(2, None, None, None)) == "p:6x2x1x1"
    assert mode("r", [2] * 4, tiers(4, 2, 2, None)) == "r:2x2x2x1"
    assert mode("b:4x1", [2, 2], tiers(2, None, None, None)) == "b:4x1"
    assert mode("p", [3, 2], tiers(2, None, None, None)) == "p"
    for bad, word in (
        ("z", "'z' is no mode"),
        ("p:", "no sizes"),
        ("p:2x", "no sizes"),
        ("p:3x1", "but the job has 4 ranks"),
    ):
        with pytest.raises(LaunchError) as caught:
            mode(bad, [2, 2], tiers(2, None, None, None))
        assert word in str(caught.value)


def test_ddl_options() -> None:
    one = tiers(1, None, None, None)
    assert ddl_options(Options(), "", [2], one) == ("-mode p:2x1x1x1", [])
    assert ddl_options(Options(ddlarg=("-dump_iter 10",)), "-timeout 5", [2], one) == (
        "-mode p:2x1x1x1 -timeout 5 -dump_iter 10",
        [],
    )
    assert ddl_options(Options(), "-mode r -dbg_level 1", [2], one)[0] == "-mode r:2x1x1x1 -dbg_level 1"
    text, warnings = ddl_options(Options(mode="b"), "--mode=r", [2], one)
    assert text == "-mode b:2x1x1x1" and "replaces" in warnings[0]
    with pytest.raises(LaunchError, match="cannot be read"):
        ddl_options(Options(ddlarg=("'x",)), "", [2], one)


def test_sizes_do_not_hide_what_describes_the_cluster() -> None:
    two = tiers(4, None, 2, None)
    even = [2, 2, 2, 2]
    assert ddl_options(Options(), "-topology site.json", even, two)[0] == "-mode p -topology site.json"
    assert (
        ddl_options(Options(ddlarg=("-topology measure",)), "", even, two)[0] == "-mode p -topology measure"
    )
    assert ddl_options(Options(), "", even, two, scheduled=True)[0] == "-mode p"
    # Nor what DDL measures; two hosts leave nothing to measure.
    assert ddl_options(Options(), "", even, tiers(4, None, None, None))[0] == "-mode p"
    assert ddl_options(Options(), "", [2, 2], tiers(2, None, None, None))[0] == "-mode p:2x2x1x1"
    # What the user says himself counts.
    assert ddl_options(Options(racks=2), "", even, two, scheduled=True)[0] == "-mode p:2x2x2x1"
    assert ddl_options(Options(mode="r:2x4"), "", even, two, scheduled=True)[0] == "-mode r:2x4"


# ---- machines


def looked_at(
    machine: Machine, folder: Path, visible: str | None = None, **limits: set[int]
) -> HostInventory:
    root = machine.write(folder)
    answer = probe.GpuProbe(root).answer()
    told = {
        "domains": probe.domains(root / "sys", **limits),
        "gpus": answer and {**answer, "visible": visible},
    }
    return parse({**probe.facts("/nowhere", "/nowhere/ddl", "/nowhere/mpirun"), **told})


def slots(facts: HostInventory, ranks: int, cores: int | None = None) -> list[list[int]]:
    placed = place(hosts(Host("a", ranks)), {"a": facts}, cores=cores)
    return [list(slot.cores) for slot in placed.slots]


def blocks(size: int, starts: list[int]) -> list[list[int]]:
    return [list(range(start, start + size)) for start in starts]


def node_of(facts: HostInventory, core: int) -> int:
    return next(domain.node for domain in facts.domains if core in domain.cores)


def test_ac922(tmp_path: Path) -> None:
    four = looked_at(AC922_4, tmp_path / "4")
    assert [(one.package, one.node, len(one.cores)) for one in four.domains] == [(0, 0, 22), (8, 8, 22)]
    assert [gpu.node for gpu in four.gpus] == [0, 0, 8, 8]
    assert slots(four, 4) == blocks(11, [0, 11, 22, 33])
    # As on Summit, where one core of each processor is the system's.
    ours = set(range(4, 88)) | set(range(92, 176))
    six = looked_at(AC922_6, tmp_path / "6", allowed=ours)
    assert slots(six, 6) == blocks(7, [0, 7, 14, 21, 28, 35])
    assert place(hosts(Host("a")), {"a": six}).counts == {"a": 6}
    # A job without its own cgroup, but bound: MPI counts the cores that it may not use.
    bound = looked_at(AC922_6, tmp_path / "bound", affinity=ours)
    assert slots(bound, 6) == blocks(7, [1, 8, 15, 23, 30, 37])


def test_a_rank_for_each_gpu_is_near_it(tmp_path: Path) -> None:
    a100 = looked_at(DGX_A100, tmp_path / "a100")
    placed = slots(a100, 8)
    assert sorted(core for cores in placed for core in cores) == list(range(128))
    packages = {domain.node: domain.package for domain in a100.domains}
    for gpu, cores in zip(a100.gpus, placed, strict=True):
        nodes = {node_of(a100, core) for core in cores}
        assert len(cores) == 16 and len(nodes) == 1
        assert packages[nodes.pop()] == packages[gpu.node]
    # Of the two GPUs at a node, one rank has that node's cores.
    own = [
        gpu.node in {node_of(a100, core) for core in cores}
        for gpu, cores in zip(a100.gpus, placed, strict=True)
    ]
    assert own == [True, False] * 4
    h100 = looked_at(DGX_H100, tmp_path / "h100")
    assert slots(h100, 8) == blocks(14, [0, 14, 28, 42, 56, 70, 84, 98])
    # Fewer ranks than GPUs use the first ones.
    assert slots(h100, 2) == blocks(28, [0, 28])


def test_gpus_in_another_order(tmp_path: Path) -> None:
    facts = looked_at(DGX_H100, tmp_path, visible=f"7,{DGX_H100.gpus[0].uuid()},4")
    assert [gpu.bus for gpu in facts.gpus] == ["0000:df:00.0", "0000:1b:00.0", "0000:9d:00.0"]
    assert facts.gpus[0].model == "NVIDIA H100 80GB HBM3"
    assert [node_of(facts, cores[0]) for cores in slots(facts, 3)] == [1, 0, 1]


def test_ranks_share_gpus_only_where_they_may(tmp_path: Path) -> None:
    facts = looked_at(TWO_PCIE, tmp_path)
    hosts_ = hosts(Host("a"))
    with pytest.raises(LaunchError, match=r"4 ranks asked for, 2 slots .* -gpus shared lets ranks"):
        place(hosts_, {"a": facts}, 4)
    # Slots that the user gives count, but nobody has said that these ranks use GPUs.
    assert {slot.gpu for slot in place(hosts(Host("a", 4)), {"a": facts}).slots} == {None}
    shared = {"a": replace(facts, gpus_shared=True)}
    placed = place(hosts_, shared, 4)
    assert [slot.gpu and slot.gpu.number for slot in placed.slots] == [0, 1, 0, 1]
    assert [node_of(facts, slot.cores[0]) for slot in placed.slots] == [0, 1, 0, 1]
    assert len({core for slot in placed.slots for core in slot.cores}) == 16
    assert place(hosts_, shared).counts == {"a": 2}
    assert place(hosts(Host("a", 6)), shared).counts == {"a": 6}
    assert place(hosts(Host("a", 6), explicit_slots=False), shared, 5).counts == {"a": 5}


def test_ranks_without_gpus_ignore_them(tmp_path: Path) -> None:
    facts = as_used(looked_at(TWO_PCIE, tmp_path), GpuUse.NONE)
    placed = place(hosts(Host("a")), {"a": facts}, 8)
    assert placed.counts == {"a": 8} and {slot.gpu for slot in placed.slots} == {None}


def test_no_rank_spans_numa_nodes_when_it_need_not(tmp_path: Path) -> None:
    facts = replace(looked_at(DGX_A100, tmp_path), gpus=())
    for ranks in (2, 4, 8, 16, 64, 128):
        for cores in slots(facts, ranks):
            assert len(cores) == 128 // ranks
            assert len({node_of(facts, core) for core in cores}) == max(1, 8 // ranks)
    assert len(slots(facts, 3)[0]) == 42


def test_processors_numbered_in_turn(tmp_path: Path) -> None:
    facts = looked_at(ALTERNATING, tmp_path)
    assert [one.cores for one in facts.domains] == [tuple(range(8)), tuple(range(8, 16))]
    assert slots(facts, 2) == blocks(8, [0, 8])
    # Half of the cores of each processor belong to another job.
    limited = looked_at(ALTERNATING, tmp_path / "limited", affinity=set(range(8)))
    assert slots(limited, 2) == blocks(4, [0, 8])


def test_a_small_virtual_machine(tmp_path: Path) -> None:
    facts = looked_at(VM, tmp_path)
    assert slots(facts, 1) == [[0, 1]] and slots(facts, 2) == [[0], [1]] and slots(facts, 3) == [[], [], []]
    assert facts.gpus == ()


def test_hyperthreads_are_one_core_also_when_one_of_them_is_offline(tmp_path: Path) -> None:
    sysfs = DGX_H100.write(tmp_path) / "sys"
    (sysfs / "devices/system/cpu/online").write_text("0-111\n")
    assert [len(one["cores"]) for one in probe.domains(sysfs)] == [56, 56]
    assert [len(one["cores"]) for one in probe.domains(sysfs, allowed={0, 112, 1, 57})] == [2, 1]


def test_very_unequal_groups_are_not_kept_apart() -> None:
    uneven = (Domain(0, 0, (0,)), Domain(1, 1, tuple(range(1, 16))))
    assert split_cores(uneven, 2) == [tuple(range(8)), tuple(range(8, 16))]


def test_limits_of_cgroups(tmp_path: Path) -> None:
    def put(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    put("fs/cgroup/job/cpuset.cpus.effective", "0-3\n")
    put("fs/cgroup/job/task/cpu.max", "max 100000\n")
    put("fs/cgroup/job/cpu.max", "250000 100000\n")
    assert probe.allowed_cpus(tmp_path, "0::/job/task") == {0, 1, 2, 3}
    assert probe.quota(tmp_path, "0::/job/task") == 2.5
    put("fs/cgroup/cpuset/lsf/1/cpuset.effective_cpus", "8-9,12\n")
    put("fs/cgroup/cpu/lsf/1/cpu.cfs_quota_us", "-1\n")
    put("fs/cgroup/cpu/lsf/1/cpu.cfs_period_us", "100000\n")
    put("fs/cgroup/cpu/lsf/cpu.cfs_quota_us", "300000\n")
    put("fs/cgroup/cpu/lsf/cpu.cfs_period_us", "100000\n")
    first = "3:cpuset:/lsf/1\n2:cpu,cpuacct:/lsf/1\n1:name=systemd:/\n"
    assert probe.allowed_cpus(tmp_path, first) == {8, 9, 12}
    assert probe.quota(tmp_path, first) == 3.0
    assert probe.allowed_cpus(tmp_path / "nothing", first) is None
    assert probe.quota(tmp_path / "nothing", first) is None


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.data())
def test_ranks_with_gpus_have_equal_disjoint_cores(sizes: list[int], data: st.DataObject) -> None:
    numbers = iter(range(1000))
    domains = tuple(
        Domain(at // 2, at, tuple(next(numbers) for _ in range(size))) for at, size in enumerate(sizes)
    )
    nodes = data.draw(st.lists(st.integers(-1, len(sizes) - 1), min_size=1, max_size=9))
    gpus = [Gpu(str(at), "", node) for at, node in enumerate(nodes)]
    sets = split_cores(domains, len(gpus), None, gpus)
    if len(gpus) > sum(sizes):
        assert set(sets) == {()}
        return
    taken = [core for cores in sets for core in cores]
    assert len(taken) == len(set(taken)) and len({len(cores) for cores in sets}) == 1 and sets[0]


def test_memory_of_a_container(tmp_path: Path) -> None:
    """The least of the machine's and of all limits above the process, in both versions of cgroups."""

    def put(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    machine = "MemTotal:  1000 kB\nMemAvailable:  800 kB\n"
    assert probe.memory(tmp_path, "0::/", machine, {}) == (1000 << 10, 800 << 10)
    put("fs/cgroup/job/memory.max", "614400\n")
    put("fs/cgroup/job/memory.current", "409600\n")
    put("fs/cgroup/job/memory.stat", "anon 1\ninactive_file 102400\nactive_file 5\n")
    put("fs/cgroup/job/task/memory.max", "max\n")
    put("fs/cgroup/job/task/memory.current", "1\n")
    assert probe.memory(tmp_path, "0::/job/task", machine, {}) == (600 << 10, 300 << 10)
    put("fs/cgroup/memory/lsf/memory.limit_in_bytes", "9223372036854771712\n")
    put("fs/cgroup/memory/lsf/1/memory.limit_in_bytes", "307200\n")
    put("fs/cgroup/memory/lsf/1/memory.usage_in_bytes", "409600\n")
    assert probe.memory(tmp_path, "4:memory:/lsf/1", machine, {}) == (300 << 10, 0)
    assert probe.memory(tmp_path, "", "", {}) == (None, None)
    slurm = {"SLURM_MEM_PER_NODE": "1"}
    large = "MemTotal:  4000 kB\nMemAvailable:  3000 kB\n"
    assert probe.memory(tmp_path, "", large, slurm) == (1 << 20, 1 << 20)
    assert probe.memory(tmp_path, "", machine, slurm) == (1000 << 10, 800 << 10)
    slurm = {"SLURM_MEM_PER_NODE": "0", "SLURM_MEM_PER_CPU": "1", "SLURM_CPUS_ON_NODE": "2"}
    assert probe.memory(tmp_path, "", large, slurm) == (2 << 20, 2 << 20)
    slurm = {"SLURM_MEM_PER_NODE": "0", "SLURM_CPUS_ON_NODE": "2"}  # all of it
    assert probe.memory(tmp_path, "", large, slurm) == (4000 << 10, 3000 << 10)
