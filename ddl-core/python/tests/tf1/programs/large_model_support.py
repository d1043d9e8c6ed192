"""Large Model Support in a graph: tf_keras layers, and their gradients with and without it."""

import keras
import lms
import lms.tensorflow
import numpy as np
import tensorflow as tf

tf.set_random_seed(3)
x = tf.placeholder(tf.float32, [None, 8])


def model():
    block = keras.Sequential([keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(8)])
    block.build((None, 8))
    net = keras.Sequential([block, keras.layers.Dense(1)])
    net.build((None, 8))
    return block, net


_, plain = model()
block, saving = model()
lms.tensorflow.recompute(block)
gradients = [tf.gradients(tf.reduce_sum(net(x)), net.trainable_weights) for net in (plain, saving)]
session = keras.backend.get_session()
session.run(tf.global_variables_initializer())
saving.set_weights(plain.get_weights())
values = session.run(gradients, {x: np.random.RandomState(1).rand(5, 8)})
for a, b in zip(*values, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5)
    assert np.abs(a).max() > 0


def dense(inputs):
    return tf.layers.dense(inputs, 8, tf.nn.tanh, name="dense", reuse=tf.AUTO_REUSE)


def both(function):
    return [
        tf.gradients(tf.reduce_sum(function(x)), tf.trainable_variables("dense"))
        for function in (dense, function(dense))
    ]


try:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 8])
        both(lms.tensorflow.recompute)
except lms.LmsError as error:
    assert "is a variable of TensorFlow 1's kind" in str(error), error
else:
    raise AssertionError("a variable of TensorFlow 1's kind was accepted")
tf.enable_resource_variables()
for function in (lms.tensorflow.recompute, lms.tensorflow.offload):
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None, 8])
        gradients = both(function)
        session.run(tf.global_variables_initializer())
        values = session.run(gradients, {x: np.random.RandomState(1).rand(5, 8)})
        for a, b in zip(*values, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)
print("the same gradients")
