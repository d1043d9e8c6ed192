"""`wmlce doctor` says what is missing and what to do about it."""

from __future__ import annotations

import json
import subprocess

import pytest
from scratch_clone import Clone


def test_findings_have_remedies(clone: Clone) -> None:
    result = clone.run("doctor", "--no-network", "--json")
    findings = json.loads(result.stdout)["findings"]
    subjects = {finding["subject"] for finding in findings}
    assert {
        "machine",
        "glibc",
        "memory",
        "programs",
        "user namespaces",
        "build folder",
        "cache",
        "/dev/shm",
    } <= subjects
    for finding in findings:
        assert finding["level"] in ("ok", "note", "problem")
        assert finding["detail"]
        assert finding["level"] == "ok" or finding["remedy"], finding
    assert (result.returncode == 1) == any(finding["level"] == "problem" for finding in findings)


def test_missing_tool_is_named(clone: Clone) -> None:
    clone.write("ci/debian-packages.txt", "build  surely-missing  cmd:no-such-command  nothing\n")
    error = clone.fails("doctor", "--no-network")
    assert "programs" in error and "apt-get install --no-install-recommends surely-missing" in error


def test_glibc_is_compared_with_that_of_the_packages(clone: Clone) -> None:
    config = clone.root / "recipes/build-root.yaml"
    config.write_text(config.read_text().replace('glibc: "2.28"', 'glibc: "2.99"'))
    error = clone.fails("doctor", "--no-network")
    assert "take a distribution with glibc 2.99 or newer" in error


@pytest.mark.parametrize("unpacked", [True, False])
def test_forbidden_namespaces_are_named(clone: Clone, unpacked: bool) -> None:
    """In a user namespace whose limit is none, as on a machine whose administrator allows none."""
    if not unpacked:
        (clone.cache / "build-roots").unlink()
    script = 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"'
    inside = ["unshare", "--user", "--map-root-user", "sh", "-c", script, "-"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine lets nobody make a user namespace")
    result = subprocess.run(
        [*inside, *clone.command("doctor", "--no-network", "--json")],
        env=clone.environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    findings = {finding["subject"]: finding for finding in json.loads(result.stdout)["findings"]}
    found = findings["user namespaces"]
    assert found["level"] == "problem" and "max_user_namespaces" in found["remedy"], found
    assert "max_user_namespaces is 0" in found["detail"], found


def test_unreachable_index_is_named(clone: Clone) -> None:
    clone.env |= {
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_RETRIES": "0",
    }
    clone.env |= {"PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": "", "PIP_TIMEOUT": "2", "no_proxy": "*"}
    error = clone.fails("doctor")
    assert "pip reaches its index" in error and "pip config list" in error
