"""Which models exist for which data set."""

from tf_cnn_benchmarks.models.registry import MODELS, Model, find_model, model_names

__all__ = ["MODELS", "Model", "find_model", "model_names"]
