"""A Spark standalone cluster on this machine: a master, workers, and their end."""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from ddlrun import processes, rank_variables

LOOPBACK = "127.0.0.1"
_MASTER_CLASS = "org.apache.spark.deploy.master.Master"
_WORKER_CLASS = "org.apache.spark.deploy.worker.Worker"
_MASTER_LINE = re.compile(r"Starting Spark master at (spark://\S+)")
_PAGE_LINE = re.compile(r"Bound MasterWebUI to \S+, and started at http://[^\s:]+:(\d+)")
_EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"
_ANSWER_SECONDS = 30.0
_PAUSE_SECONDS = 0.1
_CLOSE_SECONDS = 20.0
_LOG_LINES = 12
_TOKEN_BYTES = 32


class SparkClusterError(RuntimeError):
    """The cluster cannot be started; the text says what, where and the remedy."""


def _last_lines(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
    except OSError as error:
        return f"(no log: {error})"
    return "\n".join(lines)


class _Supervisor:
    """The process that starts those of the cluster, and outlives this one until they have ended."""

    def __init__(self, temporary: Path | None) -> None:
        command = [sys.executable, "-P", "-m", "ddl_spark.process_supervisor"]
        command += ["--remove", str(temporary)] if temporary else []
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            command,
            env={**rank_variables.without(os.environ), "DDL_AUTO_INIT": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Sends a request of ddl_spark.process_supervisor."""
        assert self._process.stdin and self._process.stdout
        with self._lock:
            # Its answers are immediate: it never waits for what it has started.
            try:
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
                self._process.stdin.flush()
                line = self._process.stdout.readline()
            except OSError:
                line = b""
        if not line:
            raise SparkClusterError(
                "the supervisor of the Spark cluster has ended, and the cluster with it; "
                f"process {self._process.pid}; start the cluster again"
            )
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise SparkClusterError(f"a process of the Spark cluster cannot be started; {answer['error']}")
        return answer

    def close(self) -> None:
        """Ends the cluster."""
        with self._lock, contextlib.suppress(OSError):
            assert self._process.stdin
            self._process.stdin.close()
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the kernel then asks what it has started to end
            self._process.wait()


class Daemon:
    """A master or worker: a process of Java. `pid` is its number, `log` the file with what it says."""

    def __init__(self, supervisor: _Supervisor, pid: int, log: Path) -> None:
        self._supervisor = supervisor
        self.pid = pid
        self.log = log

    def status(self) -> int | None:
        """Its exit status, that of a signal negative; None while it runs."""
        exit_status: int | None = self._supervisor.ask({"ended": self.pid})["status"]
        return exit_status

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Sends it a signal; without effect if it has ended."""
        self._supervisor.ask({"signal": self.pid, "number": int(number)})

    def executors(self) -> list[int]:
        """The numbers of the executors' processes that it has started, of all programs."""
        pids = []
        for pid in processes.children(self.pid):
            with contextlib.suppress(OSError):
                if _EXECUTOR in Path(f"/proc/{pid}/cmdline").read_bytes():
                    pids.append(pid)
        return sorted(pids)


class StandaloneCluster:
    """A master and workers on this machine, or workers for a master elsewhere. Use it as a context manager.

    Inside, os.environ has what a driver needs (see `environment`), so that SparkSession.builder.getOrCreate()
    finds the cluster.

    Args:
        workers: How many.
        cores: Of each worker: how many tasks it runs at a time.
        memory: Of each worker, as Spark writes it ("1g"); one executor takes all of it.
        folder: For logs, work and temporary files; it is kept. None makes a temporary one, which is removed.
        address: What master and workers listen on; the default is reached from this machine alone.
        limit: Seconds within which all workers must have registered.
        join: The master that the workers belong to, and its secret; None starts one.
    """

    def __init__(
        self,
        workers: int = 2,
        cores: int = 1,
        memory: str = "1g",
        folder: str | os.PathLike[str] | None = None,
        *,
        address: str = LOOPBACK,
        limit: float = 60.0,
        join: tuple[str, str] | None = None,
    ) -> None:
        if workers < 0 or cores < 1:
            raise ValueError(f"workers={workers}, cores={cores}: at least 0 workers of at least 1 core each")
        if not re.fullmatch(r"[1-9][0-9]*[kmgtKMGT]", memory):
            raise ValueError(f"memory={memory!r}: a number and a unit, such as 512m or 2g")
        self._wanted = workers
        self._cores = cores
        self._memory = memory
        self._folder = Path(folder).absolute() if folder is not None else None
        self._address = address
        self._limit = limit
        self._master, self._secret = join or ("", secrets.token_hex(_TOKEN_BYTES))
        self._page = 0
        self._supervisor: _Supervisor | None = None
        self._before: dict[str, str | None] = {}
        self._registered = 0
        self.folder = Path()
        self.workers: list[Daemon] = []
        """Its workers: kill() one to see what a program does then."""
        self.environment: dict[str, str] = {}
        """Variables for a program that uses the cluster: SPARK_MASTER, MASTER, SPARK_CONF_DIR and more."""

    @property
    def master(self) -> str:
        """The master's address, spark://HOST:PORT."""
        return self._master

    @property
    def secret(self) -> str:
        """What a program must know to use the cluster; spark-defaults.conf in SPARK_CONF_DIR holds it."""
        return self._secret

    def __enter__(self) -> StandaloneCluster:
        home = _spark_home()
        if self._folder is None:
            self.folder = Path(tempfile.mkdtemp(prefix="spark-cluster-"))
        else:
            self.folder = self._folder
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._supervisor = _Supervisor(None if self._folder else self.folder)
            self._start(home)
        except BaseException:
            self._end()
            raise
        for name, value in self.environment.items():
            self._before[name] = os.environ.get(name)
            os.environ[name] = value
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._before.clear()
        self._end()

    def _end(self) -> None:
        if self._supervisor:
            self._supervisor.close()
            self._supervisor = None
        if self._folder is None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, home: Path) -> None:
        for name in ("conf", "logs", "work", "local"):
            (self.folder / name).mkdir(mode=0o700, exist_ok=True)
        self.environment = {
            "SPARK_HOME": str(home),
            "SPARK_CONF_DIR": str(self.folder / "conf"),
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_LOCAL_IP": self._address,
            "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON") or sys.executable,
            "JAVA_HOME": os.environ.get("JAVA_HOME") or _java_home(),
        }
        until = time.monotonic() + self._limit
        self._configure()
        if not self._master:
            arguments = ["--host", self._address, "--port", "0", "--webui-port", "0"]
            daemon = self._launch("master", [_MASTER_CLASS, *arguments])
            self._master, self._page = self._bound(daemon, until)
            self._configure()
        self.environment |= {"SPARK_MASTER": self._master, "MASTER": self._master}
        for _ in range(self._wanted):
            self.add_worker()
        if self._page:
            self.wait_for_workers(self._wanted, until - time.monotonic())

    def _configure(self) -> None:
        """Writes what master, workers and programs read. Whoever knows the secret can run what he likes."""
        lines = {
            "spark.authenticate": "true",
            "spark.authenticate.secret": self._secret,
            "spark.network.crypto.enabled": "true",
            "spark.executor.cores": str(self._cores),
            "spark.executor.memory": self._memory,
            "spark.ui.killEnabled": "false",
            **({"spark.master": self._master} if self._master else {}),
        }
        path = self.folder / "conf/spark-defaults.conf"
        new = path.with_name(f".{path.name}.new")
        new.unlink(missing_ok=True)
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.writelines(f"{name} {value}\n" for name, value in lines.items())
        new.replace(path)

    def _launch(self, name: str, arguments: Sequence[str]) -> Daemon:
        assert self._supervisor
        log = self.folder / "logs" / f"{name}.log"
        log.unlink(missing_ok=True)  # of an earlier cluster in this folder
        # A SPARK_… of the user's is about another cluster.
        environment = {
            k: v for k, v in rank_variables.without(os.environ).items() if not k.startswith("SPARK_")
        }
        environment |= {**self.environment, "SPARK_DAEMON_MEMORY": "512m"}
        request = {
            "start": [str(Path(self.environment["SPARK_HOME"]) / "bin/spark-class"), *arguments],
            "environment": environment,
            "folder": str(self.folder),
            "log": str(log),
        }
        return Daemon(self._supervisor, self._supervisor.ask(request)["pid"], log)

    def add_worker(self) -> Daemon:
        """Starts one more worker, and returns it without waiting; wait_for_workers() does."""
        name = f"worker{len(self.workers)}"
        work = self.folder / "work" / name
        arguments = ["--host", self._address, "--port", "0", "--webui-port", "0", "--cores", str(self._cores)]
        arguments += ["--memory", self._memory, "--work-dir", str(work), self._master]
        daemon = self._launch(name, [_WORKER_CLASS, *arguments])
        self.workers.append(daemon)
        return daemon

    def _bound(self, daemon: Daemon, until: float) -> tuple[str, int]:
        """Where the master listens, and its web page, which it says in its log."""
        addresses: list[tuple[str, int]] = []

        def look() -> bool:
            text = daemon.log.read_text(errors="replace") if daemon.log.exists() else ""
            master, page = _MASTER_LINE.search(text), _PAGE_LINE.search(text)
            if master and page:
                addresses.append((master[1], int(page[1])))
            return bool(addresses)

        self._wait("the Spark master does not start", look, [daemon], until)
        return addresses[0]

    def alive_workers(self) -> int:
        """How many workers the master has, as it says itself."""
        connection = http.client.HTTPConnection(self._address, self._page, timeout=_ANSWER_SECONDS)
        try:
            connection.request("GET", "/json/")
            state = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        return sum(worker["state"] == "ALIVE" for worker in state["workers"])

    def wait_for_workers(self, count: int, limit: float | None = None) -> None:
        """Waits until the master has at least so many workers.

        Raises:
            SparkClusterError: Not within the limit, by default that of the cluster, or a worker has ended.
        """
        until = time.monotonic() + (self._limit if limit is None else limit)
        have = 0

        def look() -> bool:
            nonlocal have
            with contextlib.suppress(OSError, ValueError):  # its page is up a little after its port
                have = self.alive_workers()
            return have >= count

        try:
            # What ends later, or is killed, is Spark's to deal with.
            self._wait("a Spark worker does not start", look, self.workers[self._registered :], until)
        except SparkClusterError as error:
            raise SparkClusterError(f"{error}\n({have} of {count} workers have registered)") from None
        self._registered = len(self.workers)

    def _wait(self, problem: str, look: Callable[[], bool], daemons: Sequence[Daemon], until: float) -> None:
        while not look():
            late = time.monotonic() > until
            for daemon in daemons:
                status = daemon.status()
                if status is not None or late:
                    how = f"not within {self._limit:g} s" if status is None else f"it ended with {status}"
                    raise SparkClusterError(
                        f"{problem}: {how}; the end of its log {daemon.log} is below; "
                        f"see there, or give more time by limit (--limit)\n{_last_lines(daemon.log)}"
                    )
            if late:
                raise SparkClusterError(f"{problem}: not within {self._limit:g} s; on another host")
            time.sleep(_PAUSE_SECONDS)


def _spark_home() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SparkClusterError(f"there is no pyspark; in {sys.prefix}; install the package pyspark")
    return Path(spec.origin).parent


def _java_home() -> str:
    java = Path(sys.prefix) / "bin/java"
    if not java.exists():
        elsewhere = shutil.which("java")
        if elsewhere is None:
            raise SparkClusterError(
                f"there is no Java; in {sys.prefix}/bin and on PATH; "
                "install the package pyspark, or set JAVA_HOME"
            )
        java = Path(elsewhere)
    return str(java.resolve().parent.parent)
