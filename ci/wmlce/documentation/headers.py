"""Reference pages of C and C++ headers, written from their documentation comments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_TAG = re.compile(r"(?:^|(?<=\s))@(param|return|throws|file)\b[ \t]*")
_CODE = re.compile(r"(`[^`]*`)")
_EXPORTED = "DDL_API "
_TITLES = {"return": "Returns", "throws": "Throws"}


@dataclass
class Comment:
    """A documentation comment, taken apart."""

    text: str = ""
    """Markdown outside of all tags."""
    parameters: dict[str, str] = field(default_factory=dict)
    """Description of each parameter."""
    results: list[tuple[str, str]] = field(default_factory=list)
    """Title and text of `@return` and `@throws`."""


@dataclass(frozen=True)
class Entry:
    """A declaration and its comment."""

    name: str
    code: str
    comment: Comment


@dataclass(frozen=True)
class Header:
    """A header: the comment on the file, and its declarations in their order."""

    name: str
    comment: Comment
    entries: list[Entry]


def parse(name: str, text: str) -> Header:
    """Read the header called name. Declarations without a comment are listed, macros without one are not."""
    introduction = Comment()
    entries: list[Entry] = []
    comment: Comment | None = None
    for kind, token in _tokens(text):
        if kind == "comment":
            comment = _comment(token)
            if "@file" in token:
                introduction, comment = comment, None
        elif kind == "macro":
            if comment is not None:
                entries.append(Entry(_macro_name(token), token, comment))
            comment = None
        else:
            code = token
            if code.startswith(_EXPORTED):
                code = code.removeprefix(_EXPORTED).replace("\n" + " " * len(_EXPORTED), "\n")
            entries.append(Entry(_declared_name(code), code, comment or Comment()))
            comment = None
    return Header(name, introduction, entries)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Documentation comments, macros (adjacent ones together) and declarations."""
    at = 0
    skipped = re.compile(r'\s+|//[^\n]*|/\*(?!\*(?!<)).*?\*/|extern "C" \{|[{};]', re.DOTALL)
    comment = re.compile(r"/\*\*(?!<)(.*?)\*/", re.DOTALL)
    macro = re.compile(r"(?:#[ \t]*define\b(?:[^\n]*\\\n)*[^\n]*\n?)+")
    directive = re.compile(r"#(?:[^\n]*\\\n)*[^\n]*")
    while at < len(text):
        if match := skipped.match(text, at):
            at = match.end()
        elif match := comment.match(text, at):
            yield "comment", match[1]
            at = match.end()
        elif match := macro.match(text, at):
            yield "macro", match[0].rstrip()
            at = match.end()
        elif match := directive.match(text, at):
            at = match.end()
        else:
            end = _end_of_declaration(text, at)
            yield "declaration", text[at:end]
            at = end


def _end_of_declaration(text: str, at: int) -> int:
    """The place behind the `;` that ends a declaration; comments and braces in it may hold others."""
    depth = 0
    for match in re.compile(r"/\*.*?\*/|//[^\n]*|[{}();]", re.DOTALL).finditer(text, at):
        token = match[0]
        if token in "{(":
            depth += 1
        elif token in "})":
            depth -= 1
        elif token == ";" and depth == 0:
            return match.end()
    return len(text)


def _macro_name(code: str) -> str:
    return ", ".join(re.findall(r"^#[ \t]*define[ \t]+(\w+)", code, re.MULTILINE))


def _declared_name(code: str) -> str:
    plain = re.sub(r"/\*.*?\*/|//[^\n]*", "", code, flags=re.DOTALL)
    if plain.startswith("typedef"):
        return str(re.findall(r"\w+", plain)[-1])
    match = re.search(r"\b(?:struct|class|enum(?: class)?|union)\s+(\w+)", plain) or re.search(
        r"(\w+)\s*\(", plain
    )
    return match[1] if match else str(re.findall(r"\w+", plain)[-1])


def _comment(raw: str) -> Comment:
    lines = [re.sub(r"^\s*\* ?", "", line).rstrip() for line in raw.splitlines()]
    text = "\n".join(lines).strip()
    pieces = _TAG.split(text)
    comment = Comment()
    paragraphs = [pieces[0].strip()]
    for tag, piece in zip(pieces[1::2], pieces[2::2], strict=True):
        body, _, rest = piece.partition("\n\n")
        flat = " ".join(body.split())
        if tag == "file":
            # the name of the file, then its description
            paragraphs.append(body.partition("\n")[2])
        elif tag == "param":
            name, _, meaning = flat.partition(" ")
            comment.parameters[name] = meaning
        else:
            comment.results.append((_TITLES[tag], flat))
        paragraphs.append(rest.strip())
    comment.text = re.sub(r"(?<!\n)\n(- )", r"\n\n\1", "\n\n".join(filter(None, paragraphs)), count=1)
    return comment


def pages(headers: list[Header]) -> dict[str, str]:
    """A Markdown page for each header, by the header's name. Names of declarations are links."""
    places: dict[str, str] = {}
    for header in headers:
        for entry in header.entries:
            places.setdefault(entry.name, header.name)
    return {header.name: _page(header, places) for header in headers}


def _page(header: Header, places: Mapping[str, str]) -> str:
    def prose(text: str) -> str:
        return "".join(
            piece if piece.startswith("`") else _linked(_escaped(piece), header.name, places)
            for piece in _CODE.split(text)
        )

    language = "cpp" if header.name.endswith("pp") else "c"
    lines = [f"# {header.name}", "", prose(header.comment.text), ""]
    for entry in header.entries:
        lines += [f"## `{entry.name}` {{ #{_anchor(entry.name)} }}", ""]
        lines += [f"```{language}", entry.code, "```", "", prose(entry.comment.text), ""]
        if entry.comment.parameters:
            lines += ["| Parameter | Meaning |", "|---|---|"]
            for name, meaning in entry.comment.parameters.items():
                lines.append(f"| `{name}` | {prose(meaning).replace('|', chr(92) + '|')} |")
            lines.append("")
        for title, text in entry.comment.results:
            lines += [f"**{title}:** {prose(text)}", ""]
    return "\n".join(lines)


def _anchor(name: str) -> str:
    return re.sub(r"\W+", "-", name)


def _escaped(text: str) -> str:
    """Prose in which `<` and a lone `*` mean themselves; a list's `-` and bold text stay Markdown."""
    return re.sub(r"(?<!\*)\*(?!\*)", r"\\*", text.replace("<", "&lt;"))


def _linked(text: str, header: str, places: Mapping[str, str]) -> str:
    def link(match: re.Match[str]) -> str:
        place = places.get(match[1])
        if place is None:
            return match[0]
        page = "" if place == header else f"{place}.md"
        return f"[`{match[0]}`]({page}#{_anchor(match[1])})"

    return re.sub(r"\b(ddl_\w+|DDL_[A-Z][a-z]\w*)\b(?:\(\))?", link, text)
