"""`import ddl` beyond plain training: start values, unusual gradients, wrapped optimizers, callbacks."""

import itertools
import os
import tempfile
import warnings

import _cases
import ddl
import ddl.tensorflow as ddl_tf
import keras
import numpy as np
import tensorflow as tf
import tf_keras
from _cases import refused

v1 = tf.compat.v1
RANK, SIZE = ddl.rank(), ddl.size()
MEAN = (SIZE - 1) / 2  # of the ranks
legacy = tf_keras.optimizers.legacy


def same_everywhere(*arrays):
    """Asserts that all ranks hold the same values."""
    for array in arrays:
        array = np.atleast_1d(np.asarray(array, np.float64))
        np.testing.assert_array_equal(ddl.allreduce(array, op="avg", name="same everywhere"), array)


def reduce_operators(graph):
    """The number of all-reduces in a graph."""
    return sum(operator.type == "AllReduceN" for operator in graph.get_operations())


def tf1_broadcasts_at_initialisation_and_before_training():
    """Trainable variables with the initialiser; all before the first step, as rank 0 has restored them."""
    with tf.Graph().as_default():
        weight = v1.get_variable("weight", initializer=float(RANK + 5))
        counter = v1.get_variable("counter", initializer=tf.constant(RANK + 7, tf.int64), trainable=False)
        step = v1.train.get_or_create_global_step()
        optimizer = v1.train.MomentumOptimizer(0.1, 0.9)
        train = optimizer.minimize(weight * (RANK + 1.0), global_step=step)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            assert session.run([weight, counter]) == [5.0, RANK + 7]
            if RANK == 0:  # as after Saver.restore
                slot = optimizer.get_slot(weight, "momentum")
                for variable, value in ((weight, 3.0), (step, 40), (slot, 1.0)):
                    variable.load(value, session)
            session.run(train)
            gradient = MEAN + 1
            assert session.run([step, counter]) == [41, 7]
            np.testing.assert_allclose(session.run(weight), 3.0 - 0.1 * (0.9 * 1.0 + gradient), rtol=1e-6)


def tf1_monitored_session_resumes_from_rank_0():
    """Only rank 0 has a checkpoint; it restores while the others initialise."""
    with tempfile.TemporaryDirectory() as folder:
        for start, expected in ((float(RANK + 1), 1.0 - 0.1), (50.0, 1.0 - 0.2)):
            with tf.Graph().as_default():
                weight = v1.get_variable("weight", initializer=start)
                step = v1.train.get_or_create_global_step()
                train = v1.train.GradientDescentOptimizer(0.1).minimize(weight, global_step=step)
                with v1.train.MonitoredTrainingSession(
                    checkpoint_dir=folder if RANK == 0 else None
                ) as session:
                    session.run(train)
                    np.testing.assert_allclose(session.run(weight), expected, rtol=1e-6)


def tf1_several_graphs():
    """Rank 0 alone builds and runs a graph for evaluation, with the broadcast switched off."""
    train_graph = tf.Graph()
    with train_graph.as_default():
        weight = v1.get_variable("weight", initializer=float(RANK))
        train = v1.train.GradientDescentOptimizer(1.0).minimize(weight * weight)
    with v1.Session(graph=train_graph) as session:
        with train_graph.as_default():
            session.run(v1.global_variables_initializer())
        if RANK == 0:
            with ddl_tf.no_broadcast(), tf.Graph().as_default() as evaluation:
                other = v1.get_variable("other", initializer=1.0)
                with v1.Session(graph=evaluation) as session2:
                    session2.run(v1.global_variables_initializer())
                    assert session2.run(other) == 1.0
        assert ddl_tf.broadcast_enabled()
        session.run(train)
    ddl_tf.disable_broadcast()
    with tf.Graph().as_default(), v1.Session() as session:
        weight = v1.get_variable("weight", initializer=float(RANK))
        train = v1.train.GradientDescentOptimizer(1.0).minimize(weight * 0.0)
        session.run(v1.global_variables_initializer())
        session.run(train)
        assert session.run(weight) == RANK
    ddl_tf.enable_broadcast()


