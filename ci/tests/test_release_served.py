"""A release at any address: what its page says installs from there, and finds what is wrong."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path

import page_checks
import pytest
from browser import opened
from installers import VERSION
from rattler import Channel, Gateway, MatchSpec, install, solve
from test_environments import altered
from test_release_whole import CHANNEL, copied_tree, release
from tree import ROOT
from wmlce.channel import published
from wmlce.envs import environments
from wmlce.release import manifest
from wmlce.util.files import link_or_copy

pytestmark = pytest.mark.slow
PACKAGE = "libzlib"
PLACE = "some/where/ibm-wml-ce"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of the packages that a small installer needs; beside it, its key."""
    if not (CHANNEL / "channel.json").is_file():
        pytest.skip(f"no channel in {CHANNEL}: wmlce channel build")
    place = tmp_path_factory.mktemp("served")
    small = place / "channel"
    entries = published.entries(CHANNEL)
    wanted = {f"{r.subdir}/{r.file_name}" for r in environments.solve_channel(CHANNEL, ["python", PACKAGE])}
    for key in wanted:
        link_or_copy(CHANNEL / key, small / key)
    published.index(small, {key: entries[key] for key in wanted})
    published.Published({key: entries[key]["sha256"] for key in wanted}).write(small)
    root = copied_tree(place / "clone")
    release(root, "release", "key", "new", str(place / "key"), "--no-passphrase")
    words = ["--package", PACKAGE, "--installer", PACKAGE, "--no-sources", "--key", str(place / "key")]
    return Path(release(root, "release", "make", "--from", str(small), *words)["folder"])


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """One to be served, and to be changed."""
    place = tmp_path / "server" / PLACE
    shutil.copytree(made, place, copy_function=os.link)
    return place


