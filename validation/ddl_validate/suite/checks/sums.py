"""DDL's sums: right, the same on all ranks and each time; and the same arithmetic on every host."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..bench import Bench
from ..model import CheckResult, Finding, Kind, Status, status_of
from .probing import probe

TITLE = "sums, and arithmetic, are right and the same everywhere"
_REPEATS = {"smoke": 3, "daily": 20}
_MOST_REPEATS = 100
_REMEDY = (
    "give it no more jobs; look at its event log for errors of memory or processor (rasdaemon, mcelog, "
    "edac), and test its memory"
)


def check(bench: Bench, before: list[CheckResult]) -> CheckResult:
    start = time.monotonic()
    result = CheckResult("sums", TITLE, Status.PASSED)
    repeats = _REPEATS.get(bench.level.name, _MOST_REPEATS)
    # a rank may wait for sums of others
    arguments = ["--repeats", str(repeats), "--limit", f"{bench.level.limit:g}"]
    report = probe(bench, result, "sums", arguments, ranks=bench.ranks)
    names = [host.name for host in bench.hosts]
    result.findings = findings(report, names, bench.ranks)
    result.facts = dict(report)
    result.status = status_of(result.findings)
    result.seconds = time.monotonic() - start
    return result


def findings(report: Mapping[str, Any], names: Sequence[str], each: int) -> list[Finding]:
    """Findings from the probe's report.

    A host that computes wrongly by itself makes sums wrong, too: that is one finding.
    """
    faults = []
    symptoms = _what(report)
    computes = set(report["products"])
    for host in sorted(computes | set(report["culprits"])):
        reasons = []
        if host in computes:
            reasons.append("its products of matrices are not those of integer arithmetic, as they must be")
        if host in report["culprits"]:
            reasons.append(f"sums are wrong whenever it takes part: {symptoms}")
        faults.append(_finding(f"host {names[host]}", f"{names[host]}: {'; '.join(reasons)}", (names[host],)))
    odd = sorted({rank // each for rank in (*report["wrong"], *report["differs"])})
    for group in report["undecided"]:
        if computes & set(group):
            continue
        # one host alone had another result than all the others, once
        if len(odd) == 1 and odd[0] in group and len(group) > 2:
            name = names[odd[0]]
            text = f"{name} alone had other sums than all the others, and not each time: {symptoms}"
            faults.append(_finding(f"host {name}", text, (name,)))
            continue
        listed = [names[host] for host in sorted(group)]
        where = f"hosts {', '.join(listed[:-1])} and {listed[-1]}" if len(listed) > 1 else f"host {listed[0]}"
        text = f"sums among {where} were wrong, and those of fewer of them were not: {symptoms}"
        faults.append(_finding(where, text, tuple(listed) if len(listed) == 1 else ()))
    return faults


def _what(report: Mapping[str, Any]) -> str:
    parts = []
    if report["wrong"]:
        types = ", ".join(report["types"])
        parts.append(
            f"on {len(report['wrong'])} ranks {report['elements']} elements ({types}) differ from numpy's; "
            "0 are expected"
        )
    if report["differs"]:
        ranks = f"on {len(report['differs'])} ranks"
        parts.append(f"{ranks} sums differ from those of the others, or from one repetition to the next")
    return "; ".join(parts)


def _finding(where: str, text: str, hosts: tuple[str, ...]) -> Finding:
    return Finding(Kind.WRONG_RESULT, where, text, _REMEDY, hosts)
