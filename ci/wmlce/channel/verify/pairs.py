"""Frameworks in one process: each pair of them, imported in both orders, trains, with one runtime of OpenMP.

An order and its reverse hold both orders of every pair, so two processes are enough while all is well. When
one fails, the pair is looked for by halves.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from wmlce.channel.verify.check import Check, Say
from wmlce.channel.verify.train_in_order import STAGE

LIMIT_S = 600
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1"}


class Framework(BaseModel):
    """An entry of frameworks.yaml."""

    model_config = ConfigDict(extra="forbid")
    name: str
    modules: list[str]
    statement: str = Field(alias="import")
    step: str


@dataclass(frozen=True)
class Failure:
    """A process that failed."""

    name: str
    """The framework at which it failed."""
    stage: str
    """`import`, or the step that followed."""
    reason: str
    """The last lines of its output."""


@cache
def declared() -> list[Framework]:
    """frameworks.yaml."""
    text = (files("wmlce.channel.verify") / "frameworks.yaml").read_text()
    return TypeAdapter(list[Framework]).validate_python(yaml.safe_load(text))


def together(prefix: Path, say: Say) -> Check:
    """The declared frameworks that an environment has, in both orders of each pair."""
    places = list(prefix.glob("lib/python3.*/site-packages"))

    def has(module: str) -> bool:
        return any((place / module.replace(".", "/") / "__init__.py").is_file() for place in places)

    present = [framework for framework in declared() if all(map(has, framework.modules))]
    return check(prefix / "bin" / "python", present, say)


def check(python: Path, frameworks: Sequence[Framework], say: Say, *, limit_s: float = LIMIT_S) -> Check:
    """Run an order and its reverse with this Python; name the pair of one that fails."""
    names = [framework.name for framework in frameworks]
    pairs = len(names) * (len(names) - 1) // 2
    result = Check(
        "frameworks in one process", f"{', '.join(names) or 'no framework'}; {pairs} pairs, both orders"
    )
    orders = [list(frameworks)] if len(frameworks) < 2 else [list(frameworks), list(reversed(frameworks))]
    for order in orders if frameworks else []:
        title = " ".join(framework.name for framework in order)
        say(f"one step of training each, imported in the order: {title}")
        failure = run(python, order, limit_s)
        finding = _told(python, order, failure, say, limit_s) if failure else None
        result.parts[title] = [finding] if finding else []
        if finding and finding not in result.findings:
            result.findings.append(finding)
    return result


def _told(python: Path, order: Sequence[Framework], failure: Failure, say: Say, limit_s: float) -> str:
    """Who is needed for the failure: the framework alone, one other before or after it, or all of them."""
    at = next(i for i, framework in enumerate(order) if framework.name == failure.name)
    end = at if failure.stage == "import" else len(order)
    others = [i for i in range(end) if i != at]

    def failed(which: Sequence[int]) -> Failure | None:
        part = [order[i] for i in sorted([*which, at])]
        say(
            f"{failure.name} failed; looking for the reason: {' '.join(framework.name for framework in part)}"
        )
        return run(python, part, limit_s)

    if alone := failed([]):
        return f"{failure.name} fails alone: {alone.stage}: {alone.reason}"
    while len(others) > 1:
        half = len(others) // 2
        for part in (others[:half], others[half:]):
            if other_failure := failed(part):
                others, failure = part, other_failure
                break
        else:
            return (
                f"{failure.name} fails after the imports {' '.join(framework.name for framework in order)}, "
                f"but after neither half of them: {failure.stage}: {failure.reason}"
            )
    if not others:
        return f"{failure.name} failed once, and not again: {failure.stage}: {failure.reason}"
    first, second = (order[i].name for i in sorted([*others, at]))
    return f"{first} imported before {second}: {failure.name}: {failure.stage}: {failure.reason}"


def run(python: Path, order: Sequence[Framework], limit_s: float) -> Failure | None:
    """One process, without what the user has set for Python; None when everything went well."""
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "LD_", "OMPI_"))
    }
    # what activation would set: some frameworks start programs of their environment
    environment |= _QUIET | {"PATH": f"{python.parent}:{os.environ.get('PATH', '')}"}
    job = [
        {"name": framework.name, "import": framework.statement, "step": framework.step} for framework in order
    ]
    with (
        tempfile.TemporaryDirectory(prefix="wmlce-pairs-") as folder,
        as_file(files("wmlce.channel.verify") / "train_in_order.py") as script,
    ):
        file = Path(folder) / "job.json"
        file.write_text(json.dumps(job))
        process = subprocess.Popen(
            [str(python), "-I", "-X", "faulthandler", str(script), str(file)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        late = False
        try:
            out, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            late = True
            os.killpg(process.pid, signal.SIGKILL)
            out, _ = process.communicate()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    stages = [line.removeprefix(STAGE) for line in out.splitlines() if line.startswith(STAGE)]
    if process.returncode == 0 and stages and stages[-1].startswith("done"):
        return None
    reason = ""
    if stages and stages[-1].startswith("failed "):
        reason = stages.pop().removeprefix("failed ")
    elif late:
        reason = f"not finished after {limit_s:g} s"
    elif process.returncode < 0:
        reason = f"killed by {signal.Signals(-process.returncode).name}"
    else:
        last = [line for line in out.splitlines() if line.strip() and not line.startswith(STAGE)]
        reason = f"exit code {process.returncode}: {last[-1] if last else 'no output'}"
    stage, _, name = (stages or [f"import {order[0].name}"])[-1].partition(" ")
    # after all steps: the process came to harm while it ended
    if stage == "done":
        stage, name = "end of the process", order[-1].name
    return Failure(name, stage, reason[:300])
