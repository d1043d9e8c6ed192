"""Which components have samples and a test, and which commands of WML CE have nothing behind them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Samples:
    """The samples that a component's package puts into the environment.

    Attributes:
        folder: Where they are, below the environment's folder.
        package: The package that brings them.
        start: A command that starts one of them, in the folder that they are copied to.
        note: What a user has to know before.
    """

    folder: str
    package: str
    start: str
    note: str = ""


_TENSORFLOW = Samples("ddl-tensorflow/examples", "ddl-tensorflow", "ddlrun -np 2 python mnist/mnist-env.py")
_PYTORCH_START = "ddlrun -np 2 python mnist/mnist_ddp.py --dist-backend ddl"
_LMS = "large-model-support"
_SNAP_ML = "compare_sklearn.py and distributed.py need Snap ML: pip install --no-deps snapml"

SAMPLES = {
    "ddl": Samples("ddl/examples", "ddl", "ddlrun -np 2 python regression.py"),
    "ddl-pytorch": Samples("ddl-pytorch/examples", "ddl-pytorch", _PYTORCH_START),
    "ddl-tensorflow": _TENSORFLOW,
    "horovod": Samples("horovod/examples", "horovod", "ddlrun -np 2 python torch_digits.py"),
    _LMS: Samples(f"{_LMS}/examples", _LMS, "python torch_digits.py --lms-limit 2MB"),
    "pai4sk": Samples("pai4sk/examples", "pai4sk", "python digits.py", _SNAP_ML),
    "pytorch": Samples("pytorch/examples", "ddl-pytorch", _PYTORCH_START),
    "snapml": Samples("snapml/examples", "pai4sk", "python digits.py", _SNAP_ML),
    "tensorflow": _TENSORFLOW,
    f"tensorflow-{_LMS}": Samples(f"{_LMS}/examples", _LMS, "python keras_digits.py --lms offload"),
}


@dataclass(frozen=True)
class Test:
    """A component's test.

    Attributes:
        modules: What it imports, and the package that each comes from.
        ranks: On how many ranks it runs.
    """

    modules: dict[str, str]
    ranks: int


TESTS = {
    "ddl": Test({"ddl": "ddl"}, 2),
    "ddl-pytorch": Test({"ddl.torch": "ddl-pytorch", "torch": "pytorch"}, 2),
    "ddl-tensorflow": Test({"ddl.tensorflow": "ddl-tensorflow", "tensorflow": "tensorflow"}, 2),
    "horovod": Test({"horovod": "horovod", "torch": "pytorch", "tensorflow": "tensorflow"}, 2),
    "pytorch": Test({"torch": "pytorch"}, 1),
    "tensorflow": Test({"tensorflow": "tensorflow"}, 1),
}

_CAFFE = (
    "Caffe is not part of this distribution: it is no longer maintained. Train in PyTorch or TensorFlow; "
    "tf_cnn_benchmarks has the models of that time: tf_cnn_benchmarks --model=alexnet"
)
GONE = {
    "caffe": _CAFFE,
    "caffe-install-samples": _CAFFE,
    "caffe-test": _CAFFE,
    "mpitool": (
        "not part of this distribution, whose MPI is Open MPI: ompi_info shows how it was built and its "
        "settings, ddlrun -doctor checks this host"
    ),
}
"""Commands that have nothing behind them: what they say before they fail."""
