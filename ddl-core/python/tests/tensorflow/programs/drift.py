"""Ranks that drift apart are noticed, and those that do not are left alone."""

import contextlib
import functools
import io
import itertools
import tempfile

import _cases
import ddl
import ddl.tensorflow as ddl_tf
import keras
import numpy as np
import tensorflow as tf
import tf_keras
from _cases import refused

v1 = tf.compat.v1
RANK = ddl.rank()
BAD = RANK == 1
STEPS = 10
libraries = (keras, tf_keras)
random = np.random.RandomState(RANK)
X, Y = random.randn(256, 8).astype("f"), random.randn(256, 1).astype("f")


def batch(step):
    """This rank's part of the batch of a step."""
    return X[step % 32 * 8 :][:8], Y[step % 32 * 8 :][:8]


def network(library, *more):
    """A model that begins differently on every rank."""
    library.utils.set_random_seed(RANK)
    layers = library.layers
    return library.Sequential(
        [layers.Input((8,)), layers.Dense(6, activation="relu"), *more, layers.Dense(1)]
    )


def difference(model):
    """The largest one of a trained weight between the ranks."""
    weights = np.concatenate([np.ravel(np.asarray(weight)) for weight in model.trainable_weights])
    return float((ddl.allreduce(weights, op="max") - ddl.allreduce(weights, op="min")).max())


def found(words, train):
    """Asserts that a training ends with an error of these words within ten steps behind the third."""
    steps = []
    refused(ddl.DDLError, ["DDL-1-7", *words], lambda: train(steps.append))
    assert len(steps) <= 3 + STEPS, steps


def by_batches(library, harm, optimizer=None, **compiled):
    """Trains by fit, one long epoch, in which `harm(model)` happens on rank 1."""

    def train(note):
        model = network(library)
        model.compile(
            optimizer() if optimizer else library.optimizers.SGD(0.1, momentum=0.9), "mse", **compiled
        )

        def after(number, logs=None):
            note(number)
            if BAD and number == 2:
                harm(model)

        model.fit(X, Y, 8, 1, 0, [library.callbacks.LambdaCallback(on_batch_end=after)])

    return train


def set_value(variable, value):
    """Assigns, in either library."""
    variable.assign(np.broadcast_to(np.asarray(value, "f"), variable.shape))


def learning_rate_of_one_rank():
    def harm(model):
        model.optimizer.learning_rate = 0.05

    for library, eager in itertools.product(libraries, (False, True)):
        found(["learning rate 0.1 on rank 0, 0.05 on rank 1"], by_batches(library, harm, run_eagerly=eager))


def weight_set_on_one_rank():
    for library in libraries:
        found(
            ["dense", "bias", "by up to", "(rank 1 against rank 0)"],
            by_batches(library, lambda model: set_value(model.layers[0].bias, model.layers[0].bias + 1e-3)),
        )


def checkpoint_loaded_on_one_rank():
    for library in libraries:
        found(
            ["dense"],
            by_batches(library, lambda model: model.set_weights([2 * w for w in model.get_weights()])),
        )


def settings_of_an_optimizer():
    """They change no weight at once, but the updates after it."""
    cases = {
        "momentum": lambda library: library.optimizers.SGD(0.1, momentum=0.9),
        "weight_decay": lambda library: library.optimizers.AdamW(0.01, weight_decay=0.1),
        "beta_1": lambda library: library.optimizers.Adam(0.01),
        "rho": lambda library: library.optimizers.RMSprop(0.01),
        "clipnorm": lambda library: library.optimizers.SGD(0.1, clipnorm=10.0),
    }
    for (setting, make), library in itertools.product(cases.items(), libraries):
        found(
            ["dense", f"{setting} ", " on rank 0, 0.01 on rank 1", "give all ranks the same optimizer"],
            by_batches(
                library,
                lambda model, setting=setting: setattr(model.optimizer, setting, 0.01),
                lambda make=make, library=library: make(library),
                run_eagerly=True,
            ),
        )


