"""What of a build's or a test's log says why it failed."""

from __future__ import annotations

import re
from collections.abc import Sequence

_STAMP = re.compile(r"^\[ *[0-9.]+\] ?")
_FAILED = re.compile(r"(?:ERROR )?Script failed(?: with status (?P<code>-?[0-9]+))?")
_BEGINS = ("Successfully updated the ", "Testing commands:", "Collecting tests")
_NOISE = (
    *("│", "╰", "╭", "╞", "✔", "Adding ", "Successfully ", "Writing repodata", "To run ", "cd "),
    *("Work directory", "Prefix:", "Build prefix:", "Script execution failed"),
)
# The builder writes the folder of the sources as $SRC_DIR also where another's path goes on from it.
_TEST_PREFIX = "$SRC_DIR_run_env"
_SHOWN = 12
_WIDTH = 200


def log_excerpt(lines: Sequence[str]) -> list[str]:
    """The command that failed, as the shell's trace names it, and what was printed last before; of a failure
    that is of no script, what the builder calls errors.
    """
    named = [line.replace(_TEST_PREFIX, "$PREFIX") for line in lines]
    bare = [(line, _STAMP.sub("", line).strip()) for line in named]
    end = next((i for i, (_, text) in enumerate(bare) if _FAILED.match(text)), None)
    if end is None:
        errors = [i for i, (_, text) in enumerate(bare) if text.startswith("ERROR")]
        # the last one is the builder's own summary of the others
        return _shown(bare[errors[0] : errors[-1] if errors[1:] else None] if errors else bare)
    begin = max((i for i, (_, text) in enumerate(bare[:end]) if any(b in text for b in _BEGINS)), default=-1)
    output = bare[begin + 1 : end]
    commands = [i for i, (_, text) in enumerate(output) if text.startswith("+ ")]
    if not commands:
        return _shown(output)
    command = output.pop(commands[-1])[1].removeprefix("+ ")[:_WIDTH]
    failure = _FAILED.match(bare[end][1])
    how = f"ended with exit code {failure['code']}" if failure and failure["code"] else "failed"
    return [f"{command} {how}", *_shown(output)]


def _shown(bare: Sequence[tuple[str, str]]) -> list[str]:
    useful = [line for line, text in bare if text and not text.startswith(_NOISE)]
    return [line[:_WIDTH] for line in useful[-_SHOWN:]]
