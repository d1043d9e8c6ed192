"""What is given of tf.contrib, each part compared with numpy, tf.layers or the formula."""

import os

import numpy as np
import tensorflow as tf
from tensorflow.contrib import framework, layers, slim

random = np.random.RandomState(5)


def run(fetches, feed=None):
    session = tf.Session()
    session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
    return session, session.run(fetches, feed)


def initializers():
    _, values = run(
        {
            "xavier": layers.xavier_initializer(seed=1)([300, 200]),
            "normal": layers.xavier_initializer(uniform=False, seed=1)([300, 200]),
            "conv": layers.xavier_initializer_conv2d(seed=1)([5, 5, 20, 30]),
            "scaled": layers.variance_scaling_initializer(seed=1)([300, 200]),
        }
    )
    limit = np.sqrt(6 / 500)
    assert 0.99 * limit < np.abs(values["xavier"]).max() <= limit
    np.testing.assert_allclose(np.abs(values["conv"]).max(), np.sqrt(6 / (25 * 50)), rtol=0.01)
    np.testing.assert_allclose(values["normal"].std(), np.sqrt(2 / 500), rtol=0.02)
    np.testing.assert_allclose(values["scaled"].std(), np.sqrt(2 / 300), rtol=0.02)


def regularizers():
    w = random.normal(size=(4, 3)).astype("f")
    l1, l2 = layers.l1_regularizer(0.1), layers.l2_regularizer(0.2)
    both = layers.l1_l2_regularizer(0.1, 0.2)
    _, values = run([l1(w), l2(w), both(w), layers.apply_regularization(l2, [tf.constant(w)] * 2)])
    expected = [0.1 * np.abs(w).sum(), 0.1 * (w**2).sum()]
    np.testing.assert_allclose(values, [*expected, sum(expected), 2 * expected[1]], rtol=1e-5)
    assert layers.l2_regularizer(0.0)(w) is None
    for scale in (1, -0.5):
        try:
            layers.l2_regularizer(scale)
        except ValueError:
            continue
        raise AssertionError(scale)


