"""Where images come from."""

from tf_cnn_benchmarks.datasets.open import open_data
from tf_cnn_benchmarks.datasets.spec import Batch, Data, InputOptions, Shard

__all__ = ["Batch", "Data", "InputOptions", "Shard", "open_data"]
