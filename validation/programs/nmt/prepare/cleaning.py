"""Plain sentences out of the paragraphs of manual pages and programs."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

_FONT = re.compile(r"\b(?:[BIRCL]|C[WRB]|BI|IB)<([^<>]*)>")
_SIGNS = {
    r"\-": "-",
    r"\(hy": "-",
    r"\(aq": "'",
    r"\[aq]": "'",
    r"\(cq": "'",
    r"\(oq": "'",
    r"\(dq": '"',
    r"\[dq]": '"',
    r"\(lq": '"',
    r"\(rq": '"',
    r"\[lq]": '"',
    r"\[rq]": '"',
    r"\(em": "-",
    r"\[em]": "-",
    r"\(en": "-",
    r"\[en]": "-",
    r"\&": "",
    r"\:": "",
    r"\/": "",
    r"\,": "",
    r"\~": " ",
    r"\ ": " ",
    r"\|": "",
    r"\^": "",
    "E<.br>": " ",
}
#: Of DocBook and the like. Other entities stay, and leave out the sentence: only the document knows them.
_TAG = re.compile(r"</?[a-zA-Z][\w-]*(?:\s[^<>]*)?/?>")
#: AsciiDoc's and Markdown's.
_EMPHASIS = re.compile(r"(?<![\w*_`])(\*\*|__|[*_`])(?=\S)(.+?)(?<=\S)\1(?![\w*_`])")
_ENTITIES = {
    "&debian;": "Debian",
    "&debian-gnu;": "Debian GNU/Linux",
    "&arch-title;": "PC",
    "&kernel;": "Linux",
}
_BRACKETS = str.maketrans("\ue000\ue001", "<>")
_QUOTES = str.maketrans({**dict.fromkeys("„“”«»‟", '"'), **dict.fromkeys("‚‘’‹›`´", "'"), "–": "-", "—": "-",
                         "…": "...", "\u00a0": " ", "\u202f": " ", "\u2011": "-"})  # fmt: skip
_BLANKS = re.compile(r"\s+")
#: What running text does not have: markup that is left, formats, addresses, shell.
_FOREIGN = re.compile(r"[\\<>{}|\[\]_#$~^*@`]|&\w|%\S|https?:|\.\.\.")
_END = re.compile(r"""(?<=[.!?:])["')]?\s+(?=["'(]?[A-ZÄÖÜ])""")
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|approx|Nr|No|bzw|usw|ca|evtl|ggf|inkl|vgl|Abs|Kap|Dr)|\b\w\. ?\w|\b\w)\.$"
)
_WORD = re.compile(r"\w+")


def plain(text: str) -> str:
    """A paragraph without its markup; what is not running text stays, to be left out later."""
    for sign, meaning in _SIGNS.items():
        text = text.replace(sign, meaning)
    # Not yet as brackets, which would look like markup.
    text = text.replace("E<lt>", "\ue000").replace("E<gt>", "\ue001")
    before = ""
    while before != text:
        before, text = text, _FONT.sub(r"\1", text)
    for entity, name in _ENTITIES.items():
        text = text.replace(entity, name)
    text = _EMPHASIS.sub(r"\2", _TAG.sub("", text))
    text = html.unescape(text.translate(_BRACKETS))
    return _BLANKS.sub(" ", text.translate(_QUOTES)).strip()


def split_sentences(paragraph: str) -> list[str]:
    """The sentences of a plain paragraph."""
    sentences = []
    begin = 0
    for match in _END.finditer(paragraph):
        candidate = paragraph[begin : match.start()] + match[0].rstrip()
        if not _ABBREVIATION.search(candidate):
            sentences.append(candidate.strip())
            begin = match.end()
    sentences.append(paragraph[begin:].strip())
    return [sentence for sentence in sentences if sentence]


def _is_prose(sentence: str, shortest: int, longest: int) -> bool:
    tokens = sentence.split()
    letters = sum(character.isalpha() or character == " " for character in sentence)
    return (
        shortest <= len(tokens) <= longest
        and not _FOREIGN.search(sentence)
        and letters >= 0.8 * len(sentence)
        and max(map(len, tokens)) <= 40
    )


def good_pairs(original: str, translation: str, shortest: int, longest: int) -> Iterator[tuple[str, str]]:
    """The sentences of a paragraph with their translations, as far as they are prose and belong together.

    Args:
        original: A paragraph as the catalogue has it.
        translation: Its translation.
        shortest: Words that a sentence has at least, on either side.
        longest: Words that it has at most.
    """
    ours, theirs = split_sentences(plain(original)), split_sentences(plain(translation))
    if len(ours) != len(theirs):
        return  # a translator joined or divided sentences, and nothing tells which
    for source, other in zip(ours, theirs, strict=True):
        if not all(_is_prose(sentence, shortest, longest) for sentence in (source, other)):
            continue
        if not 0.5 <= len(source) / len(other) <= 1.8:
            continue
        distinct = [set(_WORD.findall(sentence.lower())) for sentence in (source, other)]
        # Text that was left as it is, or is names and commands for the most part.
        if len(distinct[0] & distinct[1]) <= 0.5 * min(map(len, distinct)):
            yield source, other


def key(sentence: str) -> str:
    """The same for sentences that differ in case, numbers and punctuation alone."""
    return " ".join(_WORD.findall(re.sub(r"\d+", "0", sentence.lower())))
