"""The command line of ci/bare-machine."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout
from wmlce.util.locks import file_lock

from bare_machine import clone, copies, other_systems, settings
from bare_machine.mirrors import RELEASES, Mirrors, configured
from bare_machine.report import Passed, Report, record, table
from bare_machine.system import BareSystem, need_root
from bare_machine.trial import ORDINARY_USER, Conditions, Form, Result, Trial

LONG = [(release, user) for release in ("bookworm", "trixie") for user in ("root", ORDINARY_USER)]
SHORT = [("bookworm", ORDINARY_USER)]

_HELP = """\
Runs the project's own commands on a Debian that nobody has prepared: a minimal system from the machine's
mirror, an empty home, an empty cache, a fresh clone of HEAD. The system shares the machine's network and how
it reaches package archives (settings of pip and apt, proxies, certificates), and nothing else. It is gone
when the command ends.

  ci/bare-machine --short
      Debian 12, as an ordinary user: ./ci/quickstart must name what is missing; root installs exactly that;
      then python and ddl, with all that they need, are built from nothing, the other packages come from this
      machine's cache, and ./ci/quickstart trains. Left out when it has passed before with the same files.
  ci/bare-machine --long
      Debian 12 and 13, each as root and as an ordinary user: ./ci/quickstart with everything built from
      nothing, and ./ci/test. Takes hours; stopped, it goes on where it was. A trial that failed is kept in
      build/bare to be looked at, and goes on there. The table: build/report/bare-machine.md.
  ci/bare-machine --copies
      What this clone has built, on Debian 11 and 13, as an ordinary user without a network: in
      build/envs/powerai every framework trains at 2 ranks, and DDL's C++ tests pass. Needs what
      ./ci/test --quick makes.
  ci/bare-machine --systems
      Ubuntu, RHEL, SLES, Fedora, Arch and a container without namespaces, each as root and as an ordinary
      user: Debian's files with what makes the other system special to this project. ./ci/quickstart must say
      what is missing there; then a package is built from its Debian source, without apt, and ./ci/quickstart
      trains, with packages of this machine's cache. --only names one of: {systems}.
  ci/bare-machine --record
      Writes the last result of each of these into docs/reference/support.md.
  ci/bare-machine run bookworm -- ./ci/quickstart
      Any command, in a clone, as root.
  ci/bare-machine run trixie --user joe --package git --no-network -- bash
      A shell of an ordinary user on Debian 13 with git, without a network.
  ci/bare-machine run bullseye --no-clone --bind build/dist:/dist -- sh /dist/installer.sh --help
      A folder of this machine, seen read-only.

Needs root, mmdebstrap (installed if missing) and 20 GB of disk for each trial.
""".replace("{systems}", ", ".join(other_systems.SYSTEMS))
_PAGE = clone.ROOT / "docs/reference/support.md"


def _say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ci/bare-machine",
        usage="ci/bare-machine [--help] "
        "(--short | --long | --copies | --systems | --record | run RELEASE [OPTION]... -- COMMAND...)",
        description=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--short", action="store_true", help="the trial for continuous integration")
    parser.add_argument("--long", action="store_true", help="all trials, everything from nothing")
    parser.add_argument("--copies", action="store_true", help="what is built here, on other releases")
    parser.add_argument("--systems", action="store_true", help="other distributions, emulated")
    parser.add_argument("--record", action="store_true", help="their results into docs/reference/support.md")
    parser.add_argument(
        "--again", action="store_true", help="also what has passed before with the same files"
    )
    parser.add_argument(
        "--only",
        metavar="RELEASE[-USER]",
        help=f"of the trials only these, e.g. trixie, trixie-{ORDINARY_USER} or rhel-9",
    )
    parser.add_argument(
        "--test",
        metavar="COMMAND",
        default="./ci/test --quick",
        help="the second command (./ci/test --quick)",
    )
    parser.add_argument(
        "--uncommitted", action="store_true", help="the working tree as it is, instead of HEAD"
    )
    parser.add_argument("--mirror", metavar="ADDRESS", help="of Debian, instead of the machine's own")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where systems are made (build/bare)")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    commands = parser.add_subparsers(dest="command", metavar="run")
    run = commands.add_parser(
        "run",
        usage="ci/bare-machine run RELEASE [OPTION]... -- COMMAND...",
        help="one command in one system",
        description="Runs COMMAND in a new minimal system; ends with its exit code.",
    )
    run.add_argument("release", choices=RELEASES)
    run.add_argument("--user", default="root", metavar="NAME", help="who runs it; made if missing (root)")
    run.add_argument("--package", action="append", default=[], metavar="NAME", help="install it before")
    run.add_argument("--no-clone", action="store_true", help="start in the home folder, without the project")
    run.add_argument(
        "--uncommitted", action="store_true", default=argparse.SUPPRESS, help="not HEAD: files as they are"
    )
    run.add_argument("--no-network", action="store_true", help="cut the network off")
    run.add_argument(
        "--bind", action="append", default=[], metavar="PATH[:WHERE]", help="show this path, read-only"
    )
    run.add_argument(
        "--system", type=Path, metavar="DIR", help="keep the system here, or use the one that is there"
    )
    run.add_argument("words", nargs="+", metavar="COMMAND")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Exit code: 0, the command's own, 1 for an error, 2 for wrong usage, 130 when stopped."""
    options = _parser().parse_args(arguments)
    forms = (options.short, options.long, options.copies, options.systems, options.record, options.command)
    if sum(map(bool, forms)) != 1:
        _parser().error("say one of --short, --long, --copies, --systems, --record and run")
    try:
        if options.record:
            record(Layout.locate(clone.ROOT).build / "report", _PAGE)
            return 0
        need_root()
        _need_mmdebstrap()
        layout = Layout.locate(clone.ROOT)
        mirrors = Mirrors(options.mirror, None) if options.mirror else configured()
        folder = (options.folder or layout.build / "bare").resolve()
        _remove_leftovers(folder)
        if options.command:
            return _run(options, mirrors, folder)
        if options.copies:
            return _copies(options, mirrors, folder, layout)
        return _trials(options, mirrors, folder, layout)
    except WmlceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; the same command resumes from there", file=sys.stderr)
        return 130


