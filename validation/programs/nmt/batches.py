"""Which sentences a rank trains on in which step.

A step's sentences follow from the seed and the step alone, and the ranks share them. So any number of ranks
makes the same steps, and a training that is started again goes on with the next one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ddl
import numpy as np
import tensorflow as tf

from .errors import NmtError
from .vocabulary import Numbers, Sentences

#: The sentences of so many steps are sorted by length before they are cut into steps: little is filled up.
_STEPS_SORTED_TOGETHER = 50

Inputs = tuple[Numbers, Numbers]


@dataclass(frozen=True)
class Pairs:
    """Sentences and their translations."""

    source: Sentences
    target: Sentences

    def __len__(self) -> int:
        return len(self.source)

    def no_longer_than(self, limit: int) -> Pairs:
        """Without those that are empty or too long on one side."""
        long, short = (f(self.source.lengths, self.target.lengths) for f in (np.maximum, np.minimum))
        chosen = np.flatnonzero((long <= limit) & (short > 0))
        return Pairs(self.source.chosen(chosen), self.target.chosen(chosen))

    @functools.cached_property
    def word_counts(self) -> Any:
        """How many words each pair has, those that end the sentences included."""
        return self.source.lengths + self.target.lengths + 2

    def predictions(self) -> float:
        """The mean number of words that are predicted for a pair."""
        return float(np.mean(self.target.lengths + 1))

    def batch(self, index: Any) -> tuple[Inputs, Numbers]:
        """The inputs and the wanted outputs of the network: the decoder is given the right words so far."""
        inputs = (self.source.padded(index, end=True), self.target.padded(index, begin=True))
        return inputs, self.target.padded(index, end=True)


_SIGNATURE = (
    (tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, None], tf.int32)),
    tf.TensorSpec([None, None], tf.int32),
)


class TrainingBatches:
    """The steps of a training.

    Args:
        pairs: All sentences, the same on all ranks.
        batch: Sentences of a step, over all ranks.
        seed: Decides the order.
    """

    def __init__(self, pairs: Pairs, batch: int, seed: int) -> None:
        try:
            per_rank = ddl.per_rank_batch_size(batch)
        except ValueError as error:
            raise NmtError(f"--batch: {error}") from None
        if len(pairs) < batch:
            raise NmtError(
                f"there are {len(pairs)} pairs of sentences to train on, too few for --batch {batch}; take a "
                "smaller batch, or more by --max-length"
            )
        self._pairs, self._batch, self._per_rank, self._seed = pairs, batch, per_rank, seed
        #: Of one time through all sentences; what is left over is another part each time.
        self.steps = len(pairs) // batch
        # The input pipeline is ahead of the training, so two at a time.
        self._order = functools.lru_cache(maxsize=2)(self._make_order)

    def sentences_of(self, step: int) -> Any:
        """The sentences of a step, of all ranks."""
        epoch, within = divmod(step, self.steps)
        return self._order(epoch)[0][within]

    def words_of(self, step: int) -> int:
        """How many words a step has, on both sides and all ranks."""
        return int(self._pairs.word_counts[self.sentences_of(step)].sum())

    def _make_order(self, epoch: int) -> tuple[Any, Any]:
        """The sentences of all ranks and those of this one; a row for each step."""
        random = np.random.default_rng([self._seed, epoch])
        order = random.permutation(len(self._pairs))[: self.steps * self._batch]
        lengths = self._pairs.word_counts[order]
        pool = np.arange(len(order)) // (self._batch * _STEPS_SORTED_TOGETHER)
        rows = order[np.lexsort((lengths, pool))].reshape(self.steps, self._batch)
        rows = rows[random.permutation(self.steps)]
        # A batch is divided by the number of ranks, so this cuts each row in the same way.
        return rows, ddl.shard(rows.reshape(-1)).reshape(self.steps, self._per_rank)

    def dataset(self, first_step: int) -> Any:
        """This rank's part of every step from one on, without an end."""

        def batches() -> Iterator[Any]:
            step = first_step
            while True:
                epoch, within = divmod(step, self.steps)
                yield self._pairs.batch(self._order(epoch)[1][within])
                step += 1

        return tf.data.Dataset.from_generator(batches, output_signature=_SIGNATURE).prefetch(2)


def evaluation_dataset(pairs: Pairs, batch: int) -> Any:
    """This rank's part of all pairs, once, in batches of `batch`."""
    if len(pairs) < ddl.size():
        raise NmtError(f"{len(pairs)} pairs to follow the training with are too few for {ddl.size()} ranks")
    mine = ddl.shard(np.argsort(pairs.word_counts, kind="stable"))
    parts = [mine[i : i + batch] for i in range(0, len(mine), batch)]

    def batches() -> Iterator[Any]:
        return (pairs.batch(part) for part in parts)

    dataset = tf.data.Dataset.from_generator(batches, output_signature=_SIGNATURE)
    return dataset.apply(tf.data.experimental.assert_cardinality(len(parts)))
