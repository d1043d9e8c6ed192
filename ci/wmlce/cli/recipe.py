"""`wmlce recipe`: commands on recipes."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from wmlce.cli.session import Context, session_of

app = typer.Typer(help="Look at recipes.", no_args_is_help=True)


@app.command("render")
def recipe_render(context: Context, name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Print a recipe (those generated from wheels included) and what it evaluates to."""
    from wmlce.recipes.set import RecipeSet

    session = session_of(context)
    recipe = RecipeSet(session.layout).find(name)
    outputs = [{"variant": dict(o.variant), "recipe": o.rendered} for o in recipe.outputs]
    if session.as_json:
        session.answer({"name": recipe.name, "where": recipe.where, "outputs": outputs}, "")
    elif recipe.generated:
        import yaml

        print(yaml.safe_dump(json.loads(recipe.text), sort_keys=False, width=110), end="")
    else:
        print(recipe.text, end="")
