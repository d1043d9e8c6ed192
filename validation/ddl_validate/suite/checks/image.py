"""The environment as an image: every host starts it, all have the same, and its ranks find each other."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from dataclasses import replace
from pathlib import Path

from ..bench import Bench
from ..errors import ValidateError
from ..model import CheckResult, Finding, Kind, Status, status_of
from . import environment
from .asking import last_json

TITLE = "the image on each host"
VARIABLE = "WMLCE_IMAGE"
_PROGRAMS = ("apptainer", "singularity")
_SUM = """\
import json, os, ddl, numpy
total = ddl.allreduce(numpy.full(1 << 16, ddl.rank() + 1.0))
right = bool((total == ddl.size() * (ddl.size() + 1) / 2).all())
inside = "SINGULARITY_CONTAINER" in os.environ or "APPTAINER_CONTAINER" in os.environ
if ddl.rank() == 0:
    print(json.dumps({"ranks": ddl.size(), "right": right, "inside": inside}), flush=True)
"""


def check(bench: Bench, before: list[CheckResult]) -> CheckResult:
    """The image is named by a variable: the site decides where it lies. Skipped without it."""
    start = time.monotonic()
    result = CheckResult("image", TITLE, Status.SKIPPED)
    image = os.environ.get(VARIABLE)
    if not image:
        result.reason = f"no image is named; set {VARIABLE}=FILE.sif"
        return result
    program = os.environ.get("DDL_IMAGE_PROGRAM") or next(filter(shutil.which, _PROGRAMS), None)
    if program is None:
        result.reason = "neither apptainer nor singularity is on PATH; name it in DDL_IMAGE_PROGRAM"
        return result
    if not Path(image).is_file():
        result.status = Status.FAILED
        text = f"{VARIABLE}={image}: there is no such file on the host of rank 0"
        result.findings = [Finding(Kind.ENVIRONMENT, "cluster", text, "name the image of the site")]
        return result
    # the host's ddlrun passes all its arguments to the one in the image
    within = replace(bench, options=("-image", image, *bench.options))
    arguments = within.command((), ranks=1)[1:]
    result.commands.append(shlex.join(["ddlrun", *arguments, "-check"]))
    try:
        checked = environment.ask(bench.prefix, arguments)
    except ValidateError as error:
        # of the host of rank 0, where the image's own ddlrun would begin
        result.status = Status.FAILED
        remedy = f"compare the file with that of the release, and run: {program} exec {image} ddlrun -doctor"
        result.findings = [Finding(Kind.ENVIRONMENT, "cluster", f"{image} does not start: {error}", remedy)]
        return result
    result.facts = {"image": image, "hosts": {host.name: dict(host.facts) for host in checked}}
    result.findings = [
        Finding(
            Kind.ENVIRONMENT,
            f"host {host.name}",
            f"{host.name} cannot start {image}: {host.problem}",
            f"run there: {program} exec {image} ddlrun -doctor",
            (host.name,),
        )
        for host in checked
        if host.state != "ok"
    ]
    result.findings += environment.differences([host for host in checked if host.state == "ok"])
    if all(finding.warning for finding in result.findings):
        result.findings += _sum(within, result)
    result.status = status_of(result.findings)
    result.seconds = time.monotonic() - start
    return result


def _sum(within: Bench, result: CheckResult) -> list[Finding]:
    """An all-reduce of ranks that are all in the image. RunFailed where it does not come to its end."""
    report = last_json(within.start("image", ["python", "-P", "-c", _SUM], result, ranks=1)) or {}
    result.facts["sum"] = report
    ranks = len(within.hosts)
    if not report.get("inside"):
        text = "the ranks were not started in the image"
    elif report.get("ranks") != ranks:
        text = f"{ranks} ranks were started in the image, and each job had {report.get('ranks')}"
    elif not report.get("right"):
        return [
            Finding(
                Kind.WRONG_RESULT,
                "cluster",
                f"the sum of {ranks} ranks in the image is wrong",
                "run the same outside of the image: wmlce validate --only sums",
            )
        ]
    else:
        return []
    return [Finding(Kind.ENVIRONMENT, "cluster", text, "look at DDL_IMAGE_OPTIONS, and run ddlrun -doctor")]
