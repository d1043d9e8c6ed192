"""The command line. Every command ends with exit code 0, or 1 and one error that says what, where and the
remedy.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from wmlce import __version__
from wmlce.cli import (
    build_root,
    channel,
    dev,
    docs,
    doctor,
    env,
    image,
    installer,
    lock,
    module,
    recipe,
    release,
    source,
    update,
    validate,
)
from wmlce.cli.session import Context, Session
from wmlce.release import freshness, trust
from wmlce.sources import settings
from wmlce.util.errors import WmlceError
from wmlce.util.files import disk_errors

app = typer.Typer(
    help="Fetches, builds, tests, indexes, installs and verifies the conda channel of this distribution.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(source.app, name="source")
app.add_typer(lock.app, name="lock")
app.add_typer(recipe.app, name="recipe")
app.add_typer(build_root.app, name="build-root")
app.add_typer(channel.app, name="channel")
app.add_typer(env.app, name="env")
app.add_typer(module.app, name="module")
app.add_typer(image.app, name="image")
app.add_typer(installer.app, name="installer")
app.add_typer(release.app, name="release")
app.command("dev")(dev.dev_command)
app.command("docs")(docs.docs_command)
app.command("doctor")(doctor.doctor_command)
app.command("outdated")(update.outdated_command)
app.command("update")(update.update_command)
app.command("validate", context_settings=validate.SETTINGS)(validate.validate_command)


def _version(value: bool) -> None:
    if value:
        print(f"wmlce {__version__}")
        raise typer.Exit()


@app.callback()
def options(
    context: Context,
    root: Annotated[Path | None, typer.Option("--root", help="The clone to work on.", metavar="DIR")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress lines.")] = False,
    offline: Annotated[
        Path | None,
        typer.Option(
            "--offline",
            metavar="DIR",
            envvar=settings.OFFLINE,
            help="Take sources from this folder and from nowhere else: no apt and no pip is started.",
        ),
    ] = None,
    locked: Annotated[
        bool,
        typer.Option(
            "--locked",
            envvar=settings.LOCKED,
            help="Refuse a newer Debian revision where the locked one is gone.",
        ),
    ] = False,
    pytorch_index: Annotated[
        str | None,
        typer.Option(
            "--pytorch-index",
            metavar="URL",
            envvar=settings.PYTORCH_INDEX,
            help="PyTorch's CPU wheel index, for what pip does not find as it is set up.",
        ),
    ] = None,
    debian_mirror: Annotated[
        str | None,
        typer.Option(
            "--debian-mirror",
            metavar="URL",
            envvar=settings.MIRROR,
            help="A mirror of Debian, instead of that in this machine's apt sources.",
        ),
    ] = None,
    debian_keyring: Annotated[
        Path | None,
        typer.Option(
            "--debian-keyring",
            metavar="FILE",
            envvar=settings.KEYRING,
            help="OpenPGP keys that sign the mirror's lists, where it has its own.",
        ),
    ] = None,
    debian_snapshot: Annotated[
        str | None,
        typer.Option(
            "--debian-snapshot",
            metavar="URL",
            envvar=settings.SNAPSHOT,
            help="Debian's permanent snapshot archive, for revisions that mirrors no longer have.",
        ),
    ] = None,
    signers: Annotated[
        Path | None,
        typer.Option(
            "--require-signature",
            metavar="FILE",
            envvar=trust.VARIABLE,
            help="Install only from channels that a key of this allowed-signers file has signed.",
        ),
    ] = None,
    minimum: Annotated[
        str | None,
        typer.Option(
            "--minimum",
            metavar="VERSION",
            envvar=freshness.MINIMUM,
            help="Refuse signed channels and releases older than this; and take this one, though a newer one "
            "was there before.",
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of all commands."""
    settings.export(
        offline=offline,
        locked=locked,
        pytorch_index=pytorch_index,
        mirror=debian_mirror,
        keyring=debian_keyring,
        snapshot=debian_snapshot,
    )
    origin = context.get_parameter_source("signers")
    if origin is not None and origin.name == "COMMANDLINE":
        trust.export(signers)
    origin = context.get_parameter_source("minimum")
    if origin is not None and origin.name == "COMMANDLINE":
        if trust.required() is None and context.invoked_subcommand not in ("channel", "release"):
            raise typer.BadParameter(
                f"--minimum is about what is signed: add --require-signature FILE, or set {trust.VARIABLE}"
            )
        freshness.export(minimum)
    context.obj = Session(root, as_json, quiet)


def main() -> None:
    """Entry point of the command."""
    code = _run()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        code = code or 1
    # py-rattler's worker threads may still let go of Python objects, which aborts an interpreter that is
    # shutting down; everything that has to be finished or flushed is by now
    os._exit(code)


_FLAGS = ("--json", "--quiet", "--locked")
_WITH_VALUE = (
    *("--offline", "--pytorch-index", "--debian-mirror", "--debian-keyring", "--debian-snapshot"),
    *("--require-signature", "--minimum"),
)
_LOGIN = re.compile(r"https?://[^/?#\s]*@", re.IGNORECASE)


def _global_options_first(arguments: Sequence[str]) -> list[str]:
    """Global options are also understood behind the command, where people write them."""
    first: list[str] = []
    rest: list[str] = []
    remaining = iter(arguments)
    for word in remaining:
        if word == "--":
            rest += [word, *remaining]
        elif word in _FLAGS or word.startswith(tuple(f"{option}=" for option in _WITH_VALUE)):
            first.append(word)
        elif word in _WITH_VALUE:
            first += [word, *([value] if (value := next(remaining, None)) is not None else [])]
        else:
            rest.append(word)
    return [*first, *rest]


def _refuse_logins(arguments: Sequence[str]) -> None:
    """An error where the command line has a password or a token: every user of the machine sees it there, and
    what is written of it (a lock, a modulefile, a log) tells it to more.
    """
    if any(_LOGIN.search(word) for word in arguments):
        raise WmlceError(
            "an address on the command line has a user name, a password or a token in it, which every user "
            "of this machine can see",
            remedy="leave it out of the address, and write it into ~/.netrc (chmod 600), as a line `machine "
            f"HOST login USER password PASSWORD`; or set {settings.PYTORCH_INDEX}, {settings.MIRROR} or "
            f"{settings.SNAPSHOT} in place of the option",
        )


def _interrupted(number: int, _: object) -> None:
    """Stop like Ctrl-C: open files are closed, and scratch folders are removed."""
    raise KeyboardInterrupt(number)


def typable(text: str) -> str:
    """The same, with the path of the clone's own wmlce where the shell finds none by its name."""
    program = Path(__file__).resolve().parents[3] / "build/tools/bin/wmlce"
    if shutil.which("wmlce") or not program.exists():
        return text
    if program.is_relative_to(Path.cwd()):
        program = program.relative_to(Path.cwd())
    return re.sub(r"(?<![\w/.-])wmlce(?= [a-z])", lambda _: str(program), text)


def _run() -> int:
    """Run the command line; returns the exit code."""
    as_json = "--json" in sys.argv
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup's stays ignored
            signal.signal(number, _interrupted)
    sys.argv[1:] = _global_options_first(sys.argv[1:])
    try:
        with disk_errors("wmlce was at work"):
            _refuse_logins(sys.argv[1:])
            app(standalone_mode=True, prog_name="wmlce")
    except WmlceError as error:
        if as_json and not Session.answered:
            print(json.dumps({"error": error.to_json()}, indent=1))
        error.remedy = error.remedy and typable(error.remedy)
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; finished packages are kept, the same command resumes from there", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        # a defect of the tool: the traceback is what its report needs
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    main()
