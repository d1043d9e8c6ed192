"""Words between the tasks of a cluster: none is lost, and one that cannot be said at once is said again."""

from __future__ import annotations

import pytest
from cluster_tasks import reserved_addresses
from program_runner import Environment

START = """
import json, os, sys, threading, time
import tensorflow as tf
from tf_cnn_benchmarks.cluster import peers, server
from tf_cnn_benchmarks.cluster.spec import Cluster
from tf_cnn_benchmarks.cluster.task_queue import TaskQueue

v1 = tf.compat.v1

def end(found):
    print(json.dumps(found), flush=True)
    os._exit(0)  # TensorFlow's servers do not end

jobs = {"ps": sys.argv[1:2], "worker": sys.argv[2:]}
"""
TAKEN = """
served = v1.train.Server(v1.train.ClusterSpec(jobs), "ps", 0)
with tf.Graph().as_default() as graph:
    queue = TaskQueue("ps", 0, "words")
    puts = [queue.put(number) for number in range(100)]
here = server.session_limits(v1.ConfigProto(), ["/job:ps/task:0"])
session = v1.Session(served.target, graph=graph, config=here)
taken = []

def take():
    until = time.monotonic() + 60
    while len(taken) < len(puts) and time.monotonic() < until:
        number = queue.take(session, 0.001)
        taken.extend([] if number is None else [number])

thread = threading.Thread(target=take)
thread.start()
for put in puts:
    time.sleep(0.005)
    session.run(put)
thread.join()
end(taken)
"""
TOLD = """
places = {"workers": tuple(jobs["worker"]), "ps": tuple(jobs["ps"]), "controller": ()}
config = v1.ConfigProto()
serving = threading.Thread(
    target=server.serve, args=(Cluster(job="ps", index=0, **places), config, "grpc"), daemon=True
)
serving.start()
worker = Cluster(job="worker", index=0, **places)
target = server.start_server(worker, config, "grpc").target
peers.await_tasks(worker, [("ps", 0)])
late, opened = 2, server.open_session

def slow(*arguments):
    global late
    late -= 1
    if late >= 0:
        raise tf.errors.DeadlineExceededError(None, None, "late")
    return opened(*arguments)

server.open_session = slow
server.farewell(worker, target, "/job:worker/task:0", 0, [("ps", 0)])
serving.join(60)
end([late, serving.is_alive()])
"""


@pytest.mark.slow
def test_none_is_lost_between_two_looks(tf_env: Environment) -> None:
    """The looks end all the time just when a word comes."""
    with reserved_addresses(2) as addresses:
        assert tf_env.evaluate(START + TAKEN, *addresses) == list(range(100))


@pytest.mark.slow
def test_a_slow_server_is_told_again_that_the_training_is_over(tf_env: Environment) -> None:
    with reserved_addresses(2) as addresses:
        assert tf_env.evaluate(START + TOLD, *addresses) == [-1, False]
