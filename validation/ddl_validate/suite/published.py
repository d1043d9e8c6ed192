"""What was published about the original DDL, and what DDL's cost model makes of the same clusters.

Nothing is adjusted to the published figures beyond what is said here: a calibration names the steps that it
fits, and every other deviation stays and is shown.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .errors import ValidateError
from .model import CheckResult, Status

NAME, TITLE = "published", "published figures, beside the predictions of DDL's cost model"

SPEED_SOURCE = "IBM's published tf_cnn_benchmarks results of PowerAI DDL (ResNet-50, 4 V100 a host)"
SPEEDS = {1: 1248.06, 10: 12043.78}  # hosts: images/s
SPEED_GPUS = 4  # of a host
SPEED_BATCH = 64  # images a GPU and step; assumed, not published with the figures
GRADIENTS = 102_000_000  # bytes: ResNet-50's 25.6 million weights in float32

STEPS_SOURCE = (
    "S. Seelam, G. Janssen, L. Lastras: IBM DDL with TensorFlow NMT. "
    "IBM Developer, Linux on Power, 30 August 2018"
)
WORDS = 160_000  # words/s at 16 GPUs, of the same run
WORDS_GPUS = 16

OTHERS = (
    {
        "what": "ResNet-50 in Torch on 256 GPUs of 64 IBM Power8 S822LC",
        "published": "90 epochs of ImageNet-1K in 50 minutes",
        "source": "M. Cho and others: PowerAI DDL, arXiv 1708.02188, 2017",
        "why": "the time of a step on one GPU is not among the figures",
    },
    {
        "what": "ResNet-50 in Caffe2 with BlueConnect on 192 GPUs",
        "published": "87 % less communication overhead",
        "source": "M. Cho and others: BlueConnect, MLSys 2019",
        "why": "relative to a system that the figures do not describe",
    },
)

SUMMIT_HOSTS = (1, 2, 4, 9, 18, 36, 90, 180, 360, 720, 954)
SUMMIT_GPUS = 6
_LIMIT = 120.0


def check(prefix: Path, limit: float = _LIMIT) -> CheckResult:
    """All predictions, by the environment's ddlrun. It starts no ranks and contacts no host."""
    start = time.monotonic()
    result = CheckResult(NAME, TITLE, Status.PASSED)
    try:
        result.facts = {
            "resnet50": _resnet50(prefix, limit, result.commands),
            "nmt": _nmt(prefix, limit, result.commands),
            "summit": _summit(prefix, limit, result.commands),
            "others": [dict(result) for result in OTHERS],
        }
    except ValidateError as error:
        result.status, result.reason, result.facts = Status.SKIPPED, str(error), {}
    result.seconds = time.monotonic() - start
    return result


def simulate(
    prefix: Path, arguments: Sequence[str], limit: float = _LIMIT, commands: list[str] | None = None
) -> dict[str, Any]:
    """What `ddlrun --simulate WORDS --json` prints. ValidateError where it does not."""
    command = [str(prefix / "bin/ddlrun"), "--simulate", *arguments, "--json"]
    if commands is not None:
        commands.append(" ".join(command))
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=limit, check=True
        )
        report = json.loads(done.stdout)
    except OSError as error:
        raise ValidateError(f"{command[0]}: {error.strerror}; name an environment by --prefix") from None
    except subprocess.TimeoutExpired:
        raise ValidateError(f"no prediction within {limit:.0f} s: {' '.join(command)}") from None
    except subprocess.CalledProcessError as error:
        lines = str(error.stderr).strip().splitlines() or [f"exit code {error.returncode}"]
        raise ValidateError(f"{' '.join(command)}: {lines[-1]}") from None
    except ValueError:
        raise ValidateError(f"no JSON from: {' '.join(command)}") from None
    if not isinstance(report, dict):
        raise ValidateError(f"no prediction in the answer of: {' '.join(command)}")
    return report


