"""The texts of the translation program: how they are made, found and turned into numbers."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
from program_runner import PROGRAMS, Environment

from nmt.corpus import Split, open_corpus, read_split
from nmt.errors import NmtError
from nmt.prepare.cleaning import good_pairs, key, plain, split_sentences
from nmt.prepare.splitting import divide
from nmt.rate import halved_at_the_end
from nmt.special import BEGIN, END, PAD, UNKNOWN
from nmt.vocabulary import Sentences, WordList, join_subwords


@pytest.mark.parametrize(
    ("marked", "wanted"),
    [
        (r"B<ls>(1) lists I<files>, B<I<also>> semi\-hidden", "ls(1) lists files, also semi-hidden"),
        (r"the name\(aqs end \(em or not E<lt>here E<gt>", "the name's end - or not <here >"),
        ('the <command>su</command> in\n <xref linkend="x"/> &debian;', "the su in Debian"),
        ("use *mount* _device_, `snake_case` or 2 * 3 * 4", "use mount device, snake_case or 2 * 3 * 4"),
        ("„so“ »und« ‚so‘ &quot;x&quot;", "\"so\" \"und\" 'so' \"x\""),
    ],
)  # fmt: skip
def test_markup_is_taken_off(marked: str, wanted: str) -> None:
    assert plain(marked) == wanted


def test_sentences_are_split() -> None:
    """At full stops, not at those of abbreviations."""
    text = 'Das ist z. B. Debian. Es gibt (u. a.) mehr, e.g. Linux! "Wirklich?" Ja. kein Anfang'
    assert split_sentences(text) == [
        "Das ist z. B. Debian.",
        "Es gibt (u. a.) mehr, e.g. Linux!",
        '"Wirklich?"',
        "Ja. kein Anfang",
    ]


@pytest.mark.parametrize(
    ("original", "translation", "found"),
    [
        ("The file is empty. It is gone.", "Die Datei ist leer. Sie ist fort.", 2),
        (
            "The file is empty. It is gone.",
            "Die Datei ist leer, sie ist fort.",
            0,
        ),  # joined by the translator
        ("cannot open %s for reading", "%s kann nicht gelesen werden", 0),  # a format
        ("see https://example.com for this", "siehe https://example.com dazu hier", 0),  # an address
        ("Empty file", "Leere Datei", 0),  # too short
        ("run git commit --amend now", "run git commit --amend now", 0),  # not translated
        ("The file is empty.", "Die Datei ist leer, was vielleicht so gewollt war, vielleicht nicht.", 0),
        (" ".join(["word"] * 31), " ".join(["Wort"] * 31), 0),  # too long
    ],
)
def test_prose_is_chosen(original: str, translation: str, found: int) -> None:
    assert len(list(good_pairs(original, translation, 3, 30))) == found


def test_corpus_is_divided_by_content() -> None:
    """No two sentences alike, and no matter in which order they come."""
    letters = [f"{chr(97 + i % 26)} {chr(97 + i // 26)}" for i in range(300)]
    pairs = [(f"word {letter} number", f"Wort {letter} Zahl") for letter in letters]
    parts = divide(pairs, 20)
    every = [pair for part in (parts.train, parts.dev, parts.test) for pair in part]
    assert (len(parts.dev), len(parts.test)) == (20, 20) and len(parts.train) > 100
    for side in (0, 1):
        keys = [key(pair[side]) for pair in every]
        assert len(keys) == len(set(keys))
    twice = divide([*pairs, *((a.upper(), b + "!") for a, b in pairs)], 20)
    assert twice == parts
    unique = every[::-1]
    assert divide(unique, 20) == parts
    assert divide(unique, 20, most=50).train == parts.train[:50]
    with pytest.raises(NmtError, match="--held-out"):
        divide(pairs, 200)


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_wmt16_folder(tmp_path: Path) -> None:
    """The files that its usual scripts leave."""
    for name in ("train.tok.clean.bpe.32000", *(f"newstest{y}.tok.bpe.32000" for y in (2013, 2014, 2015))):
        for language in ("de", "en"):
            (tmp_path / f"{name}.{language}").write_text("ein@@ s zwei\n")
    (tmp_path / "newstest2015.de").write_text("nicht zerlegt\n")
    (tmp_path / "vocab.bpe.32000").write_text("<unk>\n<s>\n</s>\nein@@\ns\nzwei\n")
    corpus = open_corpus(tmp_path, "de", "en")
    assert corpus.subwords and corpus.train.source.name == "train.tok.clean.bpe.32000.de"
    assert corpus.dev.target.name == "newstest2014.tok.bpe.32000.en"
    assert corpus.test.source.name == "newstest2015.tok.bpe.32000.de"
    assert corpus.vocabularies.source == corpus.vocabularies.target
    chosen = open_corpus(tmp_path, "de", "en", "newstest2013.tok.bpe.32000", "newstest2014.tok.bpe.32000")
    assert chosen.dev.source.name == "newstest2013.tok.bpe.32000.de"
    assert chosen.test.source.name == "newstest2014.tok.bpe.32000.de"
    words = WordList(corpus.vocabularies.source)
    assert words.encode(["ein@@ s drei zwei"]) == [[4, 5, UNKNOWN, 6]]
    assert words.decode([BEGIN, 4, 5, 6, END, PAD]) == "eins zwei"
    (tmp_path / "vocab.bpe.32000").rename(tmp_path / "vocab.bpe.32000.de")
    with pytest.raises(NmtError, match=r"vocab\.bpe\.32000\.en"):
        open_corpus(tmp_path, "de", "en")
    (tmp_path / "vocab.bpe.32000.de").rename(tmp_path / "vocab.bpe.32000")
    (tmp_path / "newstest2015.tok.bpe.32000.en").unlink()
    with pytest.raises(NmtError, match=r"newstest2015\.tok\.bpe\.32000\.en"):
        open_corpus(tmp_path, "de", "en")


@pytest.mark.parametrize("text", ["a@@ b c", "a@@ b@@ c d@@", "a@@b @@ c", "a b"])
def test_subwords_are_joined(text: str) -> None:
    """The reference: the replacement that subword-nmt's own documentation gives."""
    assert join_subwords(text) == re.sub(r"(@@ )|(@@ ?$)", "", text)


