"""DDL's sums: right, the same on all ranks and each time; and the same arithmetic on every host."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..bench import Bench
from ..model import CheckResult, Finding, Kind, Status
from .probing import probe

TITLE = "sums, and arithmetic, are right and the same everywhere"
_REPEATS = {"smoke": 3, "daily": 20}
_MOST_REPEATS = 100
_REMEDY = (
    "give it no more jobs; look at its event log for errors of memory or processor (rasdaemon, mcelog, "
    "edac), and test its memory"
)


def check(bench: Bench, before: list[CheckResult]) -> CheckResult:
    began = time.monotonic()
    result = CheckResult("sums", TITLE, Status.PASSED)
    repeats = _REPEATS.get(bench.level.name, _MOST_REPEATS)
    # a rank may wait for sums of others
    words = ["--repeats", str(repeats), "--limit", f"{bench.level.limit:g}"]
    told = probe(bench, result, "sums", words, ranks=bench.ranks)
    names = [host.name for host in bench.hosts]
    result.findings = findings(told, names, bench.ranks)
    result.facts = dict(told)
    result.status = Status.FAILED if result.findings else Status.PASSED
    result.seconds = time.monotonic() - began
    return result


def findings(told: Mapping[str, Any], names: Sequence[str], each: int) -> list[Finding]:
    """Of what the probe printed. A host that computes wrongly by itself makes sums wrong, too: that is one
    finding.
    """
    found = []
    what = _what(told)
    computes = set(told["products"])
    for host in sorted(computes | set(told["culprits"])):
        reasons = []
        if host in computes:
            reasons.append("its products of matrices are not those of integer arithmetic, as they must be")
        if host in told["culprits"]:
            reasons.append(f"sums are wrong whenever it takes part: {what}")
        found.append(_finding(f"host {names[host]}", f"{names[host]}: {'; '.join(reasons)}", (names[host],)))
    odd = sorted({rank // each for rank in (*told["wrong"], *told["differs"])})
    for group in told["undecided"]:
        if computes & set(group):
            continue
        # one host alone had another result than all the others, once
        if len(odd) == 1 and odd[0] in group and len(group) > 2:
            name = names[odd[0]]
            text = f"{name} alone had other sums than all the others, and not each time: {what}"
            found.append(_finding(f"host {name}", text, (name,)))
            continue
        listed = [names[host] for host in sorted(group)]
        where = f"hosts {', '.join(listed[:-1])} and {listed[-1]}" if len(listed) > 1 else f"host {listed[0]}"
        text = f"sums among {where} were wrong, and those of fewer of them were not: {what}"
        found.append(_finding(where, text, tuple(listed) if len(listed) == 1 else ()))
    return found


def _what(told: Mapping[str, Any]) -> str:
    words = []
    if told["wrong"]:
        types = ", ".join(told["types"])
        words.append(
            f"on {len(told['wrong'])} ranks {told['elements']} elements ({types}) are not those of numpy; "
            "0 are expected"
        )
    if told["differs"]:
        words.append(
            f"on {len(told['differs'])} ranks sums differ from those of the others, or from time to time"
        )
    return "; ".join(words)


def _finding(where: str, text: str, hosts: tuple[str, ...]) -> Finding:
    return Finding(Kind.WRONG_RESULT, where, text, _REMEDY, hosts)
