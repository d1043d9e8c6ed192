"""From sentences to numbers and back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .corpus import Corpus, read_lines
from .errors import NmtError
from .special import BEGIN, END, PAD, UNKNOWN

#: The first entries of a vocabulary file, as translation programs have had them since TensorFlow's.
_SPECIAL_WORDS = ["<unk>", "<s>", "</s>"]
_JOINT = "@@"

Numbers = np.ndarray[Any, np.dtype[np.int32]]


class Vocabulary(Protocol):
    """What turns a sentence into numbers and back."""

    size: int
    #: Tells whether a checkpoint was trained with the same vocabulary.
    digest: str

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """The numbers of each sentence, without BEGIN and END."""

    def decode(self, numbers: Iterable[int]) -> str:
        """The sentence of some numbers; of BEGIN, END and PAD nothing is left."""


class SentencePieces:
    """Subwords of a sentencepiece model, which cuts and joins raw text."""

    def __init__(self, file: Path) -> None:
        from sentencepiece import SentencePieceProcessor

        content = file.read_bytes()
        try:
            self._model = SentencePieceProcessor(model_proto=content)
        except RuntimeError:
            raise NmtError(f"{file} is not a sentencepiece model; prepare the texts again") from None
        ids = [self._model.pad_id(), self._model.unk_id(), self._model.bos_id(), self._model.eos_id()]
        if ids != [PAD, UNKNOWN, BEGIN, END]:
            raise NmtError(
                f"{file} has the numbers {ids} for padding, unknown, beginning and end; train it with "
                "--pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3"
            )
        self.size = int(self._model.get_piece_size())
        self.digest = hashlib.sha256(content).hexdigest()

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        return [list(numbers) for numbers in self._model.encode(list(sentences), out_type=int)]

    def decode(self, numbers: Iterable[int]) -> str:
        return str(self._model.decode([int(n) for n in numbers if n not in (PAD, BEGIN, END)]))


class WordList:
    """Words (or subwords, joined by `@@ `) of a file, a line each; sentences have blanks between them."""

    def __init__(self, file: Path) -> None:
        entries = read_lines(file)
        if entries[:3] == _SPECIAL_WORDS:
            entries = entries[3:]
        self._words = ["", "<unk>", "<s>", "</s>", *entries]
        self._numbers = {word: number for number, word in enumerate(self._words) if number > END}
        twice = len(entries) - len(self._numbers)
        if twice or not entries:
            raise NmtError(
                f"{file} has {f'{twice} duplicate words' if twice else 'no words'}; prepare the texts again"
            )
        self.size = len(self._words)
        self.digest = hashlib.sha256("\n".join(entries).encode()).hexdigest()

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        number = self._numbers.get
        return [[number(word, UNKNOWN) for word in sentence.split()] for sentence in sentences]

    def decode(self, numbers: Iterable[int]) -> str:
        return join_subwords(" ".join(self._words[n] for n in numbers if n not in (PAD, BEGIN, END)))


def join_subwords(sentence: str) -> str:
    """Words out of the subwords of byte-pair encoding: `trans@@ lation` is `translation`."""
    return f"{sentence} ".replace(f"{_JOINT} ", "").rstrip()


@dataclass(frozen=True)
class Vocabularies:
    """The vocabularies of both languages; the same object twice where they share it."""

    source: Vocabulary
    target: Vocabulary


def read_vocabularies(corpus: Corpus) -> Vocabularies:
    """Read the vocabularies of a corpus."""
    files = corpus.vocabularies
    read = WordList if corpus.subwords else SentencePieces
    source: Vocabulary = read(files.source)
    return Vocabularies(source, source if files.target == files.source else read(files.target))


@dataclass(frozen=True)
class Sentences:
    """Many sentences as numbers in one array, as a corpus of millions would not fit into lists."""

    numbers: Numbers
    starts: np.ndarray[Any, np.dtype[np.int64]]

    @classmethod
    def of(cls, sentences: Iterable[Sequence[int] | Numbers]) -> Sentences:
        """Joins the numbers of sentences."""
        arrays = [np.asarray(sentence, np.int32) for sentence in sentences]
        starts = np.concatenate([[0], np.cumsum([len(array) for array in arrays], dtype=np.int64)])
        return cls(np.concatenate([*arrays, np.zeros(0, np.int32)]), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """How many numbers each sentence has."""
        return np.diff(self.starts)

    def chosen(self, index: Any) -> Sentences:
        """Some of the sentences."""
        return Sentences.of(self.numbers[self.starts[i] : self.starts[i + 1]] for i in index)

    def padded(self, index: Any, *, begin: bool = False, end: bool = False) -> Numbers:
        """Some sentences as a matrix, a row each, with BEGIN or END added, filled up with PAD."""
        lengths = self.lengths[index] + int(end)
        matrix = np.full((len(lengths), int(begin) + int(lengths.max(initial=0))), PAD, np.int32)
        if begin:
            matrix[:, 0] = BEGIN
        for row, i in enumerate(index):
            sentence = self.numbers[self.starts[i] : self.starts[i + 1]]
            matrix[row, int(begin) : int(begin) + len(sentence)] = sentence
        if end:
            matrix[np.arange(len(lengths)), int(begin) + lengths - 1] = END
        return matrix
