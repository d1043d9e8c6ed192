"""A TF1 program that starts DDL by the operator alone, with options in the form of IBM's DDL."""

import os

os.environ["DDL_AUTO_INIT"] = "0"
import ddl
import ddl.tensorflow as ddl_tf
import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
with tf.Session() as session:
    answer = session.run(ddl_tf.operators.init(4, mode="-mode r:2 -timeout 70"))
state = ddl.describe()
assert (answer.size, answer.local_gpuid, state["mode"]) == (2, 4, "r"), (answer, state)
assert "-timeout 70" in state["options"], state["options"]
print("initialised")
