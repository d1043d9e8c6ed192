"""Who gets which TensorFlow and which Keras, and how the mode starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from rank_processes import PREFIX
from script_runs import Scripts

PROGRAMS = Path(__file__).parent / "programs"
pytestmark = pytest.mark.slow
SAYS = (
    "import tensorflow as tf; "
    "print('this is', tf.__version__, tf.executing_eagerly(), hasattr(tf, 'Session'))"
)
TF1 = "this is 1.15.5 False True"


@pytest.mark.parametrize("options", [["-c"], ["-I", "-c"], ["-s", "-E", "-c"]], ids=" ".join)
def test_plain_python(run_script: Scripts, options: list[str]) -> None:
    assert TF1 in run_script(*options, SAYS)


@pytest.mark.parametrize("value", ["", "0", "no", "off", "False"])
def test_off(run_script: Scripts, value: str) -> None:
    """Nothing of the mode is there then, and TensorFlow is what it is."""
    output = run_script("-c", f"import sys; print('ddl_tf1._imports' in sys.modules); {SAYS}", DDL_TF1=value)
    assert "False\n" in output and "this is 2." in output and "True False" in output


def test_costs_nothing_where_it_is_off(run_script: Scripts) -> None:
    """Python starts without loading anything of the package."""
    output = run_script(
        "-c", "import sys; print([name for name in sys.modules if 'tf1' in name])", DDL_TF1="0"
    )
    assert output == "[]\n"


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_children_of_multiprocessing(run_script: Scripts, method: str) -> None:
    script = run_script.folder / "children.py"
    script.write_text(f"""
import multiprocessing
def say():
    {SAYS}
if __name__ == "__main__":
    child = multiprocessing.get_context({method!r}).Process(target=say)
    child.start()
    child.join(100)
    assert child.exitcode == 0, child.exitcode
""")
    assert TF1 in run_script(script)


def test_mpirun(run_script: Scripts, two_ranks: list[str]) -> None:
    """By -x, as mpirun hands on what it is given."""
    launcher = ["env", "-u", "DDL_TF1", *two_ranks, "-x", "DDL_TF1=1"]
    assert run_script("-c", SAYS, launcher=launcher).count(TF1) == 2


def test_torchrun(run_script: Scripts) -> None:
    script = run_script.folder / "say.py"
    script.write_text(SAYS)
    output = run_script("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", script)
    assert output.count(TF1) == 2


def test_ddlrun(run_script: Scripts) -> None:
    """-tf1 sets the variable; other names in it are kept."""
    say = "import os; print('the variable is', os.environ['DDL_TF1'])"
    for value, expected in (("0", "1"), ("baselines", "baselines")):
        launcher = [PREFIX / "bin/ddlrun", "-q", "-np", "1", "-tf1"]
        assert f"the variable is {expected}" in run_script("-c", say, launcher=launcher, DDL_TF1=value)


IMPORTS = """
import tensorflow as tf
import tensorflow.contrib.slim as slim
import tensorflow.keras.backend as K
import tensorflow.python.framework.dtypes as dtypes
import tensorflow.compat.v1 as v1
import keras
import keras.backend as K2
from keras.engine.topology import Layer
from keras.layers.normalization import BatchNormalization
from keras.models import Model, Sequential
from keras.preprocessing.image import ImageDataGenerator
from keras.utils import np_utils, to_categorical
from keras.utils.np_utils import to_categorical as to_categorical_2
from tensorflow import app, flags, keras as tf_keras
from tensorflow.contrib import layers
from tensorflow.contrib.layers.python.layers.initializers import xavier_initializer
from tensorflow.contrib.learn.python.learn.datasets.mnist import read_data_sets
from tensorflow.contrib.rnn import LSTMCell
from tensorflow.examples.tutorials.mnist import input_data
from tensorflow.keras.layers import Dense
from tensorflow.python import keras as sources
from tensorflow.python.client import device_lib
from tensorflow.python.framework import graph_util, ops
from tensorflow.python.keras.engine.training import Model as Model3
from tensorflow.python.keras.layers import Dense as Dense2
from tensorflow.python.keras.optimizer_v2.adam import Adam
from tensorflow.python.keras._impl.keras.layers import Dense as Dense3
from tensorflow.python.ops import rnn_cell
from tensorflow.python.pywrap_tensorflow import NewCheckpointReader
from tensorflow.python.saved_model import tag_constants
from tensorflow.python.tools import freeze_graph
import importlib

