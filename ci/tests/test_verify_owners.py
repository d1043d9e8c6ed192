"""Files of two packages, which would overwrite each other, are found in the channel itself."""

from __future__ import annotations

from scratch_clone import Clone
from test_verify import findings, verify


def test_file_of_two_packages(clone: Clone) -> None:
    """A finding where both can be installed together, and none where they exclude each other."""
    same = ["mkdir -p $PREFIX/share", "echo x > $PREFIX/share/same"]
    clone.recipe("a", script=same)
    clone.recipe("b", script=same)
    clone.built()
    state = clone.published()
    result = clone.run("channel", "verify")
    assert result.returncode == 1 and "both install share/same" in result.stderr
    found = findings(verify(clone), "two packages")
    assert len(found) == 1 and "linux-64/a-1.0-" in found[0] and "linux-64/b-1.0-" in found[0]
    assert clone.published() == state
    clone.recipe("b", script=same, extra={"requirements": {"run": [], "run_constraints": ["a <0a0"]}})
    clone.built()
    assert not findings(verify(clone), "two packages")