def tf1_gradients_are_reduced_once():
    """With clipping between computing and applying, from tf.gradients, and with dynamic loss scaling."""
    ways = {}

    def clipped(optimizer, loss, variables):
        gradients, variables = zip(*optimizer.compute_gradients(loss, variables), strict=True)
        return optimizer.apply_gradients(
            zip(tf.clip_by_global_norm(gradients, 100.0)[0], variables, strict=True)
        )

    def by_hand(optimizer, loss, variables):
        return optimizer.apply_gradients(zip(tf.gradients(loss, variables), variables, strict=True))

    def explicitly(optimizer, loss, variables):
        pairs = ddl.grads_reduce(zip(tf.gradients(loss, variables), variables, strict=True))
        return optimizer.apply_gradients(pairs)

    def scaled(optimizer, loss, variables):
        optimizer = v1.mixed_precision.enable_mixed_precision_graph_rewrite(optimizer)
        return optimizer.minimize(loss, var_list=variables)

    for way in (clipped, by_hand, explicitly, scaled):
        with tf.Graph().as_default() as graph:
            weights = [v1.get_variable(f"weight{i}", initializer=[1.0, 1.0]) for i in range(2)]
            loss = sum(tf.reduce_sum(w) for w in weights) * (RANK + 1.0)
            train = way(v1.train.GradientDescentOptimizer(0.5), loss, weights)
            ways[way.__name__] = reduce_operators(graph)
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                session.run(train)
                np.testing.assert_allclose(
                    session.run(weights), np.full([2, 2], 1 - 0.5 * (MEAN + 1)), rtol=1e-6
                )
        v1.mixed_precision.disable_mixed_precision_graph_rewrite()
    assert ways == dict.fromkeys(ways, 1), ways


def tf1_two_optimizers_in_a_graph():
    """A step of one neither runs the other's gradients nor needs its placeholders."""
    with tf.Graph().as_default(), v1.Session() as session:
        trains, inputs = [], []
        for index in range(2):
            inputs.append(v1.placeholder(tf.float32, []))
            weight = v1.get_variable(f"weight{index}", initializer=1.0)
            loss = weight * inputs[index] * (RANK + 1.0)
            trains.append(v1.train.GradientDescentOptimizer(0.5).minimize(loss, var_list=[weight]))
            if index == 0:
                metric = ddl_tf.allreduce(loss, "avg", name="metric")
        session.run(v1.global_variables_initializer())
        for _ in range(3):
            session.run(trains[1], {inputs[1]: 1.0})
            seen = session.run([trains[0], metric], {inputs[0]: 1.0})[1]
            same_everywhere(seen)
        wanted = np.full(2, 1.0 - 1.5 * (MEAN + 1))
        np.testing.assert_allclose(session.run(v1.global_variables()), wanted, rtol=1e-6)


def tf1_callables():
    """Session.make_callable runs steps past Session.run."""
    with tf.Graph().as_default(), v1.Session() as session:
        with ddl_tf.no_broadcast():
            initialise = v1.variables_initializer([v1.get_variable("weight", initializer=float(RANK))])
        weight = v1.global_variables()[0]
        train = v1.train.GradientDescentOptimizer(1.0).minimize(weight)
        session.run(initialise)
        call = session.make_callable(train)
        call()
        call()
        assert session.run(weight) == -2.0


def explicit_tape():
    """DistributedGradientTape averages once, also by taking over a tape; a plain tape does not average."""
    x = tf.Variable([1.0, 2.0])
    with tf.GradientTape(persistent=True) as plain:
        loss = tf.reduce_sum(x * x) * (RANK + 1.0)
    np.testing.assert_allclose(plain.gradient(loss, x), np.array([2.0, 4.0]) * (RANK + 1))
    averaged = ddl_tf.DistributedGradientTape(plain).gradient(loss, {"x": x})
    np.testing.assert_allclose(averaged["x"], np.array([2.0, 4.0]) * (MEAN + 1), rtol=1e-6)

    @tf.function
    def step():
        with ddl_tf.DistributedGradientTape() as tape:
            loss = tf.reduce_sum(x * x) * (RANK + 1.0)
        gradients = tape.gradient(loss, [x])
        optimizer.apply_gradients(zip(gradients, [x], strict=True))
        x.assign_sub(0.1 * gradients[0])

    optimizer = keras.optimizers.SGD(0.1)
    step()
    graph = step.get_concrete_function().graph
    assert reduce_operators(graph) == 1, [o.type for o in graph.get_operations()]
    np.testing.assert_allclose(x, np.array([1.0, 2.0]) * (1 - 0.4 * (MEAN + 1)), rtol=1e-5)


def second_derivatives_are_untouched():
    """Nested tapes see the gradients of this rank."""
    x = tf.Variable(3.0)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            y = x * x * x * (RANK + 1.0)
        first = inner.gradient(y, x)
    assert float(first) == 27.0 * (RANK + 1) and float(outer.gradient(first, x)) == 18.0 * (RANK + 1)


