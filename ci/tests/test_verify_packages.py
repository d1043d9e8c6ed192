"""Each package's own test: on record for exactly its file, and run again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scratch_clone import Clone
from test_verify import verify
from test_verify_state import layout_of
from wmlce.channel.verify import package_tests


def check_of(document: dict[str, Any], name: str) -> dict[str, Any]:
    [found] = [check for check in document["checks"] if check["name"] == name]
    return dict(found)


def test_recorded_when_built(clone: Clone) -> None:
    clone.recipe("tested", test=["test -f $PREFIX/share/tested"])
    clone.recipe("bare", extra={"tests": []})
    clone.built()
    check = check_of(verify(clone), "each package's test")
    assert check["summary"] == "1 of 2 packages passed theirs when built"
    assert check["notes"] == ["1 packages have no test: bare"]
    assert len(check["parts"]) == 2
    # another cache knows nothing of these files
    clone.cache.rename(clone.cache.with_name("lost"))
    check = package_tests.recorded(layout_of(clone), clone.root / "build/channel")
    assert any("2 packages were not built with this cache" in note for note in check.notes)


def test_run_again(library_and_program: Clone) -> None:
    """In a fresh environment in the build root; a package of another content fails by its own test."""
    clone = library_and_program
    clone.recipe("picky", test=["test -f $PREFIX/share/picky", "! test -e /nowhere"])
    clone.built()
    check = check_of(verify(clone, "--run-tests", "program", "picky"), "tests run again")
    assert check["summary"] == "2 tests of 2 packages" and check["ok"]
    assert "has no package absent" in clone.fails("channel", "verify", "--run-tests", "absent")


def test_a_test_that_fails_now(clone: Clone, tmp_path: Path) -> None:
    """One that passed at the time, because of something that has changed since then: a file that it shares
    with the channel's other package of that name.
    """
    clone.recipe("data", script=["mkdir -p $PREFIX/share", "echo 1 > $PREFIX/share/data"])
    clone.recipe("user", run=["data"], test=["test $(cat $PREFIX/share/data) = 1"])
    clone.built()
    folder = clone.root / "build/channel"
    [user] = folder.glob("linux-64/user-*.conda")
    kept = user.read_bytes()
    # the same package beside newer data, in a channel that was put together by hand
    clone.recipe(
        "data",
        script=["mkdir -p $PREFIX/share", "echo 2 > $PREFIX/share/data"],
        extra={"build": {"number": 1}},
    )
    clone.built("data")
    (folder / "linux-64" / user.name).unlink(missing_ok=True)
    (folder / "linux-64" / user.name).write_bytes(kept)
    clone.ok("channel", "index")
    check = check_of(verify(clone, "--run-tests", "user"), "tests run again")
    [finding] = check["findings"]
    assert finding.startswith(f"linux-64/{user.name}: its test failed: ")
