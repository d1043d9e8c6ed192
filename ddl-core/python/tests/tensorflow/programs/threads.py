"""Prints how many compute threads TensorFlow has made in a process bound to one core."""

import os
import sys

os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])

import ddl  # noqa: E402, F401
import tensorflow as tf  # noqa: E402

matrix = tf.random.normal([500, 500])
tf.linalg.matmul(matrix, matrix)
names = []
for task in os.listdir("/proc/self/task"):
    with open(f"/proc/self/task/{task}/comm") as file:
        names.append(file.read())
with open(f"{sys.argv[1]}/threads", "w") as file:
    file.write(str(sum(name.startswith("tf_Compute") for name in names)))
