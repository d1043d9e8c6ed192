"""Uses torchvision as its users do, without a network: models, transforms, detection, image files."""

import contextlib
import pathlib
import subprocess
import sys
import tempfile

import torch
import torchvision
from PIL import Image
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode
from torchvision import datasets, models, tv_tensors
from torchvision.transforms import v2


def test_import_is_silent():
    shown = subprocess.run(
        [sys.executable, "-W", "error", "-c", "import torchvision"], capture_output=True, timeout=300
    )
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, b"", b""), shown
    assert torchvision.__version__.startswith("0.28.0"), torchvision.__version__


class WithoutData(TorchFunctionMode):
    """Parameters have a shape and no data; what constructors compute with, has."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **{**(kwargs or {}), **({"device": "meta"} if func is torch.empty else {})})


def test_all_models():
    """Every model that upstream lists has the size, and every classifier the work, that upstream states."""
    classifiers = models.list_models(models)
    detectors = models.list_models(models.detection)
    on_backbones = detectors + models.list_models(models.segmentation)
    assert len(classifiers) > 70 and len(models.list_models()) > 110
    for name in models.list_models():
        known = next(iter(models.get_model_weights(name)), None)
        options = {"weights_backbone": None} if name in on_backbones else {}
        # as upstream counts
        if name.startswith(("deeplab", "fcn_")):
            options["aux_loss"] = True
        if name.endswith("googlenet"):
            options |= {"aux_logits": False, "init_weights": False}
        if name == "vit_h_14":
            options["image_size"] = 518
        # those that begin with ssd compute when they are made
        with contextlib.nullcontext() if name.startswith("ssd") else WithoutData():
            model = models.get_model(name, weights=None, **options)
        if known is None:
            continue
        sizes = {sum(p.numel() for p in model.parameters())}
        if name in detectors:
            # of a trained backbone it takes normalisation as it is
            norms = [m for m in model.backbone.modules() if isinstance(m, torch.nn.BatchNorm2d)]
            sizes.add(max(sizes) - sum(p.numel() for norm in norms for p in norm.parameters()))
        assert known.meta["num_params"] in sizes, (name, sizes)
        if name in classifiers:
            side = known.transforms.keywords["crop_size"]
            with FlopCounterMode(display=False) as counter, torch.no_grad(), torch.device("meta"):
                assert model.eval().to("meta")(torch.empty(1, 3, side, side)).shape == (1, 1000), name
            # multiplications, in 1e9
            assert abs(counter.get_total_flops() / 2e9 - known.meta["_ops"]) < 0.003, name


def test_transforms():
    image = Image.effect_mandelbrot((64, 48), (-2, -1.5, 1, 1.5), 50).convert("RGB")
    image.putpixel((0, 0), (255, 0, 128))
    boxes = tv_tensors.BoundingBoxes([[4, 6, 20, 30]], format="XYXY", canvas_size=(48, 64))
    mask = tv_tensors.Mask(torch.arange(48 * 64).reshape(48, 64) % 5)
    turn = v2.Compose([v2.ToImage(), v2.RandomHorizontalFlip(1), v2.ToDtype(torch.float32, scale=True)])
    pixels, turned, flipped = turn(image, boxes, mask)
    assert pixels.shape == (3, 48, 64) and torch.allclose(pixels[:, 0, 63], torch.tensor([255, 0, 128]) / 255)
    assert turned.tolist() == [[44, 6, 60, 30]] and torch.equal(flipped, mask.flip(1))
    pixels, turned = v2.Resize((96, 128))(pixels, turned)
    assert pixels.shape == (3, *turned.canvas_size) == (3, 96, 128) and turned.tolist() == [[88, 12, 120, 60]]
    # around the middle, which is at (32, 24), and no further than the border
    assert v2.functional.affine(boxes, 90.0, [0, 0], 1.0, [0.0, 0.0]).tolist() == [[26, 0, 50, 12]]
    normal = v2.Normalize([0.5] * 3, [0.25] * 3)(torch.full((3, 2, 2), 0.75))
    assert torch.equal(normal, torch.ones(3, 2, 2))
    torch.manual_seed(0)
    for several in (v2.AutoAugment(), v2.RandAugment(), v2.TrivialAugmentWide(), v2.AugMix()):
        assert several(v2.functional.pil_to_tensor(image)).shape == (3, 48, 64)
    labels = torch.tensor([0, 1, 2, 1])
    _, weights = v2.MixUp(num_classes=3)(torch.rand(4, 3, 8, 8), labels)
    assert weights.shape == (4, 3) and torch.allclose(weights.sum(1), torch.ones(4))
    # the presets that belong to weights
    assert models.ResNet18_Weights.DEFAULT.transforms()(image).shape == (3, 224, 224)


def test_detection_learns():
    torch.manual_seed(0)
    model = models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None, weights_backbone=None, num_classes=3
    )
    images = [torch.rand(3, 120, 160), torch.rand(3, 140, 130)]
    targets = [
        {"boxes": torch.tensor([[10.0, 20, 60, 90], [80, 10, 150, 70]]), "labels": torch.tensor([1, 2])},
        {"boxes": torch.tensor([[30.0, 30, 100, 120]]), "labels": torch.tensor([2])},
    ]
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    totals = []
    for _ in range(5):
        losses = model(images, targets)
        assert set(losses) == {"loss_classifier", "loss_box_reg", "loss_objectness", "loss_rpn_box_reg"}
        total = sum(losses.values())
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        totals.append(total.item())
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
    assert totals[-1] < 0.8 * totals[0], totals
    with torch.no_grad():
        found = model.eval()(images)
    assert [set(one) for one in found] == [{"boxes", "labels", "scores"}] * 2
    scripted = torch.jit.script(
        models.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None).eval()
    )
    assert len(scripted(images)[1]) == 2


def test_image_files():
    """A folder of images is read by Pillow, in the ways that users have."""
    with tempfile.TemporaryDirectory() as folder:
        for label, color in (("blue", (0, 0, 255)), ("red", (255, 0, 0))):
            for kind in ("png", "jpg", "webp"):
                path = pathlib.Path(folder, label, f"one.{kind}")
                path.parent.mkdir(exist_ok=True)
                Image.new("RGB", (40, 30), color).save(path)
        data = datasets.ImageFolder(folder, v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]))
        assert data.classes == ["blue", "red"] and len(data) == 6
        for images, labels in torch.utils.data.DataLoader(data, batch_size=3, num_workers=1):
            wanted = torch.eye(3)[[2 - 2 * int(label) for label in labels]]
            assert (images.mean((2, 3)) - wanted).abs().max() < 0.05 and images.shape == (3, 3, 30, 40)
        torchvision.utils.save_image(images, path := pathlib.Path(folder, "grid.png"))
        assert Image.open(path).size == (3 * 42 + 2, 34)


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print(name, "ok", flush=True)
