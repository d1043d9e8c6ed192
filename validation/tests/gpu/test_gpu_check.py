"""ddl-gpu-check makes all its checks on the stand-ins for the driver and NCCL, and each of them can fail."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any

import pytest
from program_runner import PYTHONPATH, Environment, Result, run_program

from ddl_validate.report.__main__ import main as report

QUICK = {"STAND_IN_DELAY_US": "20"}
#: The stand-ins' rates mean nothing, and no test depends on speed.
ANY_SPEED = ("--least-staged-share", "0", "--least-hidden-share", "-1000")


class Check:
    """The command, with the stand-ins in place of a GPU's libraries."""

    def __init__(self, env: Environment, stand_ins: Path, folder: Path) -> None:
        self.env = env
        self.variables = {"LD_LIBRARY_PATH": str(stand_ins), **QUICK}
        self.json, self.html = folder / "gpu.json", folder / "gpu.html"

    def __call__(self, *words: str, speed: tuple[str, ...] = ANY_SPEED, **variables: str) -> Result:
        command = [sys.executable, "-m", "ddl_validate.gpu", "--quick", "--prefix", self.env.prefix]
        command += ["--json", self.json, "--html", self.html, *speed, *words]
        return run_program(command, 240, **{"PYTHONPATH": PYTHONPATH, **self.variables, **variables})

    def checks(self) -> dict[str, dict[str, Any]]:
        """By their names."""
        document = json.loads(self.json.read_text())
        assert (document["kind"], document["schema"]) == ("gpu-check", 1)
        return {check["name"]: check for check in document["checks"]}


@pytest.fixture
def check(env: Environment, stand_ins: Path, tmp_path: Path) -> Check:
    return Check(env, stand_ins, tmp_path)


def test_one_gpu(check: Check) -> None:
    done = check("--only", "copies,values,order,staged,ipc-copies,ipc,overlap,gpus,nccl").ok()
    checks = check.checks()
    verdicts = {name: one["verdict"] for name, one in checks.items()}
    made = ("driver", "copies", "values", "order", "staged", "ipc-copies", "ipc", "overlap")
    assert verdicts == {**dict.fromkeys(made, "passed"), **dict.fromkeys(("gpus", "nccl"), "not run")}, checks
    assert "one GPU" in checks["gpus"]["reason"] and "one GPU" in checks["nccl"]["reason"]
    assert "8 passed, 2 not run" in done.out

    assert checks["driver"]["figures"]["cuda"] == "12.8"
    runs = checks["values"]["figures"]["runs"] + checks["ipc"]["figures"]["runs"]
    ways = [(2, False), (3, False), (2, True), (3, True)]
    assert [(run["ranks"], run["ipc"]) for run in runs] == ways
    for run in runs:
        assert (run["gpus"], run["nccl"]) == (1, None)
        assert len(run["types"]) == 6 and len(run["ops"]) == 5 and run["cases"] > 200
    figures = checks["staged"]["figures"]
    link = figures["link_bytes_per_second"]["both"]
    assert [row["bytes"] for row in figures["rows"]] == [1 << 16, 1 << 20]
    for row in figures["rows"]:
        assert row["each_way"] == pytest.approx(2 * row["bytes"] / row["median"])
        assert row["share_of_link"] == pytest.approx(row["each_way"] / link)
    figures = checks["ipc"]["figures"]
    assert [row["bytes"] for row in figures["rows"]] == [1 << 16, 1 << 20]
    for row in figures["rows"]:
        # of 2 ranks: 2 for the other's part of the input, 3 for the reduction, 4 for the result
        assert row["moved"] == pytest.approx(9 * row["bytes"] / row["median"])
        assert row["share_of_copies"] == pytest.approx(row["moved"] / 2 / figures["copies_by_all_ranks"])
    figures = checks["overlap"]["figures"]
    assert figures["seconds_together"] > 0 and figures["timeline"]["calls"]
    assert len(figures["timeline"]["copies"]) == figures["copies"]

    text, page = check.json.read_text(), check.html.read_text()
    assert platform.node() not in text and "0000:10:00" not in text and str(check.env.prefix) not in text
    shares = ("share of copies within it", "share of the link")
    for words in ("DDL on GPUs: passed", "by CUDA IPC", *shares, "DDL: calls", "stand-in for a GPU"):
        assert words in page, words
    assert "http" not in page.partition("<script")[0]

    # the report shows it as well, and runs nothing of it
    build = check.json.parent / "build"
    document = json.loads(text) | {"gpus": ["<script>alert(1)</script>"]}
    (build / "report").mkdir(parents=True)
    (build / "report" / "gpu.json").write_text(json.dumps(document))
    assert report(["--build", str(build)]) == 0
    shown = (build / "report" / "index.html").read_text()
    assert "DDL on GPUs: passed" in shown and "share of the link" in shown
    assert "<script>alert(1)" not in shown and "&lt;script&gt;alert(1)" in shown


