"""A validation as JUnit XML, which GitLab, Jenkins and others show: a test case for each check."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from .document import Document
from .model import CheckResult, Status

# what XML 1.0 has no way to write
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_xml(document: Document) -> str:
    """A finding is a failure with its text, a warning is output. A check that broke off is an error; a skip
    has its reason.
    """
    cases = [_case(document, result) for result in document.results]
    count = {
        "tests": len(cases),
        "failures": sum(case.find("failure") is not None for case in cases),
        "errors": sum(case.find("error") is not None for case in cases),
        "skipped": sum(case.find("skipped") is not None for case in cases),
    }
    totals = {name: str(number) for name, number in count.items()} | {"time": f"{document.seconds:.3f}"}
    suites = ElementTree.Element("testsuites", {"name": "wmlce validate", **totals})
    more = {
        "name": f"wmlce validate {document.level}".strip(),
        "hostname": document.hosts[0] if document.hosts else "",
        # of ISO 8601 the schema has neither zone nor fractions
        "timestamp": document.started[:19],
    }
    suite = ElementTree.SubElement(suites, "testsuite", {**_plain(more), **totals})
    facts = {
        "site": document.site,
        "hosts": " ".join(document.hosts),
        "ranks": str(sum(document.ranks)),
        "release": document.release,
        "command": document.command,
        "verdict": document.verdict,
        "exit_code": str(document.exit_code),
    }
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in facts.items():
        ElementTree.SubElement(properties, "property", _plain({"name": name, "value": value}))
    suite.extend(cases)
    ElementTree.indent(suites)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"
    )


def _case(document: Document, result: CheckResult) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase",
        _plain(
            {
                "classname": f"validate.{document.level}",
                "name": f"{result.name}: {result.title}",
                "time": f"{result.seconds:.3f}",
            }
        ),
    )
    faults = [finding for finding in result.findings if not finding.warning]
    if faults:
        # readers show one failure of a case: it has all findings
        first = faults[0]
        text = "\n\n".join(
            f"{finding.kind.value}: {finding.where}\n{finding.text}\nWhat to do: {finding.remedy}"
            + (f"\nHosts to drain: {', '.join(finding.hosts)}" if finding.hosts else "")
            for finding in faults
        )
        failure = ElementTree.SubElement(
            case, "failure", _plain({"message": first.text, "type": first.kind.value})
        )
        failure.text = _clean(text)
    elif result.status is Status.SKIPPED:
        ElementTree.SubElement(case, "skipped", _plain({"message": result.reason or "no reason was given"}))
    elif result.status is not Status.PASSED:
        reason = result.reason or "no reason was given"
        broken = ElementTree.SubElement(
            case, "error", _plain({"message": reason, "type": result.status.value})
        )
        broken.text = _clean(reason)
    lines = [
        f"{figure.name}, {figure.where}: {figure.value:.6g} {figure.unit}"
        + (f" (expected {figure.expected.value:.6g}, {figure.expected.source})" if figure.expected else "")
        for figure in result.figures
    ]
    lines += [f"warning: {finding.text}" for finding in result.findings if finding.warning]
    lines += [f"not judged: {name}: {why}" for name, why in result.not_judged.items()]
    lines += [f"$ {command}" for command in result.commands] + [f"log: {log}" for log in result.logs]
    if lines:
        ElementTree.SubElement(case, "system-out").text = _clean("\n".join(lines))
    return case


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)


def _plain(attributes: dict[str, str]) -> dict[str, str]:
    return {name: _clean(value) for name, value in attributes.items()}
