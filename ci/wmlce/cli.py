"""The command line. Every command ends with exit code 0, or 1 and one error that says what, where and the
remedy.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from wmlce import __version__
from wmlce.errors import WmlceError
from wmlce.host import cpu_count
from wmlce.layout import Layout
from wmlce.progress import Progress


class Session:
    """What the global options decide."""

    answered = False
    """Has the command's one JSON document been printed? Then an error goes to standard error alone."""

    def __init__(self, root: Path | None, as_json: bool, quiet: bool) -> None:
        self.root = root
        self.as_json = as_json
        self.progress = Progress(quiet=quiet)
        self._layout: Layout | None = None

    @property
    def layout(self) -> Layout:
        if self._layout is None:
            self._layout = Layout.locate(self.root)
        return self._layout

    def say(self, text: str) -> None:
        self.progress.say(text)

    def answer(self, value: Any, text: str) -> None:
        """The command's result: text for people, or the value for scripts (--json)."""
        print(json.dumps(value, indent=1, sort_keys=True) if self.as_json else text)
        Session.answered = True


app = typer.Typer(
    help="Fetches, builds, tests, indexes, installs and verifies the conda channel of this distribution.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
source_app = typer.Typer(help="Locked sources.", no_args_is_help=True)
lock_app = typer.Typer(help="Write the lock files anew.", no_args_is_help=True)
recipe_app = typer.Typer(help="Look at recipes.", no_args_is_help=True)
channel_app = typer.Typer(help="The channel in build/channel.", no_args_is_help=True)
env_app = typer.Typer(help="Environments in build/envs.", no_args_is_help=True)
image_app = typer.Typer(help="Images for Singularity and Apptainer, in build/images.", no_args_is_help=True)
module_app = typer.Typer(help="Environments as modules of a site's software tree.", no_args_is_help=True)
app.add_typer(source_app, name="source")
app.add_typer(lock_app, name="lock")
app.add_typer(recipe_app, name="recipe")
app.add_typer(channel_app, name="channel")
app.add_typer(env_app, name="env")
app.add_typer(module_app, name="module")
app.add_typer(image_app, name="image")

Context = typer.Context


def _session(context: Context) -> Session:
    session = context.find_root().obj
    assert isinstance(session, Session)
    return session


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
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of all commands."""
    context.obj = Session(root, as_json, quiet)


@source_app.command("fetch")
def source_fetch(
    context: Context,
    recipes: Annotated[
        list[str] | None, typer.Argument(help="Recipes; default: all.", metavar="[RECIPE]...")
    ] = None,
) -> None:
    """Fetch locked sources, check their sha256 and show them in build/sources."""
    from wmlce.recipes import RecipeSet
    from wmlce.sources import SourceLock

    session = _session(context)
    lock = SourceLock(session.layout)
    wanted = list(lock.by_file.values())
    if recipes:
        known = RecipeSet(session.layout)
        names = {
            name
            for given in recipes
            for name in ({given} if given in _locked_names(lock) else {known.find(given).name})
        }
        wanted = [item for item in wanted if names & set(item.entry.recipes)]
    fetched = lock.fetch(wanted, session.say)
    lock.place(wanted)
    value = {
        "files": sorted(item.file.name for item in wanted),
        "fetched": sorted(i.file.name for i in fetched),
    }
    session.answer(
        value,
        f"{len(wanted)} sources in {session.layout.shown(session.layout.sources)}, {len(fetched)} new",
    )


def _locked_names(lock: Any) -> set[str]:
    return {name for entry in lock.entries for name in entry.recipes}


@lock_app.command("sources")
def lock_sources_command(
    context: Context,
    recipes: Annotated[
        list[str] | None, typer.Argument(help="Recipes; default: all.", metavar="[RECIPE]...")
    ] = None,
    add: Annotated[
        list[str] | None,
        typer.Option("--add", help="New entry: debian-source:NAME, debian-binary:NAME, pypi:NAME==VERSION."),
    ] = None,
    recipe: Annotated[
        str | None, typer.Option("--recipe", help="The recipe that uses what --add adds.")
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Option(
            "--file", help="Pattern of file names to lock of what --add adds; default: the orig tarball."
        ),
    ] = None,
) -> None:
    """Take the versions that the archives offer now into recipes/sources.lock.yaml."""
    from wmlce import lock_sources

    session = _session(context)
    if add and not recipe:
        raise typer.BadParameter("--add needs --recipe NAME")
    additions = [lock_sources.parse_addition(text, recipe or "", files or []) for text in add or []]
    changes = lock_sources.lock(session.layout, recipes or [], additions, session.say)
    session.answer(
        {"changes": changes}, "\n".join(changes) or "everything is locked to what the archives offer"
    )


@lock_app.command("wheels")
def lock_wheels_command(context: Context) -> None:
    """Resolve recipes/wheels.yaml with pip and write recipes/wheels.lock.yaml."""
    from wmlce import lock_wheels

    session = _session(context)
    result = lock_wheels.lock(session.layout, session.say)
    session.answer(
        {"packages": [f"{wheel.name}=={wheel.version}" for wheel in result.packages]},
        f"recipes/wheels.lock.yaml: {len(result.packages)} wheels for {len(result.roots)} roots",
    )


@lock_app.command("tools")
def lock_tools_command(context: Context) -> None:
    """Resolve ci/requirements.in and write ci/requirements.lock, the tool environment."""
    from wmlce import lock_tools

    session = _session(context)
    count = lock_tools.lock(session.layout, session.say)
    session.answer({"distributions": count}, f"ci/requirements.lock: {count} distributions")


@recipe_app.command("render")
def recipe_render(context: Context, name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Print a recipe (those generated from wheels included) and what it evaluates to."""
    from wmlce.recipes import RecipeSet

    session = _session(context)
    recipe = RecipeSet(session.layout).find(name)
    outputs = [{"variant": dict(o.variant), "recipe": o.rendered} for o in recipe.outputs]
    if session.as_json:
        session.answer({"name": recipe.name, "where": recipe.where, "outputs": outputs}, "")
    elif recipe.generated:
        import yaml

        print(yaml.safe_dump(json.loads(recipe.text), sort_keys=False, width=110), end="")
    else:
        print(recipe.text, end="")


@channel_app.command("build")
def channel_build(
    context: Context,
    packages: Annotated[
        list[str] | None, typer.Argument(help="Recipes or packages; default: all.", metavar="[PACKAGE]...")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Builds at once; default: cores.")
    ] = None,
    keep_going: Annotated[str, typer.Option("--keep-going", help="yes: build what a failure leaves.")] = "no",
    force: Annotated[
        bool, typer.Option("--force", help="Build the named packages even if they are built.")
    ] = False,
) -> None:
    """Build what changed, test it, and publish build/channel when all of it succeeded."""
    from wmlce import channel
    from wmlce.builder import Builder, summary
    from wmlce.locks import file_lock
    from wmlce.plan import Plan
    from wmlce.recipes import RecipeSet
    from wmlce.sources import SourceLock
    from wmlce.store import PackageFile, Store

    if keep_going not in ("yes", "no"):
        raise typer.BadParameter("--keep-going takes yes or no")
    session = _session(context)
    layout = session.layout
    with file_lock(layout.build / "locks" / "channel.lock", "building this clone's channel", say=session.say):
        recipes = RecipeSet(layout)
        lock = SourceLock(layout)
        plan = Plan(layout, recipes, lock, packages or [])
        if force:
            for name in plan.requested:
                Store(layout).forget(name, plan.content_hash(name))
        builder = Builder(
            layout, plan, session.progress, jobs=jobs or cpu_count(), keep_going=keep_going == "yes"
        )
        try:
            results = builder.run()
        except KeyboardInterrupt:
            print("stopped; finished packages are kept, the same command goes on from there", file=sys.stderr)
            raise typer.Exit(130) from None
        finished: list[PackageFile] = [package for built in results.values() for package in built.packages]
        finished += _others_still_current(layout, recipes, lock, set(results))
        changed = channel.publish(layout, finished)
    fresh = sum(built.fresh for built in results.values())
    session.answer(
        {"recipes": summary(results), "built": fresh, "published": changed, "channel": str(layout.channel)},
        f"{layout.shown(layout.channel)}: {len(finished)} packages, {fresh} recipes built now"
        + ("" if changed else ", unchanged"),
    )


def _others_still_current(layout: Layout, recipes: Any, lock: Any, done: set[str]) -> list[Any]:
    """Packages of recipes that were not asked for: kept where they are published and still what would be
    built.
    """
    from wmlce import channel
    from wmlce.plan import Plan
    from wmlce.store import Store

    published = channel.contents(layout.channel)
    others = [name for name in recipes.by_name if name not in done]
    kept: list[Any] = []
    if not published:
        return kept
    store = Store(layout)
    try:
        plans = {
            name: plan for plan in [Plan(layout, recipes, lock, others)] for name in others if plan.order
        }
    except WmlceError:
        plans = {}  # a recipe that is not asked for may be broken; the others are then looked at one by one
    for name in others:
        try:
            plan = plans.get(name) or Plan(layout, recipes, lock, [name])
            found = store.find(name, plan.content_hash(name))
        except WmlceError:
            continue  # its packages are no longer current
        for package in found or []:
            if published.get(f"{package.subdir}/{package.file}") == package.sha256:
                kept.append(package)
    return kept


@channel_app.command("index")
def channel_index(context: Context) -> None:
    """Write the index of build/channel anew, as its packages stand."""
    from wmlce import channel

    session = _session(context)
    count = channel.reindex(session.layout)
    session.answer(
        {"packages": count}, f"indexed {count} packages in {session.layout.shown(session.layout.channel)}"
    )


@channel_app.command("verify")
def channel_verify(
    context: Context,
    env: Annotated[
        str | None,
        typer.Option("--env", help="Also check this environment: a prefix or a name.", metavar="PREFIX"),
    ] = None,
) -> None:
    """Check index, licences, closedness and paths of the channel, and libraries and metadata of an
    environment.
    """
    from rich.console import Console
    from rich.table import Table

    from wmlce import verify

    session = _session(context)
    layout = session.layout
    prefix = None
    if env is not None:
        named = layout.envs / env
        prefix = named if "/" not in env and named.is_dir() else Path(env).resolve()
    checks = verify.run(layout, prefix, session.say)
    if session.as_json:
        session.answer({"checks": [check.to_json() for check in checks]}, "")
    else:
        table = Table("check", "result", "looked at")
        for check in checks:
            table.add_row(check.name, "ok" if check.ok else f"{len(check.findings)} findings", check.summary)
        Console(highlight=False).print(table)
        for check in checks:
            for note in check.notes[:20]:
                print(f"note: {note}")
    wrong = [finding for check in checks for finding in check.findings]
    if wrong:
        rest = [f"… and {len(wrong) - 20} more"] if len(wrong) > 20 else []
        raise WmlceError(
            f"the channel did not pass: {', '.join(check.name for check in checks if not check.ok)}",
            detail=[*wrong[:20], *rest],
            log=Path(layout.shown(layout.channel / "verify.json")),
            remedy="mend the recipes concerned, then: wmlce channel build && wmlce channel verify",
        )


@env_app.command("create")
def env_create(
    context: Context,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    specs: Annotated[
        list[str] | None, typer.Argument(help="Match specs; default: NAME.", metavar="[SPEC]...")
    ] = None,
    compile_python: Annotated[
        bool, typer.Option("--compile", help="Compile Python modules, for read-only environments.")
    ] = False,
) -> None:
    """Install or update build/envs/NAME from build/channel alone."""
    from wmlce import envs

    session = _session(context)
    changed = envs.create(session.layout, name, specs or [], say=session.say, compile_python=compile_python)
    prefix = envs.prefix_of(session.layout, name)
    session.answer(
        {"name": name, "prefix": str(prefix), "changed": changed},
        f"{session.layout.shown(prefix)}: {'ready' if changed else 'unchanged'}",
    )


@env_app.command("list")
def env_list(context: Context) -> None:
    """List the environments."""
    from wmlce import envs

    session = _session(context)
    found = envs.listing(session.layout)
    text = "\n".join(
        f"{info.name:<20} {info.packages:>4} packages  "
        f"{'complete' if info.complete else 'INCOMPLETE'}  {info.path}"
        for info in found
    )
    session.answer(
        [
            {
                "name": i.name,
                "prefix": str(i.path),
                "complete": i.complete,
                "specs": i.specs,
                "packages": i.packages,
            }
            for i in found
        ],
        text or "no environments",
    )


@env_app.command("remove")
def env_remove(context: Context, name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Delete an environment."""
    from wmlce import envs

    session = _session(context)
    envs.remove(session.layout, name, say=session.say)
    session.answer({"removed": name}, f"removed {name}")


@env_app.command("clone")
def env_clone(
    context: Context,
    source: Annotated[str, typer.Argument(metavar="SRC", help="A name, or a prefix with a '/' in it.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name, or a path with a '/' in it.")],
    copy: Annotated[bool, typer.Option("--copy", help="Share no file with SRC by hard links.")] = False,
) -> None:
    """Copy an environment, without conda: files are shared where the file system can."""
    from wmlce.clone import clone

    session = _session(context)
    origin, target = _place(session.layout, source), _place(session.layout, name)
    result = clone(origin, target, say=session.say, copy=copy)
    session.answer(
        {"source": str(origin), "prefix": str(target), "files": result.files, "shared": result.shared},
        f"{session.layout.shown(target)}: {result.files} files, {result.shared} of them shared",
    )


@env_app.command("overlay")
def env_overlay(
    context: Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name, or a path with a '/' in it.")],
    on: Annotated[str, typer.Option("--on", help="The environment below: a name or a prefix.")] = "powerai",
) -> None:
    """Make a virtual environment over another one, for pip to install into."""
    from wmlce.overlay import overlay

    session = _session(context)
    base, target = _place(session.layout, on), _place(session.layout, name)
    count = overlay(base, target, say=session.say)
    session.answer(
        {"base": str(base), "prefix": str(target), "programs": count},
        f"{session.layout.shown(target)}: ready; use it with: source {target}/bin/activate",
    )


def _place(layout: Layout, text: str) -> Path:
    """build/envs/TEXT, or the path that TEXT is."""
    from wmlce import envs

    return Path(text).absolute() if "/" in text else envs.prefix_of(layout, text)


Prefix = Annotated[Path, typer.Option("--prefix", help="Folder of environments: DIR/ibm-wml-ce/VERSION.")]
Modulefiles = Annotated[
    Path | None, typer.Option("--modulefiles", help="Folder of modulefiles; default: PREFIX/modulefiles.")
]


@module_app.command("install")
def module_install(
    context: Context,
    prefix: Prefix,
    specs: Annotated[
        list[str] | None, typer.Argument(help="Match specs; default: powerai.", metavar="[SPEC]...")
    ] = None,
    modulefiles: Modulefiles = None,
    version: Annotated[
        str | None, typer.Option("--version", help="Version of the module; default: the release.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="Channel to install from; default: build/channel.")
    ] = None,
    channels: Annotated[
        list[str] | None,
        typer.Option("--channel", help="A channel for users' conda, by priority; default: that of --from."),
    ] = None,
    conflicts: Annotated[
        list[str] | None, typer.Option("--conflict", help="One more module that cannot be loaded beside it.")
    ] = None,
    group: Annotated[str | None, typer.Option("--group", help="Readable for this group alone.")] = None,
    default: Annotated[bool, typer.Option(help="Make it the default version.")] = True,
    compile_python: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Compile Python modules, as users cannot.")
    ] = True,
) -> None:
    """Install a version of the environment and its modulefiles into a software tree."""
    from wmlce import module

    session = _session(context)
    layout = session.layout
    origin = source.absolute() if source is not None else layout.channel
    tree = prefix.absolute()
    wish = module.Wish(
        prefix=tree,
        modulefiles=modulefiles.absolute() if modulefiles is not None else tree / "modulefiles",
        version=version or module.default_version(layout),
        specs=sorted(set(specs or [])) or ["powerai"],
        source=origin,
        channels=module.default_channels(origin, channels or []),
        conflicts=conflicts or [],
        group=group,
        default=default,
        compile_python=compile_python,
    )
    fresh = module.install(layout, wish, say=session.say)
    home = tree / "ibm-wml-ce" / wish.version
    session.answer(
        {"version": wish.version, "prefix": str(home), "installed": fresh},
        f"{home}: {'installed' if fresh else 'unchanged'}; to use it: module use {wish.modulefiles}; "
        f"module load ibm-wml-ce/{wish.version}",
    )


@module_app.command("remove")
def module_remove(
    context: Context,
    prefix: Prefix,
    version: Annotated[str, typer.Argument(metavar="VERSION")],
    modulefiles: Modulefiles = None,
) -> None:
    """Remove a version: first its modulefiles, then its environment."""
    from wmlce import module

    session = _session(context)
    tree = prefix.absolute()
    folder = modulefiles.absolute() if modulefiles is not None else tree / "modulefiles"
    default = module.remove(tree, folder, version, say=session.say)
    session.answer(
        {"removed": version, "default": default},
        f"removed {version}; {f'the default is now {default}' if default else 'no version is left'}",
    )


@module_app.command("list")
def module_list(context: Context, prefix: Prefix, modulefiles: Modulefiles = None) -> None:
    """List the versions of a software tree."""
    from wmlce import module

    session = _session(context)
    tree = prefix.absolute()
    found = module.listing(tree, modulefiles.absolute() if modulefiles is not None else tree / "modulefiles")
    session.answer(
        [{"version": i.version, "prefix": str(i.prefix), "default": i.default} for i in found],
        "\n".join(f"{i.version:<12} {i.prefix}{'  (default)' if i.default else ''}" for i in found)
        or f"no versions in {tree}",
    )


@image_app.command("build")
def image_build(
    context: Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of containers/NAME.def.")] = "ddl",
    specs: Annotated[
        list[str] | None, typer.Argument(help="Match specs; default: powerai.", metavar="[SPEC]...")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="The file; default: build/images/NAME.sif.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="Channel to install from; default: build/channel.")
    ] = None,
) -> None:
    """Build an image from the channel and run its test; nothing is done where it is there already."""
    from wmlce import image

    session = _session(context)
    layout = session.layout
    wish = image.Wish(
        name=name,
        output=output.absolute() if output is not None else layout.images / f"{name}.sif",
        specs=sorted(set(specs or [])) or ["powerai"],
        source=source.absolute() if source is not None else layout.channel,
    )
    fresh = image.build(layout, wish, say=session.say)
    record = image.read_record(wish.output) or {}
    session.answer(
        {"image": str(wish.output), "built": fresh, "lock": record.get("lock"), "size": record.get("size")},
        f"{layout.shown(wish.output)}: {'ready' if fresh else 'unchanged'}, "
        f"{wish.output.stat().st_size / 1e6:.0f} MB, lock {str(record.get('lock'))[:12]}",
    )


@image_app.command("oci")
def image_oci(
    context: Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Of build/images/NAME.sif; the tag too.")
    ] = "ddl",
    source: Annotated[
        Path | None, typer.Option("--image", help="The image; default: build/images/NAME.sif.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="The archive; default: NAME.oci.tar beside the image.")
    ] = None,
) -> None:
    """Pack a built image as an OCI archive, for Docker, Podman and registries."""
    from wmlce import image, oci

    session = _session(context)
    layout = session.layout
    found = source.absolute() if source is not None else layout.images / f"{name}.sif"
    wish = oci.Wish(
        source=found,
        output=output.absolute() if output is not None else found.with_name(f"{name}.oci.tar"),
        tag=name,
    )
    fresh = oci.build(layout, wish, say=session.say)
    record = image.read_record(wish.output) or {}
    session.answer(
        {"archive": str(wish.output), "built": fresh, "lock": record.get("lock"), "size": record.get("size")},
        f"{layout.shown(wish.output)}: {'ready' if fresh else 'unchanged'}, "
        f"{wish.output.stat().st_size / 1e6:.0f} MB, lock {str(record.get('lock'))[:12]}",
    )


@image_app.command("list")
def image_list(context: Context) -> None:
    """List the images in build/images."""
    from wmlce import image

    session = _session(context)
    found = image.listing(session.layout)
    session.answer(
        [
            {
                "image": str(i.path),
                "size": i.size,
                "release": i.release,
                "lock": i.lock,
                "packages": i.packages,
            }
            for i in found
        ],
        "\n".join(
            f"{i.path.name:<20} {i.size / 1e6:>6.0f} MB  release {i.release}  {i.packages} packages  "
            f"lock {i.lock[:12]}"
            for i in found
        )
        or "no images",
    )


@image_app.command("apptainer")
def image_apptainer(context: Context) -> None:
    """Fetch Debian's Apptainer into the cache, for machines that build and test images and have none."""
    from wmlce import apptainer

    session = _session(context)
    runtime = apptainer.fetch(session.layout, say=session.say)
    missing = apptainer.missing_helpers()
    session.answer(
        {"program": str(runtime.program), "version": runtime.version, "missing": missing},
        "\n".join([f"{runtime.version}: {runtime.program}", *missing]),
    )


@app.command("doctor")
def doctor_command(
    context: Context,
    network: Annotated[bool, typer.Option("--network/--no-network", help="Ask the archives too.")] = True,
) -> None:
    """Check compilers, disk, memory, archives and capabilities of this machine."""
    from rich.console import Console
    from rich.table import Table

    from wmlce import doctor

    session = _session(context)
    findings = doctor.examine(session.layout, network=network, say=session.say)
    if session.as_json:
        session.answer({"findings": [finding.to_json() for finding in findings]}, "")
    else:
        table = Table("subject", "", "found", "remedy")
        for finding in findings:
            table.add_row(finding.subject, finding.level, finding.found, finding.remedy)
        Console(highlight=False).print(table)
    problems = [finding for finding in findings if finding.level == "problem"]
    if problems:
        raise WmlceError(
            f"this machine is not ready: {', '.join(finding.subject for finding in problems)}",
            detail=[f"{finding.subject}: {finding.found}" for finding in problems],
            remedy="; ".join(finding.remedy for finding in problems if finding.remedy),
        )


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


def _run() -> int:
    """Run the command line; returns the exit code."""
    as_json = "--json" in sys.argv
    # global options are also understood behind the command, where people write them
    for flag in ("--json", "--quiet"):
        if flag in sys.argv[2:]:
            sys.argv = [sys.argv[0], flag, *(argument for argument in sys.argv[1:] if argument != flag)]
    try:
        app(standalone_mode=True)
    except WmlceError as error:
        if as_json and not Session.answered:
            print(json.dumps({"error": error.to_json()}, indent=1))
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; finished packages are kept, the same command goes on from there", file=sys.stderr)
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
