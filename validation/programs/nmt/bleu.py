"""BLEU, by sacrebleu."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sacrebleu


@dataclass(frozen=True)
class Bleu:
    """A score with the signature that makes it comparable."""

    score: float
    signature: str


def corpus_bleu(translations: Sequence[str], references: Sequence[str], *, tokenised: bool) -> Bleu:
    """The BLEU of some translations.

    Args:
        translations: A sentence each.
        references: As many, in the same order.
        tokenised: The texts have blanks around every word already; sacrebleu then only splits there.
    """
    metric = sacrebleu.BLEU(tokenize="none" if tokenised else "13a", force=True)
    score = metric.corpus_score(list(translations), [list(references)])
    return Bleu(float(score.score), str(metric.get_signature()))
