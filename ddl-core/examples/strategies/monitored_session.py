"""TF1's parameter servers: each worker has a graph of its own (between-graph replication), the servers have
the weights. Asynchronous, or with --sync.

Run it:  ddlrun -np 2 -ps 1 -max-restarts 3 python monitored_session.py --folder results
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=400, help="updates of the weights, by all workers together")
parser.add_argument("--batch", type=int, default=50, help="images of one worker's step")
parser.add_argument("--rate", type=float, default=0.5)
parser.add_argument("--sync", action="store_true", help="average the gradients of all workers in each step")
parser.add_argument("--folder", type=Path, help="for checkpoints, seen by all hosts; needed to recover")
options = parser.parse_args()
tf.disable_eager_execution()

# 1. who am I? ddlrun tells it in TF_CONFIG
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
cluster, task, index = resolver.cluster_spec(), resolver.task_type, resolver.task_id
name = f"{task} {index}"
workers = cluster.num_tasks("worker") + ("chief" in cluster.jobs)
number = index + (task == "worker" and "chief" in cluster.jobs)  # of the workers, the chief first
is_chief = number == 0
if options.sync and "chief" not in cluster.jobs:
    raise SystemExit("--sync needs a chief: start by `ddlrun -ps N -tf-config chief`")
# 2. a worker speaks to the servers alone: it does not wait for workers that are down
filters = ["/job:ps", f"/job:{task}/task:{index}"] if task != "ps" else None
config = tf.ConfigProto(device_filters=filters, inter_op_parallelism_threads=2)
server = tf.distribute.Server(cluster, job_name=task, task_index=index, config=config)
if task == "ps":
    server.join()  # for ever: ddlrun ends it when all workers have ended

images, labels = load_digits(return_X_y=True)
images = (images / 16.0).astype("float32")
train_images, test_images, train_labels, test_labels = train_test_split(
    images, labels, test_size=297, random_state=1
)
mine, mine_labels = train_images[number::workers], train_labels[number::workers]
scratch = tempfile.TemporaryDirectory()
folder = str(options.folder or scratch.name)


def scores_of(pictures: tf.Tensor) -> tf.Tensor:
    kernel1 = tf.get_variable("kernel1", [64, 48])
    bias1 = tf.get_variable("bias1", [48], initializer=tf.zeros_initializer())
    kernel2 = tf.get_variable("kernel2", [48, 10])
    return tf.matmul(tf.nn.relu(tf.matmul(pictures, kernel1) + bias1), kernel2)


class Progress(tf.train.SessionRunHook):
    """Tells where a session begins, and every 20th of this worker's steps."""

    def __init__(self, step: tf.Variable, loss: tf.Tensor) -> None:
        self.step, self.loss, self.done, self.start_time = step, loss, 0, time.perf_counter()

    def after_create_session(self, session: tf.Session, coord: object) -> None:
        print(f"{name} begins at step {session.run(self.step)}", flush=True)

    def before_run(self, context: object) -> tf.train.SessionRunArgs:
        return tf.train.SessionRunArgs([self.step, self.loss])

    def after_run(self, context: object, values: tf.train.SessionRunValues) -> None:
        step, loss = values.results
        self.done += 1
        if self.done % 20 == 0:
            print(f"{name} step {step} loss {loss:.3f}", flush=True)


class WorkerSessions(tf.train.SessionCreator):
    """Sessions of workers. TensorFlow's own look only every 30 seconds whether the chief has initialised."""

    def create_session(self) -> tf.Session:
        scaffold = tf.train.Scaffold().finalize()
        manager = tf.train.SessionManager(
            local_init_op=scaffold.local_init_op,
            ready_op=scaffold.ready_op,
            ready_for_local_init_op=scaffold.ready_for_local_init_op,
            graph=tf.get_default_graph(),
            recovery_wait_secs=1,
        )
        return manager.wait_for_session(server.target, config=config, max_wait_secs=120)


def session_of(hooks: list[tf.train.SessionRunHook]) -> tf.train.MonitoredSession:
    """The chief initialises or restores the latest checkpoint, and writes others; the workers wait for it."""
    if not is_chief:
        return tf.train.MonitoredSession(WorkerSessions(), hooks)
    return tf.train.MonitoredTrainingSession(
        master=server.target,
        config=config,
        checkpoint_dir=folder,
        save_checkpoint_steps=20,
        save_summaries_steps=0,
        # at the end of --sync a thread waits for gradients that nobody will send
        stop_grace_period_secs=2,
        hooks=hooks,
    )


with tf.Graph().as_default():
    # 3. variables go to the servers in turn, all else is computed here
    setter = tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:{task}/task:{index}")
    with tf.device(setter):
        tf.set_random_seed(1)
        pictures, digits = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int64, [None])
        loss = tf.losses.sparse_softmax_cross_entropy(digits, scores_of(pictures))
        step = tf.train.get_or_create_global_step()
        optimizer = tf.train.GradientDescentOptimizer(options.rate)
        if options.sync:
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, workers, total_num_replicas=workers)
        train = optimizer.minimize(loss, global_step=step)
    progress = Progress(step, loss)
    hooks = [progress]
    if options.sync:
        hooks.append(optimizer.make_session_run_hook(is_chief))
    if is_chief or not options.sync:
        # in step the chief needs the others to its end; ddlrun ends them after it
        hooks.append(tf.train.StopAtStepHook(last_step=options.steps))
    random = np.random.default_rng(number)
    # 4. when a server is lost, all make their sessions anew
    with session_of(hooks) as session:
        while not session.should_stop():
            chosen = random.choice(len(mine), options.batch, replace=False)
            session.run(train, {pictures: mine[chosen], digits: mine_labels[chosen]})
    seconds = time.perf_counter() - progress.start_time

# 5. the last checkpoint is that of the end of the chief's session
if is_chief:
    with tf.Graph().as_default(), tf.Session() as session:
        scores = scores_of(tf.constant(test_images))
        tf.train.Saver().restore(session, tf.train.latest_checkpoint(folder))
        accuracy = float(np.mean(np.argmax(session.run(scores), axis=1) == test_labels))
    print(f"workers: {workers}")
    print(f"images/sec: {progress.done * options.batch * workers / seconds:.0f}")
    print(f"accuracy: {accuracy:.3f}", flush=True)
    if accuracy < 0.85:
        raise SystemExit("the model did not learn")