def dense():
    x = random.normal(size=(5, 7)).astype("f")
    y = layers.fully_connected(tf.constant(x), 3, biases_initializer=tf.constant_initializer(0.5))
    z = layers.fully_connected(tf.constant(x[:, None]), 3, activation_fn=None, scope="deep")
    names = [v.op.name for v in tf.trainable_variables()]
    assert names == [
        "fully_connected/weights",
        "fully_connected/biases",
        "deep/weights",
        "deep/biases",
    ], names
    session, (value, deep) = run([y, z])
    weights, _, deep_weights, _ = session.run(tf.trainable_variables())
    np.testing.assert_allclose(value, np.maximum(x @ weights + 0.5, 0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(deep[:, 0], x @ deep_weights, rtol=1e-4, atol=1e-5)


def convolutions():
    x = tf.constant(random.normal(size=(2, 6, 7, 3)).astype("f"))
    values = tf.constant_initializer(random.normal(size=(3, 3, 3, 4)).astype("f"))
    back = tf.constant_initializer(random.normal(size=(3, 2, 4, 3)).astype("f"))
    for stride, padding, rate in ((1, "SAME", 1), (2, "VALID", 1), (1, "SAME", 2)):
        ours = layers.conv2d(
            x, 4, 3, stride, padding, rate=rate, activation_fn=None, weights_initializer=values
        )
        theirs = tf.layers.conv2d(x, 4, 3, stride, padding, dilation_rate=rate, kernel_initializer=values)
        _, (a, b) = run([ours, theirs])
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    for stride, padding in (((2, 3), "SAME"), (2, "VALID")):
        ours = layers.conv2d_transpose(
            x, 4, [3, 2], stride, padding, activation_fn=None, weights_initializer=back
        )
        theirs = tf.layers.conv2d_transpose(x, 4, [3, 2], stride, padding, kernel_initializer=back)
        _, (a, b) = run([ours, theirs])
        assert ours.shape.as_list() == list(a.shape)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    _, (a, b, c, d) = run(
        [
            layers.max_pool2d(x, 2),
            tf.layers.max_pooling2d(x, 2, 2),
            layers.avg_pool2d(x, [2, 3], [1, 2], "SAME"),
            tf.layers.average_pooling2d(x, [2, 3], [1, 2], "same"),
        ]
    )
    np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(c, d, rtol=1e-5)


def normalization():
    data = random.normal(2.0, 3.0, size=(8, 4, 4, 5)).astype("f")
    x = tf.placeholder(tf.float32, [None, 4, 4, 5])
    training = tf.placeholder(tf.bool, [])
    mean, variance = data.mean((0, 1, 2)), data.var((0, 1, 2))
    normalized = (data - mean) / np.sqrt(variance + 0.001)
    inference = data / np.sqrt(1.001)
    collected = layers.batch_norm(x, decay=0.9, is_training=training, scale=True, scope="collected")
    inline = layers.batch_norm(x, decay=0.9, is_training=True, updates_collections=None, scope="inline")
    chosen = layers.batch_norm(x, decay=0.9, is_training=training, updates_collections=None, scope="chosen")
    unfused = layers.batch_norm(
        x, decay=0.9, is_training=True, updates_collections=None, fused=False, scope="unfused"
    )
    session, values = run([collected, chosen], {x: data, training: False})
    for value in values:
        np.testing.assert_allclose(value, inference, rtol=1e-4, atol=1e-4)

    def moving(scope):
        return session.run([v for v in tf.global_variables() if v.op.name.startswith(f"{scope}/moving_")])

    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    assert len(updates) == 2
    session.run(updates, {x: data, training: False})
    for scope in ("collected", "chosen"):
        np.testing.assert_array_equal(moving(scope), [np.zeros(5), np.ones(5)])
    values = session.run([collected, inline, chosen, unfused, *updates], {x: data, training: True})
    for value in values[:4]:
        np.testing.assert_allclose(value, normalized, rtol=1e-3, atol=1e-3)
    for scope in ("collected", "inline", "chosen", "unfused"):
        of_sample = 1 if scope == "unfused" else 128 / 127
        expected = [0.1 * mean, 0.9 + 0.1 * of_sample * variance]
        np.testing.assert_allclose(moving(scope), expected, rtol=1e-5, atol=1e-5)
    names = {v.op.name for v in tf.global_variables() if v.op.name.startswith("collected")}
    assert names == {f"collected/{name}" for name in ("beta", "gamma", "moving_mean", "moving_variance")}
    rows = data.reshape(8, -1)
    _, value = run(layers.layer_norm(tf.constant(rows)))
    expected = (rows - rows.mean(1, keepdims=True)) / rows.std(1, keepdims=True)
    np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-4)


def small_layers():
    x = tf.placeholder(tf.float32, [None, 2, 3])
    flat = layers.flatten(x)
    assert flat.shape.as_list() == [None, 6]
    data = random.normal(size=(4, 2, 3)).astype("f")
    dropped, kept = slim.dropout(x, 0.5, seed=1), slim.dropout(x, 0.5, is_training=False)
    hot = layers.one_hot_encoding([2, 0], 3)
    stacked = layers.stack(flat, layers.fully_connected, [8, 4], scope="fc")
    embedded = layers.embed_sequence([[1, 2]], 5, 6)
    _, values = run([flat, dropped, kept, hot, stacked, embedded], {x: data})
    np.testing.assert_array_equal(values[0], data.reshape(4, 6))
    assert set(np.unique(values[1] == 0)) == {True, False}
    np.testing.assert_allclose(values[1][values[1] != 0], 2 * data[values[1] != 0], rtol=1e-6)
    np.testing.assert_array_equal(values[2], data)
    np.testing.assert_array_equal(values[3], [[0, 0, 1], [1, 0, 0]])
    assert values[4].shape == (4, 4) and values[5].shape == (1, 2, 6)
    names = [v.op.name for v in slim.get_model_variables("fc")]
    assert names == [f"fc/fc_{i}/{name}" for i in (1, 2) for name in ("weights", "biases")], names
    layers.stack(flat, layers.relu, [3, 2])
    layers.repeat(flat, 2, layers.linear, 6)
    for scope in ("Stack", "Repeat"):
        names = {v.op.name for v in slim.get_model_variables(scope) if "weights" in v.op.name}
        assert names == {f"{scope}/fully_connected_{i}/weights" for i in (1, 2)}, names


def scopes():
    @slim.add_arg_scope
    def call(*args, **kwargs):
        return kwargs

    with slim.arg_scope([call], a=1, b=2) as outer:
        assert call() == {"a": 1, "b": 2} and call(a=3) == {"a": 3, "b": 2}
        with slim.arg_scope([call, slim.conv2d], a=5):
            assert call(c=0) == {"a": 5, "b": 2, "c": 0}
        with slim.arg_scope(outer):
            assert call() == {"a": 1, "b": 2}

    def factory(name):
        return slim.add_arg_scope(lambda **kwargs: {name: kwargs})

    first, second = factory("first"), factory("second")
    with slim.arg_scope([first], a=1):
        assert first() == {"first": {"a": 1}} and second() == {"second": {}}
    assert call() == {} and framework.has_arg_scope(slim.conv2d)
    try:
        slim.arg_scope([print], a=1).__enter__()
    except ValueError as error:
        assert "add_arg_scope" in str(error)
    else:
        raise AssertionError("print was accepted")


def hyperparameters():
    hparams = tf.contrib.training.HParams(rate=0.1, layers=[64, 32], name="net", bias=True)
    hparams.parse("rate=1,layers=[8,4],name=a b,bias=false,layers[1]=2")
    assert hparams.values() == {"rate": 1.0, "layers": [8, 2], "name": "a b", "bias": False}
    assert isinstance(hparams.rate, float) and "rate" in hparams and hparams.get("none", 7) == 7
    assert hparams.override_from_dict({"rate": 0.5}).rate == 0.5
    assert hparams.parse_json('{"layers": [1]}').layers == [1] and '"bias": false' in hparams.to_json()
    assert hparams.parse("bias=1").bias is True and hparams.parse("bias=0").bias is False
    for text in ("unknown=1", "unknown[0]=1", "unknown=[1]", "bias=2"):
        try:
            hparams.parse(text)
        except ValueError:
            continue
        raise AssertionError(text)
    hparams.add_hparam("new", 3)
    for name, value in (("rate", "fast"), ("layers", 3), ("new", 1.5), ("unknown", 1)):
        try:
            hparams.set_hparam(name, value)
        except (ValueError, KeyError):
            continue
        raise AssertionError(name)


def losses_and_metrics():
    logits, labels = random.normal(size=(6, 3)).astype("f"), np.array([0, 1, 2, 2, 1, 0])
    _, values = run(
        [
            slim.losses.sparse_softmax_cross_entropy(logits, labels),
            tf.losses.sparse_softmax_cross_entropy(labels, logits),
            tf.contrib.losses.mean_squared_error(logits, logits + 2.0),
            tf.contrib.metrics.accuracy([1, 2, 3, 4], [1, 2, 0, 0]),
            tf.contrib.metrics.streaming_accuracy([1, 2, 3, 4], [1, 2, 3, 0])[1],
        ]
    )
    np.testing.assert_allclose(values, [values[1], values[1], 4.0, 0.5, 0.75], rtol=1e-5)
    assert len(slim.losses.get_losses()) == 3


def variables_and_checkpoints():
    with tf.variable_scope("a"):
        one = framework.model_variable("one", [2], initializer=tf.constant_initializer(1.0))
        two = slim.variable("two", [3], initializer=tf.constant_initializer(2.0))
    local = framework.local_variable(5.0, name="local")
    assert slim.get_model_variables() == [one] and framework.get_variables("a") == [one, two]
    assert framework.get_variables_by_name("two") == [two] == framework.get_variables_by_suffix("two")
    assert slim.get_variables_to_restore(exclude=["a/two"]) == [one]
    assert slim.filter_variables([one, two], exclude_patterns=["one$"]) == [two]
    assert local in tf.local_variables() and framework.get_unique_variable("a/one") is one
    path = os.path.join(os.environ["OUT"], "saved")
    session, _ = run(two)
    session.run([one.assign([3.0, 4.0])])
    tf.train.Saver([one]).save(session, path)
    restore = slim.assign_from_checkpoint_fn(path, [one, two], ignore_missing_vars=True)
    session, _ = run(two)
    restore(session)
    framework.assign_from_values_fn({"a/two": [7.0, 8.0, 9.0]})(session)
    np.testing.assert_array_equal(session.run(one), [3, 4])
    np.testing.assert_array_equal(session.run(two), [7, 8, 9])


def optimizing():
    """Both ways to a train_op, and the loop; the updates of UPDATE_OPS run before."""
    w = tf.get_variable("w", [], initializer=tf.constant_initializer(4.0))
    count = framework.local_variable(0, name="count")
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, tf.assign_add(count, 1))
    step = slim.get_or_create_global_step()
    by_layers = layers.optimize_loss(w**2, step, 0.25, "SGD", clip_gradients=100.0)
    session, loss = run(by_layers)
    assert loss == 16 and session.run([w, count, step]) == [2.0, 1, 1]
    by_slim = slim.learning.create_train_op(w**2, tf.train.GradientDescentOptimizer(0.25))
    assert session.run(by_slim) == 4 and session.run([w, count, step]) == [1.0, 2, 2]
    folder = os.path.join(os.environ["OUT"], "learning")
    assert slim.learning.train(by_slim, folder, number_of_steps=3) == 1.0
    assert tf.train.latest_checkpoint(folder).endswith("-3")