assert dtypes.float32 is tf.float32 and ops.Graph is tf.Graph and v1.Session is tf.Session
assert NewCheckpointReader is tf.train.NewCheckpointReader is tf.pywrap_tensorflow.NewCheckpointReader
assert Dense3 is Dense2 is Dense is tf.keras.layers.Dense is keras.layers.core.Dense
assert Model is Model3 is tf.keras.Model and Model.__module__.startswith("tf_keras")
assert issubclass(BatchNormalization, Layer) and sources.Model is tf_keras.Model
assert to_categorical is to_categorical_2 is np_utils.to_categorical
assert K.get_session is K2.get_session is keras.backend.tensorflow_backend.get_session
assert layers is tf.contrib.layers and xavier_initializer is layers.xavier_initializer
assert rnn_cell.LSTMCell is LSTMCell is tf.nn.rnn_cell.LSTMCell is tf.contrib.rnn.LSTMCell
assert slim.conv2d is tf.contrib.slim.conv2d is layers.conv2d
assert importlib.import_module("tensorflow") is tf and importlib.import_module("keras.layers") is keras.layers
assert __import__("tensorflow.train").train is tf.train
assert __import__("keras.layers", fromlist=["no such"]).Dense is Dense
assert tf.VERSION == tf.version.VERSION == tf.__version__ < "2" and tf.compat.v2.__name__
assert read_data_sets is tf.contrib.learn.datasets.mnist.read_data_sets is input_data.read_data_sets
assert flags is tf.app.flags is tf.flags and app is tf.app
assert tf.function and tf.nest and tf.io.gfile and tf.config.list_physical_devices("CPU")
assert keras.optimizers.Adam(lr=0.5).get_config()["learning_rate"] == 0.5 and Adam is keras.optimizers.adam
assert tf.placeholder(tf.float32, [None, 3]).get_shape()[1].value == 3
assert {"Session", "contrib", "keras"} <= set(dir(tf))
names = {}
exec("from tensorflow import *", names)
assert names["Session"] is tf.Session
print("all", "there")
"""


def test_names_and_submodules(run_script: Scripts) -> None:
    assert "all there" in run_script("-c", IMPORTS)


#: A module, a name in it, and what that is.
MOVED = [
    ("tensorflow.python.keras", "Model", "tf.keras.Model"),
    ("tensorflow.python.keras.backend", "get_session", "tf.keras.backend.get_session"),
    ("tensorflow.python.keras.engine.training", "Model", "tf.keras.Model"),
    ("tensorflow.python.keras.optimizer_v2.adam", "Adam", "tf.keras.optimizers.Adam"),
    ("tensorflow.python.keras.saving.hdf5_format", "load_model_from_hdf5", "hdf5.load_model_from_hdf5"),
    ("tensorflow.python.keras._impl.keras.layers", "Dense", "tf.keras.layers.Dense"),
    ("tensorflow.python.ops.rnn_cell", "LSTMCell", "tf.nn.rnn_cell.LSTMCell"),
    ("tensorflow.python.ops.rnn_cell_impl", "GRUCell", "tf.nn.rnn_cell.GRUCell"),
    ("tensorflow.python.pywrap_tensorflow", "NewCheckpointReader", "tf.train.NewCheckpointReader"),
    ("tensorflow.python.framework.ops", "Graph", "tf.Graph"),
    ("tensorflow.contrib.layers.python.layers", "conv2d", "tf.contrib.layers.conv2d"),
    ("tensorflow.contrib.layers.python.layers.initializers", "xavier_initializer", None),
    ("tensorflow.contrib.framework.python.ops.variables", "model_variable", None),
    ("tensorflow.contrib.data.python.ops", "Dataset", "tf.data.Dataset"),
    ("tensorflow.contrib.lookup.python.ops", "HashTable", "tf.contrib.lookup.HashTable"),
    ("tensorflow.contrib.learn.python.learn.datasets.mnist", "read_data_sets", None),
    ("tensorflow.contrib.rnn.python.ops.core_rnn_cell", "LSTMCell", "tf.nn.rnn_cell.LSTMCell"),
]


@pytest.mark.parametrize(
    "form", ["import {path} as m", "from {parent} import {last} as m", "from {path} import {name}"]
)
def test_moved_modules(run_script: Scripts, form: str) -> None:
    """Every form of import gives the same, in a process that has imported nothing else."""
    program = [
        "import tensorflow as tf",
        f"for path, name, same in {MOVED!r}:",
        "    parent, _, last = path.rpartition('.')",
        "    names = {}",
        f"    exec({form!r}.format(path=path, parent=parent, last=last, name=name), names)",
        "    value = getattr(names['m'], name) if 'm' in names else names[name]",
        "    from tf_keras.src.saving.legacy import hdf5_format as hdf5",
        "    if same is None:",
        "        same = '.'.join(['tf', *path.split('.')[1:3], name])",
        "        same = same.replace('learn.read', 'learn.datasets.mnist.read')",
        "    assert value is eval(same), (path, value)",
        "print('all', 'the same')",
    ]
    assert "all the same" in run_script("-c", "\n".join(program))


def test_arguments_of_that_time(run_script: Scripts) -> None:
    assert " statements" in run_script(PROGRAMS / "former_arguments.py")


def test_libraries_keep_tensorflow_2(run_script: Scripts) -> None:
    """Before and after a script's import, in a module of site-packages, and in those of this project."""
    site = run_script.folder / "site-packages"
    (site / "library").mkdir(parents=True)
    (site / "library/__init__.py").write_text(
        "import importlib, keras, tensorflow as tf, tensorflow\n"
        "assert tf is tensorflow and importlib.import_module('tensorflow') is tf\n"
        "assert not hasattr(tf, 'Session') and keras.__version__ >= '3'\n"
        "from tensorflow.keras import layers\n"
    )
    output = run_script(
        "-c",
        "import library, sys, tensorflow as tf, keras\n"
        "import horovod.tensorflow, horovod.keras, ddl.tensorflow, ddl.keras, lms.tensorflow, tf_keras\n"
        "real = sys.modules['tensorflow']\n"
        "assert library.tf is real and tf is not real and not hasattr(real, 'contrib')\n"
        "assert horovod.tensorflow.tf is ddl.tensorflow._variables.tf is lms.tensorflow.tf is real\n"
        "assert horovod.keras.keras is keras is not sys.modules['keras'] and keras.Model is tf_keras.Model\n"
        "assert not tf.executing_eagerly() and not real.executing_eagerly()\n"
        "print('both')",
        PYTHONPATH=str(site),
    )
    assert "both" in output


