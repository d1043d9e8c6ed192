"""`wmlce lock`: commands on lock files."""

from __future__ import annotations

from typing import Annotated

import typer

from wmlce.cli.session import Context, session_of

app = typer.Typer(help="Write the lock files again.", no_args_is_help=True)


@app.command("sources")
def lock_sources_command(
    context: Context,
    recipes: Annotated[
        list[str] | None, typer.Argument(help="Recipes; default: all.", metavar="[RECIPE]...")
    ] = None,
    add: Annotated[
        list[str] | None,
        typer.Option(
            "--add",
            help="New entry: debian-source:NAME, debian-binary:NAME, pypi:NAME==VERSION, "
            "pytorch-cpu:NAME==VERSION.",
        ),
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
    suite: Annotated[
        str | None, typer.Option("--suite", help="Debian release of what --add adds; default: bookworm.")
    ] = None,
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="Move Python packages to their newest version too.")
    ] = False,
) -> None:
    """Take the versions that the archives offer now into recipes/sources.lock.yaml."""
    from wmlce.sources import relock as lock_sources

    session = session_of(context)
    if add and not recipe:
        raise typer.BadParameter("--add needs --recipe NAME")
    additions = [lock_sources.parse_addition(text, recipe or "", files or [], suite) for text in add or []]
    changes = lock_sources.lock(session.layout, recipes or [], additions, session.say, upgrade=upgrade)
    session.answer(
        {"changes": changes}, "\n".join(changes) or "everything is locked to what the archives offer"
    )


@app.command("wheels")
def lock_wheels_command(
    context: Context,
    variant: Annotated[
        str | None,
        typer.Option("--variant", help="Those of recipes/NAME instead; none is fetched.", metavar="NAME"),
    ] = None,
) -> None:
    """Resolve recipes/wheels.yaml with pip and write recipes/wheels.lock.yaml."""
    from wmlce.recipes import variant as variants
    from wmlce.recipes.wheel_lock import lock_path
    from wmlce.sources import relock_variant, relock_wheels

    session = session_of(context)
    layout = session.layout
    if variant is None:
        chosen, result = None, relock_wheels.lock(layout, session.say)
    else:
        chosen = variants.find(layout, variant)
        result = relock_variant.lock(layout, chosen, session.say)
    size = sum(wheel.size or 0 for wheel in result.packages)
    session.answer(
        {"packages": [f"{wheel.name}=={wheel.version}" for wheel in result.packages], "bytes": size},
        f"{layout.display(lock_path(layout, chosen))}: {len(result.packages)} wheels for "
        f"{len(result.roots)} roots" + (f", {size / 1e9:.1f} GB" if chosen else ""),
    )


@app.command("numbers")
def lock_numbers_command(context: Context) -> None:
    """Before a release: give what has changed since the last one a greater build number, in
    recipes/numbers.lock.yaml.
    """
    from wmlce.builder import renumber
    from wmlce.builder.plan import Plan
    from wmlce.recipes.recipe_set import RecipeSet, load_source_lock

    session = session_of(context)
    layout = session.layout
    recipes = RecipeSet(layout)
    plan = Plan(layout, recipes, load_source_lock(layout), sorted(recipes.by_name))
    changes = renumber.lock(layout, plan)
    session.answer(
        {"changes": changes}, "\n".join(changes) or "nothing has changed since the numbers were locked"
    )


@app.command("image")
def lock_image_command(context: Context) -> None:
    """Take the Debian packages of images, Apptainer and umoci that Debian offers now into
    containers/debian.lock.yaml.
    """
    from wmlce.images import debian

    session = session_of(context)
    changes = debian.relock(session.layout, session.say)
    session.answer({"changes": changes}, "\n".join(changes) or "everything is locked to what Debian offers")


@app.command("tools")
def lock_tools_command(context: Context) -> None:
    """Resolve ci/requirements*.in and write the .lock files of the tool environment."""
    from wmlce.sources import relock_tools as lock_tools

    session = session_of(context)
    count = lock_tools.lock(session.layout, session.say)
    session.answer({"distributions": count}, f"ci/requirements*.lock: {count} distributions")


@app.command("build-root")
def lock_build_root_command(context: Context) -> None:
    """Resolve recipes/build-root.yaml with apt and write recipes/build-root.lock.yaml."""
    from wmlce.builder import relock_root

    session = session_of(context)
    root = relock_root.relock(session.layout, session.say)
    session.answer(
        {"suite": root.config.suite, "packages": {entry.package: entry.version for entry in root.entries}},
        f"recipes/build-root.lock.yaml: {len(root.entries)} packages of Debian {root.config.suite}",
    )


@app.command("binary-sources")
def lock_binary_sources_command(context: Context) -> None:
    """Lock the sources that recipes/binary-sources.yaml declares into recipes/binary-sources.lock.yaml."""
    from wmlce.sources import binary_sources

    session = session_of(context)
    changes = binary_sources.lock(session.layout, session.say)
    session.answer({"changes": changes}, "\n".join(changes) or "every declared source is locked")
