"""Input by queues: TFRecord files, readers, queue runners and a coordinator."""

import os

import ddl
import digits
import tensorflow as tf


def write_records(path):
    images, labels = digits.load()
    with tf.python_io.TFRecordWriter(path) as writer:
        for step in range(40):
            rows = digits.part(step, ddl.rank(), ddl.size())
            for image, label in zip(images[rows], labels[rows], strict=True):
                feature = {
                    "image": tf.train.Feature(float_list=tf.train.FloatList(value=image)),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                }
                example = tf.train.Example(features=tf.train.Features(feature=feature))
                writer.write(example.SerializeToString())


path = os.path.join(os.environ["OUT"], f"digits{ddl.rank()}.tfrecords")
write_records(path)

filename_queue = tf.train.string_input_producer([path], num_epochs=1)
reader = tf.TFRecordReader()
_, serialized = reader.read(filename_queue)
features = tf.parse_single_example(
    serialized,
    features={"image": tf.FixedLenFeature([64], tf.float32), "label": tf.FixedLenFeature([], tf.int64)},
)
image_batch, label_batch = tf.train.batch(
    [features["image"], features["label"]], batch_size=digits.BATCH // ddl.size(), capacity=256
)

with tf.variable_scope("model"):
    w = tf.get_variable("w", [64, 10], initializer=tf.random_uniform_initializer(-0.1, 0.1, seed=3))
    b = tf.get_variable("b", [10], initializer=tf.constant_initializer(0.0))
logits = tf.nn.xw_plus_b(image_batch, w, b)
loss = tf.reduce_mean(
    tf.nn.softmax_cross_entropy_with_logits(labels=tf.one_hot(label_batch, 10), logits=logits)
)
train_op = tf.train.AdagradOptimizer(0.3).minimize(loss)

sess = tf.Session()
sess.run(tf.group(tf.global_variables_initializer(), tf.local_variables_initializer()))
coord = tf.train.Coordinator()
threads = tf.train.start_queue_runners(sess=sess, coord=coord)
losses = []
try:
    while not coord.should_stop():
        losses.append(sess.run([train_op, loss])[1])
except tf.errors.OutOfRangeError:
    pass
finally:
    coord.request_stop()
coord.join(threads, stop_grace_period_secs=20)
assert len(losses) == 40, len(losses)
digits.save(ddl.rank(), {"w": sess.run(w), "b": sess.run(b)}, losses)
sess.close()