def test_packages_that_the_variable_names_are_scripts(run_script: Scripts) -> None:
    site = run_script.folder / "site-packages"
    for package in ("old", "new"):
        (site / package).mkdir(parents=True)
        (site / package / "__init__.py").write_text("from . import part")
        (site / package / "part.py").write_text(
            f"import tensorflow as tf; print({package!r}, hasattr(tf, 'Session'))"
        )
    output = run_script("-c", "import old, new", PYTHONPATH=str(site), DDL_TF1="old,another")
    assert "old True" in output and "new False" in output


def test_a_module_of_the_script_beside_it(run_script: Scripts) -> None:
    """It is a script; one of its own that is named keras is its own."""
    (run_script.folder / "model").mkdir()
    (run_script.folder / "model/__init__.py").write_text("")
    (run_script.folder / "model/keras.py").write_text("ours = 1")
    (run_script.folder / "model/net.py").write_text(
        "from tensorflow import placeholder\nfrom .keras import ours\n"
    )
    (run_script.folder / "train.py").write_text("from model import net; print('ours', net.ours)")
    assert "ours 1" in run_script(run_script.folder / "train.py")


#: Statements, and words of their errors.
GONE = [
    ("tf.estimator.Estimator", "AttributeError: module 'tensorflow' has no attribute 'estimator'"),
    ("tf.estimator", "tf.train.MonitoredTrainingSession, or use tf.keras"),
    ("tf.contrib.seq2seq", "no tf.contrib.seq2seq; write decoder and attention with"),
    ("tf.contrib.layers.nonsense", "no tf.contrib.layers.nonsense"),
    ("from tensorflow.contrib import crf", "ImportError: cannot import name 'crf'"),
    ("import tensorflow.contrib.slim.nets", "ModuleNotFoundError: No module named"),
    ("from tensorflow.contrib.slim.nets import vgg", "take the nets from the repository of models"),
    ("from tensorflow.contrib.rnn.python.ops.core_rnn_cell import _linear", "cannot import name '_linear'"),
    ("import tensorflow.contrib.layers.python.ops.nonsense", "has the names of tensorflow.contrib.layers"),
    ("from tensorflow.python.estimator import estimator", "Estimators ended with TensorFlow 2.15"),
    ("from tensorflow.contrib.rnn import LSTMBlockCell", "use LSTMCell"),
    ("from keras.utils import multi_gpu_model", "start one rank for each GPU"),
    ("from keras.wrappers.scikit_learn import KerasClassifier", "became the package scikeras"),
    ("tf.contrib.layers.group_norm", "use GroupNormalization of tf_keras.layers"),
    ("tf.contrib.tensorrt", "tensorflow.python.compiler.tensorrt.trt_convert"),
    ("from keras.legacy import interfaces", "leave its decorators out"),
    ("tf.contrib.slim.learning.train_step", "tf.train.MonitoredTrainingSession"),
    ("import tensorflow.python.keras.nonsense", "No module named 'tensorflow.python.keras.nonsense'"),
    ("import tensorflow.nonsense.more", "No module named 'tensorflow.nonsense'"),
    ("from tensorflow.python.ops import nonsense", "ImportError: cannot import name 'nonsense'"),
]