def missing_gradients_are_skipped():
    """None stays None when it is so on all ranks."""
    a, b, c = (tf.Variable([float(i)], name=name) for i, name in enumerate("abc"))
    pairs = ddl.grads_reduce(
        [(tf.constant([RANK + 1.0]), a), (None, b), (tf.constant([2.0]), c)], average=False
    )
    assert pairs[1] == (None, b) and [v.name for _, v in pairs] == ["a:0", "b:0", "c:0"]
    assert float(pairs[0][0][0]) == SIZE * (SIZE + 1) / 2 and float(pairs[2][0][0]) == 2.0 * SIZE
    for optimizer in (keras.optimizers.SGD(1.0), tf_keras.optimizers.SGD(1.0), legacy.SGD(1.0)):
        a.assign([0.0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer.apply_gradients([(tf.constant([RANK + 1.0]), a), (None, b)])
        np.testing.assert_allclose(a, [-(MEAN + 1)], rtol=1e-6)
    np.testing.assert_array_equal(b, [1.0])


def sparse_gradients_stay_sparse():
    """Momentum moves only the rows that some rank has touched, as in one process with the whole batch."""
    table = tf.Variable(tf.ones([6, 2]), name="table")
    optimizer = v1.train.MomentumOptimizer(0.1, 0.9, use_nesterov=False)
    reference, velocity = np.ones([6, 2]), np.zeros([6, 2])

    @tf.function
    def step(rows):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, rows) ** 2) / 2
        gradients = tape.gradient(loss, [table])
        assert isinstance(gradients[0], tf.IndexedSlices)
        optimizer.apply_gradients(zip(gradients, [table], strict=True))

    for index in range(3):
        rows = [[rank] * (index + rank) + [3] for rank in range(SIZE)]  # uneven, some empty but for row 3
        step(tf.constant(rows[RANK]))
        gradient = np.zeros([6, 2])
        touched = list(itertools.chain.from_iterable(rows))
        for row in touched:
            gradient[row] += reference[row] / SIZE
        for row in set(touched):
            velocity[row] = 0.9 * velocity[row] + gradient[row]
            reference[row] -= 0.1 * velocity[row]
    np.testing.assert_allclose(table, reference, rtol=1e-5)
    slices = tf.IndexedSlices(tf.ones([RANK + 1, 2]), tf.range(RANK + 1), [6, 2])
    dense = ddl_tf.grads_reduce([(slices, table)], sparse_as_dense=True)[0][0]
    assert not isinstance(dense, tf.IndexedSlices) and float(dense[0, 0]) == 1.0


def groups_by_environment():
    """DDL_GROUP_SIZE cuts the group, last gradients first; the values do not change."""
    variables = [tf.Variable(tf.zeros([10]), name=f"v{i}") for i in range(5)]

    @tf.function
    def reduce():
        pairs = [(tf.fill([10], float(i * (RANK + 1))), v) for i, v in enumerate(variables)]
        return [g for g, _ in ddl_tf.grads_reduce(pairs)]

    os.environ["DDL_GROUP_SIZE"] = "20"
    try:
        results = reduce()
        assert reduce_operators(reduce.get_concrete_function().graph) == 3
    finally:
        del os.environ["DDL_GROUP_SIZE"]
    for i, result in enumerate(results):
        np.testing.assert_allclose(result, np.full(10, i * (MEAN + 1)), rtol=1e-6)


def group_size_must_be_a_number():
    """What DDL_GROUP_SIZE cannot be is said."""
    pairs = [(tf.ones([2]), tf.Variable(tf.zeros([2])))]
    for text in ("many", "-1", "1.5", "0"):
        os.environ["DDL_GROUP_SIZE"] = text
        try:
            refused(ValueError, ["DDL_GROUP_SIZE", "1 or more"], lambda: ddl_tf.grads_reduce(pairs))
        finally:
            del os.environ["DDL_GROUP_SIZE"]


