"""A site's own recipes are built against the channel into a second one, with the same checks."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from rattler import (
    Channel,
    Gateway,
    MatchSpec,
    VirtualPackage,
    VirtualPackageOverrides,
    install,
    solve,
)
from scratch_clone import Clone


def site_recipe(folder: Path, name: str, **more: object) -> Path:
    """A recipe that a site writes: outside the clone."""
    path = folder / name / "recipe.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    body = {
        "schema_version": 1,
        "package": {"name": name, "version": "1.0"},
        "build": {"script": [f"mkdir -p $PREFIX/share && echo {name} > $PREFIX/share/{name}"]},
        "about": {"license": "MIT"},
        **more,
    }
    path.write_text(json.dumps(body))
    return path


@pytest.mark.slow
def test_a_program_of_the_site_links_a_library_of_the_channel(
    library_and_program: Clone, tmp_path: Path
) -> None:
    clone, site = library_and_program, tmp_path / "our-recipes"
    shutil.copytree(clone.root / "program", site / "tool")
    site_recipe(
        site,
        "tool",
        source=[{"path": "main.c"}],
        build={
            "script": [
                "mkdir -p $PREFIX/bin",
                "gcc -o $PREFIX/bin/tool main.c -L$PREFIX/lib -lanswer -Wl,-rpath,$PREFIX/lib",
            ]
        },
        requirements={"host": ["libanswer"], "run": ["libanswer"]},
        tests=[{"script": ["test $(tool) = 42"]}],
    )
    clone.ok("channel", "build")
    before = clone.channel_state()
    done = clone.ok("channel", "build", "--recipes", str(site))
    assert set(done["recipes"]) == {"tool"} and done["published"]
    folder = Path(done["channel"])
    assert folder == clone.root / "build/site/our-recipes/channel"
    assert [path.name.split("-")[0] for path in folder.glob("*/*.conda")] == ["tool"]
    assert clone.channel_state() == before
    again = clone.ok("channel", "build", "--recipes", str(site))
    assert again["built"] == 0 and not again["published"]

    async def run() -> None:
        records = await solve(
            sources=[Channel(folder.as_uri()), Channel((clone.root / "build/channel").as_uri())],
            specs=[MatchSpec("tool")],
            gateway=Gateway(),
            platforms=["linux-64", "noarch"],
            virtual_packages=VirtualPackage.detect(VirtualPackageOverrides.from_env()),
            timeout=timedelta(seconds=60),
        )
        await install(records, tmp_path / "env", cache_dir=tmp_path / "pkgs", show_progress=False)

    asyncio.run(run())
    assert subprocess.check_output([tmp_path / "env/bin/tool"], text=True) == "42\n"
    # a file beside the recipe counts, and so does the recipe's test
    (site / "tool/main.c").write_text("int main(void) { return 3; }\n")
    told = clone.fails("channel", "build", "--recipes", str(site))
    assert f"wmlce channel build --recipes {site} tool" in told
    assert "tool" in told and [path.name for path in folder.glob("*/*.conda")]


def test_names_of_the_channel_and_circles_are_refused(clone: Clone, tmp_path: Path) -> None:
    clone.recipe("ours")
    site = tmp_path / "site"
    site_recipe(site, "ours")
    told = clone.fails("channel", "build", "--recipes", str(site))
    assert f"{site}/ours/recipe.yaml makes ours, which this channel has already" in told
    shutil.rmtree(site / "ours")
    site_recipe(site, "hidden", package={"name": "ours", "version": "2"})
    assert "makes ours, which this channel" in clone.fails("channel", "build", "--recipes", str(site))
    shutil.rmtree(site / "hidden")
    site_recipe(site, "one", requirements={"host": ["two"]})
    site_recipe(site, "two", requirements={"host": ["one"]})
    told = clone.fails("channel", "build", "--recipes", str(site))
    assert "need each other in a circle" in told
    site_recipe(site, "two", requirements={"host": ["nothing-has-this"]})
    told = clone.fails("channel", "build", "--recipes", str(site))
    assert "nothing-has-this" in told and f"{site}/two/recipe.yaml" in told
    assert "has no recipe three" in clone.fails("channel", "build", "--recipes", str(site), "three")
    assert "holds no NAME/recipe.yaml" in clone.fails("channel", "build", "--recipes", str(tmp_path))
    (site / "one/blob").write_bytes(b"\xff\xfe\x00")
    assert "blob is not text" in clone.fails("channel", "build", "--recipes", str(site))
    assert not (clone.root / "build/site/site/channel").exists()
