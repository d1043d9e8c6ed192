"""`wmlce channel`: commands on the channel."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from wmlce.cli.session import Context, Session, session_of
from wmlce.util.errors import WmlceError, printable
from wmlce.util.host import cpu_count
from wmlce.util.platform import PLATFORMS, find, of_this_machine

app = typer.Typer(help="The channel in build/channel.", no_args_is_help=True)


@app.command("build")
def channel_build(
    context: Context,
    packages: Annotated[
        list[str] | None, typer.Argument(help="Recipes or packages; default: all.", metavar="[PACKAGE]...")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Builds at once; default: cores.")
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="After a failure build what does not need it.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Build the named packages even if they are built.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be built: nothing is fetched or built.")
    ] = False,
    variant: Annotated[
        str | None,
        typer.Option("--variant", help="Build this variant too: cuda12 is for GPUs.", metavar="NAME"),
    ] = None,
    pytorch: Annotated[
        str | None,
        typer.Option(
            "--pytorch",
            help="cpu: PyTorch's own build for processors; plain: that of the ordinary package index. "
            "Default: what was chosen before, or the first of them that can be had.",
            metavar="BUILD",
        ),
    ] = None,
    timings: Annotated[
        bool,
        typer.Option(
            "--timings", help="Say where the time went; also into build/report/timings.html and .json."
        ),
    ] = False,
    recipes_of_site: Annotated[
        Path | None,
        typer.Option(
            "--recipes",
            help="Build a site's own recipes, NAME/recipe.yaml in this folder, into a channel of their own.",
            metavar="DIR",
        ),
    ] = None,
) -> None:
    """Build what changed, test it, and publish build/channel when all of it succeeded."""
    from wmlce.builder.pytorch_choice import settle

    session = session_of(context)
    names = packages or []
    if recipes_of_site is not None:
        if dry_run or timings or variant is not None or pytorch is not None:
            raise typer.BadParameter(
                "--recipes cannot be combined with --dry-run, --timings, --variant or --pytorch"
            )
        _build_of_site(session, recipes_of_site, names, jobs, keep_going, force)
        return
    settle(session.layout, pytorch, names, variant, session.say, dry_run=dry_run)
    if dry_run:
        _forecast(session, names, variant, force)
    else:
        _build(session, names, variant, jobs or cpu_count(), keep_going, force, timings)


def _forecast(session: Session, packages: list[str], variant: str | None, force: bool) -> None:
    """What a build would do."""
    from wmlce.channel.update import forecast

    recipes = forecast(session.layout, packages, force=force, variant=variant)
    todo = [name for name, facts in recipes.items() if not facts["finished"]]
    again = [name for name, facts in recipes.items() if facts["finished"] and not facts["tested"]]
    lines = [f"  {name} {recipes[name]['version']}" for name in todo]
    if again:
        lines.append(f"to test again, as what is installed with them has changed: {', '.join(again)}")
    size = sum(recipes[name]["fetch"] for name in todo)
    if size:
        lines.append(f"to fetch: {size / 1e6:.0f} MB of wheels, and sources of which the size is not known")
    session.answer(
        {"recipes": recipes, "todo": todo, "test": again, "fetch": size},
        "\n".join([f"{len(todo)} recipes to build, {len(recipes) - len(todo)} already built", *lines]),
    )


def _build(
    session: Session,
    packages: list[str],
    variant: str | None,
    jobs: int,
    keep_going: bool,
    force: bool,
    timings: bool,
) -> None:
    """Builds the channel and says what it did."""
    from wmlce.builder.schedule import summary
    from wmlce.channel.update import update

    layout = session.layout
    try:
        done = update(
            layout,
            session.progress,
            packages,
            jobs=jobs,
            keep_going=keep_going,
            force=force,
            variant=variant,
        )
    except KeyboardInterrupt:
        print("stopped; finished packages are kept, the same command resumes from there", file=sys.stderr)
        raise typer.Exit(130) from None
    text = f"{layout.display(layout.channel)}: {done.packages} packages, {done.fresh} recipes built now"
    text += "" if done.changed else ", unchanged"
    if timings:
        from wmlce.channel import timings as of_build

        profile = of_build.document(done.results, done.phases, jobs, session.progress.elapsed())
        page = of_build.write(layout, profile)
        text = "\n".join([*of_build.lines(profile), f"{layout.display(page)}: the picture", text])
    session.answer(
        {
            "recipes": summary(done.results),
            "built": done.fresh,
            "published": done.changed,
            "instead_of_locked": done.stand_ins,
            "channel": str(layout.channel),
        },
        text,
    )


def _build_of_site(
    session: Session, folder: Path, packages: list[str], jobs: int | None, keep_going: bool, force: bool
) -> None:
    from wmlce.builder.schedule import summary
    from wmlce.channel import site_channel

    done = site_channel.build(
        session.layout,
        folder,
        session.progress,
        packages,
        jobs=jobs or cpu_count(),
        keep_going=keep_going,
        force=force,
    )
    fresh = sum(built.fresh for built in done.results.values())
    session.answer(
        {
            "recipes": summary(done.results),
            "built": fresh,
            "published": done.changed,
            "channel": str(done.channel),
        },
        f"{session.layout.display(done.channel)}: {len(done.results)} recipes, {fresh} built now"
        + ("" if done.changed else ", unchanged"),
    )


@app.command("index")
def channel_index(context: Context) -> None:
    """Write the index of build/channel anew, as its packages stand."""
    from wmlce.channel import published

    session = session_of(context)
    count = published.reindex(session.layout, session.say)
    session.answer(
        {"packages": count}, f"indexed {count} packages in {session.layout.display(session.layout.channel)}"
    )


@app.command("prune")
def channel_prune(
    context: Context,
    keep: Annotated[
        int, typer.Option("--keep", min=0, help="Earlier builds of each package that stay.", metavar="N")
    ] = 0,
    older_than: Annotated[
        int | None,
        typer.Option(
            "--older-than", min=0, help="Only those that were replaced so many days ago.", metavar="DAYS"
        ),
    ] = None,
) -> None:
    """Remove earlier builds from build/channel; locks that name them can then no longer be installed."""
    from datetime import timedelta

    from wmlce.channel import published

    session = session_of(context)
    age = timedelta(days=older_than) if older_than is not None else None
    removed = published.prune(session.layout, session.say, keep=keep, older_than=age)
    session.answer(
        {"removed": sorted(removed), "bytes": sum(removed.values())},
        f"{session.layout.display(session.layout.channel)}: {len(removed)} earlier builds removed, "
        f"{sum(removed.values()) / 1e6:.0f} MB (the cache keeps its copies)",
    )


@app.command("mirror")
def channel_mirror(
    context: Context,
    target: Annotated[Path, typer.Argument(metavar="DEST", help="The folder of the mirror.")],
    source: Annotated[
        str | None,
        typer.Option(
            "--from", help="A channel's folder or http address; default: build/channel.", metavar="URL|DIR"
        ),
    ] = None,
    packages: Annotated[
        list[str] | None,
        typer.Option(
            "--packages", help="Only this package and all that it needs; repeat it.", metavar="NAME"
        ),
    ] = None,
    include_restricted: Annotated[
        bool,
        typer.Option(
            "--include-restricted",
            "--proprietary",
            help="Also packages whose licences do not let you pass them on.",
        ),
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove packages that the channel no longer lists.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be fetched, with sizes.")
    ] = False,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            help="Sign the mirror with this private key, for a channel that is not signed; default: the "
            "signature of the channel, if it has one.",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Copy a channel, or bring the copy up to date; it can be interrupted and served at any time. Of a signed
    channel the signature is checked first, and copied with the index.
    """
    from wmlce.mirror.mirroring import mirror

    session = session_of(context)
    done = mirror(
        session.layout,
        target,
        session.say,
        source=source,
        packages=packages or [],
        include_restricted=include_restricted,
        prune=prune,
        dry_run=dry_run,
        key=key.expanduser().absolute() if key is not None else None,
    )
    size = sum(item.size for item in done.fetch)
    verb = "to fetch" if dry_run else "fetched"
    lines = [f"  {item.size / 1e6:9.2f} MB  {item.key}" for item in done.fetch] if dry_run else []
    lines += [
        f"  left out, its licence does not let you pass it on: {item.key} ({item.entry.get('license')})"
        for item in done.restricted
    ]
    head = f"{target}: {len(done.items)} packages, {len(done.fetch)} {verb} ({size / 1e6:.1f} MB)"
    head += f", {len(done.pruned)} removed" if done.pruned else ""
    if done.key is not None:
        which = f", {done.statement}" if done.statement is not None else ""
        lines.append(f"  signed by {done.key}{which}" + ("" if done.trusted else "; its key was not checked"))
    if done.absent:
        lines.append(
            f"  the index is the signed one, of the whole channel: {done.absent} of its packages are not "
            "here, and cannot be installed from here"
        )
    session.answer({**done.to_json(), "mirror": str(target.absolute())}, "\n".join([head, *lines]))