def other_optimizer_on_one_rank():
    """Another class, or another setting from the start."""
    kinds = {
        "optimizer SGD on rank 0, Adam on rank 1": lambda own: [own.SGD(0.01), own.Adam(0.01)][BAD],
        "global_clipnorm none on rank 0, 0.01": lambda own: own.SGD(
            0.01, global_clipnorm=0.01 if BAD else None
        ),
    }
    for (words, make), library in itertools.product(kinds.items(), libraries):
        with ddl_tf.no_broadcast():
            model, optimizer = network(library), make(library.optimizers)
            ddl.broadcast_variables(model.variables)

            def train(model=model, optimizer=optimizer):
                for number in range(6):
                    x, y = batch(number)
                    with tf.GradientTape() as tape:
                        loss = tf.reduce_mean(tf.square(model(x) - y))
                    variables = model.trainable_variables
                    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

            refused(ddl.DDLError, ["DDL-1-7", words, "the same optimizer with the same settings"], train)


def optimizer_replaced_on_one_rank():
    for library in libraries:
        model = network(library)
        model.compile(library.optimizers.SGD(0.1), "mse")
        model.fit(X, Y, 8, 1, 0)
        model.compile(library.optimizers.SGD(0.2 if BAD else 0.1), "mse")
        with ddl_tf.no_broadcast():
            refused(
                ddl.DDLError,
                ["learning rate 0.1 on rank 0, 0.2 on rank 1"],
                functools.partial(model.fit, X, Y, 8, 1, 0),
            )


def callbacks_that_decide_alone():
    for library in libraries:
        kind = library.callbacks.ReduceLROnPlateau
        plateau = kind("loss", patience=0, min_delta=10.0, factor=0.25 if BAD else 0.5)
        model = network(library)
        model.compile(library.optimizers.SGD(0.1), "mse")
        refused(ddl.DDLError, ["learning rate"], functools.partial(model.fit, X, Y, 64, 4, 0, plateau))
        model = network(library)
        model.compile(library.optimizers.SGD(0.1), "mse")

        def stop(epoch, logs=None, model=model):
            model.stop_training = BAD and epoch == 1

        words = ["rank 1 stops training after epoch 2 and rank 0 does not", "DDLCallback"]
        stopping = library.callbacks.LambdaCallback(on_epoch_end=stop)
        refused(ddl.DDLError, words, functools.partial(model.fit, X, Y, 64, 4, 0, [stopping]))


def other_start():
    """Without the broadcast, ranks begin differently."""
    for library in libraries:
        with ddl_tf.no_broadcast():
            model = network(library)
            model.compile(library.optimizers.SGD(0.1), "mse")
            words = ["before the first update", "dense"]
            refused(ddl.DDLError, words, functools.partial(model.fit, X, Y, 8, 1, 0))


def _loop(library, compiled, harm):
    def train(note):
        model = network(library)
        optimizer = library.optimizers.SGD(0.1)

        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

        step = tf.function(step) if compiled else step
        for number in range(STEPS + 5):
            note(number)
            step(*map(tf.constant, batch(number)))
            if BAD and number == 2:
                harm(model, optimizer)
        assert difference(model) == 0.0

    return train


def loops_of_the_scripts_own():
    for library, compiled in itertools.product(libraries, (False, True)):
        _loop(library, compiled, lambda *_: None)(lambda _: None)
        harm_rate = lambda _, optimizer: setattr(optimizer, "learning_rate", 0.05)  # noqa: E731
        harm_weight = lambda model, _: set_value(model.layers[-1].bias, 1.0)  # noqa: E731
        found(["learning rate"], _loop(library, compiled, harm_rate))
        found(["dense"], _loop(library, compiled, harm_weight))


def _by_tape(kind, compiled, harm=False, steps=STEPS + 5):
    def train(note):
        weight, bias = (
            tf.Variable(random.randn(8, 1).astype("f"), name="weight"),
            tf.Variable([0.0], name="bias"),
        )

        def step(x, y):
            with kind() as tape:
                loss = tf.reduce_mean(tf.square(x @ weight + bias - y))
            for gradient, variable in zip(tape.gradient(loss, [weight, bias]), [weight, bias], strict=True):
                variable.assign_sub(0.1 * gradient)

        step = tf.function(step) if compiled else step
        for number in range(steps):
            note(number)
            step(*map(tf.constant, batch(number)))
            if harm and BAD and number == 2:
                bias.assign_add([1e-3])

    return train