def described(prefix: Path, name: str) -> dict[str, Any]:
    """A cluster's description as it comes with DDL."""
    for path in prefix.glob(f"lib/python3*/site-packages/ddl/clusters/{name}.json"):
        try:
            description = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise ValidateError(f"{path}: {error}") from None
        if isinstance(description, dict):
            return description
    raise ValidateError(f"{prefix} has no description of the cluster {name}; name an environment by --prefix")


def planned(report: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The predictions for DDL's default plan, by the number of ranks."""
    return {
        int(prediction["ranks"]): prediction
        for prediction in report["predictions"]
        if prediction["algorithm"] == "planned"
    }


def _tenfold(base: dict[str, Any], network: dict[str, Any], inside: float = 1.0) -> dict[str, Any]:
    """Ten hosts with 4 V100 each: the inside of the described AC922, and this network."""
    tiers = [{**tier, "efficiency": inside} for tier in base["tiers"] if tier["name"] in ("socket", "host")]
    cluster: dict[str, Any] = {
        name: base[name] for name in ("version", "device", "overheads") if name in base
    }
    outer = {"name": "cluster", "members": max(SPEEDS), "shared_by": "member", **network}
    return {**cluster, "name": "10 AC922", "tiers": [*tiers, outer]}


def _networks(prefix: Path, limit: float) -> list[tuple[str, dict[str, Any]]]:
    """Networks that the ten hosts may have had, with the cluster of each."""
    base = described(prefix, "ac922-4-ethernet")
    overlapping = {**base, "overheads": {"chunk": "10 us", "message": "2 us"}}
    fitted = simulate(prefix, ["ac922-4-ethernet", "--calibrate", "nmt-ac922", "--bytes", "717MB"], limit)
    inside = float(fitted["calibration"]["inside_efficiency"])
    outside = float(fitted["calibration"]["network_efficiency"])
    return [
        (
            "two EDR InfiniBand ports, 25 GB/s a host, full bandwidth",
            _tenfold(overlapping, {"bandwidth": "25 GB/s", "latency": "2 us"}),
        ),
        (
            "one port of 100 Gbit/s, 12.5 GB/s a host, full bandwidth",
            _tenfold(overlapping, {"bandwidth": "100 Gbit/s", "latency": "2 us"}),
        ),
        (
            f"100 Gbit/s Ethernet with the efficiencies that the NMT run gave ({inside:.0%} inside a host, "
            f"{outside:.0%} between hosts), one tier after the other",
            _tenfold(base, {"bandwidth": "100 Gbit/s", "latency": "30 us", "efficiency": outside}, inside),
        ),
    ]


def _resnet50(prefix: Path, limit: float, commands: list[str]) -> dict[str, Any]:
    """Images/s on 10 hosts, of the published ones on one host and the predicted all-reduces."""
    cases = _networks(prefix, limit)
    few, many = min(SPEEDS), max(SPEEDS)
    single, all_of_them = few * SPEED_GPUS, many * SPEED_GPUS
    step = SPEED_BATCH * single / SPEEDS[few]
    rows = []
    with tempfile.TemporaryDirectory(prefix="wmlce-published-") as folder:
        for number, (network, cluster) in enumerate(cases):
            path = Path(folder) / f"{number}.json"
            path.write_text(json.dumps(cluster))
            arguments = [str(path), "--bytes", str(GRADIENTS), "--ranks", f"{single},{all_of_them}"]
            times = planned(simulate(prefix, arguments, limit))
            # the published step on one host holds the exchange within it
            compute = step - times[single]["allreduce_s"]
            speed = SPEED_BATCH * all_of_them / (compute + times[all_of_them]["allreduce_s"])
            rows.append(
                {
                    "network": network,
                    "predicted": speed,
                    "off": speed / SPEEDS[many] - 1,
                    "efficiency": speed / (SPEEDS[few] * many / few),
                    "allreduce_s": times[all_of_them]["allreduce_s"],
                    "bound_by": times[all_of_them]["bound_by"],
                }
            )
    commands.append("ddlrun --simulate FILE (the description is in validation.json)")
    return {
        "source": SPEED_SOURCE,
        "published": {str(hosts): speed for hosts, speed in SPEEDS.items()},
        "efficiency": SPEEDS[many] / (SPEEDS[few] * many / few),
        "hosts": many,
        "gpus": SPEED_GPUS,
        "rows": rows,
        "clusters": [cluster for _, cluster in cases],
        "assumptions": [
            f"a batch of {SPEED_BATCH} images a GPU: it was not published with the figures",
            "gradients in float32, 102 MB",
            "the network of these hosts was not published with the figures: the rows try several",
            "the speed on one host is taken as published, and no other figure is",
            "a step is the computation, followed by the whole all-reduce: back-propagation hides nothing",
        ],
    }


def _nmt(prefix: Path, limit: float, commands: list[str]) -> dict[str, Any]:
    """Step times of the NMT run: three are fitted, the others predicted."""
    arguments = ["ac922-4-ethernet", "--calibrate", "nmt-ac922", "--bytes", "717MB"]
    calibration = simulate(prefix, arguments, limit, commands)["calibration"]
    rows = [
        {
            "gpus": int(step["ranks"]),
            "published_s": float(step["measured_s"]),
            "predicted_s": float(step["predicted_s"]),
            "fitted": bool(step["fitted"]),
            "off": float(step["off"]),
        }
        for step in calibration["steps"]
    ]
    last = next(row for row in rows if row["gpus"] == WORDS_GPUS)
    return {
        "source": STEPS_SOURCE,
        "rows": rows,
        "words": {"gpus": WORDS_GPUS, "published": WORDS, "predicted": WORDS / (1 + last["off"])},
        "assumptions": [
            f"links inside a host reach {calibration['inside_efficiency']:.0%} of their bandwidth, those "
            f"between hosts {calibration['network_efficiency']:.0%}: fitted to the steps of 1, 2 and 8 GPUs",
            "one tier is used after the other",
            "717 MB of gradients on 4 hosts with 4 V100 each and 100 Gbit/s Ethernet",
        ],
    }


def _summit(prefix: Path, limit: float, commands: list[str]) -> dict[str, Any]:
    """ResNet-50 on Summit, from one host to 954. Only predicted: there is nothing to compare with."""
    ranks = [1, *(hosts * SUMMIT_GPUS for hosts in SUMMIT_HOSTS)]
    arguments = ["summit", "--bytes", "102MB", "--ranks", ",".join(map(str, ranks))]
    report = simulate(prefix, arguments, limit, commands)
    cluster = described(prefix, "summit")
    step = float(report["step_s"])
    rows = [
        {
            "hosts": int(prediction["hosts"]),
            "gpus": number,
            "allreduce_s": float(prediction["allreduce_s"]),
            "step_s": float(prediction["step_s"]),
            "images_per_sec": SPEED_BATCH * number / float(prediction["step_s"]),
            "efficiency": float(prediction["efficiency"]),
            "bound_by": str(prediction["bound_by"] or ""),
        }
        for number, prediction in sorted(planned(report).items())
    ]
    sources = [
        f"{tier['name']}: {tier['bandwidth']}, {tier['latency']}; {tier['source']}"
        for tier in cluster["tiers"]
    ]
    others = [
        f"{name}: {cluster[name]['source']}" for name in ("device", "overheads", "step") if cluster.get(name)
    ]
    return {
        "description": str(cluster["description"]),
        "step_s": step,
        "rows": rows,
        "assumptions": [
            *sources,
            *others,
            "no congestion between jobs, no slow host, every link at its full bandwidth",
            "a step is the computation, followed by the whole all-reduce",
        ],
    }
