"""TensorFlow 1 mode: scripts get the names and the behaviour of TensorFlow 1.15, libraries keep TensorFlow 2.

The variable DDL_TF1=1 (`ddlrun -tf1` sets it) switches it on in every Python of the environment. The file
ddl_tf1.pth in site-packages asks for the variable when Python starts, and imports this package only if it is
set. So it does not matter who starts Python: ddlrun, mpirun, torchrun, multiprocessing, a shell; nor
with which options, short of -S.

One process needs two TensorFlows. Scripts of that time expect tf.Session, and tf.Variable, tf.reduce_sum and
some hundred other names as they were. Horovod, ddl, tf_keras and TensorBoard import the same name
`tensorflow`, and expect those of TensorFlow 2. Therefore who imports decides:

- A library is what lies in site-packages or in Python's own folder, and what this project installs. It gets
  the module of sys.modules, as ever.
- Everything else is a script: the program, its own modules, notebooks. It gets another module object, whose
  names are those of tf.compat.v1, and of TensorFlow 2 where tf.compat.v1 has none. Packages in site-packages
  that are written for TensorFlow 1 are scripts if the variable names them: DDL_TF1=baselines,tensor2tensor.

`builtins.__import__` is what knows the importer, so that is what is replaced, and `importlib.import_module`.
Two other ways were rejected. One module object that looks up names for whoever asks would have to look at the
caller's frame at every use of `tf.`, and a module that a script hands to a library would change on the way.
Names of TensorFlow 1 put into TensorFlow's own module would break the libraries.

The same goes for `keras`: scripts get tf_keras, under the names that Keras had in 2019. Horovod's
modules for Keras get it, too, as they must use the script's Keras.

TensorFlow 2's behaviour is off in the whole process as soon as TensorFlow is imported: graphs and sessions,
no eager execution.
"""

from __future__ import annotations

import importlib.util
import os

#: The variable of the environment, and its values that leave the mode off.
VARIABLE = "DDL_TF1"
_OFF = ("", "0", "no", "off", "false")


def switch_on() -> None:
    """Switches the mode on in this process if the variable asks for it. May be called any number of times."""
    value = os.environ.get(VARIABLE, "").strip()
    if value.lower() in _OFF:
        return
    if importlib.util.find_spec("tf_keras") is not None:
        # tf.keras, tf.layers and tf.nn.rnn_cell are tf_keras then.
        os.environ["TF_USE_LEGACY_KERAS"] = "1"
    from ddl_tf1 import _imports

    _imports.install([name.strip() for name in value.split(",")])
