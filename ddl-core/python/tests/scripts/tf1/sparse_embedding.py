"""Words of different numbers in a sentence: a partitioned embedding, sparse gradients, Adagrad."""

import ddl
import digits
import numpy as np
import tensorflow as tf

VOCABULARY = 8 * 17
images, labels = digits.load()
# A word is a column of the picture with its ink; columns without ink are no words.
ink = np.rint(images.reshape(-1, 8, 8).sum(axis=1) * 2).astype(np.int64)
present = ink > 0
words = np.arange(8) * 17 + ink.clip(0, 16)

ids = tf.sparse_placeholder(tf.int64, name="ids")
label = tf.placeholder(tf.int64, [None], name="label")
with tf.variable_scope("words", partitioner=tf.fixed_size_partitioner(2)):
    table = tf.get_variable(
        "table", [VOCABULARY, 16], initializer=tf.random_uniform_initializer(-0.25, 0.25, seed=51)
    )
with tf.name_scope("bag"):
    bag = tf.nn.embedding_lookup_sparse(table, ids, None, partition_strategy="div", combiner="sum")
pairs = tf.get_variable("pairs", [10, 16], initializer=tf.random_uniform_initializer(-0.25, 0.25, seed=52))
logits = tf.matmul(bag, pairs, transpose_b=True)
# The vector of the true class alone, so that its gradient is sparse, too.
penalty = (
    1e-3 * tf.reduce_mean(tf.nn.l2_loss(tf.nn.embedding_lookup(pairs, label))) / tf.to_float(tf.size(label))
)
loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits)) + penalty

optimizer = tf.train.AdagradOptimizer(0.3, initial_accumulator_value=0.1)
grads_and_vars = optimizer.compute_gradients(loss)
assert len(grads_and_vars) == 3
assert all(isinstance(grad, tf.IndexedSlices) for grad, var in grads_and_vars if "table" in var.name)
train_op = optimizer.apply_gradients(grads_and_vars)


def sentences(rows):
    here = present[rows]
    indices = np.argwhere(here)
    return tf.SparseTensorValue(indices, words[rows][here], [len(here), 8])


losses = []
with tf.Session() as sess:
    tf.global_variables_initializer().run()
    for step in range(56):
        rows = digits.part(step, ddl.rank(), ddl.size())
        _, value = sess.run([train_op, loss], {ids: sentences(rows), label: labels[rows]})
        losses.append(value)
    weights = {"table": sess.run(tf.convert_to_tensor(table)), "pairs": pairs.eval()}
digits.save(ddl.rank(), weights, losses)
