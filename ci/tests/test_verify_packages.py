"""Each package's own test: on record for exactly its file, and run again."""

from __future__ import annotations

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


def test_one_that_passes_only_where_it_was_built(clone: Clone) -> None:
    """Its test looks at a file of the build; beside it, one whose test is its own."""
    clone.recipe("bound", test=["grep -q recipe.yaml /build/job.json"])
    clone.recipe("free", test=["test -f $PREFIX/share/free"])
    clone.built()
    document = verify(clone, "--run-tests")
    check = check_of(document, "tests run again")
    [file] = (clone.root / "build/channel").glob("linux-64/bound-*.conda")
    [finding] = check["findings"]
    assert finding.startswith(
        f"linux-64/{file.name}: its test failed: grep -q recipe.yaml /build/job.json ended with exit code "
    )
    assert sorted(bool(found) for found in check["parts"].values()) == [False, True]
    assert check_of(document, "each package's test")["ok"]
