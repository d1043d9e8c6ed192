"""How the probe gets to a host and its answer back: by ssh, by a step of Slurm, in an image or not.

The answer stands between marks that nobody else can write: banners and messages of remote shells do not
matter.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..environment import Environment
from ..image import Image
from ..processes import run_bounded


@dataclass(frozen=True)
class VisibleGpus:
    """CUDA_VISIBLE_DEVICES as the user gave it. everywhere: on all hosts, whatever their own environment
    says.
    """

    text: str
    everywhere: bool

    def shell(self) -> str:
        """Shell words that set it on a host."""
        value = shlex.quote(self.text)
        value = value if self.everywhere else f"${{CUDA_VISIBLE_DEVICES-{value}}}"
        return f"CUDA_VISIBLE_DEVICES={value}; export CUDA_VISIBLE_DEVICES"


def visible_gpus(settings: Sequence[str], environment: Mapping[str, str]) -> VisibleGpus | None:
    """What counts on hosts. settings: of -x, `NAME=VALUE` or `NAME`.

    A list of numbers that is set here counts on hosts that have none of their own; names of GPUs mean nothing
    elsewhere.
    """
    current = environment.get("CUDA_VISIBLE_DEVICES")
    for text in reversed(settings):
        name, equals, value = text.partition("=")
        if name == "CUDA_VISIBLE_DEVICES":
            return VisibleGpus(value if equals else current or "", everywhere=True)
    if current is None or not re.fullmatch(r"[0-9, -]*", current):
        return None
    return VisibleGpus(current, everywhere=False)


@dataclass(frozen=True)
class ProbeSettings:
    """What the ranks will have, as far as the probe needs it too.

    Attributes:
        library_path: Their LD_LIBRARY_PATH; None: none.
        visible: The GPUs that the user names.
        folder: The folder that they start in (-wdir).
    """

    library_path: str | None = None
    visible: VisibleGpus | None = None
    folder: str | None = None

    def shell(self) -> str:
        """Shell words that set it on a host."""
        commands = ["unset LD_LIBRARY_PATH"]
        if self.library_path is not None:
            commands = [f"LD_LIBRARY_PATH={shlex.quote(self.library_path)}; export LD_LIBRARY_PATH"]
        if self.visible is not None:
            commands.append(self.visible.shell())
        if self.folder is not None:
            commands.append(f"DDLRUN_FOLDER={shlex.quote(self.folder)}; export DDLRUN_FOLDER")
        return "; ".join(commands)


_NONE = ProbeSettings()
#: So many other hosts each one is asked the way to.
PEERS = 3
NO_IMAGE, NO_PROGRAM = '"image"', '"program"'


def _mark(nonce: str) -> str:
    return f"@@ddlrun:{nonce}@@"


def places(environment: Environment) -> tuple[str, str, str]:
    return str(environment.prefix), str(environment.package), str(environment.mpirun)


def local_script(
    environment: Environment,
    nonce: str,
    peers: Sequence[str],
    settings: ProbeSettings = _NONE,
) -> str:
    """What /bin/sh does on a host: the probe, whose text comes on standard input, or the answer that there is
    no environment.

    The answer's mark is put together there: a remote shell that echoes its commands does not repeat it.
    """
    quoted_peers = " ".join(map(shlex.quote, peers))
    return _script_of_words(environment, shlex.quote(nonce), quoted_peers, settings)


def _script_of_words(environment: Environment, nonce: str, peers: str, settings: ProbeSettings) -> str:
    """The same, of words as the shell has them."""
    python = shlex.quote(str(environment.python))
    arguments = " ".join(map(shlex.quote, places(environment)))
    return (
        f"if test -x {python}; then {settings.shell()}; exec {python} -I -S - {nonce} {arguments} {peers}; "
        f"else {_say('null', nonce)}; fi"
    )


def _say(answer: str, nonce: str) -> str:
    """Shell words that give an answer."""
    return f"printf '\\n@@%s:%s@@%s@@%s:%s@@\\n' ddlrun {nonce} '{answer}' ddlrun {nonce}"


def _script_by_image(image: Image, script: str, nonce: str) -> str:
    """What /bin/sh does on another host: the script in the image there, or the answer what is missing."""
    search = f"PATH=$PATH:{shlex.quote(image.search)}; " if image.search else ""
    return (
        f"{search}if ! test -e {shlex.quote(image.path)}; then {_say(NO_IMAGE, nonce)}; "
        f"elif ! command -v {shlex.quote(image.program)} >/dev/null 2>&1; then {_say(NO_PROGRAM, nonce)}; "
        f"else exec {shlex.join([*image.exec_command(), '/bin/sh', '-c', script])}; fi"
    )


def remote_command(
    host: str,
    environment: Environment,
    nonce: str,
    peers: Sequence[str] = (),
    settings: ProbeSettings = _NONE,
) -> list[str]:
    """The line of the remote shell that runs the probe on a host."""
    script = local_script(environment, nonce, peers, settings)
    if environment.image:
        script = _script_by_image(environment.image, script, nonce)
    # The login shell may be any: what it sees is one quoted word for /bin/sh.
    return environment.remote_shell.command(host, f"/bin/sh -c {shlex.quote(script)}")


def read_answer(output: str, nonce: str) -> Any:
    """What the probe printed between its marks, whatever surrounds it. Raises ValueError when there is
    nothing.
    """
    mark = _mark(nonce)
    match = re.search(re.escape(mark) + "(.*?)" + re.escape(mark), output, re.DOTALL)
    if not match:
        raise ValueError("no answer")
    return json.loads(match[1])


def answer_of(
    host: str, environment: Environment, source: str, arguments: Sequence[str], nonce: str, seconds: float
) -> Any:
    """What a Python program, given as its text, answers on another host, between the marks of the nonce.

    Raises OSError, ValueError when there is no answer, subprocess.TimeoutExpired after so many seconds.
    """
    line = [str(environment.python), "-I", "-S", "-", *arguments]
    if environment.image:
        line = [*environment.image.plain_words(), *line]
    done = run_bounded(environment.remote_shell.command(host, f"exec {shlex.join(line)}"), source, seconds)
    return read_answer(done.stdout, nonce)


def step_command(
    hosts: Sequence[str],
    environment: Environment,
    nonce: str,
    peers: Sequence[str] = (),
    settings: ProbeSettings = _NONE,
) -> list[str]:
    """The step of Slurm that runs the probe on all these hosts of the job around, also where ssh is closed.
    Each answers with the nonce NAME.NONCE, by its name in Slurm.
    """
    # A host asks the way to the first others.
    others = " ".join(map(shlex.quote, peers[: PEERS + 1]))
    choose = f'set --; for h in {others}; do test "$h" = "$SLURMD_NODENAME" || set -- "$@" "$h"; done; '
    script = choose + _script_of_words(environment, f'"$SLURMD_NODENAME".{nonce}', '"$@"', settings)
    count = str(len(hosts))
    command = ["srun", "--overlap", "--mpi=none", "--cpu-bind=none", "--export=ALL", "-N", count, "-n", count]
    command += ["--ntasks-per-node=1", f"--nodelist={','.join(hosts)}", "--input=all"]
    return [*command, "/bin/sh", "-c", script]
