"""Tasks of tf_cnn_benchmarks that train together through TensorFlow's servers, on this host."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from program_runner import Environment

LIMIT_S = 120.0
PROGRAM = """
import json, sys, time
from tf_cnn_benchmarks.cli import main
settings = json.loads(sys.argv[1])
from tf_cnn_benchmarks.cluster import peers
for name in ("LOST_S", "NOTICE_S"):
    setattr(peers, name, settings.get(name, getattr(peers, name)))
if "GONE_S" in settings:
    from tf_cnn_benchmarks.cluster import watch
    watch.GONE_S = settings["GONE_S"]
if "LAST_S" in settings or "pause" in settings:
    from tf_cnn_benchmarks.params import parse
    from tf_cnn_benchmarks.environment import prepare_environment
    prepare_environment(parse(["x"]))
    from tf_cnn_benchmarks.cluster import served_steps, server
    server.LAST_S = settings.get("LAST_S", server.LAST_S)
    for kind in (served_steps.SyncStepper, served_steps.AsyncStepper):
        def slow(self, *arguments, step=kind.step, **options):
            time.sleep(settings.get("pause", 0.0))
            return step(self, *arguments, **options)
        kind.step = slow
sys.exit(main(["tf_cnn_benchmarks", *sys.argv[2:]]))
"""
"""The program with other limits (see `cluster/peers.py`, `server.py`) and a pause before each step."""


@contextmanager
def reserved_addresses(count: int) -> Iterator[list[str]]:
    """Addresses of this host with so many free ports. Meanwhile the kernel gives these to nobody else, not
    even to an outgoing connection, but a server that sets SO_REUSEADDR can listen there."""
    with ExitStack() as stack:
        found = []
        for _ in range(count):
            reserved = stack.enter_context(socket.socket())
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind(("127.0.0.1", 0))
            found.append(f"127.0.0.1:{reserved.getsockname()[1]}")
        yield found


def wait_until(what: str, true: Callable[[], Any], limit: float = LIMIT_S) -> Any:
    """The first value of `true()` that is one; AssertionError after `limit` seconds."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if found := true():
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {limit} s")


class Tasks:
    """The tasks of one job, each started by the flags or by TF_CONFIG; ended with the context."""

    def __init__(
        self,
        env: Environment,
        folder: Path,
        flags: list[str],
        *,
        tf_config: bool = False,
        settings: dict[str, float] | None = None,
        **jobs: int,
    ) -> None:
        """jobs: the number of tasks of each job; a `chief` is TF_CONFIG's."""
        self._env = env
        self._folder = folder
        self._flags = flags
        self._tf_config = tf_config
        self._settings = settings or {}
        self._reserved = ExitStack()
        addresses = self._reserved.enter_context(reserved_addresses(sum(jobs.values())))
        self.cluster = {job: [addresses.pop() for _ in range(count)] for job, count in jobs.items()}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Tasks:
        folder = self._folder
        folder.mkdir(parents=True, exist_ok=True)
        for job, tasks in self.cluster.items():
            for index in range(len(tasks)):
                self.start(f"{job} {index}")
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._running.values():
            if child.poll() is None:
                child.kill()
            child.wait()
        self._reserved.close()

    def start(self, task: str) -> None:
        """Starts (or starts again) a task such as "worker 1"."""
        job, _, index = task.partition(" ")
        environment = dict(self._env._variables())
        flags = list(self._flags)
        if self._tf_config:
            told = {"cluster": self.cluster, "task": {"type": job, "index": int(index)}}
            environment["TF_CONFIG"] = json.dumps(told)
        else:
            flags += [f"--job_name={job}", f"--task_index={index}"]
            names = {"ps": "ps_hosts", "worker": "worker_hosts", "controller": "controller_host"}
            flags += [f"--{names[j]}={','.join(tasks)}" for j, tasks in self.cluster.items()]
        program = [str(self._env.prefix / "bin" / "python"), "-c", PROGRAM, json.dumps(self._settings)]
        with (
            (self._folder / f"{task}.out").open("ab") as out,
            (self._folder / f"{task}.err").open("ab") as err,
        ):
            self._running[task] = subprocess.Popen(
                [*program, *flags],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **environment},
            )

    def kill(self, task: str) -> None:
        """By SIGKILL, which nothing can prepare for."""
        child = self._running[task]
        assert child.poll() is None, f"{task} has ended already\n{self.output(task)}"
        child.send_signal(signal.SIGKILL)
        child.wait()

    def ended(self, task: str) -> int:
        """Its exit code."""
        try:
            return self._running[task].wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{task} does not end\n{self.everything()}") from None

    def all_end(self, *, but: tuple[str, ...] = ()) -> None:
        """All tasks end with 0."""
        for task in self._running:
            if task not in but:
                assert self.ended(task) == 0, self.everything()

    def output(self, task: str) -> str:
        return "".join(
            (self._folder / f"{task}.{kind}").read_text(errors="replace") for kind in ("out", "err")
        )

    def everything(self) -> str:
        return "\n".join(f"--- {task}\n{self.output(task)[-3000:]}" for task in self._running)

    def says(self, task: str, text: str) -> None:
        """Waits until the task has printed that."""

        def said() -> bool:
            return text in self.output(task)

        try:
            wait_until(f"{task} says {text!r}", said)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.everything()}") from None


def newest_step(folder: Path) -> int:
    """Of the checkpoints in the folder; 0 where there is none."""
    steps = [int(path.name.split("-")[1].split(".")[0]) for path in folder.glob("model.ckpt-*.index")]
    return max(steps, default=0)