def test_two_gpus_reduce_by_nccl_and_are_compared_with_it(check: Check) -> None:
    check("--only", "gpus,nccl", STAND_IN_DEVICES="2").ok()
    checks = check.checks()
    figures = checks["gpus"]["figures"]
    assert (figures["ranks"], figures["gpus"], figures["nccl"]) == (2, 2, "2.26.2")
    cells = checks["nccl"]["figures"]["cells"]
    assert {(cell["peer"], cell["bytes"]) for cell in cells} == {
        (peer, size) for peer in ("ddl", "nccl") for size in (4096, 1 << 20)
    }
    assert all(cell["algbw"] == pytest.approx(cell["bytes"] / cell["median"]) for cell in cells)
    assert "busbw" in check.html.read_text()


def test_a_figure_below_its_threshold_fails_and_is_told(check: Check) -> None:
    done = check("--only", "staged", speed=("--least-staged-share", "1000"))
    staged = check.checks()["staged"]
    assert (done.rc, staged["verdict"]) == (1, "failed") and "at least 1000 is required" in staged["reason"]
    assert staged["figures"]["rows"][-1]["share_of_link"] < 1000


@pytest.mark.parametrize(
    ("variables", "driver", "others", "rc"),
    [
        ({"STAND_IN_DRIVER_VERSION": "11080"}, "supports CUDA 11.8, and DDL needs 12.0", "too old", 1),
        ({"STAND_IN_DEVICES": "0"}, "no CUDA-capable device", "no GPU", 3),
        ({"LD_LIBRARY_PATH": ""}, "no NVIDIA driver: libcuda.so.1", "no GPU", 3),
    ],
    ids=["old", "none", "no_driver"],
)
def test_without_a_driver_that_fits_nothing_is_run(
    check: Check, variables: dict[str, str], driver: str, others: str, rc: int
) -> None:
    done = check("--only", "values", **variables)
    checks = check.checks()
    assert done.rc == rc and driver in checks["driver"]["reason"], done.out
    assert checks["values"]["verdict"] == "not run" and others in checks["values"]["reason"]


@pytest.mark.parametrize(
    ("name", "variables", "words"),
    [
        ("copies", {"STAND_IN_FAIL_COPY_LATE": "3"}, "LAUNCH_FAILED"),
        ("copies", {"STAND_IN_FAIL_ALLOCATION": "1"}, "OUT_OF_MEMORY"),
        ("ipc-copies", {"STAND_IN_NO_IPC": "1"}, "NOT_SUPPORTED"),
        ("ipc", {"DDL_NVRTC_LIBRARY": "none"}, "NVRTC is not there"),
    ],
)
def test_a_failing_driver_is_named(check: Check, name: str, variables: dict[str, str], words: str) -> None:
    done = check("--only", name, **variables)
    assert done.rc == 1 and words in check.checks()[name]["reason"], done.out


def test_a_check_that_hangs_is_ended(check: Check) -> None:
    done = check("--only", "order", "--limit", "4", STAND_IN_STICK_AT="2", STAND_IN_PATIENCE_S="60")
    order = check.checks()["order"]
    assert (done.rc, order["verdict"]) == (1, "failed") and order["seconds"] < 60
    assert "exit code 124" in order["reason"], order["reason"]


# DDL that returns without having done what it was asked: one reduction of one type, and broadcasts.
FORGETFUL = """
import sys
from ddl_validate.gpu.ddl_library import Ddl
whole = Ddl.call
def call(self, work, stream=None):
    if (work.type, work.op) != ("int64", "avg") and work.collective != "broadcast":
        whole(self, work, stream)
Ddl.call = call
from ddl_validate.gpu.ranks.__main__ import main
sys.exit(main(["values", sys.argv[1], "{}"]))
"""


def test_wrong_results_are_found(env: Environment, stand_ins: Path, tmp_path: Path) -> None:
    variables = {"LD_LIBRARY_PATH": str(stand_ins), "PYTHONPATH": PYTHONPATH, **QUICK}
    env.ranks(2, "-c", FORGETFUL, str(tmp_path), **variables).ok()
    wrong = [json.loads((tmp_path / f"rank-{rank}.json").read_text())["wrong"] for rank in range(2)]
    kinds = [{line.partition(":")[0].rsplit(" ", 1)[0] for line in lines} for lines in wrong]
    averages = {"all-reduce int64 avg"}
    broadcasts = {f"broadcast {kind} sum" for kind in ("float32", "float64", "bfloat16", "int32", "float16")}
    # the last rank reduces for itself, and has what is broadcast
    assert averages | broadcasts <= kinds[0] <= averages | broadcasts | {"broadcast int64 sum"}
    assert kinds[1] == averages | {"reduce int64 avg"}


