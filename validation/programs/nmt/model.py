"""The network: a bidirectional LSTM encoder and an LSTM decoder with Luong's attention.

It is made of Keras' own layers, each with a name, so that a checkpoint is read without this package and the
search for a translation can call the layers one word at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras

from .special import PAD


@dataclass(frozen=True)
class Shape:
    """What a network is made of.

    source_words, target_words: sizes of the vocabularies
    embedding, hidden:          sizes of the words' vectors and of the LSTMs' states
    layers:                     LSTMs of the encoder, and as many of the decoder
    dropout:                    share of the activations that a training step leaves out
    """

    source_words: int
    target_words: int
    embedding: int
    hidden: int
    layers: int
    dropout: float


def build(shape: Shape) -> Any:
    """A network whose inputs are source sentences and the beginnings of their translations.

    Its outputs are, for each beginning, the logits of the word that follows it.
    """
    layers = keras.layers
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")

    encoded = layers.Embedding(shape.source_words, shape.embedding, mask_zero=True, name="source_embedding")(
        source
    )
    states = []
    for i in range(shape.layers):
        encoded = layers.Dropout(shape.dropout)(encoded)
        # Each direction has half of the units, so that both together are a state of the decoder.
        both = layers.Bidirectional(
            layers.LSTM(shape.hidden // 2, return_sequences=True, return_state=True), name=f"encoder_{i}"
        )
        encoded, forward_h, forward_c, backward_h, backward_c = both(encoded)
        states.append(
            [
                layers.Concatenate(name=f"state_h_{i}")([forward_h, backward_h]),
                layers.Concatenate(name=f"state_c_{i}")([forward_c, backward_c]),
            ]
        )
    # Luong's "general" score: the decoder's state times a matrix times the encoder's.
    keys = layers.Dense(shape.hidden, use_bias=False, name="attention_keys")(encoded)

    # Without a mask: nothing follows the padding of a translation, and the loss leaves it out.
    decoded = layers.Embedding(shape.target_words, shape.embedding, name="target_embedding")(target)
    for i in range(shape.layers):
        decoded = layers.Dropout(shape.dropout)(decoded)
        decoded = layers.LSTM(shape.hidden, return_sequences=True, name=f"decoder_{i}")(
            decoded, initial_state=states[i]
        )
    context = layers.Attention(name="attention")([decoded, encoded, keys])
    joined = layers.Concatenate(name="context_and_state")([context, decoded])
    vector = layers.Dense(shape.hidden, "tanh", use_bias=False, name="attention_vector")(joined)
    logits = layers.Dense(shape.target_words, name="words")(layers.Dropout(shape.dropout)(vector))
    return keras.Model([source, target], logits, name="translator")


@keras.saving.register_keras_serializable("nmt")  # type: ignore[untyped-decorator]
def sentence_loss(targets: Any, logits: Any) -> Any:
    """The cross-entropy of each sentence: the sum over its words, the padding left out.

    A sum and not a mean over the words of the batch: Keras takes the mean over the sentences, of which every
    rank has as many, so the average over the ranks is the mean over the whole batch.
    """
    losses = keras.ops.sparse_categorical_crossentropy(targets, logits, from_logits=True)
    mask = keras.ops.cast(keras.ops.not_equal(targets, PAD), losses.dtype)
    return keras.ops.sum(losses * mask, axis=-1)


def make_optimizer(name: str, rate: float, clip: float) -> Any:
    """An optimizer that clips the norm of the whole gradient, after it was averaged over the ranks."""
    if name == "adam":
        return keras.optimizers.Adam(rate, global_clipnorm=clip)
    return keras.optimizers.SGD(rate, global_clipnorm=clip)


def compile_model(model: Any, optimizer: Any) -> None:
    """Makes a network ready to train."""
    # Without XLA with one rank too, so that it computes what many ranks do.
    model.compile(optimizer=optimizer, loss=sentence_loss, jit_compile=False)
