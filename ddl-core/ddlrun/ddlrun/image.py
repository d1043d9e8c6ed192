"""The image that ddlrun runs in, if any, and how processes on other hosts get into the same one.

Singularity and Apptainer tell a container where its image is, and the places (not the sources) of what is
bound into it. Another host enters it by the same command; where that does not do (`--bind /a:/b`,
`--containall`, `--unsquash`), DDL_IMAGE_OPTIONS says how.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import Code, LaunchError
from .processes import run_bounded

#: The program that enters images, by name or path, and words for it behind `exec`.
PROGRAM_VARIABLE = "DDL_IMAGE_PROGRAM"
OPTIONS_VARIABLE = "DDL_IMAGE_OPTIONS"
PROGRAMS = ("apptainer", "singularity")
_RUNTIMES = (("APPTAINER", "apptainer"), ("SINGULARITY", "singularity"))
_DRIVER_LIBRARIES = Path("/.singularity.d/libs")
_DRIVER_DEVICE = Path("/dev/nvidiactl")
_LOOK_SECONDS = 60.0
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:./-]+")
#: By these a site's MPI takes the place of the image's.
_SITE_MPI = ("LD_PRELOAD", "LD_LIBRARY_PATH", "OPAL_PREFIX", "PMIX_PREFIX", "PRTE_PREFIX")


@dataclass(frozen=True)
class Image:
    """path: of the image, as all hosts see it. program: that enters it. options: words for `exec`. search:
    folders for the program besides the other host's own PATH.
    """

    path: str
    program: str
    options: tuple[str, ...] = ()
    search: str = ""

    def exec_command(self) -> list[str]:
        """The words before a command that is to run in the image."""
        return [self.program, "exec", *self.options, self.path]

    def plain_words(self) -> list[str]:
        """The same for where no shell looks for the program."""
        if "/" in self.program or not self.search:
            return self.exec_command()
        return ["/usr/bin/env", f"PATH={self.search}", *self.exec_command()]


def binds(variables: Mapping[str, str], prefix: str) -> list[str]:
    """What a list of binds in the environment says; inside of a container: their places."""
    names = (f"{prefix}_BIND", f"{prefix}_BINDPATH")
    return [piece for name in names for piece in variables.get(name, "").split(",") if piece]


def _is_below(path: str, places: Sequence[str]) -> bool:
    return any(path == place or path.startswith(place.rstrip("/") + "/") for place in places)


def current(environment: Mapping[str, str] = os.environ, folder: str | None = None) -> Image | None:
    """The image around this process. folder: the working one, which every host is to see; None: the current
    one.
    """
    for prefix, program in _RUNTIMES:
        path = environment.get(f"{prefix}_CONTAINER", "")
        if not path:
            continue
        places = binds(environment, prefix)
        working_folder = os.getcwd() if folder is None else folder
        options = _more(environment)
        if options is None:
            options = [word for place in places for word in ("--bind", place)]
        # The runtime binds the folder that it is started in, which is another one where ssh starts it.
        if _PLAIN.fullmatch(working_folder) and not _is_below(working_folder, places):
            options += ["--bind", working_folder]
        for name in _SITE_MPI:
            value = environment.get(name, "")
            if _PLAIN.fullmatch(value) and value not in (sys.prefix, str(_DRIVER_LIBRARIES)):
                options += ["--env", f"{name}={value}"]
        if "--nv" not in options and any(_DRIVER_LIBRARIES.glob("libcuda.so*")):
            options.append("--nv")
        program_override = environment.get(PROGRAM_VARIABLE)
        return Image(path, program_override or program, tuple(options), environment.get("USER_PATH", ""))
    return None


def _more(environment: Mapping[str, str]) -> list[str] | None:
    """The user's own words for `exec`; None where nothing was said."""
    text = environment.get(OPTIONS_VARIABLE)
    try:
        return None if text is None else shlex.split(text)
    except ValueError as error:
        raise LaunchError(
            Code.USAGE,
            f"{OPTIONS_VARIABLE}={text!r} cannot be read: {error}",
            "in the environment",
            "close the quotes",
            exit_code=2,
        ) from None


def chosen(path: str, more: Sequence[str], environment: Mapping[str, str] = os.environ) -> Image:
    """The image of -image, for this host. more: the words of -imagearg. Raises LaunchError where it cannot be
    entered.
    """
    around = current(environment)
    if around is not None:
        raise LaunchError(
            Code.NESTED,
            f"-image {path}: ddlrun runs in the image {around.path} already",
            "on the command line",
            "leave -image out, or start ddlrun outside of the image",
        )
    if not os.path.exists(path):
        raise LaunchError(
            Code.IMAGE,
            f"there is no image {path}",
            "in -image",
            "give its path on a file system that all hosts see",
        )
    program_override = environment.get(PROGRAM_VARIABLE)
    names = (program_override,) if program_override else PROGRAMS
    search = environment.get("PATH")
    program = next(filter(None, (shutil.which(name, path=search) for name in names)), None)
    if program is None:
        raise LaunchError(
            Code.IMAGE,
            f"{' and '.join(names)} {'were' if len(names) > 1 else 'was'} not found",
            "on PATH",
            f"load the module that brings Apptainer, or set {PROGRAM_VARIABLE} to the path of its program",
        )
    surrounding_binds = next(
        (listing for prefix, _ in _RUNTIMES if (listing := binds(environment, prefix))), []
    )
    options = [*(word for bind in surrounding_binds for word in ("--bind", bind)), *more]
    if _DRIVER_DEVICE.exists() and "--nv" not in options:
        options.append("--nv")
    return Image(os.path.abspath(path), os.path.abspath(program), tuple(options))


def inside(
    image: Image, arguments: Sequence[str], environment: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """The command that runs ddlrun of the image with these arguments, and its environment."""
    variables = {
        **environment,
        PROGRAM_VARIABLE: image.program,
        OPTIONS_VARIABLE: shlex.join(image.options),
    }
    return [*image.exec_command(), "ddlrun", *arguments], variables


def require_fit(image: Image, version_text: str) -> None:
    """Look into the image, before a scheduler starts ranks that enter it one by one: it must have the DDL and
    the MPI of here, which is what `ddlrun -version` says outside. Raises LaunchError.
    """
    where = f"in {image.path}"
    try:
        done = run_bounded([*image.exec_command(), "ddlrun", "-version"], "", _LOOK_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(
            Code.IMAGE,
            f"the image cannot be entered: {error}",
            where,
            f"try: {shlex.join(image.exec_command())} true",
        ) from None
    inside = done.stdout.splitlines()
    if done.returncode or len(inside) < 2:
        last = " / ".join(done.stderr.strip().splitlines()[-2:])[-300:]
        raise LaunchError(
            Code.IMAGE,
            f"ddlrun does not run in the image: {last}",
            where,
            "use an image that `wmlce image build` made, or install the package ddl in it",
        )
    outside = version_text.splitlines()
    for code, theirs, ours in zip((Code.DDL, Code.MPI), inside, outside, strict=False):
        if theirs != ours:
            raise LaunchError(
                code,
                f"{theirs} is in the image, and {ours} here",
                where,
                "leave -launcher out, which starts the image's own ddlrun, or use an image of this release",
            )
