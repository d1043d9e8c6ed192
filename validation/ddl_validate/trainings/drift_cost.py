"""What the comparison of the ranks' weights costs in a training of ResNet-20.

    python -m ddl_validate.trainings.drift_cost --prefix build/envs/powerai
    python -m ddl_validate.trainings.drift_cost --record    # writes the file and the page made of it

Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..common.measured import ROOT, Measured
from ..common.mpi import MPI_AS_ROOT

PROGRAM = Path(__file__).parent / "programs" / "drift_share.py"
TITLES = {"keras": "Keras 3 on TensorFlow", "torch": "PyTorch, DistributedDataParallel"}
_LIMIT = 1800


def measure(prefix: Path, framework: str, steps: int, batch: int, turns: int) -> dict[str, Any]:
    """Medians of several trainings of two ranks on this host.

    Returns:
        share: of the time that a rank trains; step_s: seconds of a step; steps, batch (of a rank), turns.
    """
    command = [f"{prefix}/bin/ddlrun", "-q", "-np", "2", f"{prefix}/bin/python", str(PROGRAM)]
    environment = {**os.environ, **MPI_AS_ROOT, "TF_CPP_MIN_LOG_LEVEL": "3"}
    runs = []
    for _ in range(turns):
        done = subprocess.run(
            [*command, framework, str(steps), str(batch)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=_LIMIT,
            check=True,
        )
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    figures = {word: statistics.median(run[word] for run in runs) for word in ("share", "step_s")}
    return {**figures, "steps": steps, "batch": batch, "turns": turns}


def _lines(document: Mapping[str, Any]) -> list[str]:
    first = next(iter(document["frameworks"].values()))
    lines = [
        f"ResNet-20 with two ranks on one host, {first['batch']} pictures of 32 x 32 pixels for each, over",
        f"the first {first['steps']} steps, in which all weights are compared most often:",
        "",
        "| framework | a step | of it for the comparison |",
        "|---|---|---|",
    ]
    for framework, figures in document["frameworks"].items():
        lines.append(
            f"| {TITLES[framework]} | {figures['step_s'] * 1000:.0f} ms | {figures['share'] * 100:.3f} % |"
        )
    return lines


MEASURED = Measured(
    path=ROOT / "validation/measured/drift_cost.json",
    page=ROOT / "docs/train/drift.md",
    module="ddl_validate.trainings.drift_cost",
    subject="The comparison",
    sources=(
        "ddl-core/python/ddl_drift",
        "ddl-core/python/ddl/tensorflow/_drift.py",
        "ddl-core/python/ddl/torch/_drift.py",
    ),
    lines=_lines,
)


def _measure_all(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "frameworks": {
            framework: measure(options.prefix, framework, options.steps, options.batch, options.turns)
            for framework in TITLES
        }
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=400, help="of a training (400)")
    parser.add_argument("--batch", type=int, default=32, help="of a rank (32)")
    parser.add_argument("--turns", type=int, default=3, help="trainings of each framework (3)")
    MEASURED.run(parser, _measure_all)


if __name__ == "__main__":
    main()
