"""ddl.predict of the environment under test, whose Python is not the tests' own."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# One question a line, one answer a line.
_PROGRAM = """
import json, os, sys
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # whatever else prints
import ddl
for line in sys.stdin:
    try:
        answer = {"result": ddl.predict(**json.loads(line))}
    except ddl.DDLError as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), file=answers, flush=True)
"""
_SECONDS = 60.0


class PredictionError(Exception):
    """The text of a DDLError."""


class PredictionProcess:
    """A process that answers questions until it is closed."""

    def __init__(self, python: Path) -> None:
        self._process = subprocess.Popen(
            [str(python), "-c", _PROGRAM],
            env={**os.environ, "DDL_AUTO_INIT": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(
        self,
        cluster: str | Path | Mapping[str, Any],
        bytes: int = 0,
        ranks: Sequence[int] = (),
        steps: str | Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """As ddl.predict. Raises PredictionError for a DDLError."""
        question = {
            "cluster": str(cluster) if isinstance(cluster, Path) else cluster,
            "bytes": bytes,
            "ranks": list(ranks),
            "steps": steps,
        }
        process = self._process
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps(question) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], _SECONDS)
        assert ready, f"no answer within {_SECONDS:g} s to {question}"
        line = process.stdout.readline()
        assert line, f"it ended with {process.wait(10)} at {question}"
        answer = json.loads(line)
        if "error" in answer:
            raise PredictionError(answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        assert self._process.wait(30) == 0
