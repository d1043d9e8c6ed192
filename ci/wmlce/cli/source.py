"""`wmlce source`: commands on sources."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from wmlce.cli.session import Context, session_of

app = typer.Typer(help="Locked sources.", no_args_is_help=True)


@app.command("fetch")
def source_fetch(
    context: Context,
    recipes: Annotated[
        list[str] | None, typer.Argument(help="Recipes; default: all.", metavar="[RECIPE]...")
    ] = None,
) -> None:
    """Fetch locked sources, check their sha256 and show them in build/sources."""
    from wmlce.recipes.set import RecipeSet, load_source_lock

    session = session_of(context)
    lock = load_source_lock(session.layout)
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
