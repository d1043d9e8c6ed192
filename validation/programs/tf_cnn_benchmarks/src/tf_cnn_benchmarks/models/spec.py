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
    arXiv:1706.02677); None: the rate does not depend on the batch. After the epochs of `drops` it is
    multiplied by the first of the `factors`, the second and so on, or by another 0.1 after each
    `tenth_every_epochs`; it rises linearly from 0 over the first `warmup_epochs`. `whole_steps`: an epoch
    has a whole number of steps. `serves_resnet_base_lr`: that flag replaces the rate.
    """

    rate: float
    per_images: int | None = None
    drops: tuple[float, ...] = ()
    factors: tuple[float, ...] = (0.1, 0.01, 0.001, 0.0001)
    tenth_every_epochs: float = 0.0
    warmup_epochs: float = 0.0
    whole_steps: bool = False
    serves_resnet_base_lr: bool = False


@dataclass(frozen=True)
class Model:
    """One model for one data set: `image_size` pixels square, `batch_size` per device by default. The output
    calls it `title`: as --model does, or `shown_as`."""

    name: str
    image_size: int
    batch_size: int
    build: Build
    recipe: Recipe
    loss_scale: float = 128.0
    shown_as: str = ""

    @property
    def title(self) -> str:
        return self.shown_as or self.name
