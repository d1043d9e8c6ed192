"""`wmlce recipe`: commands on recipes."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from wmlce.cli.session import Context, session_of

app = typer.Typer(help="Look at recipes.", no_args_is_help=True)


@app.command("render")
def recipe_render(
    context: Context,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    variant: Annotated[
        str | None, typer.Option("--variant", help="As this variant of the channel has it.", metavar="NAME")
    ] = None,
) -> None:
    """Print a recipe (those generated from wheels included) and what it evaluates to."""
    from wmlce.recipes.recipe_set import RecipeSet
    from wmlce.recipes.variant import find

    session = session_of(context)
    if variant is not None:
        find(session.layout, variant)
    recipe = RecipeSet(session.layout).find(name, variant)
    outputs = [{"variant": dict(o.variant), "recipe": o.rendered} for o in recipe.outputs]
    if session.as_json:
        session.answer({"name": recipe.name, "where": recipe.where, "outputs": outputs}, "")
    elif recipe.generated:
        import yaml

        print(yaml.safe_dump(json.loads(recipe.text), sort_keys=False, width=110), end="")
    else:
        print(recipe.text, end="")