def optimizers_without_averaging():
    """Within no_averaging each rank trains with its own gradients; after it, with the average again."""

    def tf1(value):
        with tf.Graph().as_default(), v1.Session() as session:
            weight = v1.get_variable("weight", initializer=value)
            optimizer = v1.train.GradientDescentOptimizer(1.0)
            train = optimizer.minimize(weight * (RANK + 1.0))
            pairs = [(v1.constant(RANK + 1.0), weight)]
            train_again = optimizer.apply_gradients(pairs)
            session.run(v1.global_variables_initializer())
            session.run(train)
            session.run(train_again)
            return float(session.run(weight))

    def keras_optimizer(optimizer):
        def train(value):
            weight = tf.Variable(value)
            for _ in range(2):
                optimizer(1.0).apply_gradients([(tf.constant(RANK + 1.0), weight)])
            return float(weight)

        return train

    def keras3(value):
        weight = keras.Variable(value)
        for _ in range(2):
            keras.optimizers.SGD(1.0).apply([tf.constant(RANK + 1.0)], [weight])
        return float(weight.numpy())

    for train in (tf1, keras_optimizer(tf_keras.optimizers.SGD), keras_optimizer(legacy.SGD), keras3):
        with ddl_tf.no_averaging():
            assert train(1.0) == 1.0 - 2 * (RANK + 1)
        assert train(1.0) == 1.0 - 2 * (MEAN + 1)


def layers_that_build_themselves():
    """Variables made within the first step: eagerly under the tape, and by a tf.function itself."""
    keras.utils.set_random_seed(100 + RANK)
    tf.random.set_seed(100 + RANK)
    for wrap in (lambda f: f, tf.function):
        model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])

        def step(x, model=model):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(x))
            return tape.gradient(loss, model.trainable_variables)

        wrap(step)(tf.ones([2, 3]))
        same_everywhere(*(w.numpy() for w in model.trainable_variables))

    class Lazy(tf.Module):
        weight = None

        @tf.function
        def step(self, x):
            with tf.GradientTape() as tape:
                if self.weight is None:
                    self.weight = tf.Variable(tf.random.normal([3]), name="lazy")
                loss = tf.reduce_sum(self.weight * x)
            return tape.gradient(loss, self.weight)

    lazy = Lazy()
    lazy.step(tf.ones([3]))
    same_everywhere(lazy.weight.numpy())


def optimizer_state_comes_from_rank_0():
    """Rank 0 has loaded the iteration counter and the moments; the first update uses them on all ranks."""
    for library in (keras.optimizers, tf_keras.optimizers, legacy):
        variable = tf.Variable([1.0, 1.0], name="weight")
        optimizer = library.Adam(0.1)
        if library is legacy:
            optimizer._create_all_weights([variable])
            state = optimizer.weights
        else:
            optimizer.build([variable])
            state = optimizer.variables
        if RANK == 0:
            for entry in state:
                if getattr(entry, "path", entry.name).split("/")[-1].startswith("learning_rate"):
                    continue
                entry.assign(tf.cast(tf.fill(entry.shape, 9), entry.dtype))
        optimizer.apply_gradients([(tf.constant([1.0, RANK]), variable)])
        assert int(optimizer.iterations) == 10
        same_everywhere(variable.numpy(), *(np.asarray(entry) for entry in state))
        moment = next(np.asarray(e) for e in state if e.shape == (2,))
        assert moment[0] > 5, moment  # 9, moved a little by one step


def loss_scaling():
    """A gradient that overflows on one rank skips the step on all."""
    for optimizer in (
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0), initial_scale=2.0),
        tf_keras.mixed_precision.LossScaleOptimizer(tf_keras.optimizers.SGD(1.0), initial_scale=2.0),
        tf_keras.mixed_precision.LossScaleOptimizer(legacy.SGD(1.0), initial_scale=2.0),
    ):
        variable = tf.Variable([0.0], name="weight")

        @tf.function
        def step(gradient, optimizer=optimizer, variable=variable):
            if hasattr(optimizer, "get_unscaled_gradients"):
                gradient = optimizer.get_unscaled_gradients([gradient])[0]
            optimizer.apply_gradients([(gradient, variable)])

        step(tf.constant([2.0 * (RANK + 1)]))
        np.testing.assert_allclose(variable, [-(MEAN + 1)], rtol=1e-6)
        step(tf.constant([np.inf if RANK == SIZE - 1 else 1.0]))
        np.testing.assert_allclose(variable, [-(MEAN + 1)], rtol=1e-6)
        step(tf.constant([1.0]))
        same_everywhere(variable.numpy())
        assert float(variable[0]) < -(MEAN + 1)


