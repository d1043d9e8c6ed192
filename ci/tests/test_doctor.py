"""`wmlce doctor` says what is missing and what to do about it."""

from __future__ import annotations

import json

from scratch_clone import Clone


def test_findings_have_remedies(clone: Clone) -> None:
    result = clone.run("doctor", "--no-network", "--json")
    findings = json.loads(result.stdout)["findings"]
    subjects = {finding["subject"] for finding in findings}
    assert {
        "machine",
        "glibc",
        "memory",
        "compilers and tools",
        "build folder",
        "cache",
        "/dev/shm",
    } <= subjects
    for finding in findings:
        assert finding["level"] in ("ok", "note", "problem")
        assert finding["found"]
        assert finding["level"] == "ok" or finding["remedy"], finding
    assert (result.returncode == 1) == any(finding["level"] == "problem" for finding in findings)


def test_missing_tool_is_named(clone: Clone) -> None:
    clone.write("ci/debian-packages.txt", "build  surely-missing  cmd:no-such-command  nothing\n")
    error = clone.fails("doctor", "--no-network")
    assert (
        "compilers and tools" in error and "apt-get install --no-install-recommends surely-missing" in error
    )


def test_unreachable_index_is_named(clone: Clone) -> None:
    clone.env |= {
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_RETRIES": "0",
    }
    clone.env |= {"PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": "", "PIP_TIMEOUT": "2", "no_proxy": "*"}
    error = clone.fails("doctor")
    assert "pip reaches its index" in error and "pip config list" in error
