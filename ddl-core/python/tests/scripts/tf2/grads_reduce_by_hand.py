"""Softmax regression with variables and an update of its own: ddl.broadcast_variables, ddl.grads_reduce."""

import ddl
import ddl.tensorflow
import digits
import numpy as np
import tensorflow as tf

num_features, num_classes, training_steps, display_step = 64, 10, 50, 10
learning_rate = 0.2
images, labels = digits.load()
random_normal = tf.initializers.RandomNormal(stddev=0.1, seed=ddl.rank())
W1 = tf.Variable(random_normal([num_features, 32]), name="W1")
W2 = tf.Variable(random_normal([32, num_classes]), name="W2")
b = tf.Variable(tf.zeros([num_classes]), name="bias")
variables = [W1, W2, b]
velocities = [tf.Variable(tf.zeros_like(variable), trainable=False) for variable in variables]
ddl.broadcast_variables(variables)


def logistic_regression(x):
    return tf.nn.softmax(tf.matmul(tf.nn.tanh(tf.matmul(x, W1)), W2) + b)


def cross_entropy(y_pred, y_true):
    y_true = tf.one_hot(y_true, depth=num_classes)
    y_pred = tf.clip_by_value(y_pred, 1e-9, 1.0)
    return -tf.reduce_sum(y_true * tf.math.log(y_pred)) / digits.BATCH


def run_optimization(x, y):
    with tf.GradientTape() as g:
        loss = cross_entropy(logistic_regression(x), y)
    gradients = g.gradient(loss, variables)
    # the sum, as each rank has divided by the batch of all
    pairs = ddl.grads_reduce(zip(gradients, variables, strict=True), average=False)
    for velocity, (gradient, variable) in zip(velocities, pairs, strict=True):
        velocity.assign(0.8 * velocity + gradient)
        variable.assign_sub(learning_rate * velocity)
    return ddl.tensorflow.allreduce(loss)


losses = []
for step in range(training_steps):
    rows = digits.part(step, ddl.rank(), ddl.size())
    losses.append(float(run_optimization(images[rows], labels[rows])))
    if step % display_step == 0 and ddl.rank() == 0:
        print(f"step: {step}, loss: {losses[-1]}")
accuracy = np.mean(np.argmax(logistic_regression(images), 1) == labels)
assert accuracy > 0.8, accuracy
digits.save(ddl.rank(), {variable.name: variable.numpy() for variable in variables}, losses)