def mixed_precision_model():
    """float16 layers with float32 variables; trains alike on all ranks."""
    for library in (keras, tf_keras):
        library.utils.set_random_seed(RANK)
        policy = {"dtype": "mixed_float16"}
        model = library.Sequential([library.layers.Dense(8, **policy), library.layers.Dense(1, **policy)])
        model.compile(library.mixed_precision.LossScaleOptimizer(library.optimizers.Adam(0.01)), "mse")
        x = np.random.default_rng(RANK).normal(size=(32, 4)).astype("f")
        model.fit(x, x[:, :1], epochs=2, batch_size=8, verbose=0)
        assert all(np.isfinite(w).all() for w in model.get_weights())
        same_everywhere(*model.get_weights())


def compiled_models_train():
    """jit_compile=True is replaced, with a warning; 'auto' and False are silent."""
    for library, wish, warned in (
        (keras, "auto", 0),
        (keras, True, 1),
        (tf_keras, True, 1),
        (tf_keras, None, 0),
    ):
        model = library.Sequential([library.layers.Dense(1)])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.compile("sgd", "mse", jit_compile=wish)
        messages = [str(w.message) for w in caught if "jit_compile" in str(w.message)]
        # rank 0 speaks for all
        assert len(messages) == (warned if RANK == 0 else 0) and all("DDL" in m for m in messages), (
            library.__name__,
            wish,
            messages,
        )
        model.fit(np.ones((8, 3), "f") * RANK, np.ones((8, 1), "f"), verbose=0)
        same_everywhere(*model.get_weights())


def every_way_to_step():
    """Several steps in one call (a loop in the graph), and eager steps; dropout and batch statistics."""
    for library in (keras, tf_keras):
        for way in ({"steps_per_execution": 4}, {"run_eagerly": True}):
            library.utils.set_random_seed(RANK)
            layers = library.layers
            model = library.Sequential(
                [layers.Dense(8), layers.BatchNormalization(), layers.Dropout(0.1), layers.Dense(1)]
            )
            model.compile("adam", "mse", **way)
            x = np.random.default_rng(RANK).normal(size=(64, 4)).astype("f")
            model.fit(x, x[:, :1], batch_size=8, epochs=2, verbose=0)
            same_everywhere(*(np.asarray(weight) for weight in model.trainable_weights))


class OwnApply(keras.optimizers.Optimizer):
    """Replaces `apply`, and calls nothing of Keras there."""

    def update_step(self, gradient, variable, learning_rate):
        raise AssertionError("apply is its own")

    def apply(self, grads, trainable_variables=None):
        for gradient, variable in zip(grads, trainable_variables, strict=True):
            variable.assign_sub(0.1 * gradient)


class OwnStep(keras.optimizers.Optimizer):
    """As Keras' guide has it."""

    def update_step(self, gradient, variable, learning_rate):
        self.assign_sub(variable, gradient * learning_rate)


class OwnV1(v1.train.Optimizer):
    """As TensorFlow 1 had it."""

    def __init__(self):
        super().__init__(False, "OwnV1")

    def _resource_apply_dense(self, gradient, variable):
        return variable.assign_sub(0.1 * gradient)


class OwnApplyV1(OwnV1):
    """Replaces `apply_gradients`."""

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        return tf.group(*[variable.assign_sub(0.1 * gradient) for gradient, variable in grads_and_vars])


class OwnApplyOfTfKeras(tf_keras.optimizers.Optimizer):
    """Replaces `apply_gradients`."""

    def __init__(self):
        super().__init__("own")

    def build(self, variables):
        self._learning_rate = self._build_learning_rate(0.1)
        super().build(variables)

    def apply_gradients(self, grads_and_vars, *arguments, **more):
        for gradient, variable in grads_and_vars:
            variable.assign_sub(0.1 * gradient)


def optimizers_of_the_scripts_own():
    """Classes that are defined after `import ddl`, and those of tensorflow.python.keras, average alike."""
    from tensorflow.python.keras.optimizer_v2 import gradient_descent

    made = [
        (OwnApply(0.1), keras.Variable),
        (OwnStep(0.1), keras.Variable),
        (OwnV1(), tf.Variable),
        (OwnApplyV1(), tf.Variable),
        (OwnApplyOfTfKeras(), tf.Variable),
        (gradient_descent.SGD(0.1), tf.Variable),
    ]
    for optimizer, kind in made:
        variable = kind(np.ones(2, "f4"))
        gradient = tf.constant([1.0 + RANK, 0.0])
        optimizer.apply_gradients([(gradient, variable)])
        expected = [1 - 0.1 * (1 + MEAN), 1.0]
        np.testing.assert_allclose(np.array(variable), expected, rtol=1e-6, err_msg=type(optimizer).__name__)