def tapes_without_an_optimizer():
    for compiled in (False, True):
        _by_tape(ddl.DistributedGradientTape, compiled)(lambda _: None)
        found(["bias"], _by_tape(ddl.DistributedGradientTape, compiled, harm=True))


def updates_that_nothing_averages():
    """Among the first cases: a script that has averaged is trusted."""
    for compiled in (False, True):
        words = ["averaged nothing", "bias", "no_averaging"]
        refused(
            ddl.DDLError, words, lambda compiled=compiled: _by_tape(tf.GradientTape, compiled)(lambda _: None)
        )


def steps_of_fit_that_nothing_averages():
    """What fit and its callbacks exchange is no average of gradients."""
    for library in libraries:

        class ByHand(library.Model):
            def __init__(self, library=library):
                super().__init__()
                self.dense = library.layers.Dense(1)

            def call(self, x):
                return self.dense(x)

            def train_step(self, data):
                x, y = data
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(tf.square(self(x) - y))
                variables = self.trainable_variables
                for gradient, variable in zip(tape.gradient(loss, variables), variables, strict=True):
                    variable.assign(variable - 0.1 * gradient)
                return {"loss": loss}

        model = ByHand()
        model.compile()
        words = ["averaged nothing", "dense", "no_averaging"]
        fit = functools.partial(model.fit, X[:32], Y[:32], 8, 6, 0, [ddl.DDLCallback()])
        refused(ddl.DDLError, words, fit)


def _session(graph, monitored=False):
    if monitored:
        return v1.train.MonitoredTrainingSession()
    session = v1.Session(graph=graph)
    session.run(v1.global_variables_initializer())
    return session


def tf1_sessions():
    def train(monitored, harm, rate=0.1):
        def run(note):
            with tf.Graph().as_default() as graph:
                x, y = v1.placeholder(tf.float32, [None, 8]), v1.placeholder(tf.float32, [None, 1])
                speed = v1.placeholder_with_default(0.1, [])
                weight = v1.get_variable("weight", [8, 1])
                bias = v1.get_variable("bias", [1], use_resource=False)
                loss = tf.reduce_mean(tf.square(x @ weight + bias - y))
                global_step = v1.train.get_or_create_global_step()
                step = v1.train.MomentumOptimizer(speed, 0.9).minimize(loss, global_step=global_step)
                assign = v1.assign(bias, bias + 1e-3)
                with _session(graph, monitored) as session:
                    for number in range(STEPS + 5):
                        note(number)
                        feeds = dict(zip((x, y), batch(number), strict=True))
                        if BAD and number > 2:
                            feeds[speed] = rate
                        session.run([step, loss], feeds)
                        if harm and BAD and number == 2:
                            session.run(assign)
                        session.run(loss, feeds)
                    weights = np.ravel(session.run(weight))
            assert (ddl.allreduce(weights, op="max") == ddl.allreduce(weights, op="min")).all()

        return run

    for monitored in (False, True):
        train(monitored, harm=False)(lambda _: None)
        found(["bias"], train(monitored, harm=True))
        found(["weight"], train(monitored, harm=False, rate=0.05))


def nothing_to_find():
    """What makes ranks differ elsewhere, or for a while, is no drift."""
    for library in libraries:
        layers = library.layers
        model = network(library, layers.Dropout(0.5), layers.BatchNormalization())
        model.compile(library.optimizers.Adam(0.01, use_ema=True, ema_overwrite_frequency=4), "mse")
        model.fit(X, Y, 8, 2, 0, validation_data=(X, Y) if RANK == 0 else None)
        assert difference(model) == 0.0
        model.layers[0].trainable = False
        model.compile(library.optimizers.SGD(0.1), "mse")
        model.fit(X, Y, 8, 1, 0)
        model.layers[0].trainable = True
        model.compile(library.optimizers.SGD(0.1), "mse")
        model.fit(X, Y, 8, 1, 0, library.callbacks.TerminateOnNaN())
        assert difference(model) == 0.0
        if RANK == 0:
            with tempfile.TemporaryDirectory() as folder:
                model.save(f"{folder}/model.keras")
                model.evaluate(X, Y, verbose=0)
        # NaN everywhere
        model.fit(X * np.float32("inf"), Y, 8, 1, 0)


