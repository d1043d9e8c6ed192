"""The documentation's site: whole, without a network, and equal for equal trees."""

from __future__ import annotations

import html.parser
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import browser
import pytest
from tree import ROOT, tracked
from wmlce.documentation import api, headers, site
from wmlce.util.layout import Layout

HEADER = """\
/**
 * @file small.h
 * A header with **two** functions.
 *
 * Codes are SMALL_*.
 */
#ifndef SMALL_H
#define SMALL_H
#include <stddef.h>
#if defined(__GNUC__)
#define DDL_API __attribute__((visibility("default")))
#endif
/** The release; a text `<a>`. */
#define SMALL_MAJOR 2
#define SMALL_MINOR 0
extern "C" {
/** A number. */
typedef struct {
  size_t size; /**< in bytes; not in words */
  int (*next)(void* context);
} DDL_Number;

/**
 * Adds what is <here>; see ddl_take():
 * - one
 * - two
 * @param count  how many,
 * in elements
 * @param out    `a|b`
 * @return 0, or
 *         a code
 *
 * More text.
 */
DDL_API int ddl_add(size_t count,
                    DDL_Number* out);
DDL_API int ddl_take(void);
}
#endif
"""


def test_page_of_a_header() -> None:
    header = headers.parse("small.h", HEADER)
    assert [entry.name for entry in header.entries] == [
        "SMALL_MAJOR, SMALL_MINOR", "DDL_Number", "ddl_add", "ddl_take",
    ]  # fmt: skip
    number, add = header.entries[1:3]
    assert number.code.startswith("typedef struct {") and number.code.endswith("} DDL_Number;")
    assert add.code == "int ddl_add(size_t count,\n            DDL_Number* out);"
    assert add.comment.parameters == {"count": "how many, in elements", "out": "`a|b`"}
    assert add.comment.results == [("Returns", "0, or a code")]
    page = headers.pages([header])["small.h"]
    for expected in (
        "# small.h\n\nA header with **two** functions.\n\nCodes are SMALL_\\*.\n",
        "## `ddl_add` { #ddl_add }\n\n```c\nint ddl_add(size_t count,",
        "Adds what is &lt;here>; see [`ddl_take()`](#ddl_take):\n\n- one\n- two\n\nMore text.",
        "| `out` | `a\\|b` |",
        "**Returns:** 0, or a code",
        "a text `<a>`.",
    ):
        assert expected in page, page


def test_every_function_of_the_headers_has_an_entry() -> None:
    found = [path for path in tracked(".h", ".hpp") if path.parent.name == "include"]
    assert {"ddl.h", "ddl_pack.h"} <= {path.name for path in found}
    for path in found:
        text = path.read_text()
        exported = re.findall(r"^DDL_API [^(;]*?(\w+)\(", text, re.MULTILINE)
        entries = [entry.name for entry in headers.parse(path.name, text).entries]
        assert exported == [name for name in entries if name in exported], path


def test_modules_of_the_reference() -> None:
    names = set(api.modules(ROOT))
    assert {"ddl", "ddl.keras", "ddl.tensorflow", "ddl.torch", "lms", "lms.torch"} <= names
    assert not [name for name in names if "._" in name or "launch" in name]


def test_only_the_site_of_this_version_is_passed_on(tmp_path: Path) -> None:
    layout = Layout(tmp_path, tmp_path / "cache")
    assert site.find(layout) is None
    (tmp_path / "VERSION").write_text("1.0\n")
    folder = tmp_path / "build/site"
    folder.mkdir(parents=True)
    (folder / "site.json").write_text('{"version": "1.0", "commit": "abc"}')
    assert site.find(layout) == site.Site(folder, "1.0", "abc")
    (tmp_path / "VERSION").write_text("1.1\n")
    assert site.find(layout) is None
    (folder / "site.json").write_text("{")
    assert site.find(layout) is None


def _tree(folder: Path) -> Path:
    """A copy of the tracked files."""
    for path in tracked():
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return folder


def _made(root: Path, output: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wmlce", "--root", str(root), "--json", "docs", "--output", str(output)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of this tree."""
    folder = tmp_path_factory.mktemp("documentation") / "site"
    result = _made(ROOT, folder)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["start"] == str(folder / "index.html")
    return folder


class _Page(html.parser.HTMLParser):
    """Links and anchors of a page, and what a browser loads for it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors = {"", "__skip"}
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        address = values.get("href") or values.get("src")
        if address:
            (self.links if tag == "a" else self.loaded).append(address)


@pytest.mark.slow
def test_every_link_of_the_site_leads_somewhere_in_it(made: Path) -> None:
    found = {path: _Page(path) for path in made.rglob("*.html") if path.name != "404.html"}
    assert len(found) > 80
    for path, page in found.items():
        for address in page.loaded:
            assert not urlsplit(address).netloc, f"{path} loads {address}"
        for address in [*page.links, *page.loaded]:
            parts = urlsplit(address)
            if parts.scheme or address.startswith("javascript:"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), f"{path.relative_to(made)} links to {address}"
            if target in found and parts.fragment:
                anchors = found[target].anchors
                assert unquote(parts.fragment) in anchors, f"{path.relative_to(made)}: {address}"


@pytest.mark.slow
def test_search_works_from_the_folder(made: Path, tmp_path: Path) -> None:
    if browser.program() is None:
        pytest.skip("no browser; Debian: apt-get install chromium-headless-shell")
    with browser.opened(tmp_path) as window:
        window.show(f"{(made / 'train/keras.html').as_uri()}?q=reduce_scatter")
        titles = """new Promise(done => {
            const look = () => {
                const found = [...document.querySelectorAll(".md-search-result__item h1")];
                found.length ? done(found.map(one => one.textContent)) : setTimeout(look, 50);
            };
            look();
        })"""
        found = window.value(titles)
        assert "ddl.h" in found and len(found) == len(set(found)), found
        assert not window.errors
        assert all(address.startswith("file:") for address in window.requests)


@pytest.mark.slow
def test_equal_trees_give_equal_sites(made: Path, tmp_path: Path) -> None:
    again = tmp_path / "site"
    assert _made(ROOT, again).returncode == 0

    def contents(folder: Path) -> dict[str, bytes]:
        return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    first, second = contents(made), contents(again)
    assert first.keys() == second.keys()
    assert not [name for name, data in first.items() if second[name] != data]


@pytest.mark.slow
def test_errors_of_pages_and_comments_are_named(tmp_path: Path) -> None:
    root, output = _tree(tmp_path / "tree"), tmp_path / "site"
    page = root / "docs/train/keras.md"
    text = page.read_text()
    for addition, expected in (
        ("[x](nowhere.md)", "nowhere.md"),
        ("[x](../../ci/nowhere)", "ci/nowhere"),
        ("[x](pytorch.md#nowhere)", "nowhere"),
    ):
        page.write_text(f"{text}\n{addition}\n")
        result = _made(root, output)
        assert result.returncode == 1 and not output.exists(), addition
        assert "train/keras.md" in result.stderr and expected in result.stderr, result.stderr
    page.write_text(text)
    (root / "docs/train" / "new.md").write_text("# New\n")
    result = _made(root, output)
    assert result.returncode == 1 and "train/new.md" in result.stderr, "no menu lists the page"
    (root / "docs/train" / "new.md").unlink()
    # what is no site stays
    output.mkdir()
    (output / "mine").touch()
    assert "is no site" in _made(root, output).stderr and (output / "mine").exists()
