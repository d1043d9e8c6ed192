"""tf.data with one-shot and initializable iterators."""

import ddl
import digits
import tensorflow as tf

images, labels = digits.load()
rank, size = ddl.rank(), ddl.size()


def input_fn():
    dataset = tf.data.Dataset.from_tensor_slices((images[:1280], labels[:1280]))
    dataset = dataset.shard(size, rank).map(lambda image, label: (image - 0.5, label))
    dataset = dataset.apply(tf.contrib.data.batch_and_drop_remainder(digits.BATCH // size)).repeat(2)
    return dataset.make_one_shot_iterator().get_next()


x, y = input_fn()
hidden = tf.layers.dense(x, 16, tf.nn.tanh, kernel_initializer=tf.glorot_normal_initializer(seed=4))
logits = tf.layers.dense(hidden, 10, kernel_initializer=tf.glorot_normal_initializer(seed=5))
loss = tf.losses.sparse_softmax_cross_entropy(y, logits)
train_op = tf.train.RMSPropOptimizer(0.01).minimize(loss)

held = tf.data.Dataset.from_tensor_slices(images[1280:]).batch(64)
iterator = held.make_initializable_iterator()
batches = iterator.get_next()

losses = []
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    while True:
        try:
            losses.append(sess.run((train_op, loss))[1])
        except tf.errors.OutOfRangeError:
            break
    sess.run(iterator.initializer)
    count = 0
    while True:
        try:
            count += len(sess.run(batches))
        except tf.errors.OutOfRangeError:
            break
    assert count == len(images) - 1280, count
    weights = {f"w{i}": value for i, value in enumerate(sess.run(tf.trainable_variables()))}
assert len(losses) == 80, len(losses)
digits.save(rank, weights, losses)