def callbacks():
    """Averaged metrics, seen by the callbacks behind; the same variables at the start of every fit."""
    for library in (keras, tf_keras):
        library.utils.set_random_seed(RANK)
        model = library.Sequential([library.layers.Dense(1), library.layers.BatchNormalization()])
        model.compile(library.optimizers.SGD(0.0, momentum=0.9), "mse", metrics=["mae"])
        x, y = np.ones((8, 3), "f") * (RANK + 1), np.full((8, 1), 5.0 * RANK, "f")
        own, averaged, started = [], [], []

        class Spy(library.callbacks.Callback):
            def __init__(self, seen):
                super().__init__()
                self.seen = seen

            def on_epoch_end(self, epoch, logs=None):
                self.seen.append(dict(logs))

        class Start(library.callbacks.Callback):
            def on_train_begin(self, logs=None):
                if self.model.built:
                    started.append([np.array(w) for w in self.model.get_weights()])  # noqa: B023

        chain = [Spy(own), ddl.DDLCallback(), Spy(averaged), ddl.DDLGlobalVariablesCallback(), Start()]
        history = model.fit(x, y, epochs=2, verbose=0, callbacks=chain, validation_data=(x, y))
        assert set(averaged[0]) >= {"loss", "val_loss"}, averaged
        for before, after in zip(own, averaged, strict=True):
            for key, value in before.items():
                wanted = ddl.allreduce(np.array([float(value)]), op="avg", name=f"wanted {key}")[0]
                np.testing.assert_allclose(after[key], wanted, rtol=1e-6)
        assert [logs["loss"] for logs in averaged] == history.history["loss"]
        spread = np.array([float(own[0]["val_loss"])])
        assert not np.array_equal(ddl.allreduce(spread, op="avg", name="spread"), spread)  # they did differ
        # Ranks drift apart (the moving averages of their own data) and are made equal by the next fit.
        if RANK == 1:
            model.set_weights([w + 1 for w in model.get_weights()])
        model.fit(x, y, epochs=1, verbose=0, callbacks=chain)
        same_everywhere(*started[-1])
        early = library.callbacks.EarlyStopping(monitor="loss", patience=1, min_delta=1000.0)
        epochs = len(
            model.fit(x, y, epochs=5, verbose=0, callbacks=[ddl.DDLCallback(), early]).history["loss"]
        )
        same_everywhere(float(epochs))


def variables_of_every_type():
    """broadcast_variables, eagerly, within a tf.function and in a TF1 graph."""
    kinds = [tf.float32, tf.float16, tf.bfloat16, tf.float64, tf.int32, tf.int64, tf.uint8, tf.int8, tf.bool]
    kinds += [tf.uint32, tf.uint64, tf.complex64, tf.complex128]
    variables = [tf.Variable(tf.cast([RANK + 1, 0, 3 * RANK], kind), trainable=False) for kind in kinds]
    root = SIZE - 1
    assert ddl_tf.broadcast_variables(variables, root=root) is None
    for variable in variables:
        np.testing.assert_array_equal(variable, tf.cast([root + 1, 0, 3 * root], variable.dtype))
    own = [tf.Variable(float(RANK + i), trainable=False) for i in range(4)]
    tf.function(lambda: ddl_tf.broadcast_variables(own))()
    assert [float(v) for v in own] == [0.0, 1.0, 2.0, 3.0]
    with ddl_tf.no_broadcast(), tf.Graph().as_default(), v1.Session() as session:
        variable = v1.get_variable("variable", initializer=float(RANK + 8))
        broadcast = ddl_tf.broadcast_variables([variable])
        session.run(v1.global_variables_initializer())
        session.run(broadcast)
        assert session.run(variable) == 8.0


_cases.run(
    [
        tf1_broadcasts_at_initialisation_and_before_training,
        tf1_monitored_session_resumes_from_rank_0,
        tf1_several_graphs,
        tf1_gradients_are_reduced_once,
        tf1_two_optimizers_in_a_graph,
        tf1_callables,
        explicit_tape,
        second_derivatives_are_untouched,
        missing_gradients_are_skipped,
        sparse_gradients_stay_sparse,
        groups_by_environment,
        group_size_must_be_a_number,
        optimizers_without_averaging,
        layers_that_build_themselves,
        optimizer_state_comes_from_rank_0,
        loss_scaling,
        mixed_precision_model,
        compiled_models_train,
        every_way_to_step,
        optimizers_of_the_scripts_own,
        callbacks,
        variables_of_every_type,
    ]
)
