"""Killed runs, several runs at once, damaged leftovers: nothing half-written is ever taken for built."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from scratch_clone import Clone

STEP_S = 60.0


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + STEP_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {STEP_S} s for {what}"
        time.sleep(0.05)


def line_of(process: subprocess.Popen[str], words: str) -> str:
    """The next line of its standard error that has these words; the lines before are gone."""
    assert process.stderr
    limit = threading.Timer(STEP_S, process.kill)
    limit.start()
    try:
        for line in process.stderr:
            if words in line:
                return line
    finally:
        limit.cancel()
    raise AssertionError(f"ended, or took more than {STEP_S} s, without saying {words!r}")


class Gate:
    """Where the script of a recipe waits: for a file in the build's own folder for temporary files, which it
    marks, as builds of other clones work in memory, too.
    """

    def __init__(self, clone: Clone) -> None:
        self.mark = f"gate-{uuid.uuid4().hex}"
        self.parents = (clone.root / "build/work", Path(f"/dev/shm/wmlce-{os.getuid()}"))

    def folders(self) -> list[Path]:
        """Of builds that have come to it."""
        return [mark.parent for parent in self.parents for mark in parent.glob(f"*/tmp/{self.mark}")]

    def touch(self) -> None:
        """Let it go on, this time and the next ones."""
        threading.Thread(target=self._keep_open, daemon=True).start()

    def _keep_open(self) -> None:
        end = time.monotonic() + 2 * STEP_S
        while time.monotonic() < end:
            for folder in self.folders():
                try:
                    (folder / "open").touch()
                except FileNotFoundError:
                    pass  # the build has ended
            time.sleep(0.05)


def gate(clone: Clone) -> Gate:
    """Recipes `first` and `slow`; slow's script says where it is and then waits at the gate."""
    gate = Gate(clone)
    clone.recipe("first")
    clone.recipe(
        "slow",
        host=["first"],
        script=[
            f"touch /tmp/{gate.mark}",
            "echo waiting at the gate",
            "for i in $(seq 1200); do test -e /tmp/open && break; sleep 0.1; done",
            "mkdir -p $PREFIX/share",
            "echo done > $PREFIX/share/slow",
        ],
    )
    return gate


def at_the_gate(clone: Clone) -> bool:
    log = clone.root / "build/logs/slow.log"
    # the script's own trace also holds the words, after a plus sign
    return log.is_file() and any(
        line.endswith("waiting at the gate") and "echo" not in line for line in log.read_text().splitlines()
    )


def descendants_gone(processes: list[psutil.Process]) -> bool:
    return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)


@pytest.mark.parametrize("memory", [None, "0"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_killed_run_goes_on_where_it_was(clone: Clone, number: signal.Signals, memory: str | None) -> None:
    """Whether builds work in memory, as far as there is enough here, or on the disk."""
    if memory is not None:
        clone.env["WMLCE_BUILD_MEMORY_MB"] = memory
    opened = gate(clone)
    process = clone.start("channel", "build", "--jobs", "1")
    wait_for(lambda: at_the_gate(clone), "the build")
    family = psutil.Process(process.pid).children(recursive=True)
    assert family
    process.send_signal(number)
    _, said = process.communicate(timeout=STEP_S)
    assert process.returncode != 0
    assert "Traceback" not in said
    if number != signal.SIGKILL:
        assert process.returncode == 130 and "the same command resumes from there" in said
    # the build's own processes end with it, even when it had no chance to end them
    wait_for(lambda: descendants_gone(family), "the end of the build's processes")
    assert not (clone.root / "build/channel").exists()
    # what was killed leaves its folder, until the next build of anybody here finds it
    assert number == signal.SIGKILL or not opened.folders()
    opened.touch()
    assert clone.built() == {"slow"}  # `first` was finished and is kept
    assert {name.split("-")[0] for name in clone.published()} == {"first", "slow"}
    assert not opened.folders()


def test_two_runs_in_one_clone_wait_for_each_other(clone: Clone, tmp_path: Path) -> None:
    opened = gate(clone)
    one = clone.start("channel", "build")
    wait_for(lambda: at_the_gate(clone), "the first run")
    two = clone.start("--json", "channel", "build")
    line_of(two, f"waiting for process {one.pid}")
    assert two.poll() is None and at_the_gate(clone)
    opened.touch()
    _, err_one = one.communicate(timeout=STEP_S)
    out_two, err_two = two.communicate(timeout=STEP_S)
    assert one.returncode == 0, err_one
    assert two.returncode == 0, err_two
    assert '"built": 0' in out_two


def test_two_clones_share_one_cache(library_and_program: Clone, tmp_path: Path) -> None:
    """Both build the same packages at once: each is built by one of them, and both channels are whole."""
    one = library_and_program
    for number in range(3):
        one.recipe(f"extra{number}", host=["libanswer"], script=["sleep 1", "mkdir -p $PREFIX/share/x"])
    two = Clone(tmp_path / "two", one.cache)
    subprocess.run(["cp", "-r", one.root / "recipes", one.root / "program", two.root], check=True)
    runs = [one.start("--json", "channel", "build"), two.start("--json", "channel", "build")]
    texts = []
    for run in runs:
        out, err = run.communicate(timeout=2 * STEP_S)
        assert run.returncode == 0, err
        texts.append(out)
    assert one.published() == two.published() and len(one.published()) == 5
    built = sum(text.count('"built": true') for text in texts)
    assert built == 5
    for clone in (one, two):
        assert clone.run("channel", "verify").returncode == 0


def test_leftovers_of_a_lock_mean_nothing(clone: Clone) -> None:
    clone.recipe("a")
    lock = clone.write("build/locks/channel.lock", "999999999 and rubbish\0\n")
    assert clone.built() == {"a"}
    lock.unlink()
    lock.mkdir()
    error = clone.fails("channel", "build")
    assert "not a plain file" in error and str(lock) in error


def test_damaged_cache_entries_are_built_again(clone: Clone) -> None:
    clone.recipe("a")
    clone.recipe("b", host=["a"])
    clone.built()
    package = next((clone.cache / "packages/linux-64").glob("a-*.conda"))
    package.write_bytes(package.read_bytes()[:-10])
    assert clone.built() == {"a"}
    manifest = next((clone.cache / "packages/finished/b").glob("*.json"))
    manifest.write_text("{ half")
    assert clone.built() == {"b"}
    assert clone.run("channel", "verify").returncode == 0


def test_publication_that_was_cut_off(clone: Clone) -> None:
    clone.recipe("a")
    clone.built()
    build = clone.root / "build"
    names = clone.published()
    # killed between the two renames, where the file system knows no exchange
    (build / "channel").rename(build / ".channel-old")
    (build / ".channel-staging-x").mkdir()
    clone.ok("env", "create", "a")
    assert clone.published() == names
    clone.write("recipes/a/extra.txt", "new")
    clone.built()
    assert not (build / ".channel-old").exists() and not (build / ".channel-staging-x").exists()


def test_a_build_of_one_recipe_after_a_publication_that_was_cut_off(clone: Clone) -> None:
    clone.recipe("a")
    clone.recipe("b")
    clone.built()
    names = clone.published()
    (clone.root / "build/channel").rename(clone.root / "build/.channel-old")
    clone.ok("channel", "build", "a")
    assert clone.published() == names
    clone.ok("env", "create", "b")
