"""Translating many sentences: each rank its part, rank 0 has all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ddl
import numpy as np

from .search import BeamSearch
from .special import PAD
from .vocabulary import Sentences, Vocabulary

_SENTENCES_AT_ONCE = 32


def longest_translation(source_words: int) -> int:
    """How many words a translation may have, END included."""
    return 2 * source_words + 10


def translate(
    search: BeamSearch,
    sentences: Sentences,
    vocabulary: Vocabulary,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[str]:
    """The translations, in the order of the sentences; on all ranks. Collective.

    Args:
        search: The same on all ranks.
        sentences: All of them, on all ranks.
        vocabulary: Of the translations.
        progress: Called with the number of this rank's sentences that are done, and of all it has.
    """
    # Longest first: those that are searched together end at about the same time, and no memory runs out late.
    order = np.argsort(-sentences.lengths, kind="stable")
    mine = ddl.shard(order, remainder="repeat") if len(order) >= ddl.size() else order
    translations: list[tuple[int, ...]] = []
    for begin in range(0, len(mine), _SENTENCES_AT_ONCE):
        chosen = mine[begin : begin + _SENTENCES_AT_ONCE]
        source = sentences.padded(chosen, end=True)
        translations += [
            translation.tokens for translation in search(source, longest_translation(source.shape[1]))
        ]
        progress(len(translations), len(mine))
    if len(order) >= ddl.size() > 1:
        translations = _from_all_ranks(translations)
    texts = [""] * len(order)
    for place, tokens in zip(order, translations, strict=False):
        texts[place] = vocabulary.decode(tokens)
    return texts


def _from_all_ranks(translations: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The words of all ranks in the order in which `ddl.shard` gave the sentences away."""
    # At least 1: an array without elements cannot be told apart by its ranks.
    own_longest = np.array([max(1, *map(len, translations))])
    longest = int(ddl.allreduce(own_longest, op="max", name="longest translation")[0])
    padded = np.full((len(translations), longest), PAD, np.int32)
    for row, tokens in zip(padded, translations, strict=True):
        row[: len(tokens)] = tokens
    everyones: Any = ddl.all_gather(padded, name="translations").swapaxes(0, 1).reshape(-1, longest)
    return [tuple(int(word) for word in row if word != PAD) for row in everyones]
