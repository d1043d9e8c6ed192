"""How mpirun starts its daemon on another host."""

import re
import shlex
from pathlib import Path

from ..environment import Environment

_PROGRAM = Path(__file__).absolute().with_name("host_agent.py")
# A blank for a remote shell, of sh's or csh's kind, without one.
_BLANK = "\"`printf\t'\\040'`\""


def launch_agent(environment: Environment, job: str) -> str:
    """mpirun's words for starting its daemon on another host, so that nothing of the job outlives the daemon.

    mpirun cuts them at blanks, puts them together again, and a remote shell reads the line.
    """
    command = [str(environment.python), "-I", "-S", str(_PROGRAM), job, "prted"]
    if environment.image:
        command = [*environment.image.plain_words(), *command]
    return " ".join(_quoted(word) for word in command)


def _quoted(word: str) -> str:
    """A word for a remote shell, without blanks."""
    if not word:
        return "''"
    return "".join(_BLANK if part == " " else shlex.quote(part) for part in re.split("( )", word) if part)