def embeddings():
    for library in libraries:
        layers = library.layers
        library.utils.set_random_seed(RANK)
        model = library.Sequential(
            [layers.Input((5,)), layers.Embedding(40, 4), layers.Flatten(), layers.Dense(1)]
        )
        model.compile(library.optimizers.Adam(0.05), "mse")
        indices = random.randint(0, 40, (256, 5))
        model.fit(indices, Y, 8, 2, 0)
        assert difference(model) == 0.0


def two_models():
    """As a GAN trains them: each by an optimizer of its own, in one function."""
    for library in libraries:
        first, second = network(library), network(library)
        optimizers = [library.optimizers.Adam(0.01), library.optimizers.SGD(0.1)]

        @tf.function
        def step(x, y, first=first, second=second, optimizers=optimizers):
            with tf.GradientTape(persistent=True) as tape:
                loss = tf.reduce_mean(tf.square(first(x) + second(x) - y))
            for model, optimizer in zip((first, second), optimizers, strict=True):
                gradients = tape.gradient(loss, model.trainable_variables)
                optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        for number in range(12):
            step(*map(tf.constant, batch(number)))
        assert difference(first) == difference(second) == 0.0


def mixed_precision():
    """One rank overflows, and all skip the update."""
    for library in libraries:
        library.mixed_precision.set_global_policy("mixed_float16")
        try:
            model = network(library)
            optimizer = library.optimizers.SGD(0.01)
            model.compile(library.mixed_precision.LossScaleOptimizer(optimizer), "mse")
            data = X.copy()
            if BAD:
                data[40, 0] = np.inf
            model.fit(data, Y, 8, 1, 0, shuffle=False)
            assert difference(model) == 0.0 and all(np.isfinite(w).all() for w in model.get_weights())
        finally:
            library.mixed_precision.set_global_policy("float32")


def accumulation():
    for library in libraries:
        model = network(library)
        model.compile(ddl.accumulate_gradients(library.optimizers.SGD(0.1), 2), "mse")
        model.fit(X, Y, 8, 1, 0)
        assert difference(model) == 0.0


def declared_to_differ():
    for library in libraries:
        model = network(library)
        model.compile(library.optimizers.SGD(0.1), "mse")
        ddl.exclude_from_drift_check(model.layers[0].bias)
        after = library.callbacks.LambdaCallback(
            on_batch_end=lambda number, logs=None, model=model: BAD and set_value(model.layers[0].bias, 0.5)
        )
        model.fit(X, Y, 8, 1, 0, [after])


def trained_alone_for_a_while():
    """Behind `no_averaging` the ranks differ, and averaging goes on. Other weights are still compared."""

    def steps(library, model, eager):
        optimizer = library.optimizers.SGD(0.1)

        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x) - y))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        step = step if eager else tf.function(step)

        def run():
            for number in range(16):
                step(*map(tf.constant, batch(number)))

        return run

    for library, eager in itertools.product(libraries, (False, True)):
        model, other = network(library), network(library)
        averaged, alone = steps(library, model, eager), steps(library, model, eager)
        averaged()
        assert difference(model) == 0
        with ddl.no_averaging():
            alone()
        averaged()
        assert difference(model) > 0
        averaged = steps(library, other, eager)
        averaged()
        if BAD:
            set_value(other.layers[-1].bias, 0.5)
        refused(ddl.DDLError, ["DDL-1-7", "bias"], averaged)


def one_rank_tries_an_update():
    """And takes it back: what it has updated alone is compared by nobody."""
    for library in libraries:
        model = network(library)
        model.compile(library.optimizers.SGD(0.1), "mse")
        model.fit(X, Y, 8, 1, 0)
        trial = library.optimizers.SGD(0.1)
        if RANK == 0:
            before = model.get_weights()
            with ddl.no_averaging():
                trial.apply_gradients([(tf.ones_like(w), w) for w in model.trainable_variables[:1]])
            model.set_weights(before)
        model.fit(X, Y, 8, 1, 0)
        assert difference(model) == 0