@app.command("plan")
def channel_plan(
    context: Context,
    platform: Annotated[
        str | None,
        typer.Option(
            "--platform", help=f"{', '.join(PLATFORMS)}; default: this machine's.", metavar="PLATFORM"
        ),
    ] = None,
    python: Annotated[
        str | None, typer.Option("--python", help="Such as 3.12; default: the channel's.", metavar="X.Y")
    ] = None,
    solve: Annotated[
        bool, typer.Option("--solve", help="Let pip resolve the roots of wheels.yaml for it, too.")
    ] = False,
) -> None:
    """Say what is there, and what is not, for a channel of another platform or another Python."""
    from rich.console import Console
    from rich.table import Table

    from wmlce.channel import plan_solve
    from wmlce.channel.plan_platform import plan, read_python
    from wmlce.sources.pypi import Target

    session = session_of(context)
    target = Target(find(platform) if platform else of_this_machine(), read_python(python))
    lines, offered = plan(session.layout, target, session.say)
    solution = plan_solve.solve(session.layout, target, offered, session.say) if solve else None
    facts = {"platform": target.platform.subdir, "python": str(target.python)}
    available = sum(line.available for line in lines)
    if session.as_json:
        solved = {} if solution is None else {"solution": solution.to_json()}
        session.answer({**facts, "recipes": [line.to_json() for line in lines], **solved}, "")
        return
    table = Table("recipe", "version", "available", "how")
    for line in lines:
        table.add_row(line.recipe, line.version, "yes" if line.available else "no", line.how)
    Console(highlight=False).print(table)
    if solution is not None:
        answer = Table("root", "found by pip", "why not the pin")
        for row in plan_solve.rows(solution):
            answer.add_row(*row)
        Console(highlight=False).print(answer)
        session.answer(None, plan_solve.verdict(solution))
    title = f"{target.platform.subdir}, Python {target.python}"
    session.answer(None, f"{title}: {available} of {len(lines)} recipes are there as they are")


