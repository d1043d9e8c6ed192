"""`wmlce source`: commands on sources."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wmlce.cli.session import Context, Session, session_of

if TYPE_CHECKING:
    from wmlce.sources.model import LockedArtifact
    from wmlce.sources.store import SourceLock

app = typer.Typer(help="Locked sources.", no_args_is_help=True)

Recipes = Annotated[list[str] | None, typer.Argument(help="Recipes; default: all.", metavar="[RECIPE]...")]


Variant = Annotated[
    str | None, typer.Option("--variant", help="Those of this variant of the channel, too.", metavar="NAME")
]


@app.command("fetch")
def source_fetch(context: Context, recipes: Recipes = None, variant: Variant = None) -> None:
    """Fetch locked sources, check their sha256 and show them in build/sources."""
    from wmlce.sources.store import replan_when_moved

    session = session_of(context)

    def attempt() -> tuple[SourceLock, list[LockedArtifact], list[LockedArtifact]]:
        lock, items = _wanted(session, recipes, variant)
        lock.tell_size(items, session.say)
        return lock, items, lock.fetch(items, session.say)

    lock, items, fetched = replan_when_moved(attempt, session.say)
    lock.place(items)
    value = {
        "files": sorted(item.file.name for item in items),
        "fetched": sorted(i.file.name for i in fetched),
        "instead_of_locked": lock.stand_ins(),
    }
    session.answer(
        value,
        "\n".join(
            [
                *(f"NOTE: {line}" for line in lock.stand_ins()),
                f"{len(items)} sources in "
                f"{session.layout.display(session.layout.sources)}, {len(fetched)} new",
            ]
        ),
    )


@app.command("headers")
def source_headers(
    context: Context,
    variant: Annotated[
        str, typer.Option("--variant", help="The variant whose headers they are.", metavar="NAME")
    ] = "cuda12",
) -> None:
    """Fetch headers of a variant's libraries (CUDA, NCCL) without the libraries, and print the folders to
    compile with.
    """
    from wmlce.recipes.variant import find
    from wmlce.sources import headers

    session = session_of(context)
    folders = [
        str(path) for path in headers.folders(session.layout, find(session.layout, variant), session.say)
    ]
    session.answer({"include": folders}, "\n".join(folders))


@app.command("bundle")
def source_bundle(
    context: Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Made where it is missing.")],
    recipes: Annotated[
        list[str] | None,
        typer.Option("--recipe", help="Only the sources of this recipe; can be given again."),
    ] = None,
    tools: Annotated[
        bool, typer.Option("--tools/--no-tools", help="Also the Python packages that wmlce itself needs.")
    ] = True,
    variant: Variant = None,
    proprietary: Annotated[
        bool, typer.Option("--proprietary", help="Also what its licence does not let you pass on.")
    ] = False,
) -> None:
    """Write every locked source into one folder, from which `--offline DIR` builds without a network."""
    from wmlce.sources import bundle

    session = session_of(context)
    lock, items = _wanted(session, recipes, variant)
    redistributable = [item for item in items if proprietary or item.entry.redistribute]
    left_out = sorted(item.file.name for item in items if item not in redistributable)
    if left_out:
        session.say(
            f"leaving out {len(left_out)} files that their licences do not let you pass on; the other side "
            "fetches them itself, or --proprietary writes them here"
        )
    items = redistributable
    result = bundle.write(lock, items, folder.absolute(), session.say, tools=tools and not recipes)
    session.answer(
        {
            "folder": str(folder.absolute()),
            "files": result.files,
            "written": result.written,
            "bytes": result.size,
            "left_out": left_out,
        },
        f"{folder}: {result.files} files, {result.size / 1e6:.0f} MB, {result.written} written now; "
        f"sha256 in {bundle.MANIFEST}",
    )


def _wanted(
    session: Session, recipes: list[str] | None, variant: str | None
) -> tuple[SourceLock, list[LockedArtifact]]:
    """The lock, and the files of these recipes; all when none is named, but of variants only those of
    `variant`.
    """
    from wmlce.builder.pytorch_choice import settle
    from wmlce.recipes import pytorch_build
    from wmlce.recipes.recipe_set import RecipeSet, load_source_lock
    from wmlce.recipes.variant import find

    if variant is not None:
        find(session.layout, variant)
    if not recipes or pytorch_build.PACKAGE in recipes:
        settle(session.layout, None, recipes or [], variant, session.say, dry_run=True)
    build = pytorch_build.chosen(session.layout)
    lock = load_source_lock(session.layout)
    items = [item for item in lock.by_file.values() if item.entry.variant in (None, variant, build)]
    ending = f"-{build}"
    replaced = {
        name.removesuffix(ending)
        for item in items
        for name in item.entry.recipes
        if item.entry.variant == build
    }
    items = [item for item in items if item.entry.variant or not replaced.issuperset(item.entry.recipes)]
    if recipes:
        recipe_set = RecipeSet(session.layout)
        locked = {name for item in items for name in item.entry.recipes}
        names = {name if name in locked else recipe_set.find(name, variant).name for name in recipes}
        names |= {name.removesuffix(ending) for name in names}  # built again from the same sources
        items = [item for item in items if names & set(item.entry.recipes)]
    return lock, items
