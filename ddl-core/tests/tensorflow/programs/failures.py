"""Ranks that disagree: every rank must end with an error that says in what. Prints the error of this rank."""

import json
import sys
from pathlib import Path

import ddl
import ddl.tensorflow as ddl_tf
import tensorflow as tf

RANK = ddl.rank()


def a_gradient_is_missing():
    """Rank 1 has no gradient for one variable, of the same shape as another."""
    head, tail, other = (tf.Variable([1.0], name=name) for name in ("head", "tail", "other"))
    gradients = [tf.ones([1]), None if RANK == 1 else tf.ones([1]), tf.ones([1]) if RANK == 1 else None]
    optimizer = tf.keras.optimizers.SGD(0.1)
    optimizer.apply_gradients(zip(gradients, [head, tail, other], strict=True))


def a_graph_is_different():
    """Rank 1's TF1 graph trains the second of two variables of the same shape, rank 0's the first."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        variables = [v1.get_variable(name, initializer=[1.0]) for name in ("encoder", "decoder")]
        train = v1.train.GradientDescentOptimizer(0.1).minimize(variables[RANK], var_list=[variables[RANK]])
        session.run(v1.global_variables_initializer())
        session.run(train)


def an_order_is_different():
    """The ranks reduce two tensors of the same shape in different order."""
    names = ["first", "second"] if RANK == 0 else ["second", "first"]
    for name in names:
        ddl_tf.allreduce(tf.ones([4]), name=name)


def a_rank_has_more_variables():
    """Rank 1 makes a model that the others do not have."""
    if RANK == 1:
        extra = tf.Variable([1.0], name="extra")
        assert extra.trainable
    weight = tf.Variable([1.0], name="weight")
    with tf.GradientTape() as tape:
        loss = weight * 2.0
    tape.gradient(loss, weight)


def main():
    """Runs the case and writes down its error."""
    case, folder = sys.argv[1], Path(sys.argv[2])
    try:
        globals()[case]()
        outcome = ["nothing", "no error"]
    except Exception as error:
        outcome = [type(error).__name__, str(error)]
    (folder / f"rank{RANK}.json").write_text(json.dumps(outcome))


main()
