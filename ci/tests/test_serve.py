"""`wmlce channel serve`: rattler installs from it by shards, and it serves files and parts of them alone."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from rattler import Channel, Gateway, MatchSpec, install, solve
from rattler.networking import Client
from scratch_clone import Clone
from small_channel import index, make_package
from wmlce.channel.serve import part_of


@pytest.fixture
def channel(tmp_path: Path) -> Path:
    folder = tmp_path / "channel"
    for number in range(5):
        make_package(folder, f"other{number}")
    make_package(folder, "low", size=5000)
    make_package(folder, "top", depends=["low"], subdir="linux-64")
    (folder / "noarch/.hidden").write_text("not finished")
    (tmp_path / "outside.json").write_text("{}")
    return index(folder)


@pytest.fixture
def server(clone: Clone, channel: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    process = clone.start("--json", "channel", "serve", "--port", "0", "--channel", str(channel))
    try:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or lines[-1] != "}\n":
            line = process.stdout.readline()
            assert line, process.stderr and process.stderr.read()
            lines.append(line)
        yield process, json.loads("".join(lines))
    finally:
        process.kill()
        process.communicate(timeout=30)


def asked(url: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as answer:
            return answer.status, answer.read(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read(), dict(error.headers)


def test_a_client_installs_from_it_by_shards(
    server: tuple[subprocess.Popen[str], dict[str, Any]], channel: Path, tmp_path: Path
) -> None:
    process, told = server

    async def run() -> list[str]:
        records = await solve(
            sources=[Channel(told["url"])],
            specs=[MatchSpec("top")],
            gateway=Gateway(cache_dir=tmp_path / "repodata", client=Client()),
            platforms=["linux-64", "noarch"],
            virtual_packages=[],
            timeout=timedelta(seconds=60),
        )
        await install(records, tmp_path / "env", cache_dir=tmp_path / "pkgs", show_progress=False)
        return [record.name.normalized for record in records]

    assert sorted(asyncio.run(run())) == ["low", "top"]
    assert (tmp_path / "env/share/low").stat().st_size == 5000
    process.send_signal(signal.SIGINT)
    _, log = process.communicate(timeout=30)
    assert process.returncode == 0 and "Traceback" not in log, log
    assert 'GET /noarch/repodata_shards.msgpack.zst HTTP/1.1" 200' in log
    shards = [line for line in log.splitlines() if "GET /noarch/shards/" in line]
    # of the seven packages of the channel, only those that the solver looks at
    assert len(shards) == 1 and "/noarch/repodata.json" not in log, log


def test_files_and_parts_of_them(server: tuple[subprocess.Popen[str], dict[str, Any]], channel: Path) -> None:
    process, told = server
    url = told["url"]
    assert url.startswith("http://127.0.0.1:")
    assert told["commands"]["conda"].endswith(f"--override-channels --channel {url} powerai")
    whole = (channel / "noarch/low-1.0-0.conda").read_bytes()
    file = f"{url}/noarch/low-1.0-0.conda"
    status, body, headers = asked(file)
    assert (status, body) == (200, whole) and headers["Accept-Ranges"] == "bytes"
    for header, part in [("100-", whole[100:]), ("5-9", whole[5:10]), ("-7", whole[-7:])]:
        status, body, headers = asked(file, Range=f"bytes={header}")
        assert (status, body) == (206, part)
    start = len(whole) - 7
    assert headers["Content-Range"] == f"bytes {start}-{len(whole) - 1}/{len(whole)}"
    assert asked(file, Range=f"bytes={len(whole)}-")[0] == 416
    assert asked(file, Range="bytes=0-4", **{"If-Range": '"another"'})[1] == whole
    assert asked(file, **{"If-None-Match": headers["ETag"]})[0] == 304
    assert asked(f"{url}/noarch/repodata.json")[2]["Content-Type"] == "application/json"
    for place in ("/noarch/.hidden", "/noarch", "/", "/../outside.json", "/%2e%2e/outside.json", "/none"):
        assert asked(url + place)[0] == 404, place
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_parts_that_headers_ask_for() -> None:
    assert (
        part_of(None, 10) is None and part_of("bytes=0-1,4-5", 10) is None and part_of("bytes=-", 9) is None
    )
    assert part_of("bytes=0-99", 10) == (0, 10) and part_of("bytes=-99", 10) == (0, 10)
    assert part_of("bytes=5-2", 10) is None
    for header in ("bytes=10-", "bytes=-0"):
        with pytest.raises(IndexError):
            part_of(header, 10)


def test_a_port_that_is_taken_and_a_folder_that_is_no_channel(
    clone: Clone, server: tuple[subprocess.Popen[str], dict[str, Any]], channel: Path, tmp_path: Path
) -> None:
    port = server[1]["url"].rpartition(":")[2]
    told = clone.fails("channel", "serve", "--port", port, "--channel", str(channel))
    assert f"cannot listen on port {port} of 127.0.0.1: another program uses it" in told
    assert "is not a channel" in clone.fails("channel", "serve", "--channel", str(tmp_path))
    assert "--bind example" in clone.fails("channel", "serve", "--bind", "example", "--channel", str(channel))
