"""Horovod's interface, name by name, is as docs/reference/horovod-interface.md says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from rank_processes import ROOT

PROGRAMS = ROOT / "ddl-core/python/tests/horovod/programs"
PAGE = (ROOT / "docs/reference/horovod-interface.md").read_text()
MODULES = ("horovod.torch", "horovod.tensorflow", "horovod.keras", "horovod.tensorflow.keras")
CALLBACKS = ("horovod.keras.callbacks", "horovod.tensorflow.keras.callbacks")
DYNAMIC = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1", "HOROVOD_TIMELINE": "DYNAMIC"}
PUBLIC = """
import importlib, sys, types
module = importlib.import_module(sys.argv[1])
public = [name for name in dir(module) if not name.startswith("_")]
print("names", *(name for name in public if not isinstance(getattr(module, name), types.ModuleType)))
"""


def rows(section: str, name: str = r"\w+") -> list[tuple[list[str], str]]:
    """The names and the state of each row of a section's table. name: the pattern of one."""
    _, _, text = PAGE.partition(f"## `{section}`\n")
    lines = [line.split("|") for line in text.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    assert lines, section
    return [(re.findall(f"`({name})`", line[1]), line[2].strip()) for line in lines]


@pytest.mark.parametrize("module", MODULES)
def test_page_lists_all_names(jobs: Any, module: str) -> None:
    legacy = str(int(module.startswith("horovod.tensorflow.")))
    job = jobs.mpirun(1, PUBLIC, module, TF_USE_LEGACY_KERAS=legacy)
    (line,) = [line for line in job.out.splitlines() if line.startswith("names ")]
    listed = sorted(name for names, _ in rows(module) for name in names)
    # What a module takes for itself from the standard library and annotations.
    others = {"annotations", "Any", "Optional", "Union", "Callable"}
    assert listed == sorted(set(line.split()[1:]) - others), job.err


#: As what the programs import each module.
IMPORTED = {
    "horovod.torch": "hvd",
    "horovod.tensorflow": "hvd",
    "horovod.keras": "hvd_keras",
    "horovod.tensorflow.keras": "hvd_keras",
    CALLBACKS[0]: "callbacks",
}


@pytest.mark.parametrize("module", IMPORTED)
def test_what_works_is_called(module: str) -> None:
    """By a program of these tests, from this module, on two ranks."""
    torch = module == "horovod.torch"
    programs = [path for path in PROGRAMS.glob("*.py") if ("horovod.torch" in path.read_text()) == torch]
    text = "\n".join(path.read_text() for path in programs)
    for names, state in rows(module):
        assert state.startswith(("works", "refused: ", "internal")), state
        for name in names:
            assert not state.startswith("works") or re.search(
                rf"\b({IMPORTED[module]}|module)\.{name}\b", text
            ), f"{module}.{name}"


def test_torch(jobs: Any) -> None:
    job = jobs.mpirun(2, "interface_torch.py", **DYNAMIC)
    assert job.status == 0, job.out + job.err
    assert job.passed("goes_on_behind_a_join") == job.passed("synchronized_batch_normalization") == 2


REUSED = """
import horovod.torch as hvd
import torch
hvd.init()
for members in ([0, 1], [1, 2], [0, 2]):
    pair = hvd.add_process_set(members)
    for call in range(sum(members) if pair.included() else 0):
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=pair).item() == 2
    assert hvd.remove_process_set(pair)
print("passed reused", flush=True)
"""


def test_process_sets_one_after_the_other(jobs: Any) -> None:
    """Horovod gives their numbers again; calls without a name match all the same."""
    job = jobs.mpirun(3, REUSED, **DYNAMIC)
    assert job.status == 0, job.out + job.err
    assert job.passed("reused") == 3


@pytest.mark.parametrize("keras", ["keras3", "tf_keras"])
def test_tensorflow(jobs: Any, keras: str) -> None:
    legacy = str(int(keras == "tf_keras"))
    job = jobs.mpirun(2, "interface_tensorflow.py", TF_USE_LEGACY_KERAS=legacy, **DYNAMIC)
    assert job.status == 0, job.out + job.err
    assert job.passed("joins_in_graphs") == job.passed("synchronized_batch_normalization") == 2


def _flags(state: str) -> list[str]:
    """The options of horovodrun whose state begins so."""
    options = rows("horovodrun", "-[^`]+")
    assert all(each.startswith(("works", "no effect: ", "refused")) for _, each in options)
    return [flag for flags, each in options if each.startswith(state) for flag in flags]


def test_page_lists_all_options_of_horovodrun(jobs: Any) -> None:
    text = jobs.tool(["horovodrun", "--help"]).out.partition("positional arguments:")[2]
    options = re.findall(r"^  (-.*?)(?:   .*)?$", text, re.MULTILINE)
    flags = {word for option in options for word in re.findall(r"(?:^|(?<=, ))--?[a-zA-Z][a-z-]*", option)}
    assert "--fusion-threshold-mb" in flags and "-np" in flags
    assert sorted(flags) == sorted(_flags(""))


#: What each option puts into the environment of the ranks.
SETTINGS = {
    "--fusion-threshold-mb=16": "HOROVOD_FUSION_THRESHOLD=16777216",
    "--cycle-time-ms=3.5": "HOROVOD_CYCLE_TIME=3.5",
    "--cache-capacity=77": "HOROVOD_CACHE_CAPACITY=77",
    "--autotune": "HOROVOD_AUTOTUNE=1",
    "--autotune-log-file=autotune.log": "HOROVOD_AUTOTUNE_LOG=autotune.log",
    "--autotune-warmup-samples=1": "HOROVOD_AUTOTUNE_WARMUP_SAMPLES=1",
    "--autotune-steps-per-sample=2": "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE=2",
    "--autotune-bayes-opt-max-samples=3": "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES=3",
    "--autotune-gaussian-process-noise=0.5": "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE=0.5",
    "--timeline-filename=timeline.json": "HOROVOD_TIMELINE=timeline.json",
    "--timeline-mark-cycles": "HOROVOD_TIMELINE_MARK_CYCLES=1",
    "--stall-check-warning-time-seconds=30": "HOROVOD_STALL_CHECK_TIME_SECONDS=30",
    "--stall-check-shutdown-time-seconds=50": "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=50",
    "--no-stall-check": "HOROVOD_STALL_CHECK_DISABLE=1",
    "--mpi-threads-disable": "HOROVOD_MPI_THREADS_DISABLE=1",
    "--thread-affinity=0": "HOROVOD_THREAD_AFFINITY=0",
    "--log-level=INFO": "HOROVOD_LOG_LEVEL=INFO",
    "--log-without-timestamp": "HOROVOD_LOG_HIDE_TIME=1",
}
OPTIONS = [
    *("--mpi", "--mpi-args=-x ADDED=yes", "--binding-args=--bind-to none", "--start-timeout=60", "--verbose"),
    *("--disable-cache", "--network-interfaces=lo", "--ssh-port=22"),
    *(
        "--ssh-identity-file=none",
        "--config-file=config.yaml",
        "--hostfile=hosts",
        "--output-filename=output",
    ),
]
_ADDS = """
import os
import horovod.torch as hvd
import torch
hvd.init()
assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [hvd.size()] * 3
names = [name for name in os.environ if name.startswith("HOROVOD_") or name == "ADDED"]
print("settings", *(f"{name}={os.environ[name]}" for name in names), "end", flush=True)
"""


@pytest.mark.long
def test_options_of_horovodrun(jobs: Any, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("params:\n  cycle_time_ms: 9\n")
    (tmp_path / "hosts").write_text("localhost slots=2\n")
    (tmp_path / "program.py").write_text(_ADDS)
    given = {option.partition("=")[0] for option in [*SETTINGS, *OPTIONS]} - {"--hostfile"}
    others = {"-np", "-h", "-v", "-cb", "-p", "-i", "-H", "-hostfile"}
    longer = {"--num-proc", "--help", "--version", "--check-build", "--hosts", "--hostfile"}
    elsewhere = {"--network-interface", "-prefix-timestamp", "--prefix-output-with-timestamp"}
    assert set(_flags("works")) - given - others - longer - elsewhere == set()
    start = ["horovodrun", "-np", "2"]
    # An option behind --config-file wins over the file.
    job = jobs.tool([*start, *OPTIONS, *SETTINGS, "python", "program.py"])
    assert job.status == 0, job.out + job.err
    written = [path.read_text() for path in tmp_path.glob("output.*.out")]
    lines = [line for text in written for line in text.splitlines() if "settings " in line]
    assert len(lines) == 2, written
    for line in lines:
        words = line.partition("settings ")[2].split()
        assert set(SETTINGS.values()) - set(words) == set() and "ADDED=yes" in words, line
    assert (tmp_path / "timeline.json").stat().st_size > 0 and (tmp_path / "autotune.log").exists()
    more = ["-H", "localhost:2", "--network-interface", "lo", "-prefix-timestamp"]
    job = jobs.tool([*start, *more, "--config-file", "config.yaml", "python", "program.py"])
    assert job.status == 0, job.out + job.err
    assert "HOROVOD_CYCLE_TIME=9" in job.out.split() and re.search(
        r"\w{3} \w{3} +\d+ [\d:]{8} \d{4}", job.out
    )


REFUSED = {
    "--gloo": "leave out --gloo",
    "--host-discovery-script=./hosts": "ddlrun -max-restarts N",
    "--jsrun": "pick a different launcher",
}


@pytest.mark.parametrize("option", REFUSED)
def test_horovodrun_says_what_to_write_instead(jobs: Any, option: str) -> None:
    job = jobs.tool(["horovodrun", "-np", "2", option, "python", "-c", ""])
    assert job.status != 0 and REFUSED[option] in job.err
