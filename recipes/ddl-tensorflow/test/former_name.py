"""Two ranks: the operators by their name in WML CE, before or after `import ddl`.

Run by test.sh:  ddlrun -np 2 python former_name.py operators|ddl
"""

import importlib
import os
import sys

import numpy as np
import tensorflow as tf

if sys.argv[1] == "ddl":
    importlib.import_module("ddl")
operators = tf.load_op_library(os.path.join(os.environ["CONDA_PREFIX"], "ddl-tensorflow/lib/ddl_MDR.so"))
rank, size = (int(number) for number in operators.init(-1, mode="-mode p")[:2])
assert size == 2, size
np.testing.assert_array_equal(operators.all_reduce(tf.fill([3], rank + 1.0)), np.full(3, 3.0))
np.testing.assert_array_equal(operators.all_reduce_n([tf.fill([3], rank + 1.0)], op="avg"), [np.full(3, 1.5)])
np.testing.assert_array_equal(operators.bcast(tf.fill([2], rank + 7.0)), np.full(2, 7.0))
if sys.argv[1] == "operators":
    assert importlib.import_module("ddl").size() == 2
    assert importlib.import_module("ddl.tensorflow").operators is operators
print("reduced", flush=True)
