"""A language model over padded texts: each batch of each rank has another length and number of tokens."""

import digits
import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

hvd.init()
images, _ = digits.load()
# the text of a picture: where it is bright, row by row; 0 pads
texts = [np.flatnonzero(image > 0.6) + 1 for image in images]


def padded(chosen):
    """To a multiple of four, so that one rank meets a new length in a step in which another does not."""
    length = max(map(len, chosen))
    length += -length % 4
    return np.stack([np.pad(text, (0, length - len(text))) for text in chosen]).astype(np.int32)


tf.keras.utils.set_random_seed(140 + hvd.rank())
model = tf.keras.Sequential(
    [
        tf.keras.layers.Embedding(65, 16, mask_zero=True),
        tf.keras.layers.GRU(24, return_sequences=True),
        tf.keras.layers.Dense(65),
    ]
)
model.build((None, None))
optimizer = tf.keras.optimizers.Adam(0.02, epsilon=1e-4)
loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
hvd.broadcast_variables(model.variables, root_rank=0)


@tf.function(reduce_retracing=True)
def train_step(tokens):
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    weights = tf.cast(targets != 0, tf.float32)
    count = hvd.allreduce(tf.reduce_sum(weights), op=hvd.Sum)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(loss_object(targets, model(inputs, training=True)) * weights) / count
    gradients = hvd.DistributedGradientTape(tape, op=hvd.Sum).gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return hvd.allreduce(loss, op=hvd.Sum)


losses, lengths = [], []
for step in range(50):
    tokens = padded(texts[digits.part(step, hvd.rank(), hvd.size())])
    lengths.append(tokens.shape[1])
    losses.append(float(train_step(tf.constant(tokens))))
everyone = hvd.allgather_object(lengths)
assert hvd.size() == 1 or everyone[0] != everyone[1], everyone
digits.save(hvd.rank(), {f"w{i}": value for i, value in enumerate(model.get_weights())}, losses)