def recurrent():
    x = tf.constant(random.normal(size=(2, 5, 3)).astype("f"))
    cells = [[tf.contrib.rnn.LSTMCell(4) for _ in range(2)] for _ in range(2)]
    outputs, forward, backward = tf.contrib.rnn.stack_bidirectional_dynamic_rnn(*cells, x, dtype=tf.float32)
    _, (value, states) = run([outputs, (forward, backward)])
    assert value.shape == (2, 5, 8)
    np.testing.assert_array_equal(value[:, -1, :4], states[0][1].h)
    np.testing.assert_array_equal(value[:, 0, 4:], states[1][1].h)
    lists, _ = tf.contrib.rnn.static_rnn(tf.contrib.rnn.GRUCell(4), tf.unstack(x, axis=1), dtype=tf.float32)
    assert len(lists) == 5


def data_and_lookup():
    dataset = tf.data.Dataset.range(10).apply(tf.contrib.data.batch_and_drop_remainder(4))
    dataset = dataset.apply(tf.contrib.data.unbatch()).apply(tf.contrib.data.shuffle_and_repeat(1, 1))
    dataset = dataset.apply(tf.contrib.data.map_and_batch(lambda x: x * 2, 8))
    table = tf.contrib.lookup.index_table_from_tensor(["a", "b"], default_value=9)
    hashed = tf.contrib.lookup.HashTable(
        tf.contrib.lookup.KeyValueTensorInitializer(["k"], tf.constant([4], tf.int64)), -1
    )
    batch = dataset.make_one_shot_iterator().get_next()
    found = table.lookup(tf.constant(["b", "z"])), hashed.lookup(tf.constant(["k", "q"]))
    with tf.Session() as session:
        session.run(tf.tables_initializer())
        assert session.run(batch).tolist() == [0, 2, 4, 6, 8, 10, 12, 14]
        assert [value.tolist() for value in session.run(found)] == [[1, 9], [4, -1]]


CASES = [
    initializers,
    regularizers,
    dense,
    convolutions,
    normalization,
    small_layers,
    scopes,
    hyperparameters,
    losses_and_metrics,
    variables_and_checkpoints,
    optimizing,
    recurrent,
    data_and_lookup,
]
if __name__ == "__main__":
    for case in CASES:
        with tf.Graph().as_default():
            tf.set_random_seed(1)
            case()
        print(f"passed {case.__name__}", flush=True)