def test_what_is_gone_says_what_to_write(run_script: Scripts) -> None:
    program = f"""
import tensorflow as tf
for statement in {[statement for statement, _ in GONE]!r}:
    try:
        exec(statement)
    except (AttributeError, ImportError) as error:
        print(f"{{statement}} -> {{type(error).__name__}}: {{error}}")
"""
    lines = dict(line.split(" -> ") for line in run_script("-c", program).splitlines() if " -> " in line)
    for statement, words in GONE:
        assert words in lines[statement], lines[statement]


def test_remedies_exist(run_script: Scripts) -> None:
    """What the errors name for group_norm and tensorrt can be imported."""
    program = """
import tensorflow as tf
from tensorflow.python.compiler.tensorrt import trt_convert
from tf_keras.layers import GroupNormalization
x = tf.reshape(tf.range(24, dtype=tf.float32), [2, 2, 2, 3])
normal = [GroupNormalization(groups)(x) for groups in (1, -1)]
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    assert max(abs(value.mean()) for value in session.run(normal)) < 1e-5
print(trt_convert.TrtGraphConverter.__name__)
"""
    assert "TrtGraphConverter" in run_script("-c", program)


def test_mnist(run_script: Scripts) -> None:
    """Reads files that are there, and says what is missing."""
    program = """
import gzip, numpy as np
from tensorflow.examples.tutorials.mnist import input_data
try:
    input_data.read_data_sets("data")
except FileNotFoundError as error:
    assert "train-images-idx3-ubyte.gz is missing" in str(error) and "load_digits" in str(error), error
import os
os.mkdir("data")
images = np.random.RandomState(1).randint(0, 256, (30, 28, 28)).astype(np.uint8)
for part, number in (("train", 30), ("t10k", 20)):
    head = (2051).to_bytes(4, "big") + b"".join(n.to_bytes(4, "big") for n in (number, 28, 28))
    with gzip.open(f"data/{part}-images-idx3-ubyte.gz", "wb") as file:
        file.write(head + images[:number].tobytes())
    with open(f"data/{part}-labels-idx1-ubyte", "wb") as file:
        labels = bytes(i % 10 for i in range(number))
        file.write((2049).to_bytes(4, "big") + number.to_bytes(4, "big") + labels)
mnist = input_data.read_data_sets("data", one_hot=True, validation_size=5)
assert mnist.train.num_examples == 25 and mnist.validation.images.shape == (5, 784)
np.testing.assert_allclose(mnist.test.images[3], images[3].reshape(-1) / 255, atol=1e-6)
assert mnist.test.labels[13].argmax() == 3 and mnist.test.labels.shape == (20, 10)
x, y = zip(*[mnist.train.next_batch(10) for _ in range(5)])
seen = {tuple(row) for row in np.concatenate(x)[:25]}
assert len(seen) == 25 and mnist.train.epochs_completed == 1
x, y = mnist.test.next_batch(3, shuffle=False)
np.testing.assert_array_equal(x, mnist.test.images[:3])
empty = input_data.read_data_sets("data", validation_size=0).validation
try:
    empty.next_batch(3)
except ValueError as error:
    assert "has no examples" in str(error)
else:
    raise AssertionError("a batch of nothing")
labels = open("data/t10k-labels-idx1-ubyte", "rb").read()
images = gzip.open("data/t10k-images-idx3-ubyte.gz").read()
bad = (labels + b"x", "has 21 values"), (images, "arrays of 3 axes, where MNIST's have 1")
for content, message in bad:
    with open("data/t10k-labels-idx1-ubyte", "wb") as file:
        file.write(content)
    try:
        input_data.read_data_sets("data", validation_size=5)
    except ValueError as error:
        assert message in str(error), error
    else:
        raise AssertionError(message)
print("as expected")
"""
    assert "as expected" in run_script("-c", program)


def test_large_model_support(run_script: Scripts) -> None:
    """A layer that is computed again gives the gradients that it gave."""
    assert "the same gradients" in run_script(PROGRAMS / "large_model_support.py")


def test_this_python_is_not_the_mode() -> None:
    """The tests run in another Python than what they test."""
    assert "ddl_tf1._imports" not in sys.modules