def test_bad_texts_are_named(tmp_path: Path) -> None:
    write(tmp_path, a="eins\nzwei\n", b="one\n", empty="")
    (tmp_path / "latin").write_bytes("ä\n".encode("latin-1"))
    with pytest.raises(NmtError, match="a has 2 lines and b has 1"):
        read_split(Split(tmp_path / "a", tmp_path / "b"))
    with pytest.raises(NmtError, match=r"latin is not UTF-8 .* convert"):
        read_split(Split(tmp_path / "latin", tmp_path / "b"))
    with pytest.raises(NmtError, match="empty"):
        read_split(Split(tmp_path / "empty", tmp_path / "empty"))
    (tmp_path / "odd").write_text("one\u2028line\u0085still\r\ntwo\n", newline="")
    assert read_split(Split(tmp_path / "odd", tmp_path / "a")) == (
        ["one\u2028line\u0085still", "two"],
        ["eins", "zwei"],
    )


def test_word_list_is_checked(tmp_path: Path) -> None:
    write(tmp_path, twice="<unk>\n<s>\n</s>\na\nb\na\n", none="<unk>\n<s>\n</s>\n")
    with pytest.raises(NmtError, match="1 duplicate words"):
        WordList(tmp_path / "twice")
    with pytest.raises(NmtError, match="no words"):
        WordList(tmp_path / "none")


def test_sentences_are_padded() -> None:
    """The reference: lists, one sentence after the other."""
    lists = [[4, 5, 6], [7], [], [8, 9]]
    found = Sentences.of(lists)
    assert found.lengths.tolist() == [3, 1, 0, 2] and len(found) == 4
    for begin in (False, True):
        for end in (False, True):
            index = [3, 0, 2]
            rows = [[BEGIN] * begin + lists[i] + [END] * end for i in index]
            width = max(map(len, rows))
            wanted = [row + [PAD] * (width - len(row)) for row in rows]
            assert found.padded(np.array(index), begin=begin, end=end).tolist() == wanted
    assert found.chosen([1, 3]).padded(np.array([0, 1])).tolist() == [[7, PAD], [8, 9]]


def test_rate_is_halved_in_the_last_third() -> None:
    rate = halved_at_the_end(0.8, 12)
    assert [rate(epoch, 0.3) for epoch in range(8)] == [0.3] * 8
    assert [rate(epoch, 0.3) for epoch in range(8, 12)] == pytest.approx([0.4, 0.2, 0.1, 0.05])
    assert [halved_at_the_end(1.0, 2)(epoch, 0.7) for epoch in (0, 1)] == [0.7, 0.7]


CATALOGUE = """
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"

#. type: Plain text
msgid "B<{one}> lists the {two} files of a folder."
msgstr "B<{one}> zeigt die {two} Dateien eines Ordners."

#. type: SH
msgid "This heading is not running text."
msgstr "Diese Überschrift ist kein Fließtext."

#, fuzzy
#. type: Plain text
msgid "A {one} translation that nobody has looked at yet."
msgstr "Eine {two} Übersetzung, die noch niemand angesehen hat."
"""


def test_catalogues_become_texts(env: Environment, tmp_path: Path) -> None:
    """The program that made the channel's texts, on small catalogues; again, the same."""
    for module in ("polib", "sentencepiece"):
        if not env.has(module):
            pytest.skip(f"{env.prefix} has no {module}")
    names = ["old", "new", "red", "blue", "fast", "slow", "wide", "thin", "dark", "light", "soft", "hard"]
    head, entry = CATALOGUE.split("\n\n", 1)
    entries = [entry.format(one=one, two=two) for one in names for two in names if one != two]
    for folder in ("po/a/de.po", "po/b/fr.po"):
        (tmp_path / folder).parent.mkdir(parents=True)
        (tmp_path / folder).write_text("\n\n".join([head, *entries]))
    python_path = os.pathsep.join(filter(None, [PROGRAMS, os.environ.get("PYTHONPATH")]))
    for output in ("first", "second"):
        options = [tmp_path / "po", tmp_path / output, "--held-out", "10", "--vocabulary", "100"]
        run = env.python("-m", "nmt.prepare", *options, PYTHONPATH=python_path).ok()
        assert "112 pairs to train on, 10 to follow, 10 to test; 100 subwords" in run.out
    files = sorted(file.name for file in (tmp_path / "first").iterdir())
    assert files == ["dev.de", "dev.en", "spm.model", "test.de", "test.en", "train.de", "train.en"]
    for name in files:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()
    german, english = ((tmp_path / f"first/train.{side}").read_text().splitlines() for side in ("de", "en"))
    for one, other in zip(german, english, strict=True):
        assert (
            re.sub(" zeigt die (.*) Dateien eines Ordners", r" lists the \1 files of a folder", one) == other
        )
    failed = env.python("-m", "nmt.prepare", tmp_path / "first", tmp_path / "x", PYTHONPATH=python_path)
    assert failed.rc == 1 and "de.po" in failed.err and "Traceback" not in failed.err