@pytest.fixture
def url(folder: Path, tmp_path: Path) -> Iterator[str]:
    """Its address on a plain web server."""
    words = ["-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(tmp_path / "server")]
    with (tmp_path / "server.log").open("wb") as log:
        server = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert server.stdout is not None
            port = re.search(r"port (\d+)", server.stdout.readline())
            assert port, (tmp_path / "server.log").read_text()
            yield f"http://127.0.0.1:{port[1]}/{PLACE}"
        finally:
            server.kill()
            server.communicate(timeout=30)


class Page(HTMLParser):
    """commands: by id or class of what holds them. links: all of them."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.commands: dict[str, str] = {}
        self.links: list[str] = []
        self._place = ""
        self._inside = False
        self.feed((folder / "index.html").read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = dict(attrs)
        self.links += [str(facts[name]) for name in ("href", "src") if name in facts]
        if tag == "div":
            self._place = facts.get("id") or facts.get("class") or ""
        self._inside = self._inside or tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "pre"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.commands[self._place] = self.commands.get(self._place, "") + data

    def command(self, place: str, url: str) -> str:
        """As a reader pastes it."""
        return self.commands[place].replace("URL", url)


def run(script: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Commands in a shell of their own, with nothing of the user's settings."""
    if shutil.which("curl") is None:
        pytest.skip("curl is missing: apt-get install curl")
    folder.mkdir(exist_ok=True)
    return subprocess.run(
        ["sh", "-euc", script],
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **env},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def signers(made: Path, place: Path) -> Path:
    """What the distributor gives to those who check, as the page names it."""
    return Path(shutil.copy(made.parents[3] / "key.allowed_signers", place / "allowed_signers"))


def test_the_page_tells_what_is_there(made: Path) -> None:
    page, text = Page(made), (made / "index.html").read_text()
    listed = manifest.read(made)
    assert listed["index.html"] == hashlib.sha256(text.encode()).hexdigest()
    # nothing from elsewhere, and nothing that is not there
    assert page.links and all((made / link).is_file() for link in page.links), page.links
    assert {name for name in listed if "/" not in name} - {"index.html"} <= set(page.links)
    [installer] = made.glob("installers/*.sh")
    for name in (installer.relative_to(made), *(path.relative_to(made) for path in made.glob("locks/*"))):
        row = re.search(rf"<a href=\"{name}\">.*?<td class=\"n\">([0-9.,]+)</td>", text)
        assert row and row[1] == f"{(made / name).stat().st_size / 1e6:,.2f}"
    for entry in published.entries(made / "channel").values():
        assert f"<td>{entry['name']}</td><td>{entry['version']}</td><td>{entry['license']}</td>" in text
    assert not list(made.rglob(".*")), "web servers hide such files"
    assert "variant <code>cuda12</code>" in text and "<code>plain</code>" not in text


def test_the_readme_begins_with_what_the_page_says(made: Path) -> None:
    lines = (ROOT / "README.md").read_text().partition("\n## Two commands\n")[0].splitlines()
    page = Page(made)
    for text in (page.commands["conda"], page.commands["installer"]):
        said = text.replace(f"ibm-wml-ce-{PACKAGE}", "ibm-wml-ce").replace(PACKAGE, "powerai")
        assert set(said.splitlines()) <= set(lines), said


def test_it_installs_from_the_address(url: str, folder: Path, tmp_path: Path) -> None:
    """By what stands for conda here: py-rattler solves and installs, with the words of conda's command."""
    *words, package = shlex.split(Page(folder).command("conda", url))
    channel = words[words.index("--channel") + 1]
    assert channel == f"{url}/channel" and "--override-channels" in words

    async def add() -> None:
        records = await solve(
            sources=[Channel(channel)],
            specs=[MatchSpec(package)],
            gateway=Gateway(cache_dir=tmp_path / "repodata"),
            platforms=["linux-64", "noarch"],
            virtual_packages=environments.refusal.virtual_packages(),
            timeout=timedelta(seconds=60),
        )
        await install(records, tmp_path / "env", cache_dir=tmp_path / "pkgs", show_progress=False)

    asyncio.run(add())
    assert (tmp_path / "env/lib/libz.so.1").is_file()


@pytest.mark.parametrize("client", ["conda", "mamba", "pixi"])
def test_clients_of_this_machine_install_from_the_address(
    url: str, folder: Path, client: str, tmp_path: Path
) -> None:
    if shutil.which(client) is None:
        pytest.skip(f"no {client} on PATH; PyPI, Debian and npm have no current one")
    home = tmp_path / "home"
    env = {"CONDA_PKGS_DIRS": str(home / "pkgs"), "CONDA_ALWAYS_YES": "true", "MAMBA_ALWAYS_YES": "true"}
    env |= {"CONDA_ENVS_PATH": str(home / "envs"), "MAMBA_ROOT_PREFIX": str(home)}
    done = run(Page(folder).command(client, url), home, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(home.rglob("lib/libz.so.1"))


def test_the_installer_from_the_address(made: Path, url: str, folder: Path, tmp_path: Path) -> None:
    page, home = Page(folder), tmp_path / "home"
    home.mkdir()
    signers(made, home)
    fetch, start = page.command("installer", url).splitlines()
    check = f"{page.command('checksum', url)}\n{page.command('signature', url)}"
    done = run(f"{fetch}\n{check}\n{start} --batch --prefix env", home)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ".sh: OK" in done.stdout and 'Good "ibm-wml-ce" signature' in done.stdout
    assert (home / "env/lib/libz.so.1").is_file() and altered(home / "env") == []
    # a transfer that broke off, seen by each of them
    [file] = folder.glob("installers/*.sh")
    (cut := file.with_name("cut")).write_bytes(file.read_bytes()[:-1000])
    cut.replace(file)
    for script, said in (
        (page.command("checksum", url), ".sh: FAILED"),
        (page.command("signature", url), "Could not verify signature"),
        (f"{start} --batch --prefix other", "the copy is not complete"),
    ):
        done = run(f"{fetch}\n{script}", home)
        told = done.stdout + done.stderr
        assert done.returncode != 0 and said in told and "Traceback" not in told, told
    assert "copy" in done.stderr.partition("error: ")[2].partition("\n")[2] and not (home / "other").exists()


def test_all_of_it_from_the_address(made: Path, url: str, folder: Path, tmp_path: Path) -> None:
    """As somebody fetches it who serves it himself."""
    trusted = signers(made, tmp_path)
    script = Page(folder).command("whole", url)
    done = run(script, tmp_path / "copy")
    assert done.returncode == 0 and 'Good "ibm-wml-ce" signature' in done.stdout, done.stdout + done.stderr
    told = release(ROOT, "release", "check", str(tmp_path / "copy"), "--key", str(trusted))
    assert told["trusted"] and told["files"] == len(manifest.read(made))

    def refused(change: Callable[[Path], None], name: str, said: str) -> None:
        path = folder / name
        kept = path.rename(folder.parent / "kept")
        change(path)
        done = run(script, tmp_path / "bad")
        told = done.stdout + done.stderr
        assert done.returncode != 0 and re.search(said, told), told
        path.unlink(missing_ok=True)
        kept.rename(path)
        shutil.rmtree(tmp_path / "bad")

    repodata = "channel/linux-64/repodata.json"
    refused(lambda path: path.write_text("{}"), repodata, rf"{repodata}: FAILED")
    refused(lambda path: path.write_text(""), "SHA256SUMS", "Could not verify signature")
    refused(lambda path: None, "NOTES.md", r"NOTES\.md: FAILED open or read[\s\S]*not fetched: NOTES\.md")


def test_a_module_from_the_address(url: str, folder: Path, tmp_path: Path) -> None:
    """The page's last two commands, with this tree's tool; and a server without the channel's index."""
    script = Page(folder).command("module", url)
    assert f"{url}/ibm-wml-ce-{VERSION}.tar.gz" in script
    mirror, module = (
        line.removeprefix("build/tools/bin/wmlce ").replace("/sw", str(tmp_path / "sw"))
        for line in script.splitlines()
        if line.startswith("build/tools/bin/wmlce ")
    )
    release(ROOT, *shlex.split(mirror))
    release(ROOT, *shlex.split(module))
    prefix = tmp_path / "sw/ibm-wml-ce" / VERSION
    assert (prefix / "lib/libz.so.1").is_file() and altered(prefix) == []

    def fails(*words: str) -> str:
        command = [sys.executable, "-m", "wmlce", "--root", str(ROOT), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 1 and "Traceback" not in done.stderr
        return done.stderr

    # what installs takes folders
    for words in (
        ["env", "create", "served"],
        ["installer", "build"],
        ["module", "install", "--prefix", str(tmp_path)],
    ):
        assert "wmlce channel mirror DIR" in fails(*words, "--from", f"{url}/channel")
    for path in folder.glob("channel/*/repodata*"):
        path.unlink()
    error = fails(*shlex.split(mirror))
    assert re.search(rf"{re.escape(url)}/channel/\S+/repodata\.json is not what was signed: missing", error)
    assert "remedy: if the channel was changed meanwhile, run the command again" in error


def test_the_page_in_a_browser(url: str, folder: Path, tmp_path: Path) -> None:
    """It says its own address, at two widths, light and dark, and asks for nothing else."""
    page_checks.need_browser()
    page = folder / "index.html"
    with opened(tmp_path / "browser") as browser:
        page_checks.check_drawn(browser, page, 0)
        page_checks.check_colours(browser, page)
        page_checks.check_structure(browser, page)
        for address in (f"{url}/", f"{url}/index.html?from=elsewhere#check"):
            browser.show(address)
            shown = browser.value("document.getElementById('conda').textContent")
            assert f"--channel {url}/channel {PACKAGE}" in shown
            assert "URL" not in browser.value("document.body.innerText")
        # an address that a shell would take for more stays out of the commands
        folder.rename(folder.with_name("a;b"))
        browser.show(f"{url.rpartition('/')[0]}/a;b/")
        assert "--channel URL/channel" in browser.value("document.getElementById('conda').textContent")
