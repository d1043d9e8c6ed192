"""A command within a limit of time, whatever it has started."""

import subprocess
from collections.abc import Mapping, Sequence

# For the last words of what was killed. A helper of it (ssh's ProxyCommand) may hold the pipes for longer.
_DRAIN_SECONDS = 0.5


def bounded_run(
    command: Sequence[str], text: str, seconds: float, environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a command with this text as its input. subprocess.run would, after the limit, still wait for all
    that hold the command's output open.

    Raises:
        OSError: It cannot be started.
        subprocess.TimeoutExpired: It was killed after so many seconds.
    """
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=None if environment is None else dict(environment),
        text=True,
        errors="replace",
    )
    try:
        out, err = child.communicate(text, timeout=seconds)
    except BaseException:
        child.kill()
        try:
            child.communicate(timeout=_DRAIN_SECONDS)
        except (subprocess.TimeoutExpired, ValueError):
            for pipe in (child.stdin, child.stdout, child.stderr):
                if pipe:
                    try:
                        pipe.close()
                    except OSError:
                        pass  # text that the command never read
            child.wait()
        raise
    return subprocess.CompletedProcess(command, child.returncode, out, err)
