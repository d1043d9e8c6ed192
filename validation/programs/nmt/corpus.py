"""Where the sentences come from: a folder of parallel texts, a line a sentence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from .errors import NmtError

#: What the usual scripts that prepare WMT16 leave: tokenised, cleaned, cut into subwords.
_WMT_TRAIN = "train.tok.clean.bpe"
_WMT_TEST = re.compile(r"^newstest(\d{4})\.tok\.bpe\.(\d+)$")


@dataclass(frozen=True)
class Split:
    """Two files whose lines translate each other."""

    source: Path
    target: Path


@dataclass(frozen=True)
class Corpus:
    """A folder of parallel texts.

    subwords:     the lines are made of subwords already (`@@ ` joins one to the next)
    vocabularies: of the source and of the target; one file twice where they share it
    """

    source: str
    target: str
    train: Split
    dev: Split
    test: Split
    subwords: bool
    vocabularies: Split


def open_corpus(
    folder: Path, source: str, target: str, dev: str | None = None, test: str | None = None
) -> Corpus:
    """Finds out what a folder holds.

    Args:
        folder: Either train, dev and test, each .de and .en, with the sentencepiece model spm.model; or WMT16
            as its usual scripts leave it: train.tok.clean.bpe.32000, newstestYYYY.tok.bpe.32000 and
            vocab.bpe.32000.
        source: Suffix of the files to translate from, such as de.
        target: Suffix of the files to translate into.
        dev: Start of the name of the files to follow the training with, instead of "dev" or the newstest
            before that of `test`.
        test: The same for the files to measure BLEU on, instead of "test" or the newest newstest.

    Raises:
        NmtError: Something is missing; says which files were looked for.
    """
    if not folder.is_dir():
        raise NmtError(f"--data {folder}: no such folder; name the one that holds the texts")
    if source == target:
        raise NmtError(f"--source and --target are both {source}; give two languages")
    if (folder / f"train.{source}").is_file():
        model = _file(folder, "spm.model")
        return Corpus(
            source,
            target,
            _split(folder, "train", source, target),
            _split(folder, dev or "dev", source, target),
            _split(folder, test or "test", source, target),
            subwords=False,
            vocabularies=Split(model, model),
        )
    merges = sorted(
        name.removeprefix(f"{_WMT_TRAIN}.").removesuffix(f".{source}")
        for name in (file.name for file in folder.glob(f"{_WMT_TRAIN}.*.{source}"))
    )
    if len(merges) > 1:
        raise NmtError(
            f"--data {folder} holds {_WMT_TRAIN} with {' and '.join(merges)} merges; keep one of them there"
        )
    if not merges:
        raise NmtError(
            f"--data {folder} has neither train.{source} nor {_WMT_TRAIN}.32000.{source}; name a folder that "
            "`python -m nmt.prepare` or a script that prepares WMT16 has written, or correct --source"
        )
    return _open_wmt(folder, source, target, merges[0], dev, test)


def _open_wmt(
    folder: Path, source: str, target: str, merges: str, dev: str | None, test: str | None
) -> Corpus:
    years = sorted(
        match[0]
        for file in folder.glob(f"newstest*.{source}")
        if (match := _WMT_TEST.match(file.name.removesuffix(f".{source}"))) and match[2] == merges
    )
    if test is None:
        if not years:
            raise NmtError(
                f"--data {folder} has no newstestYYYY.tok.bpe.{merges}.{source} to measure BLEU on; add one, "
                "or name other files by --dev and --test"
            )
        test = years[-1]
    if dev is None:
        others = [year for year in years if year < test] or [year for year in years if year != test]
        dev = others[-1] if others else test
    common = folder / f"vocab.bpe.{merges}"
    of_languages = [folder / f"vocab.bpe.{merges}.{language}" for language in (source, target)]
    if not common.is_file():
        for file in of_languages:
            _file(folder, file.name)
    return Corpus(
        source,
        target,
        _split(folder, f"{_WMT_TRAIN}.{merges}", source, target),
        _split(folder, dev, source, target),
        _split(folder, test, source, target),
        subwords=True,
        vocabularies=Split(common, common) if common.is_file() else Split(*of_languages),
    )


def _file(folder: Path, name: str) -> Path:
    if not (folder / name).is_file():
        raise NmtError(f"--data {folder} has no file {name}; the texts are not complete: prepare them again")
    return folder / name


def _split(folder: Path, name: str, source: str, target: str) -> Split:
    return Split(_file(folder, f"{name}.{source}"), _file(folder, f"{name}.{target}"))


def read_lines(file: Path, limit: int | None = None) -> list[str]:
    """The lines of a text, the first `limit` of them, without their ends."""
    try:
        # Only the newline ends a line: texts of the web have other separators within sentences.
        with file.open(encoding="utf-8", newline="\n") as text:
            return [line.rstrip("\r\n") for line in islice(text, limit)]
    except UnicodeDecodeError as error:
        raise NmtError(f"{file} is not UTF-8 ({error.reason} at byte {error.start}); convert it") from None
    except OSError as error:
        raise NmtError(f"{file} cannot be read: {error.strerror}") from None


def read_split(split: Split, limit: int | None = None) -> tuple[list[str], list[str]]:
    """The sentences of both sides, the first `limit` of them."""
    source, target = read_lines(split.source, limit), read_lines(split.target, limit)
    if len(source) != len(target):
        raise NmtError(
            f"{split.source} has {len(source)} lines and {split.target.name} has {len(target)}; lines must "
            "translate each other: prepare the texts again"
        )
    if not source:
        raise NmtError(f"{split.source} is empty; prepare the texts again")
    return source, target
