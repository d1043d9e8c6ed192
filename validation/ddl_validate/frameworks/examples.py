"""The examples: which framework each one shows, and what it needs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[3] / "ddl-core/examples"


@dataclass(frozen=True)
class Example:
    """One training of the handwritten digits.

    framework: what people call it. packages: those of the environment that it shows, of which the first one's
    version is printed; all must be there. program: below the folder of the examples.
    """

    framework: str
    packages: tuple[str, ...]
    program: str

    @property
    def path(self) -> Path:
        return EXAMPLES / self.program


ALL = (
    Example("Keras 3", ("keras", "tensorflow", "ddl-tensorflow"), "tensorflow/keras_digits.py"),
    Example("tf_keras", ("tf-keras", "tensorflow", "ddl-tensorflow"), "tensorflow/tf_keras_digits.py"),
    Example("TensorFlow, TF1 graphs", ("tensorflow", "ddl-tensorflow"), "tensorflow/tf1_digits.py"),
    Example("PyTorch", ("pytorch", "ddl-pytorch"), "pytorch/digits.py"),
    Example("Horovod, PyTorch", ("horovod", "pytorch"), "horovod/torch_digits.py"),
    Example("Horovod, Keras 3", ("horovod", "keras", "tensorflow"), "horovod/keras_digits.py"),
)


def fingerprint(prefix: Path, example: Example, ranks: int) -> str:
    """Changes with any package of the environment, the program and the number of ranks."""
    seen = hashlib.sha256(example.path.read_bytes())
    for record in sorted((prefix / "conda-meta").glob("*.json")):
        seen.update(record.name.encode())
    seen.update(str(ranks).encode())
    return seen.hexdigest()