# DDL that does not wait for a stream, or does not let one wait.
HASTY = """
import sys
from ddl_validate.gpu.ddl_library import Ddl
whole = Ddl.call
{broken}
from ddl_validate.gpu.ranks.__main__ import main
sys.exit(main(["order", sys.argv[1], "{{}}"]))
"""


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("Ddl.call = lambda self, work, stream=None: whole(self, work)", "did not see what a copy before"),
        ("Ddl.stream_wait = lambda self, handle, stream: None", "went on before its result was there"),
    ],
    ids=["call", "stream_wait"],
)
def test_a_wrong_order_is_found(
    env: Environment, stand_ins: Path, tmp_path: Path, broken: str, words: str
) -> None:
    variables = {"LD_LIBRARY_PATH": str(stand_ins), "PYTHONPATH": PYTHONPATH}
    env.ranks(2, "-c", HASTY.format(broken=broken), str(tmp_path), **variables).ok()
    wrong = json.loads((tmp_path / "rank-0.json").read_text())["wrong"]
    assert wrong and all(words in line for line in wrong), wrong


def test_references(env: Environment) -> None:
    """The references of the check against Python's own whole numbers, and what it takes for wrong."""
    code = """
import json, sys
import numpy as np
from ddl_validate.gpu.arithmetic import DTYPES, first_wrong, input_of, reduced

def wrapped(value, bits):
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)

bad = []
for kind, bits in (("int32", 32), ("int64", 64)):
    parts = [input_of(kind, "sum", 50, rank, 7) for rank in range(3)]
    total = [wrapped(sum(int(part[i]) for part in parts), bits) for i in range(50)]
    product = [wrapped(int(parts[0][i]) * int(parts[1][i]) * int(parts[2][i]), bits) for i in range(50)]
    average = [abs(one) // 3 * (1 if one > 0 else -1) for one in total]
    for op, right in (("sum", total), ("product", product), ("avg", average)):
        if [int(one) for one in reduced(kind, op, parts)[0]] != right:
            bad.append([kind, op])
for kind in ("float32", "float16", "bfloat16", "float64"):
    parts = [input_of(kind, "sum", 1000, rank, 7) for rank in range(4)]
    right, within = reduced(kind, "sum", parts)
    rounded = right.astype(DTYPES[kind])
    if first_wrong(rounded, right, within):
        bad.append([kind, "rounded once"])
    without_one = right - parts[3].astype(np.float64)
    if not first_wrong(without_one.astype(DTYPES[kind]), right, within):
        bad.append([kind, "a rank is missing"])
    rounded[5] = np.nan
    if not first_wrong(rounded, right, within):
        bad.append([kind, "NaN"])
print(json.dumps(bad))
"""
    done = env.python("-c", code, PYTHONPATH=PYTHONPATH).ok()
    assert json.loads(done.out) == []


def test_steps_of_torch_with_and_without_exchange(env: Environment, tmp_path: Path) -> None:
    """On processors: what the check runs on GPUs, with a small network."""
    if not env.has("torch") or not env.has("ddl.torch"):
        pytest.skip(f"{env.prefix} has no torch with DDL")
    settings = {"device": "cpu", "width": 4, "batch": 2, "steps": 2, "blocks": 2}
    words = ("-m", "ddl_validate.gpu.torch_steps", str(tmp_path), json.dumps(settings))
    env.ranks(2, *words, PYTHONPATH=PYTHONPATH, OMP_NUM_THREADS="1").ok()
    found = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2)]
    for one in found:
        assert one["agreed"] and len(one["exchanged"]) == len(one["alone"]) == 2
        assert one["kept"] > 0 and one["parameters"] > 1000
    assert found[0]["exchanged"] == found[1]["exchanged"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--only", "values,speed"], "--only 'speed': one of: driver, copies"),
        (["--ranks", "2,one"], "--ranks '2,one'"),
        (["--ranks", "1"], "2 to 64"),
        (["--limit", "0"], "--limit 0"),
    ],
)
def test_words_that_cannot_be_read(words: list[str], error: str) -> None:
    done = run_program([sys.executable, "-m", "ddl_validate.gpu", *words], 60, PYTHONPATH=PYTHONPATH)
    assert done.rc == 2 and error in done.err and "Traceback" not in done.err


def test_the_help_teaches() -> None:
    done = run_program([sys.executable, "-m", "ddl_validate.gpu", "--help"], 60, PYTHONPATH=PYTHONPATH).ok()
    for words in ("checks, in this order:", "exit codes:", "not run", "singularity exec --nv", "--quick"):
        assert words in done.out
