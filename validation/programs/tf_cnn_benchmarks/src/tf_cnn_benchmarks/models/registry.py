"""The table of models by data set, with the batch sizes and learning rates that go with them."""

from tf_cnn_benchmarks.errors import BenchmarkError, unknown
from tf_cnn_benchmarks.models.alexnet import alexnet, alexnet_cifar10
from tf_cnn_benchmarks.models.densenet import densenet_cifar10
from tf_cnn_benchmarks.models.googlenet import googlenet
from tf_cnn_benchmarks.models.inception import inception3
from tf_cnn_benchmarks.models.inception4 import inception4
from tf_cnn_benchmarks.models.mobilenet import mobilenet
from tf_cnn_benchmarks.models.official_resnet import BLOCKS as OFFICIAL_DEPTHS
from tf_cnn_benchmarks.models.official_resnet import official_resnet
from tf_cnn_benchmarks.models.overfeat import overfeat
from tf_cnn_benchmarks.models.resnet import resnet, resnet_cifar10
from tf_cnn_benchmarks.models.small import lenet, lenet5, softmax_regression, trivial
from tf_cnn_benchmarks.models.spec import Model, Recipe
from tf_cnn_benchmarks.models.vgg import vgg

# Rates and epochs are those of the program whose flags these are: what it trained in so many epochs, this one
# does too. They are near the papers' (arXiv:1706.02677 for ImageNet, section 4.2 of arXiv:1512.03385 and of
# arXiv:1608.06993 for CIFAR-10).
CONSTANT = Recipe(0.005)
IMAGENET_RESNET = Recipe(
    0.128, per_images=256, drops=(30, 60, 80, 90), warmup_epochs=5, serves_resnet_base_lr=True
)
OFFICIAL_RESNET = Recipe(0.1, per_images=256, drops=(30, 60, 80, 90))
CIFAR10_RESNET = Recipe(0.1, drops=(82, 123, 300), factors=(0.1, 0.01, 0.002), whole_steps=True)
CIFAR10_DENSENET = Recipe(0.1, drops=(150, 225, 300), whole_steps=True)
CIFAR10_ALEXNET = Recipe(0.1, tenth_every_epochs=100)

_CIFAR10_DEPTHS = (20, 32, 44, 56, 110)
_IMAGENET = [
    Model("trivial", 227, 32, trivial, CONSTANT),
    Model("lenet", 28, 32, lenet5, CONSTANT, shown_as="lenet5"),
    Model("alexnet", 227, 512, alexnet, CONSTANT),
    Model("overfeat", 231, 32, overfeat, CONSTANT),
    *(Model(f"vgg{n}", 224, 64, vgg(n), CONSTANT) for n in (11, 16, 19)),
    Model("googlenet", 224, 32, googlenet, CONSTANT),
    Model("mobilenet", 224, 32, mobilenet, CONSTANT),
    Model("resnet50", 224, 64, resnet(50), IMAGENET_RESNET),
    Model("resnet50_v1.5", 224, 64, resnet(50, version="v1.5"), IMAGENET_RESNET),
    Model("resnet101", 224, 32, resnet(101), IMAGENET_RESNET),
    Model("resnet152", 224, 32, resnet(152), IMAGENET_RESNET),
    Model("resnet50_v2", 224, 64, resnet(50, version="v2"), IMAGENET_RESNET),
    Model("resnet101_v2", 224, 32, resnet(101, version="v2"), IMAGENET_RESNET),
    Model("resnet152_v2", 224, 32, resnet(152, version="v2"), IMAGENET_RESNET),
    *(
        Model(
            f"official_resnet{n}{suffix}",
            224,
            128 if n == 50 else 32,
            official_resnet(n, version=version),
            OFFICIAL_RESNET,
            shown_as=f"official_resnet_{n}_{version}",
        )
        for n in OFFICIAL_DEPTHS
        for version, suffix in (("v1", ""), ("v2", "_v2"))
    ),
    Model("inception3", 299, 32, inception3, CONSTANT),
    Model("inception4", 299, 32, inception4, CONSTANT),
]
_CIFAR10 = [
    Model("trivial", 32, 32, trivial, CONSTANT),
    Model("lenet", 32, 32, lenet, Recipe(0.01)),
    Model("alexnet", 32, 128, alexnet_cifar10, CIFAR10_ALEXNET),
    *(Model(f"resnet{n}", 32, 128, resnet_cifar10(n), CIFAR10_RESNET) for n in _CIFAR10_DEPTHS),
    *(
        Model(f"resnet{n}_v2", 32, 128, resnet_cifar10(n, version="v2"), CIFAR10_RESNET)
        for n in _CIFAR10_DEPTHS
    ),
    *(
        Model(f"densenet{n}_k{growth}", 32, 64, densenet_cifar10(n, growth), CIFAR10_DENSENET)
        for n, growth in ((40, 12), (100, 12), (100, 24))
    ),
]
_DIGITS = [
    Model("trivial", 8, 32, softmax_regression, Recipe(0.1)),
    Model("lenet", 32, 32, lenet, Recipe(0.05)),
    Model("resnet20", 8, 32, resnet_cifar10(20), Recipe(0.1)),
]

MODELS: dict[str, dict[str, Model]] = {
    data: {model.name: model for model in models}
    for data, models in (("imagenet", _IMAGENET), ("cifar10", _CIFAR10), ("digits", _DIGITS))
}

_NO_IMAGES = "and this program trains on images"
_SEARCHED = "networks found by architecture search are left out"
NOT_PROVIDED = {
    "ncf": f"its input is pairs of users and items, {_NO_IMAGES}; --model=trivial shows what exchanging "
    "gradients costs when the model itself costs next to nothing",
    "deepspeech2": f"its input is speech, {_NO_IMAGES}; docs/train/nmt.md trains a recurrent network on "
    "sequences",
    "ssd300": "it detects objects, and this program classifies images; --model=vgg16 is the network that "
    "SSD300 is built on",
    "nasnet": f"{_SEARCHED}; --model=mobilenet is about as small",
    "nasnetlarge": f"{_SEARCHED}; --model=inception4 is the nearest",
}
"""Names that users know from elsewhere, with the reason and what to take instead."""


def model_names() -> list[str]:
    """Every model name of any data set."""
    return sorted({name for models in MODELS.values() for name in models})


def find_model(name: str, data_name: str) -> Model:
    """The model of that name for that data set; BenchmarkError lists the valid ones."""
    if reason := NOT_PROVIDED.get(name):
        raise BenchmarkError(f"--model={name} is not provided: {reason}")
    if data_name not in MODELS:
        raise unknown("value of --data_name", data_name, MODELS)
    models = MODELS[data_name]
    if name in models:
        return models[name]
    elsewhere = [data for data, others in MODELS.items() if name in others]
    if elsewhere:
        raise BenchmarkError(
            f"model '{name}' is not made for --data_name={data_name} but for {' and '.join(elsewhere)}. "
            f"Valid for {data_name}: {', '.join(sorted(models))}"
        )
    raise unknown(f"model for --data_name={data_name}", name, models)
