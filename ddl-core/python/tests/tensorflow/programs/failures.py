"""Ranks that disagree: every rank must end with an error that says in what; the errors are written down."""

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


def another_variable_is_trained():
    """As many variables on both ranks, of the same shapes, but not the same ones."""
    head, left, right, tail = (tf.Variable([1.0], name=name) for name in ("head", "left", "right", "tail"))
    chosen = [head, left if RANK == 0 else right, tail]
    optimizer = tf.keras.optimizers.SGD(0.1)
    optimizer.apply_gradients([(tf.ones([1]), variable) for variable in chosen])


def the_variables_are_in_another_order():
    """The same variables on both ranks, of the same shapes."""
    head, left, right = (tf.Variable([1.0], name=name) for name in ("head", "left", "right"))
    chosen = [head, left, right] if RANK == 0 else [head, right, left]
    optimizer = tf.keras.optimizers.SGD(0.1)
    optimizer.apply_gradients([(tf.ones([1]), variable) for variable in chosen])


def a_gradient_is_sparse():
    """On rank 1 only."""
    table = tf.Variable(tf.zeros([2, 1]), name="table")
    slices = tf.IndexedSlices(tf.ones([1, 1]), tf.constant([0]), [2, 1])
    gradient = slices if RANK == 1 else tf.ones([2, 1])
    tf.keras.optimizers.SGD(0.1).apply_gradients([(gradient, table)])


def a_later_gradient_is_missing():
    """The first step is the same; in the second rank 1 has no gradient for one variable."""
    head, tail = (tf.Variable([1.0], name=name) for name in ("head", "tail"))
    optimizer = tf.keras.optimizers.SGD(0.1)
    optimizer.apply_gradients([(tf.ones([1]), head), (tf.ones([1]), tail)])
    optimizer.apply_gradients([(tf.ones([1]), head), (None if RANK == 1 else tf.ones([1]), tail)])


def a_graph_trains_other_variables():
    """A TF1 graph in which rank 1 leaves out a variable in the middle."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        names = ("encoder", "attention", "alignment", "decoder")
        variables = {name: v1.get_variable(name, initializer=[1.0]) for name in names}
        left_out = "alignment" if RANK == 0 else "attention"
        chosen = [variable for name, variable in variables.items() if name != left_out]
        train = v1.train.GradientDescentOptimizer(0.1).minimize(tf.add_n(chosen), var_list=chosen)
        session.run(v1.global_variables_initializer())
        session.run(train)


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
    """Runs the cases and writes down their errors."""
    folder, outcomes = Path(sys.argv[1]), {}
    for case in sys.argv[2:]:
        try:
            globals()[case]()
            outcomes[case] = ["nothing", "no error"]
        except Exception as error:
            outcomes[case] = [type(error).__name__, str(error)]
    (folder / f"rank{RANK}.json").write_text(json.dumps(outcomes))


main()
