"""Every way to train that is compared: what it is called, and the command that trains by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_PROGRAMS = Path(__file__).resolve().parent / "programs"


@dataclass(frozen=True)
class Work:
    """What every way trains. batch: images of each worker and step; epochs: passes over all training images,
    by all workers together; rate: the learning rate of an update from all workers' gradients."""

    workers: int
    batch: int
    epochs: int
    rate: float

    def rate_of(self, *, asynchronous: bool) -> float:
        """Where each worker's gradient is an update of its own there are `workers` times as many."""
        return self.rate / self.workers if asynchronous else self.rate


@dataclass(frozen=True)
class Way:
    """One way.

    program: the words after ddlrun's options. options: of ddlrun, beside those that name the hosts.
    coordinator: one more process, on the first host, leads the workers. asynchronous: no worker waits for
    another. packages: those of the environment that it needs, by the folder of the Python module. page: where
    it is documented.
    """

    name: str
    title: str
    program: Callable[[Work], list[str]]
    options: tuple[str, ...] = ()
    coordinator: bool = False
    asynchronous: bool = False
    packages: tuple[str, ...] = ()
    page: str = ""


def _tf_cnn(variable_update: str, *others: str, asynchronous: bool = False) -> Callable[[Work], list[str]]:
    def program(work: Work) -> list[str]:
        return [
            "tf_cnn_benchmarks",
            "--data_name=digits",
            "--model=lenet",
            f"--batch_size={work.batch}",
            f"--num_epochs={work.epochs}",
            "--num_warmup_batches=0",
            "--optimizer=momentum",
            "--weight_decay=0",
            f"--init_learning_rate={work.rate_of(asynchronous=asynchronous):g}",
            "--eval_during_training_every_n_epochs=1",
            "--device=cpu",
            "--num_intra_threads=1",
            f"--variable_update={variable_update}",
            *others,
        ]

    return program


def _own(script: str, *arguments: str, asynchronous: bool = False) -> Callable[[Work], list[str]]:
    def program(work: Work) -> list[str]:
        return [
            "python",
            str(_PROGRAMS / script),
            f"--batch-size={work.batch}",
            f"--epochs={work.epochs}",
            f"--learning-rate={work.rate_of(asynchronous=asynchronous):g}",
            *arguments,
        ]

    return program


def _on_spark(script: str, count: str) -> Callable[[Work], list[str]]:
    """A program that uses a Spark cluster with a worker on each host. count: its option for their number."""

    def program(work: Work) -> list[str]:
        program = _own(script, f"{count}={work.workers}")(work)
        return ["python", "-m", "ddl_spark", "--workers", "1", "--cores", "1", "--", *program]

    return program


_TF = ("tf_cnn_benchmarks", "tensorflow")
_PS, _STRATEGIES = "parameter-servers.md", "strategies.md"

ALL = (
    Way("ddl", "DDL, TensorFlow", _tf_cnn("ddl"), packages=_TF, page="tensorflow.md"),
    Way("horovod", "Horovod, TensorFlow", _tf_cnn("horovod"), packages=(*_TF, "horovod"), page="horovod.md"),
    Way(
        "torch-ddl",
        "PyTorch DDP, DDL",
        _own("torch_lenet.py", "--backend=ddl"),
        packages=("torch",),
        page="pytorch.md",
    ),
    Way(
        "torch-gloo",
        "PyTorch DDP, Gloo",
        _own("torch_lenet.py", "--backend=gloo"),
        packages=("torch",),
        page="pytorch.md",
    ),
    Way(
        "torch-lms",
        "PyTorch DDP, DDL, Large Model Support",
        _own("torch_lenet.py", "--backend=ddl", "--lms-limit=256KB"),
        packages=("torch", "lms"),
        page="large-models.md",
    ),
    Way(
        "ps",
        "parameter server, synchronous",
        _tf_cnn("parameter_server"),
        options=("-ps", "1"),
        packages=_TF,
        page=_PS,
    ),
    Way(
        "ps-async",
        "parameter server, asynchronous",
        _tf_cnn("parameter_server", "--cross_replica_sync=False", asynchronous=True),
        options=("-ps", "1"),
        asynchronous=True,
        packages=_TF,
        page=_PS,
    ),
    Way(
        "distributed-replicated",
        "distributed_replicated",
        _tf_cnn("distributed_replicated"),
        options=("-ps", "1"),
        packages=_TF,
        page=_PS,
    ),
    Way(
        "collective-all-reduce",
        "collective_all_reduce",
        _tf_cnn("collective_all_reduce"),
        options=("-tf-config", "worker"),
        packages=_TF,
        page=_PS,
    ),
    Way(
        "distributed-all-reduce",
        "distributed_all_reduce",
        _tf_cnn("distributed_all_reduce"),
        options=("-tf-config", "chief"),
        coordinator=True,
        packages=_TF,
        page=_PS,
    ),
    Way(
        "multi-worker-mirrored",
        "MultiWorkerMirroredStrategy",
        _own("strategy_lenet.py", "--strategy=multi_worker"),
        options=("-tf-config", "worker"),
        packages=("tensorflow", "tf_keras"),
        page=_STRATEGIES,
    ),
    Way(
        "parameter-server-strategy",
        "ParameterServerStrategy",
        _own("strategy_lenet.py", "--strategy=parameter_server", asynchronous=True),
        options=("-ps", "1", "-tf-config", "chief"),
        coordinator=True,
        asynchronous=True,
        packages=("tensorflow", "tf_keras"),
        page=_STRATEGIES,
    ),
    Way(
        "spark",
        "TensorFlowOnSpark",
        _on_spark("spark_lenet.py", "--executors"),
        packages=("tensorflow", "tf_keras", "pyspark", "tensorflowonspark"),
        page="spark.md",
    ),
    Way(
        "sweep",
        "sweep on Spark, a network for each worker",
        _on_spark("sweep_lenet.py", "--trials"),
        asynchronous=True,
        packages=("torch", "pyspark"),
        page="sweep.md",
    ),
    Way(
        "snapml",
        "Snap ML over DDL, a random forest",
        _own("snapml_forest.py"),
        packages=("snapml",),
        page="snapml.md",
    ),
)
NAMES = tuple(way.name for way in ALL)


def named(name: str) -> Way:
    """The way of this name; KeyError where there is none."""
    by_name = {way.name: way for way in ALL}
    return by_name[name]
