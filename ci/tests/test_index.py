"""The channel's index: as if it had been made of the files alone, though only those that are new are read."""

from __future__ import annotations

import asyncio
import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import zstandard
from rattler import Channel, Gateway, MatchSpec, install, solve
from rattler.networking import Client
from scratch_clone import Clone
from small_channel import index, make_package
from test_integrity import index_it
from web_server import Files
from wmlce.channel import published


def entries(folder: Path, *, dates: bool = False) -> dict[str, dict[str, Any]]:
    """Of the index, by file; dates: with when each was put into it."""
    return {
        f"{subdir}/{name}": {key: entry[key] for key in entry if dates or key != "indexed_timestamp"}
        for subdir, found in published.repodata(folder).items()
        for name, entry in found.items()
    }


def read_anew(folder: Path, scratch: Path) -> dict[str, dict[str, Any]]:
    """What an index of the packages in `folder` has that knows nothing but them."""
    for path in folder.glob("*/*.conda"):
        target = scratch / path.parent.name / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    index_it(scratch)
    return entries(scratch)


def test_it_is_as_if_made_of_the_files_and_reads_only_what_is_new(clone: Clone, tmp_path: Path) -> None:
    channel = clone.root / "build/channel"
    clone.write("recipes/beside-conda-forge.yaml", "- exporting\n- late\n")
    clone.recipe("exporting", extra={"requirements": {"run_exports": ["exporting >=1.0"]}})
    clone.recipe("late", run=["exporting"])
    clone.built()
    first = entries(channel, dates=True)
    clone.recipe("late", run=["exporting"], extra={"build": {"number": 1}})
    clone.built()
    now = entries(channel, dates=True)
    assert len(now) > len(first), "the earlier build stays"
    assert {key: now[key] for key in first} == first, "nothing is read again"
    assert entries(channel) == read_anew(channel, tmp_path / "all")
    beside = channel / "beside-conda-forge"
    assert entries(beside) == read_anew(beside, tmp_path / "beside")
    exporting = next(entry for entry in now.values() if entry["name"] == "exporting")
    assert exporting["run_exports"] == {"weak": ["exporting >=1.0"]}


def test_exports_stand_where_condas_tools_have_them(clone: Clone, tmp_path: Path) -> None:
    """In run_exports.json, and not in repodata.json, in no form of it; also after another publication."""
    channel = clone.root / "build/channel/linux-64"
    clone.recipe("exporting", extra={"requirements": {"run_exports": ["exporting >=1.0"]}})
    for name in ("plain", "late"):
        clone.recipe(name)
        clone.built()
        document = json.loads((channel / "run_exports.json").read_text())
        assert document["info"] == {"subdir": "linux-64", "version": 1}
        exports = {file.rsplit("-", 2)[0]: item for file, item in document["packages.conda"].items()}
        assert exports["exporting"] == {"run_exports": {"weak": ["exporting >=1.0"]}}
        assert exports["plain"] == {"run_exports": {}}
        for text in (
            (channel / "repodata.json").read_bytes(),
            zstandard.decompress((channel / "repodata.json.zst").read_bytes()),
        ):
            listed = json.loads(text)["packages.conda"]
            assert len(listed) == len(exports)
            assert not [file for file, entry in listed.items() if "run_exports" in entry]


def test_what_is_known_of_other_bytes_is_not_believed(clone: Clone, tmp_path: Path) -> None:
    channel = clone.root / "build/channel"
    clone.recipe("early")
    clone.built()
    path = channel / "linux-64/repodata.json"
    document = json.loads(path.read_text())
    (entry,) = document["packages.conda"].values()
    entry |= {"depends": ["nonsense"], "sha256": "0" * 64}
    path.write_text(json.dumps(document))
    clone.recipe("late")
    clone.built()
    assert entries(channel) == read_anew(channel, tmp_path / "all")


def test_a_client_installs_by_shards(tmp_path: Path) -> None:
    """rattler reads those of the packages that the solver looks at, not the whole index."""
    channel = tmp_path / "channel"
    for number in range(5):
        make_package(channel, f"other{number}")
    make_package(channel, "low", size=5000)
    make_package(channel, "top", depends=["low"], subdir="linux-64")
    index(channel)

    async def run(url: str) -> list[str]:
        records = await solve(
            sources=[Channel(url)],
            specs=[MatchSpec("top")],
            gateway=Gateway(cache_dir=tmp_path / "repodata", client=Client()),
            platforms=["linux-64", "noarch"],
            virtual_packages=[],
            timeout=timedelta(seconds=60),
        )
        await install(records, tmp_path / "env", cache_dir=tmp_path / "pkgs", show_progress=False)
        return [record.name.normalized for record in records]

    with Files(channel).served() as files:
        assert sorted(asyncio.run(run(files.url))) == ["low", "top"]
    assert (tmp_path / "env/share/low").stat().st_size == 5000
    assert "/noarch/repodata_shards.msgpack.zst" in files.requests
    assert len([path for path in files.requests if path.startswith("/noarch/shards/")]) == 1, files.requests
    assert not any(path.startswith("/noarch/repodata.json") for path in files.requests), files.requests
