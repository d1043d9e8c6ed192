"""Trains a model with every interface, exports it for serving, and writes down what it answers."""

import sys
from pathlib import Path

import _cases
import ddl
import ddl.tensorflow as ddl_tf
import keras
import numpy as np
import tensorflow as tf
import tf_keras

v1 = tf.compat.v1
RANK = ddl.rank()
FOLDER = Path(sys.argv[1])
X = np.random.default_rng(3).normal(size=(5, 4)).astype("f")


def answers(name, outputs):
    """What the trained model says to X, to be compared with what the exported one says."""
    if RANK == 0:
        np.savez(FOLDER / f"{name}.npz", x=X, answer=np.asarray(outputs))


def leaves_nothing(kind, words, call):
    """Asserts that rank 0 refuses a call with these words, and leaves no folder behind."""
    if RANK != 0:
        return
    before = sorted(FOLDER.iterdir())
    _cases.refused(kind, words, call)
    assert sorted(FOLDER.iterdir()) == before


def _inference():
    x = v1.placeholder(tf.float32, [None, 4], name="x")
    weight = v1.get_variable("layer/weight", [4, 2])
    scale = v1.get_variable("scale", initializer=2.0, trainable=False)
    return {"x": x}, {"y": tf.nn.relu(x @ weight) * scale}


def tf1_in_three_steps():
    """From the session that has trained, and from its checkpoint; not with the training graph."""
    with tf.Graph().as_default() as graph, v1.Session() as session:
        inputs, outputs = _inference()
        loss = tf.reduce_sum((outputs["y"] - 1.0) ** 2)
        train = v1.train.AdamOptimizer(0.1).minimize(loss)
        session.run(v1.global_variables_initializer())
        for _ in range(3):
            session.run(train, {inputs["x"]: X * (RANK + 1)})
        assert "AllReduceN" in {operator.type for operator in graph.get_operations()}
        own = session.run(outputs["y"], {inputs["x"]: X})
        for name in ("tf1_session", "tf1_checkpoint"):
            answers(name, own)
        ddl_tf.export_graph(_inference, session, FOLDER / "tf1_session")
        if RANK == 0:
            checkpoint = v1.train.Saver().save(session, str(FOLDER / "model.ckpt"))
            ddl_tf.export_graph(_inference, checkpoint, FOLDER / "tf1_checkpoint")
            # As a script would that knows nothing of serving: it needs DDL's library.
            builder = v1.saved_model.Builder(str(FOLDER / "training_graph"))
            signature = v1.saved_model.predict_signature_def(inputs, outputs)
            builder.add_meta_graph_and_variables(
                session, [v1.saved_model.SERVING], signature_def_map={"serving_default": signature}
            )
            builder.save()
            np.savez(FOLDER / "training_graph.npz", x=X, answer=own)
        leaves_nothing(
            ValueError,
            ["AllReduceN", "inference alone"],
            lambda: ddl_tf.check_servable(FOLDER / "training_graph"),
        )
        leaves_nothing(
            FileExistsError,
            ["tf1_session"],
            lambda: ddl_tf.export_graph(_inference, session, FOLDER / "tf1_session"),
        )

        def other():
            inputs, outputs = _inference()
            extra = v1.get_variable("unknown", initializer=1.0)
            return inputs, {"y": outputs["y"] + extra}

        leaves_nothing(
            ValueError,
            ["unknown", "the session"],
            lambda: ddl_tf.export_graph(other, session, FOLDER / "other"),
        )

        def with_ddl():
            inputs, outputs = _inference()
            return inputs, {"y": ddl_tf.allreduce(outputs["y"])}

        leaves_nothing(
            ValueError, ["(AllReduce)"], lambda: ddl_tf.export_graph(with_ddl, session, FOLDER / "with_ddl")
        )


def keras_models():
    """Keras 3 and tf_keras, after fit."""
    for library in (keras, tf_keras):
        library.utils.set_random_seed(RANK)
        inputs = library.layers.Input((4,))
        hidden = library.layers.Dropout(0.5)(library.layers.Dense(6, activation="relu")(inputs))
        model = library.Model(inputs, library.layers.Dense(2)(hidden))
        model.compile("adam", "mse")
        model.fit(X * (RANK + 1), X[:, :2], verbose=0)
        answers(library.__name__, model(X))
        ddl_tf.export_model(model, FOLDER / library.__name__)


class Trainee(tf.Module):
    """A tf.Module with a function that trains, which must not be served."""

    def __init__(self):
        super().__init__()
        self.weight = tf.Variable(tf.random.stateless_normal([4, 2], [RANK, 1]), name="weight")
        self.optimizer = v1.train.GradientDescentOptimizer(0.1)

    def __call__(self, x):
        return {"y": x @ self.weight}

    @tf.function(input_signature=[tf.TensorSpec([None, 4])])
    def train(self, x):
        """One step."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(self(x)["y"] ** 2)
        self.optimizer.apply_gradients([(tape.gradient(loss, self.weight), self.weight)])


def module():
    """Only its call is exported."""
    trainee = Trainee()
    trainee.train(X * (RANK + 1))
    answers("module", trainee(X)["y"])
    signature = [tf.TensorSpec([None, 4], name="x")]
    ddl_tf.export_model(trainee, FOLDER / "module", input_signature=signature)
    leaves_nothing(ValueError, ["input_signature"], lambda: ddl_tf.export_model(trainee, FOLDER / "unsigned"))

    class Reducing(tf.Module):
        def __call__(self, x):
            return ddl_tf.allreduce(x)

    leaves_nothing(
        ValueError,
        ["(AllReduce)"],
        lambda: ddl_tf.export_model(Reducing(), FOLDER / "reducing", input_signature=signature),
    )


_cases.run([tf1_in_three_steps, keras_models, module])