def _need_mmdebstrap() -> None:
    script = '. "$1"/ci/bootstrap.sh && install_debian_packages bare'
    if subprocess.run(["bash", "-c", script, "-", str(clone.ROOT)], check=False).returncode != 0:
        raise WmlceError("without these, no bare system can be made", remedy="see above")


def _remove_leftovers(folder: Path) -> None:
    """Systems of `run` whose process was killed."""
    for leftover in folder.glob("run-*"):
        number = leftover.name.removeprefix("run-").partition(".")[0]
        if leftover.is_dir() and number.isdigit() and not Path(f"/proc/{number}").exists():
            BareSystem(leftover, settings.Settings(), _say).remove()


def _binds(arguments: Sequence[str]) -> dict[Path, str]:
    binds = {}
    for word in arguments:
        path, _, where = word.partition(":")
        source = Path(path).resolve()
        if not source.exists():
            raise WmlceError(f"--bind {word}: there is no {source}")
        if where and not where.startswith("/"):
            raise WmlceError(f"--bind {word}: {where} is not an absolute path")
        binds[source] = where or str(source)
    return binds


def _run(options: argparse.Namespace, mirrors: Mirrors, folder: Path) -> int:
    binds = _binds(options.bind)
    place = options.system.resolve() if options.system else folder / f"run-{os.getpid()}"
    system = BareSystem(place, settings.of_machine(), _say)
    try:
        if not system.complete:
            if place.exists():
                raise WmlceError(f"{place} is there but is not a system made by ci/bare-machine")
            print(f"making a minimal {options.release} in {place}", file=sys.stderr)
            system.make(options.release, mirrors)
        if options.package:
            _install(system, options.package)
        user = system.user(options.user)
        start = None if options.no_clone else system.bring_clone(user, uncommitted=options.uncommitted)
        command = system.command(
            options.words, user, folder=start, network=not options.no_network, binds=binds
        )
        return subprocess.run(command, check=False).returncode
    finally:
        if not options.system:
            system.remove()


def _install(system: BareSystem, names: Sequence[str]) -> None:
    script = 'apt-get update -q && apt-get install -y -q --no-install-recommends -- "$@"'
    ended = system.run(["bash", "-c", script, "-", *names], limit_s=900)
    if ended.code != 0:
        raise WmlceError(
            f"the packages {' '.join(names)} could not be installed", detail=ended.output.splitlines()[-5:]
        )


def _trials(options: argparse.Namespace, mirrors: Mirrors, folder: Path, layout: Layout) -> int:
    form: Form = "short" if options.short else "system" if options.systems else "long"
    chosen = [
        (release, user)
        for release, user in {"short": SHORT, "long": LONG, "system": other_systems.TRIALS}[form]
        if options.only in (None, release, f"{release}-{user}")
    ]
    if not chosen:
        raise WmlceError(f"--only {options.only}: the {form} form has no such trial")
    kind = other_systems.OtherTrial if options.systems else Trial
    before = Passed(layout.cache / "bare-machine")

    def trial(release: str, user: str) -> Result:
        conditions = Conditions(form, release, user, mirrors, options.test, options.uncommitted)
        earlier = None if options.again else before.find(conditions.content())
        if earlier is not None:
            _say(
                f"{conditions.name}: left out, it passed on {earlier.date} with the same files "
                f"(commit {earlier.commit}; --again runs it)"
            )
            return earlier
        system = BareSystem(folder / conditions.name, settings.of_machine(), _say)
        result = kind(conditions, system, layout.logs, layout.cache, _say).run()
        before.add(result)
        return result

    return _one_by_one(options, folder, layout, [partial(trial, *pair) for pair in chosen])


def _copies(options: argparse.Namespace, mirrors: Mirrors, folder: Path, layout: Layout) -> int:
    chosen = [release for release in copies.RELEASES if options.only in (None, release)]
    if not chosen:
        raise WmlceError(f"--only {options.only}: copies are tried on {' and '.join(copies.RELEASES)}")

    def trial(release: str) -> Result:
        system = BareSystem(folder / f"copy-{release}", settings.of_machine(), _say)
        return copies.CopyTrial(release, system, mirrors, layout, _say).run()

    return _one_by_one(options, folder, layout, [partial(trial, release) for release in chosen])


def _one_by_one(
    options: argparse.Namespace, folder: Path, layout: Layout, trials: Sequence[Callable[[], Result]]
) -> int:
    """Run and report them; returns the exit code."""
    report = Report(layout.build / "report")
    results: list[Result] = []
    with file_lock(folder / "lock", "a trial of this clone", say=_say, limit_s=6 * 3600):
        for trial in trials:
            results.append(trial())
            report.add(results[-1])
            if results[-1].error:
                print(f"error: {results[-1].error}", file=sys.stderr, flush=True)
    if options.json:
        print(json.dumps({"trials": [asdict(result) for result in results]}, indent=1))
    elif results:
        print(table(results) + f"kept in {layout.display(report.where)}")
    return 0 if all(result.passed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
