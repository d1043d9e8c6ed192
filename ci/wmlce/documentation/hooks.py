"""Hooks of MkDocs (mkdocs.yml): what the site has besides the pages of docs/.

The pages are written for readers of the tree as well: they link to files outside of docs/. Such a file
becomes a page of the site. The API reference is written from headers and docstrings.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from mkdocs.plugins import event_priority
from mkdocs.structure.files import File
from pymdownx.slugs import slugify

from wmlce.documentation import api

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[a-z]+)[^\n`]*$", re.MULTILINE)
_LINK = re.compile(r"(?<=\]\()(?P<target>(?!https?:|mailto:|#)[^)\s#]+)(?P<anchor>#[^)\s]*)?(?=\))")
_LANGUAGES = {".py": "python", ".sh": "bash", ".cpp": "cpp", ".hpp": "cpp", ".h": "c", ".yml": "yaml"}
_SOURCE = "source"


# before mkdocstrings reads its settings
@event_priority(100)
def on_config(config: Any) -> Any:
    """Anchors as forges make them, and the API reference in the menu."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    root = _root(config)
    handlers = config.plugins["mkdocstrings"].config.handlers
    handlers["python"]["paths"] = [str(path) for path in api.package_folders(root)]
    (reference,) = [entry["Reference"] for entry in config.nav if "Reference" in entry]
    reference.append({"API": [{page.title: page.path} for page in api.pages(root)]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the API, and those of the files outside of docs/ that pages link to."""
    root, docs = _root(config), Path(config.docs_dir)
    for page in api.pages(root):
        files.append(File.generated(config, page.path, content=page.text))
    waiting = [(file.src_uri, file.content_string) for file in files.documentation_pages()]
    while waiting:
        uri, text = waiting.pop()
        for match in _LINK.finditer(text):
            path = _target(root, docs, uri, match["target"])
            if path is None or _is_page(docs, path):
                continue
            added = _source_uri(root, path)
            if files.get_file_from_path(added) is None:
                content = _source_page(root, path)
                files.append(File.generated(config, added, content=content))
                waiting.append((added, content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links, fences and tables in the dialect of MkDocs."""
    root, docs = _root(config), Path(config.docs_dir)
    uri = page.file.src_uri

    def link(match: re.Match[str]) -> str:
        path = _target(root, docs, uri, match["target"])
        if path is None:
            return match[0]
        target = path.relative_to(docs).as_posix() if _is_page(docs, path) else _source_uri(root, path)
        return posixpath.relpath(target, posixpath.dirname(uri)) + (match["anchor"] or "")

    markdown = _FENCE.sub(r"\g<indent>```\g<language>", markdown)
    return _outside_fences(markdown, lambda line: _LINK.sub(link, _table_row(line)))


def _outside_fences(markdown: str, change: Callable[[str], str]) -> str:
    lines, fenced = [], False
    for line in markdown.split("\n"):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        lines.append(line if fenced else change(line))
    return "\n".join(lines)


def _table_row(line: str) -> str:
    """Python-Markdown takes a `|` in code for itself, and shows the backslash that forges need before it."""
    if not line.startswith("|"):
        return line
    return re.sub(r"`[^`]+`", lambda code: code[0].replace("\\|", "|"), line)


def _root(config: Any) -> Path:
    return Path(config.config_file_path).resolve().parent


def _target(root: Path, docs: Path, uri: str, target: str) -> Path | None:
    """The file or folder of the tree that a page links to; None where there is none.

    The page of a file outside of docs/ links as that file does.
    """
    source = uri.removeprefix(f"{_SOURCE}/")
    folder = (docs if source == uri else root) / posixpath.dirname(source)
    path = Path(posixpath.normpath(folder / unquote(target)))
    return path if path.is_relative_to(root) and path.exists() else None


def _is_page(docs: Path, path: Path) -> bool:
    """Whether the site has the file under its own name; of a folder it has a list of the files."""
    return path.is_relative_to(docs) and path.is_file()


def _source_uri(root: Path, path: Path) -> str:
    name = path.relative_to(root).as_posix()
    return f"{_SOURCE}/{name}" if path.suffix == ".md" else f"{_SOURCE}/{name}.md"


def _source_page(root: Path, path: Path) -> str:
    """A page of a file: Markdown as it is, other text as code, a folder as the list of its files."""
    if path.suffix == ".md":
        return path.read_text()
    name = path.relative_to(root).as_posix()
    head = f"---\nsearch:\n  exclude: true\n---\n\n# {path.name}\n\n`{name}` in the tree of the project.\n\n"
    if path.is_dir():
        names = sorted(item.name for item in path.iterdir() if not item.name.startswith(("_", ".")))
        return head + "\n".join(f"- `{item}`" for item in names) + "\n"
    text = path.read_text()
    fence = "`" * max(3, *(len(ticks) + 1 for ticks in re.findall(r"`+", text)), 3)
    language = _LANGUAGES.get(path.suffix, path.suffix.lstrip(".") or "text")
    return f"{head}{fence}{language}\n{text.rstrip()}\n{fence}\n"
