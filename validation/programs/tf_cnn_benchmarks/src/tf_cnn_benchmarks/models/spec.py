"""What a model says about itself. Nothing here, nor in the model files, imports TensorFlow: `--help` and
flag errors must be instant, and a model is a plain description in terms of `layers.Layers`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tf_cnn_benchmarks.layers import Layers

Build = Callable[["Layers", Any], Any]
"""Takes images (in the layers' data format) and returns the features that the classifier sees (N x C)."""


@dataclass(frozen=True)
class Recipe:
    """The learning rate a model is trained with when the flags say nothing.

    `rate` holds for a global batch of `per_images` images and scales linearly with it (Goyal et al. 2017,
    arXiv:1706.02677); None: the rate does not depend on the batch. After each epoch of `drops` the rate is
    multiplied by 0.1; it rises linearly from 0 over the first `warmup_epochs`.
    """

    rate: float
    per_images: int | None = None
    drops: tuple[float, ...] = ()
    warmup_epochs: float = 0.0


@dataclass(frozen=True)
class Model:
    """One model for one data set: `image_size` pixels square, `batch_size` per device by default."""

    name: str
    image_size: int
    batch_size: int
    build: Build
    recipe: Recipe
    loss_scale: float = 128.0
