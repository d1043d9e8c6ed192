"""`wmlce validate` as tests of ReFrame: each check at each level, with figures and references.

    reframe -C site.py -c validation/ddl_validate/reframe/cluster.py --tag smoke --run

A test runs `wmlce-validate --only CHECK`, and reads the JSON that it prints. What is measured, and what is
expected, is decided there; ReFrame brings the scheduler, the site's environments, and its logs of figures.
docs/cluster/pipelines.md explains the settings. ReFrame loads this file by itself, so it imports nothing of
the tree.
"""

import json
import os
import shlex
from typing import Any

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.backends import getlauncher
from reframe.core.builtins import parameter, run_before, sanity_function, variable

CHECKS = (
    *("environment", "imports", "settings", "hosts", "links", "rails", "sums", "allreduce", "training"),
    *("frameworks", "fabric", "gpu", "sustained", "module", "image"),
)
LIMITS = {"smoke": "15m", "daily": "90m", "burn-in": "25h"}


@rfm.simple_test
class ClusterValidation(rfm.RunOnlyRegressionTest):
    """num_nodes: of the job. hosts: instead of a job's, for a partition without a scheduler. reference_file,
    baseline_file: as for `wmlce validate`. options: more words for it.
    """

    check = parameter(CHECKS)
    level = parameter(tuple(LIMITS))
    num_nodes = variable(int, value=1)
    hosts = variable(str, value="")
    reference_file = variable(str, value="")
    baseline_file = variable(str, value="")
    options = variable(str, value="")

    descr = "the cluster trains as fast as it should, or the host, link or GPU at fault is named"
    valid_systems = ["*"]  # noqa: RUF012
    valid_prog_environs = ["+wmlce"]  # noqa: RUF012
    executable = "wmlce-validate"
    num_tasks_per_node = 1
    keep_files = ["report"]  # noqa: RUF012
    strict_check = True

    def __init__(self) -> None:
        self.tags = {self.level, self.check}
        self.time_limit = LIMITS[self.level]

    @run_before("run")
    def set_command(self) -> None:
        """ddlrun finds the hosts of the job by itself: the program must start once, not on every node."""
        self.num_tasks = self.num_nodes
        self.exclusive_access = self.num_nodes > 1
        self.job.launcher = getlauncher("local")()
        arguments = ["--only", self.check, "--level", self.level, "--json", "--output", "report"]
        arguments += ["--site", self.current_system.name]
        for option, value in (
            ("-H", self.hosts),
            ("--reference", self.reference_file),
            ("--baseline", self.baseline_file),
        ):
            if value:
                arguments += [option, value]
        self.executable_opts = [shlex.quote(word) for word in arguments] + shlex.split(self.options)

    def _printed(self, name: Any) -> str:
        with open(os.path.join(self.stagedir, sn.evaluate(name)), errors="replace") as file:
            return file.read()

    @property
    def result(self) -> Any:
        """The check in the document; None where the program gave none."""
        text = self._printed(self.stdout)
        try:
            return json.loads(text[text.index("{") :])["checks"][0]
        except (ValueError, LookupError, TypeError):
            return None

    @sanity_function
    def nothing_was_found(self) -> Any:
        """A check that cannot be made here is skipped with its reason."""
        result = self.result
        if result is None:
            lines = self._printed(self.stderr).strip().splitlines()
            return sn.assert_true(False, lines[-1] if lines else "wmlce-validate printed no result")
        if result["status"] == "skipped":
            self.skip(result["reason"])
        texts = "; ".join(finding["text"] for finding in result["findings"])
        return sn.assert_true(result["status"] == "passed", texts or result["reason"])

    @run_before("performance")
    def set_figures(self) -> None:
        """Each figure with what `wmlce validate` expects of it: the site's reference, a baseline, or its own
        prediction.
        """
        partition, references = self.current_partition.fullname, {}
        for figure in self.result["figures"]:
            name = _name(figure)
            self.perf_variables[name] = sn.make_performance_function(
                sn.defer(figure["value"]), figure["unit"]
            )
            expected = figure["expected"]
            if expected and expected["source"] != "ideal":
                less = -expected["tolerance"] if figure["better"] == "higher" else None
                more = expected["tolerance"] if figure["better"] == "lower" else None
                references[name] = (expected["value"], less, more, figure["unit"])
        self.reference = {partition: references}


def _name(figure: dict[str, Any]) -> str:
    """`link.bandwidth hosts h1 and h2 bytes=65536`"""
    scale = " ".join(f"{name}={value}" for name, value in sorted(figure["scale"].items()))
    return " ".join(filter(None, [figure["name"], figure["where"], scale]))