@app.command("verify")
def channel_verify(
    context: Context,
    packages: Annotated[
        list[str] | None,
        typer.Argument(help="Packages for --run-tests; default: all.", metavar="[PACKAGE]..."),
    ] = None,
    env: Annotated[
        str | None,
        typer.Option("--env", help="Also check this environment: a prefix or a name.", metavar="PREFIX"),
    ] = None,
    pairs: Annotated[
        bool,
        typer.Option("--pairs", help="Train with all frameworks of the environment in one process, too."),
    ] = False,
    run_tests: Annotated[
        bool, typer.Option("--run-tests", help="Run the packages' own tests again, in fresh environments.")
    ] = False,
    licenses: Annotated[
        Path | None,
        typer.Option("--licenses", help="Write the texts of all licences into this folder.", metavar="DIR"),
    ] = None,
) -> None:
    """Check index, licences, closedness and paths of the channel, and libraries, symbols and metadata of an
    environment; write verified.json, verify.xml (JUnit) and the bill of materials into the channel.
    """
    from rich.console import Console
    from rich.table import Table

    from wmlce.channel import verify

    session = session_of(context)
    layout = session.layout
    if pairs and env is None:
        raise typer.BadParameter("--pairs trains in an environment: name it with --env")
    if packages and not run_tests:
        raise typer.BadParameter("packages are named for --run-tests alone")
    prefix = None
    if env is not None:
        named = layout.envs / env
        prefix = named if "/" not in env and named.is_dir() else Path(env).resolve()
    checks = verify.run(
        layout, prefix, session.say, pairs=pairs, tests=(packages or []) if run_tests else None
    )
    if licenses is not None:
        from wmlce.channel.verify.licenses import collect

        count = collect(layout.channel, licenses, session.say)
        session.say(f"{licenses}: {count} texts of licences")
    if session.as_json:
        session.answer({"checks": [check.to_json() for check in checks]}, "")
    else:
        table = Table("check", "result", "looked at")
        for check in checks:
            table.add_row(check.name, "ok" if check.ok else f"{len(check.findings)} findings", check.summary)
        Console(highlight=False).print(table)
        for check in checks:
            for note in check.notes[:20]:
                print(printable(f"note: {note}"))
    wrong = [finding for check in checks for finding in check.findings]
    if wrong:
        rest = [f"… and {len(wrong) - 20} more"] if len(wrong) > 20 else []
        raise WmlceError(
            f"the channel did not pass: {', '.join(check.name for check in checks if not check.ok)}",
            detail=[*wrong[:20], *rest],
            log=Path(layout.display(layout.channel / "verify.json")),
            remedy="fix the recipes concerned, then: wmlce channel build && wmlce channel verify",
        )
