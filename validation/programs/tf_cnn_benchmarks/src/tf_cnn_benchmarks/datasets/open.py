"""From the flags to a data set."""

from pathlib import Path

from tf_cnn_benchmarks.datasets.cifar10 import Cifar10
from tf_cnn_benchmarks.datasets.digits import Digits
from tf_cnn_benchmarks.datasets.imagenet import Imagenet
from tf_cnn_benchmarks.datasets.sizes import CIFAR10, IMAGENET
from tf_cnn_benchmarks.datasets.spec import Data
from tf_cnn_benchmarks.datasets.synthetic import Synthetic
from tf_cnn_benchmarks.errors import BenchmarkError


def open_data(data_name: str, data_dir: str | None) -> Data:
    """Real images where there are some, synthetic ones otherwise; BenchmarkError for a missing folder."""
    if data_name == "digits":
        return Digits()
    if data_dir is None:
        return Synthetic(data_name, IMAGENET if data_name == "imagenet" else CIFAR10)
    folder = Path(data_dir)
    if not folder.is_dir():
        raise BenchmarkError(
            f"--data_dir={data_dir} is not a folder on this host; leave it out for synthetic images"
        )
    return Imagenet(folder) if data_name == "imagenet" else Cifar10(folder)
