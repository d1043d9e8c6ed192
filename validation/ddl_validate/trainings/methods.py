"""The methods that share gradients, what each of them can train, and the command that trains by it."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ..allreduce.place import Place
from ..common.models import data_of, program_words
from .works import Kind, Work

PROGRAMS = Path(__file__).resolve().parent / "programs"
EXAMPLES = Path(__file__).resolve().parents[3] / "ddl-core/examples"
#: Elements of a group of gradients where the exchange is to overlap with the backward pass: 32 MiB of
#: float32. AlexNet's 61 million make three groups of it, as its largest gradient has 38 million.
GROUP_SIZE = 8 * 1024 * 1024
#: Those that exist in PyTorch too (programs/networks.py).
TORCH_MODELS = ("alexnet", "vgg11", "vgg16")

Trainer = Literal["tensorflow", "pytorch", "script", "spark", "example"]
_PACKAGES: dict[Trainer, tuple[str, ...]] = {
    "tensorflow": ("tf_cnn_benchmarks", "tensorflow"),
    "pytorch": ("torch",),
}
SPEED: tuple[Kind, ...] = ("synthetic",)
DIGITS: tuple[Kind, ...] = ("digits",)
BOTH: tuple[Kind, ...] = ("synthetic", "digits")


@dataclass(frozen=True)
class Method:
    """One method.

    title:         for people
    trainer:       tf_cnn_benchmarks, our programs in PyTorch, another program of ours, started directly or on
                   a Spark cluster with a worker on each host, or an example
    arguments:     of the trainer: its way to share gradients, or the name of the program
    kinds:         of works that it can train
    options:       of ddlrun, beside those that name the hosts
    needs:         packages of the environment, or Python modules, beside the trainer's
    coordinator:   whether one more process, on the first host, leads the ranks
    asynchronous:  whether no rank waits for another
    independent:   whether the ranks exchange nothing, so that no other method can be faster
    overlaps:      whether the exchange can go on beside the backward pass
    without_ddl:   whether it comes from the environment that holds horovod-mpi
    by_horovodrun: whether it is started as Horovod's users do, with what that sets; on this machine only
    variables:     of the ranks' environment
    """

    name: str
    title: str
    trainer: Trainer
    arguments: tuple[str, ...]
    kinds: tuple[Kind, ...] = DIGITS
    options: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    coordinator: bool = False
    asynchronous: bool = False
    independent: bool = False
    overlaps: bool = False
    without_ddl: bool = False
    by_horovodrun: bool = False
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def packages(self) -> tuple[str, ...]:
        """What the environment needs; the version of the first counts."""
        return (*self.needs, *_PACKAGES.get(self.trainer, ()))

    def trains(self, work: Work) -> bool:
        """Whether it can train this work at all, where its packages are installed."""
        in_torch = self.trainer == "pytorch" and work.kind == "synthetic"
        return work.kind in self.kinds and (not in_torch or work.name in TORCH_MODELS)

    def program(self, work: Work, ranks: int) -> list[str]:
        """The words after `python`."""
        if self.trainer == "example":
            return [str(EXAMPLES / self.arguments[0])]
        if self.asynchronous and self.trainer != "spark":
            # each rank's gradient is an update by itself, so there are `ranks` times as many
            work = replace(work, rate=work.rate / ranks)
        if self.trainer == "tensorflow":
            return _tensorflow(work, *self.arguments)
        if self.trainer == "pytorch" and work.kind == "synthetic":
            return [
                *(str(PROGRAMS / "torch_synthetic.py"), *self.arguments, f"--model={work.name}"),
                *(f"--num-batches={work.steps}", f"--num-warmup-batches={work.warmup}"),
                *(f"--batch-size={work.batch}", f"--device={work.device}"),
            ]
        script, *others = ("torch_lenet.py", *self.arguments) if self.trainer == "pytorch" else self.arguments
        program = [
            *(str(PROGRAMS / script), f"--batch-size={work.batch}", f"--epochs={work.epochs}"),
            *(f"--learning-rate={work.rate:g}", *(other.format(ranks=ranks) for other in others)),
        ]
        if self.trainer == "spark":
            return ["-m", "ddl_spark", "--workers", "1", "--cores", "1", "--", "python", *program]
        return program

    def command(self, work: Work, place: Place, prefix: Path, packages: Path | None = None) -> list[str]:
        """The command line that trains, of the environment `prefix` and a folder of packages beside it."""
        python = [str(prefix / "bin/python"), *self.program(work, place.ranks)]
        if self.by_horovodrun:
            # it looks for mpirun there
            path = f"PATH={prefix / 'bin'}:{os.environ.get('PATH', '/usr/bin:/bin')}"
            start = [str(prefix / "bin/horovodrun"), "-np", str(place.ranks)]
            return ["env", path, "TF_CPP_MIN_LOG_LEVEL=2", *start, *python]
        variables = {"TF_CPP_MIN_LOG_LEVEL": "2", **place.variables, **self.variables}
        cores = ["-cores", str(work.cores)] if work.kind == "synthetic" else []
        if not cores:
            variables["OMP_NUM_THREADS"] = str(work.cores)
        if packages:
            variables["PYTHONPATH"] = str(packages.resolve())
        # With a coordinator DDL takes no part.
        hosts = place.hosts(more=self.coordinator, described=not self.coordinator)
        passed = (word for name, value in variables.items() for word in ("-x", f"{name}={value}"))
        ddlrun = [str(prefix / "bin/ddlrun"), "-q", *hosts, *cores, *self.options, *passed]
        return place.on_first_host([*ddlrun, *python])


def _tensorflow(work: Work, sharing: str, *others: str) -> list[str]:
    """The arguments of tf_cnn_benchmarks. sharing: its --variable_update."""
    if work.kind == "digits":
        return [
            *("-m", "tf_cnn_benchmarks", "--data_name=digits", "--model=lenet", f"--batch_size={work.batch}"),
            *(f"--num_epochs={work.epochs}", "--num_warmup_batches=0", "--optimizer=momentum"),
            *("--weight_decay=0", f"--init_learning_rate={work.rate:g}"),
            "--eval_during_training_every_n_epochs=1",
            *("--device=cpu", "--num_intra_threads=1", f"--variable_update={sharing}", *others),
        ]
    measure = (work.name, data_of(work.name), work.batch, work.steps, work.warmup, work.device)
    arguments = [*program_words(*measure, sharing), f"--num_intra_threads={work.cores}"]
    if work.blocks and sharing != "parameter_server":  # by which each process trains for itself
        arguments.append(f"--exchange_blocks={work.blocks}")
    return [*arguments, "--result_json=-"] if sharing == "ddl" else arguments


def _tf(name: str, title: str, sharing: str, *others: str, **facts: Any) -> Method:
    return Method(name, title, "tensorflow", (sharing, *others), **facts)


def _torch(name: str, title: str, backend: str, *others: str, **facts: Any) -> Method:
    return Method(name, title, "pytorch", (f"--backend={backend}", *others), **facts)


def _example(name: str, title: str, script: str, *needs: str) -> Method:
    return Method(name, title, "example", (script,), ("examples",), needs=needs)


_GROUPS = {"DDL_GROUP_SIZE": str(GROUP_SIZE)}
_MPI: dict[str, Any] = {"kinds": SPEED, "overlaps": True, "without_ddl": True}
_PS, _WORKER, _CHIEF = ("-ps", "1"), ("-tf-config", "worker"), ("-tf-config", "chief")
_KERAS2, _TF1 = ("tensorflow", "tf_keras"), ("tensorflow", "ddl-tensorflow")

METHODS = {
    method.name: method
    for method in (
        _tf("independent", "no communication", "parameter_server", kinds=SPEED, independent=True),
        _tf("ddl", "DDL, TensorFlow", "ddl", kinds=BOTH),
        _tf("ddl-groups", "DDL in groups", "ddl", kinds=SPEED, overlaps=True, variables=_GROUPS),
        _tf("horovod", "Horovod with DDL", "horovod", kinds=BOTH, needs=("horovod",), overlaps=True),
        _tf("horovod-mpi", "Horovod with MPI", "horovod", **_MPI),
        _tf("horovodrun-mpi", "Horovod with MPI, by horovodrun", "horovod", **_MPI, by_horovodrun=True),
        _torch(
            "torch-independent", "PyTorch, no communication", "independent", kinds=SPEED, independent=True
        ),
        _torch("torch-ddl", "PyTorch DDP, DDL", "ddl", kinds=BOTH, overlaps=True),
        _torch("torch-gloo", "PyTorch DDP, Gloo", "gloo", kinds=BOTH, overlaps=True),
        _torch("torch-lms", "PyTorch DDP, Large Model Support", "ddl", "--lms-limit=256KB", needs=("lms",)),
        _tf("ps", "parameter server, synchronous", "parameter_server", options=_PS),
        _tf(
            "ps-async",
            "parameter server, asynchronous",
            "parameter_server",
            "--cross_replica_sync=False",
            options=_PS,
            asynchronous=True,
        ),
        _tf("distributed-replicated", "distributed_replicated", "distributed_replicated", options=_PS),
        _tf("collective-all-reduce", "collective_all_reduce", "collective_all_reduce", options=_WORKER),
        _tf(
            "distributed-all-reduce",
            "distributed_all_reduce",
            "distributed_all_reduce",
            options=_CHIEF,
            coordinator=True,
        ),
        Method(
            "multi-worker-mirrored",
            "MultiWorkerMirroredStrategy",
            "script",
            ("strategy_lenet.py", "--strategy=multi_worker"),
            options=_WORKER,
            needs=_KERAS2,
        ),
        Method(
            "parameter-server-strategy",
            "ParameterServerStrategy",
            "script",
            ("strategy_lenet.py", "--strategy=parameter_server"),
            options=(*_PS, *_CHIEF),
            needs=_KERAS2,
            coordinator=True,
            asynchronous=True,
        ),
        Method(
            "spark",
            "TensorFlowOnSpark",
            "spark",
            ("spark_lenet.py", "--executors={ranks}"),
            needs=(*_KERAS2, "pyspark", "tensorflowonspark"),
        ),
        Method(
            "sweep",
            "sweep on Spark, a network a rank",
            "spark",
            ("sweep_lenet.py", "--trials={ranks}"),
            needs=("torch", "pyspark"),
            asynchronous=True,
        ),
        Method("snapml", "Snap ML, a random forest", "script", ("snapml_forest.py",), needs=("snapml",)),
        _example("keras", "Keras 3", "tensorflow/keras_digits.py", "keras", *_TF1),
        _example("tf-keras", "tf_keras", "tensorflow/tf_keras_digits.py", "tf-keras", *_TF1),
        _example("tf1", "TensorFlow, TF1 graphs", "tensorflow/tf1_digits.py", *_TF1),
        _example("pytorch", "PyTorch", "pytorch/digits.py", "pytorch", "ddl-pytorch"),
        _example("horovod-pytorch", "Horovod, PyTorch", "horovod/torch_digits.py", "horovod", "pytorch"),
        _example(
            "horovod-keras", "Horovod, Keras 3", "horovod/keras_digits.py", "horovod", "keras", "tensorflow"
        ),
    )
}
#: Those of a network on this machine that nobody has chosen; on emulated hosts all that can be started there.
ON_THIS_MACHINE = ("independent", "ddl", "horovod", "horovod-mpi", "horovodrun-mpi")
#: Of a trainer: the method that exchanges nothing, and DDL's.
COUNTERPARTS: dict[Trainer, tuple[str, str]] = {
    "tensorflow": ("independent", "ddl"),
    "pytorch": ("torch-independent", "torch-ddl"),
}


def programs_hash() -> str:
    """A text that changes with any program that is trained."""
    files = sorted({*PROGRAMS.glob("*.py"), *EXAMPLES.glob("*/*.py")})
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()
