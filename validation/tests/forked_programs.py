"""Programs of Python in forks of a process that has imported TensorFlow already, which takes most of the time
of a short one. What a fork runs is what `python -c` or `python -m` would run, but for that import.

The process forks before TensorFlow has started a thread or a device; each fork starts its own.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_SERVER = """
import ctypes, gc, json, os, sys
import keras, numpy, sklearn.datasets, tensorflow

def end_with_parent():
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL

end_with_parent()
answers = os.fdopen(os.dup(1), "w")
gc.freeze()
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if not child:
        break
    print(json.dumps({"pid": child}), file=answers, flush=True)
    print(json.dumps({"rc": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}), file=answers, flush=True)
else:
    sys.exit()
end_with_parent()
os.setsid()
answers.close()
for target, path in ((0, os.devnull), (1, asked["out"]), (2, asked["err"])):
    file = os.open(path, os.O_RDONLY if target == 0 else os.O_WRONLY)
    os.dup2(file, target)
    os.close(file)
sys.stdin = os.fdopen(0, closefd=False)
os.environ.clear()
os.environ.update(asked["environment"])
numpy.random.seed()
sys.argv[1:] = asked["arguments"]
if "module" in asked:
    import runpy
    runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)
else:
    exec(compile(asked["code"], "<string>", "exec"), {"__name__": "__main__"})
"""
_START_SECONDS = 300.0


class ForkServer:
    """Runs programs of one interpreter, one at a time. It starts with the first of them, and ends with the
    process that made it, or by close().
    """

    def __init__(self, python: Path) -> None:
        self._python = python
        self._started: subprocess.Popen[bytes] | None = None

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], timeout: float, **what: str
    ) -> tuple[int, str, str]:
        """The exit code, output and errors of what="code" or "module".

        Args:
            arguments: sys.argv without its first.
            environment: All variables. What TensorFlow reads at its import are those of the first program.

        Raises:
            TimeoutError: It took longer than `timeout` seconds, and was ended.
        """
        if not self._started:
            self._started = subprocess.Popen(
                [str(self._python), "-c", _SERVER],
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
            request = {**what, "arguments": list(arguments), "environment": dict(environment)}
            request |= {"out": out.name, "err": err.name}
            assert self._started.stdin
            self._started.stdin.write(json.dumps(request).encode() + b"\n")
            self._started.stdin.flush()
            child = self._answer(_START_SECONDS)["pid"]
            try:
                ended = self._answer(timeout)
            except TimeoutError:
                os.killpg(child, signal.SIGKILL)
                self._answer(_START_SECONDS)
                raise TimeoutError(
                    f"ended after {timeout} s:\n{out.read()[-2000:]}\n{err.read()[-2000:]}"
                ) from None
            return ended["rc"], out.read(), err.read()

    def _answer(self, timeout: float) -> dict[str, Any]:
        assert self._started and self._started.stdout
        if not select.select([self._started.stdout], [], [], timeout)[0]:
            raise TimeoutError(f"no answer within {timeout} s")
        # one line, and not more: what a buffer holds, select does not see
        line = b""
        while not line.endswith(b"\n"):
            read = os.read(self._started.stdout.fileno(), 1)
            assert read, f"the process that forks has ended with {self._started.wait()}"
            line += read
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """Ends it."""
        if self._started:
            with self._started as server:
                assert server.stdin
                server.stdin.close()
                try:
                    server.wait(30)
                finally:
                    server.kill()
