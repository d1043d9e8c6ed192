"""tf.data with handles: training and validation in turn, and tf.metrics with local variables of their own."""

import argparse

import digits
import horovod.tensorflow as hvd
import tensorflow as tf


def dataset_of(images, labels, batch_size, rank, size):
    dataset = tf.data.Dataset.zip(
        (tf.data.Dataset.from_tensor_slices(images), tf.data.Dataset.from_tensor_slices(labels))
    )
    dataset = dataset.shard(size, rank).map(
        lambda image, label: {"image": tf.reshape(image, [8, 8, 1]), "label": label}, num_parallel_calls=2
    )
    return dataset.batch(batch_size).prefetch(1)


def model_fn(features, is_training):
    net = tf.image.resize_nearest_neighbor(features["image"], [4, 4])
    net = tf.cond(is_training, lambda: net, lambda: tf.identity(net))
    net = tf.layers.flatten(tf.layers.conv2d(net, 12, 2, activation=tf.nn.relu6, name="conv"))
    return tf.layers.dense(net, 10, name="logits")


def main(args):
    hvd.init()
    images, labels = digits.load()
    batch_size = args.batch_size // hvd.size()
    training = dataset_of(images[:1792], labels[:1792], batch_size, hvd.rank(), hvd.size()).repeat()
    validation = dataset_of(images[1536:1792], labels[1536:1792], 64, hvd.rank(), hvd.size())
    handle = tf.placeholder(tf.string, shape=[])
    iterator = tf.data.Iterator.from_string_handle(handle, training.output_types, training.output_shapes)
    features = iterator.get_next()
    training_iterator = training.make_one_shot_iterator()
    validation_iterator = validation.make_initializable_iterator()

    is_training = tf.placeholder_with_default(False, [], name="is_training")
    tf.set_random_seed(19 + hvd.rank())
    logits = model_fn(features, is_training)
    loss = tf.losses.sparse_softmax_cross_entropy(features["label"], logits)
    step = tf.train.create_global_step()
    rate = tf.train.piecewise_constant(step, [20, 40], [0.05, 0.03, 0.01])
    optimizer = hvd.DistributedOptimizer(tf.train.AdamOptimizer(rate), name="distributed")
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train_op = optimizer.minimize(loss, global_step=step)
    with tf.variable_scope("metrics"):
        accuracy, update = tf.metrics.accuracy(features["label"], tf.argmax(logits, axis=1))
        mean_loss, update_loss = tf.metrics.mean(loss)
    metrics = tf.get_collection(tf.GraphKeys.LOCAL_VARIABLES, scope="metrics")
    assert len(metrics) == 4
    mean_accuracy = hvd.allreduce(accuracy)

    losses, accuracies = [], []
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        hvd.broadcast_global_variables(0).run()
        handles = sess.run([training_iterator.string_handle(), validation_iterator.string_handle()])
        for _ in range(args.epochs):
            for _ in range(args.steps):
                feed = {handle: handles[0], is_training: True}
                losses.append(sess.run([loss, train_op], feed_dict=feed)[0])
            sess.run([validation_iterator.initializer, tf.variables_initializer(metrics)])
            try:
                while True:
                    sess.run([update, update_loss], feed_dict={handle: handles[1]})
            except tf.errors.OutOfRangeError:
                accuracies.append(sess.run([mean_accuracy, mean_loss])[0])
        weights = {v.op.name.replace("/", "."): sess.run(v) for v in tf.trainable_variables()}
    assert accuracies[-1] > 0.7 and accuracies[-1] > accuracies[0], accuracies
    digits.save(hvd.rank(), weights, losses)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=digits.BATCH)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=14)
    FLAGS, _ = parser.parse_known_args()
    main(FLAGS)
