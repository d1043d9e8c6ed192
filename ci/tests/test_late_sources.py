"""Sources of what can only be built after Python are fetched while that is built."""

from __future__ import annotations

import hashlib
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from package_index import Index, serving
from scratch_clone import LIMIT_S, Clone


@pytest.fixture
def index(clone: Clone, tmp_path: Path) -> Iterator[Index]:
    """Has the archive that the recipe `late` is built from, which needs a `python`."""
    links = tmp_path / "links"
    links.mkdir()
    archive = links / "late-1.0.tar.gz"
    archive.write_bytes(b"what the recipe copies")
    clone.recipe("python")
    source = {"path": f"../../build/sources/{archive.name}", "file_name": "copied"}
    clone.recipe(
        "late",
        run=["python"],
        source=[source],
        script=["mkdir -p $PREFIX/share", "cp copied $PREFIX/share/late"],
    )
    entry = {
        **{"recipes": ["late"], "kind": "python", "origin": "pypi", "package": "late", "version": "1.0"},
        "files": [{"name": archive.name, "sha256": hashlib.sha256(archive.read_bytes()).hexdigest()}],
    }
    clone.write("recipes/sources.lock.yaml", yaml.safe_dump([entry]))
    with serving(links) as served:
        clone.env |= {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": served.url, "PIP_EXTRA_INDEX_URL": ""}
        yield served


def until(process: subprocess.Popen[str], words: str) -> str:
    """What the process said, up to a line with these words."""
    assert process.stderr is not None
    said: list[str] = []
    limit = threading.Timer(LIMIT_S, process.kill)
    limit.start()
    try:
        for line in process.stderr:
            said.append(line)
            if words in line:
                return "".join(said)
    finally:
        limit.cancel()
    raise AssertionError(f"it never said {words!r}: {''.join(said)}")


def asked_for_the_file(index: Index) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not any("files/" in path for path in index.asked):
        assert time.monotonic() < deadline, index.asked
        time.sleep(0.05)


def test_python_is_built_while_the_wheels_arrive(clone: Clone, index: Index) -> None:
    index.open.clear()
    process = clone.start("channel", "build")
    until(process, "built    python")
    asked_for_the_file(index)
    assert not list(clone.cache.glob("sources/*/late-1.0.tar.gz"))
    index.open.set()
    _, rest = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0 and re.search(r"built +late", rest), rest


def test_a_file_that_another_recipe_needs_at_once(clone: Clone, index: Index) -> None:
    source = {"path": "../../build/sources/late-1.0.tar.gz", "file_name": "copied"}
    clone.recipe("early", source=[source])
    clone.recipe("python", run=["early"])
    assert clone.built() == {"early", "python", "late"}


def test_a_wheel_that_the_index_lacks(clone: Clone, index: Index) -> None:
    archive = index.folder / "late-1.0.tar.gz"
    away = archive.rename(index.folder.parent / "away")
    error = clone.fails("channel", "build")
    assert "the source late-1.0.tar.gz of recipe 'late' is unavailable" in error, error
    away.rename(archive)
    assert clone.built() == {"late"}, "what was built meanwhile was not kept"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_while_the_wheels_arrive(clone: Clone, index: Index, number: signal.Signals) -> None:
    index.open.clear()
    process = clone.start("channel", "build")
    until(process, "built    python")
    asked_for_the_file(index)
    process.send_signal(number)
    process.communicate(timeout=LIMIT_S / 2)  # the index itself waits longer than that
    assert process.returncode != 0
    clients = [
        words
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if str(clone.cache) in (words := _text(path)) and "index_client" in words
    ]
    assert not clients
    index.open.set()
    assert clone.built() == {"late"}


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # it has ended
        return ""