def steps_of_a_session_with_and_without_averaging():
    """As tf_cnn_benchmarks measures what the exchange costs."""
    with tf.Graph().as_default() as graph:
        x, y = v1.placeholder(tf.float32, [None, 8]), v1.placeholder(tf.float32, [None, 1])
        weight = v1.get_variable("weight", [8, 1])
        loss = tf.reduce_mean(tf.square(x @ weight - y))
        optimizer = v1.train.GradientDescentOptimizer(0.1)
        averaged = optimizer.minimize(loss)
        with ddl.no_averaging():
            alone = optimizer.minimize(loss)
        with _session(graph) as session:
            for step in (averaged, alone, averaged):
                for number in range(20):
                    session.run(step, dict(zip((x, y), batch(number), strict=True)))
            weights = np.ravel(session.run(weight))
    assert (ddl.allreduce(weights, op="max") != ddl.allreduce(weights, op="min")).any()


def rounding_is_a_warning():
    """A host of another kind may round otherwise."""
    said = io.StringIO()

    def nudge(number, logs=None):
        value = np.asarray(model.layers[0].kernel)
        if BAD and number == 0:
            set_value(model.layers[0].kernel, np.nextafter(value, np.float32(1)))

    model = network(keras)
    model.compile(keras.optimizers.SGD(1e-4), "mse")
    with contextlib.redirect_stderr(said):
        model.fit(X, Y, 8, 2, 0, [keras.callbacks.LambdaCallback(on_train_batch_end=nudge)])
    assert difference(model) > 0
    assert said.getvalue().count("differ by rounding") == (0 if BAD else 1), said.getvalue()


def synchronized_batch_normalization():
    """Equals one process with the batches of all ranks."""
    images = np.random.RandomState(3).randn(32, 6, 6, 3).astype("f")
    targets = np.random.RandomState(4).randn(32, 2).astype("f")

    def train(library, mine):
        layers = library.layers
        library.utils.set_random_seed(5)
        model = library.Sequential(
            [
                *(layers.Input((6, 6, 3)), layers.Conv2D(4, 3), layers.BatchNormalization(synchronized=True)),
                *(
                    layers.Flatten(),
                    layers.Dense(5),
                    layers.BatchNormalization(synchronized=True),
                    layers.Dense(2),
                ),
            ]
        )
        model.compile(library.optimizers.SGD(0.05), "mse")
        for step in range(4):
            chosen = mine(np.arange(step % 2 * 16, step % 2 * 16 + 16))
            model.train_on_batch(images[chosen], targets[chosen])
        return model.get_weights()

    for library in libraries:
        together = train(library, lambda indices: indices[RANK::2])
        with ddl_tf.no_averaging():
            alone = train(library, lambda indices: indices)
        for one, other in zip(together, alone, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


def uneven_batches():
    """Told in the first epoch. The last case: no call is possible after it."""
    model = network(keras)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    data = (X[:-8], Y[:-8]) if BAD else (X, Y)
    words = ["rank 1", "end of epoch 1 of fit, after its last batch", "rank 0", "gradients of"]
    refused((ddl.DDLError, tf.errors.InvalidArgumentError), words, lambda: model.fit(*data, 8, 3, 0))


_cases.run(
    [
        updates_that_nothing_averages,
        steps_of_fit_that_nothing_averages,
        learning_rate_of_one_rank,
        weight_set_on_one_rank,
        checkpoint_loaded_on_one_rank,
        settings_of_an_optimizer,
        other_optimizer_on_one_rank,
        optimizer_replaced_on_one_rank,
        callbacks_that_decide_alone,
        other_start,
        loops_of_the_scripts_own,
        tapes_without_an_optimizer,
        tf1_sessions,
        nothing_to_find,
        embeddings,
        two_models,
        mixed_precision,
        accumulation,
        declared_to_differ,
        trained_alone_for_a_while,
        one_rank_tries_an_update,
        steps_of_a_session_with_and_without_averaging,
        rounding_is_a_warning,
        synchronized_batch_normalization,
        uneven_batches,
    ]
)
