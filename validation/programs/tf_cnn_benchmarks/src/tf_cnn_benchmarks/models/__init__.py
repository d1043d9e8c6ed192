"""Which models exist for which data set."""

from tf_cnn_benchmarks.models.registry import MODELS, find_model, model_names
from tf_cnn_benchmarks.models.spec import Model

__all__ = ["MODELS", "Model", "find_model", "model_names"]
