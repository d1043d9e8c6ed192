"""Beam search: the most probable translations that a network can be brought to say.

All sentences of a batch are searched side by side, each with a beam of `width` unfinished translations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .special import BEGIN, END, PAD
from .vocabulary import Numbers

_NEVER = -1e9


@dataclass(frozen=True)
class Translation:
    """A translation, END left out.

    log_probability: of all its words and END
    score:           the same after the penalty for short translations, by which the best one is chosen
    """

    tokens: tuple[int, ...]
    log_probability: float
    score: float


class BeamSearch:
    """Translates with a network.

    Args:
        model: Of `nmt.model.build`.
        width: Unfinished translations that are kept for a sentence; 1 takes the most probable word each time.
        length_penalty: The exponent of Wu et al. (2016): a translation of n words is judged by its log
            probability divided by ((5 + n) / 6) ** length_penalty. 0 compares probabilities, which favours
            short ones.
    """

    def __init__(self, model: Any, width: int, length_penalty: float = 0.0) -> None:
        self.width, self.length_penalty = width, length_penalty
        layer = model.get_layer
        self._layers = 0
        while any(layer.name == f"decoder_{self._layers}" for layer in model.layers):
            self._layers += 1
        states = [layer(f"state_{kind}_{i}").output for i in range(self._layers) for kind in ("h", "c")]
        encoded = layer(f"encoder_{self._layers - 1}").output[0]
        self._encoder = keras.Model(model.inputs[0], [encoded, layer("attention_keys").output, *states])
        self._cells = [layer(f"decoder_{i}").cell for i in range(self._layers)]
        self._embedding = layer("target_embedding")
        self._attention = layer("attention")
        self._vector, self._words = layer("attention_vector"), layer("words")
        forbidden = np.zeros(self._words.units, np.float32)
        forbidden[[PAD, BEGIN]] = _NEVER
        self._forbidden = tf.constant(forbidden)
        self._start = tf.function(self._start_eagerly, reduce_retracing=True)
        self._advance = tf.function(self._advance_eagerly, reduce_retracing=True)

    def _start_eagerly(self, source: Any) -> Any:
        """What the encoder says of each sentence, once for each place in the beam."""
        outputs = self._encoder(source, training=False)
        mask = tf.not_equal(source, PAD)
        return [tf.repeat(x, self.width, axis=0) for x in (mask, *outputs)]

    def _advance_eagerly(
        self, parents: Any, last: Any, so_far: Any, encoder: Any, states: Any
    ) -> tuple[Any, Any, Any]:
        """One word more for every translation.

        Args:
            parents: For each place in the beams the place whose state it goes on from.
            last: The last word of each.
            so_far: Their log probabilities, a row for each sentence.
            encoder: Mask, outputs and keys.
            states: Of the decoder.

        Returns:
            For each sentence the best continuations: log probability, and place in the beam and word as one
            number; and the states.
        """
        mask, values, keys = encoder
        x = self._embedding(last)
        new_states = []
        for i, cell in enumerate(self._cells):
            x, (h, c) = cell(x, [tf.gather(states[2 * i + j], parents) for j in range(2)], training=False)
            new_states += [h, c]
        query = x[:, None, :]
        context = self._attention([query, values, keys], mask=[None, mask, mask], training=False)
        logits = self._words(self._vector(tf.concat([context[:, 0], x], axis=-1)))
        steps = tf.nn.log_softmax(logits) + self._forbidden
        totals = tf.reshape(so_far, [-1, 1]) + steps
        totals = tf.reshape(totals, [-1, self.width * self._words.units])
        best = tf.math.top_k(totals, min(2 * self.width, self.width * self._words.units))
        return best.values, best.indices, new_states

    def _score(self, log_probability: Any, length: int) -> Any:
        return log_probability / ((5.0 + length) / 6.0) ** self.length_penalty

    def __call__(self, source: Numbers, longest: int) -> list[Translation]:
        """The best translation of each sentence.

        Args:
            source: A row for each sentence, as `Sentences.padded` makes them.
            longest: Words of a translation at most, END included.
        """
        number, width, vocabulary = len(source), self.width, self._words.units
        mask, values, keys, *states = self._start(tf.constant(source))
        tokens = np.full((number, width, 0), PAD, np.int32)
        # At first all places hold the same beginning, of which one is enough.
        so_far = np.full((number, width), _NEVER, np.float32)
        so_far[:, 0] = 0.0
        last = np.full((number, width), BEGIN, np.int32)
        places = np.arange(number * width).reshape(number, width)
        finished: list[list[Translation]] = [[] for _ in range(number)]
        searching = np.ones(number, bool)
        for length in range(1, longest + 1):
            log_probabilities, continuations, states = self._advance(
                tf.constant(places.reshape(-1)),
                tf.constant(last.reshape(-1)),
                tf.constant(so_far),
                (mask, values, keys),
                states,
            )
            log_probabilities = log_probabilities.numpy()
            beams, follow = np.divmod(continuations.numpy(), vocabulary)
            ends = follow == END
            # A translation ends where END is among the best `width`: with a width of 1, where it is the best.
            for i, k in zip(*np.nonzero(ends[:, :width]), strict=True):
                if searching[i] and log_probabilities[i, k] > _NEVER / 2:
                    total = float(log_probabilities[i, k])
                    sentence = tuple(int(word) for word in tokens[i, beams[i, k]])
                    finished[i].append(Translation(sentence, total, float(self._score(total, length))))
            # Those that go on: END is at most half of the best 2 * width.
            log_probabilities[ends] = 2 * _NEVER
            order = np.argsort(-log_probabilities, axis=1, kind="stable")[:, :width]
            rows = np.arange(number)[:, None]
            so_far, beam, last = log_probabilities[rows, order], beams[rows, order], follow[rows, order]
            places = rows * width + beam
            tokens = np.concatenate([tokens[rows, beam], last[..., None]], axis=2).astype(np.int32)
            # Log probabilities only fall, so what is unfinished cannot become better than this.
            limit = self._score(so_far[:, 0], longest)
            for i in np.flatnonzero(searching):
                best = max((translation.score for translation in finished[i]), default=-np.inf)
                searching[i] = len(finished[i]) < width and best < limit[i]
            if not searching.any():
                break
        return [
            max(translations, key=lambda translation: translation.score)
            if translations
            else self._unfinished(tokens[i, 0], so_far[i, 0])
            for i, translations in enumerate(finished)
        ]

    def _unfinished(self, tokens: Sequence[int], total: float) -> Translation:
        sentence = tuple(int(word) for word in tokens)
        return Translation(sentence, float(total), float(self._score(total, len(sentence))))
