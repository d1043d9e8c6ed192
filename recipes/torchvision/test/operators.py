"""Compares torchvision's operators with their definitions in NumPy, and gradients with differences."""

import itertools
import math

import numpy as np
import torch
from torch.autograd import gradcheck
from torchvision import ops

rng = np.random.default_rng(0)


def tensor(array):
    return torch.from_numpy(np.asarray(array, np.float64))


def some_boxes(count, size=40.0):
    corner = rng.uniform(0, size * 0.7, (count, 2))
    return np.hstack([corner, corner + rng.uniform(2, size * 0.3, (count, 2))])


def iou(a, b):
    w = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    h = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    areas = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
    return w * h / (areas - w * h)


def nms(boxes, scores, threshold):
    kept = []
    for i in np.argsort(-scores, kind="stable"):
        if all(iou(boxes[i], boxes[j]) <= threshold for j in kept):
            kept.append(i)
    return kept


def test_nms():
    for threshold in (0.1, 0.3, 0.7):
        boxes, scores = some_boxes(60), rng.permutation(60) / 60
        expected = nms(boxes, scores, threshold)
        assert 1 < len(expected) < 60
        assert ops.nms(tensor(boxes), tensor(scores), threshold).tolist() == expected
        assert ops.nms(tensor(boxes).float(), tensor(scores).float(), threshold).tolist() == expected
        with torch.autocast("cpu", torch.bfloat16):
            assert len(ops.nms(tensor(boxes).bfloat16(), tensor(scores).bfloat16(), threshold)) > 1
    classes = rng.integers(0, 3, 60)
    kept = [
        i
        for c in range(3)
        for i in np.flatnonzero(classes == c)[nms(boxes[classes == c], scores[classes == c], 0.3)]
    ]
    found = ops.batched_nms(tensor(boxes), tensor(scores), torch.from_numpy(classes), 0.3)
    assert found.tolist() == sorted(kept, key=lambda i: -scores[i])
    assert ops.nms(torch.zeros(0, 4), torch.zeros(0), 0.5).shape == (0,)


def test_quantized_nms():
    for kind, scale, zero in ((torch.quint8, 0.25, 3), (torch.qint8, 0.5, -40), (torch.qint32, 0.01, 0)):
        boxes = torch.quantize_per_tensor(tensor(some_boxes(60)).float(), scale, zero, kind)
        scores = torch.quantize_per_tensor(torch.randperm(60) * scale, scale, zero, kind)
        found = ops.nms(boxes, scores, 0.3)
        assert (
            found.tolist() == ops.nms(boxes.dequantize(), scores.dequantize(), 0.3).tolist()
            and 1 < len(found) < 60
        )


def clamped(plane, y, x):
    """A value between pixels: beyond the border that of the border, further than a pixel away nothing."""
    height, width = plane.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = int(y), int(x)
    down, right = min(top + 1, height - 1), min(left + 1, width - 1)
    upper = plane[top, left] * (1 - x + left) + plane[top, right] * (x - left)
    lower = plane[down, left] * (1 - x + left) + plane[down, right] * (x - left)
    return upper * (1 - y + top) + lower * (y - top)


def padded(plane, y, x):
    """A value between pixels, with zeros around them."""
    top, left = math.floor(y), math.floor(x)
    total = 0.0
    for i, j in itertools.product((top, top + 1), (left, left + 1)):
        if 0 <= i < plane.shape[0] and 0 <= j < plane.shape[1]:
            total += plane[i, j] * (1 - abs(y - i)) * (1 - abs(x - j))
    return total


def mean_in_bin(plane, start, size, ratio):
    """The mean of points that lie evenly in a part of a box."""
    count = [ratio if ratio > 0 else math.ceil(length) for length in size]
    points = [
        [s + (k + 0.5) * length / n for k in range(n)]
        for s, length, n in zip(start, size, count, strict=True)
    ]
    return float(np.mean([clamped(plane, y, x) for y, x in itertools.product(*points)]))


def roi_align(x, rois, scale, out, ratio, aligned):
    result = np.zeros((len(rois), x.shape[1], *out))
    for n, (image, *box) in enumerate(rois):
        left, top, right, bottom = np.array(box) * scale - (0.5 if aligned else 0)
        size = np.array([bottom - top, right - left])
        size = (size if aligned else np.maximum(size, 1)) / out
        for c, i, j in np.ndindex(result.shape[1:]):
            result[n, c, i, j] = mean_in_bin(
                x[int(image), c], (top + i * size[0], left + j * size[1]), size, ratio
            )
    return result


def ps_roi_align(x, rois, scale, out, ratio):
    result = np.zeros((len(rois), x.shape[1] // (out[0] * out[1]), *out))
    for n, (image, *box) in enumerate(rois):
        left, top, right, bottom = np.array(box) * scale - 0.5
        size = np.array([bottom - top, right - left]) / out
        for c, i, j in np.ndindex(result.shape[1:]):
            plane = x[int(image), (c * out[0] + i) * out[1] + j]
            result[n, c, i, j] = mean_in_bin(plane, (top + i * size[0], left + j * size[1]), size, ratio)
    return result


def pixels(x, image, box, scale, out, more):
    """The places in the output and the pixels of all parts of a box, whose corners are rounded to pixels."""
    left, top, right, bottom = (math.floor(side * scale + 0.5) for side in box)
    size = max(bottom - top + more, 1) / out[0], max(right - left + more, 1) / out[1]
    for i, j in np.ndindex(*out):
        rows = slice(max(top + math.floor(i * size[0]), 0), max(top + math.ceil((i + 1) * size[0]), 0))
        columns = slice(max(left + math.floor(j * size[1]), 0), max(left + math.ceil((j + 1) * size[1]), 0))
        yield i, j, x[int(image), :, rows, columns]


def roi_pool(x, rois, scale, out):
    result = np.zeros((len(rois), x.shape[1], *out))
    for n, (image, *box) in enumerate(rois):
        for i, j, part in pixels(x, image, box, scale, out, 1):
            result[n, :, i, j] = part.max((1, 2)) if part.size else 0
    return result


def ps_roi_pool(x, rois, scale, out):
    result = np.zeros((len(rois), x.shape[1] // (out[0] * out[1]), *out))
    for n, (image, *box) in enumerate(rois):
        for i, j, part in pixels(x, image, box, scale, out, 0):
            result[n, :, i, j] = part[i * out[1] + j :: out[0] * out[1]].mean((1, 2))
    return result


def test_regions():
    out, scale = (3, 2), 0.5
    x = rng.standard_normal((2, 12, 20, 18))
    rois = np.hstack([rng.integers(0, 2, (7, 1)), some_boxes(7, 34.0)])
    inputs = tensor(x), tensor(rois)
    small = tensor(x[:, :, :7, :6]).requires_grad_()
    few = tensor(np.hstack([rois[:3, :1], [[0, 1, 9, 10], [2, 2, 9, 11], [5, 0, 6, 5]]]))
    cases = [
        (ops.ps_roi_align, ps_roi_align, (2,)),
        (ops.ps_roi_align, ps_roi_align, (-1,)),
        (ops.roi_pool, roi_pool, ()),
        (ops.ps_roi_pool, ps_roi_pool, ()),
        *((ops.roi_align, roi_align, (ratio, aligned)) for ratio in (2, -1) for aligned in (False, True)),
    ]
    for operator, expected, more in cases:
        found = operator(*inputs, out, scale, *more)
        assert np.abs(found.numpy() - expected(x, rois, scale, out, *more)).max() < 1e-12, (operator, more)
        single = operator(*(one.float() for one in inputs), out, scale, *more)
        assert (found - single).abs().max() < 1e-4, (operator, more)
        assert gradcheck(lambda x: operator(x, few, out, scale, *more), small), (operator, more)  # noqa: B023
    # outside of the image, and none at all
    outside = tensor([[0, -9, -9, 50, 50], [1, 60, 60, 70, 70]])
    assert np.allclose(
        ops.roi_align(inputs[0], outside, out, scale, 2, True),
        roi_align(x, outside.numpy(), scale, out, 2, True),
    )
    assert ops.roi_align(inputs[0], tensor(np.zeros((0, 5))), out).shape == (0, 12, 3, 2)
    # boxes of one image each in a list
    parts = [tensor(rois[rois[:, 0] == image, 1:]) for image in (0, 1)]
    order = np.argsort(rois[:, 0], kind="stable")
    assert torch.equal(
        ops.roi_pool(inputs[0], parts, out, scale), ops.roi_pool(inputs[0], inputs[1][order], out, scale)
    )
    with torch.autocast("cpu", torch.bfloat16):
        assert ops.roi_align(inputs[0].bfloat16(), inputs[1].bfloat16(), out, scale).dtype == torch.bfloat16


def test_quantized_roi_align():
    for kind, zero in ((torch.quint8, 128), (torch.qint8, 5)):
        x = torch.quantize_per_tensor(torch.randn(1, 4, 16, 16), 0.05, zero, kind)
        boxes = tensor(np.hstack([np.zeros((6, 1)), some_boxes(6, 30.0)])).float()
        rois = torch.quantize_per_tensor(boxes, 0.25, 0, kind)
        for aligned in (False, True):
            found = ops.roi_align(x, rois, 3, 0.5, 2, aligned)
            expected = ops.roi_align(x.dequantize(), rois.dequantize(), 3, 0.5, 2, aligned)
            assert found.dtype == kind and found.q_scale() == 0.05
            # rounded to the nearest
            assert (found.dequantize() - expected).abs().max() <= 0.05 / 2 + 1e-5


def deform_conv(x, offset, weight, bias, mask, stride, padding, dilation):
    (channels, per_group), kernel = weight.shape[:2], weight.shape[2:]
    taps = kernel[0] * kernel[1]
    offset_groups = offset.shape[1] // (2 * taps)
    result = np.zeros((len(x), channels, *offset.shape[2:]))
    for n, c, i, j in np.ndindex(result.shape):
        total = bias[c]
        for k, ky, kx in np.ndindex(per_group, *kernel):
            source = c // (channels * per_group // x.shape[1]) * per_group + k
            tap = source // (x.shape[1] // offset_groups) * taps + ky * kernel[1] + kx
            y = i * stride[0] - padding[0] + ky * dilation[0] + offset[n, 2 * tap, i, j]
            z = j * stride[1] - padding[1] + kx * dilation[1] + offset[n, 2 * tap + 1, i, j]
            total += weight[c, k, ky, kx] * mask[n, tap, i, j] * padded(x[n, source], y, z)
        result[n, c, i, j] = total
    return result


def test_deform_conv():
    shape = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2)}
    x = rng.standard_normal((2, 4, 7, 8))
    weight, bias = rng.standard_normal((6, 2, 3, 2)), rng.standard_normal(6)
    plain = torch.nn.functional.conv2d(tensor(x), tensor(weight), tensor(bias), groups=2, **shape)
    size = plain.shape[2:]
    offset = rng.uniform(-2, 2, (2, 2 * 2 * 6, *size))
    mask = rng.uniform(0, 1, (2, 2 * 6, *size))
    arguments = [tensor(one) for one in (x, offset, weight, bias)]
    for given in (mask, None):
        found = ops.deform_conv2d(*arguments, **shape, mask=None if given is None else tensor(given))
        used = np.ones_like(mask) if given is None else given
        assert np.abs(found.numpy() - deform_conv(x, offset, weight, bias, used, **shape)).max() < 1e-12
    still = ops.deform_conv2d(arguments[0], torch.zeros_like(arguments[1]), *arguments[2:], **shape)
    assert torch.allclose(still, plain, atol=1e-12)
    # not at a pixel's border, where the value has a corner
    offset = np.floor(offset[:1]) + rng.uniform(0.2, 0.8, offset[:1].shape)
    variables = [tensor(one).requires_grad_() for one in (x[:1], offset, weight, bias, mask[:1])]
    assert gradcheck(lambda *v: ops.deform_conv2d(*v[:4], **shape, mask=v[4]), variables, fast_mode=True)
    layer = ops.DeformConv2d(4, 6, 3, padding=1)
    layer(torch.randn(1, 4, 5, 5), torch.randn(1, 18, 5, 5)).sum().backward()
    assert layer.weight.grad.abs().sum() > 0


def corners(box):
    x, y, w, h, angle = box
    c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    signs = (-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)
    return [np.array([x + a * w * c + b * h * s, y - a * w * s + b * h * c]) for a, b in signs]


def cross(a, b):
    return a[0] * b[1] - a[1] * b[0]


def rotated_iou(a, b):
    """By the corners of what two boxes share: corners of one in the other, and where sides meet."""
    one, other = corners(a), corners(b)
    points = []
    for inner, outer in ((one, other), (other, one)):
        points += [
            p
            for p in inner
            if all(cross(outer[i] - outer[i - 1], p - outer[i - 1]) >= -1e-12 for i in range(4))
        ]
    for i, j in itertools.product(range(4), range(4)):
        p, r = one[i - 1], one[i] - one[i - 1]
        q, s = other[j - 1], other[j] - other[j - 1]
        if abs(cross(r, s)) > 1e-12:
            t, u = cross(q - p, s) / cross(r, s), cross(q - p, r) / cross(r, s)
            if 0 <= t <= 1 and 0 <= u <= 1:
                points.append(p + t * r)
    shared = 0.0
    if len(points) > 2:
        middle = np.mean(points, axis=0)
        points.sort(key=lambda p: math.atan2(p[1] - middle[1], p[0] - middle[0]))
        shared = abs(sum(cross(points[i - 1] - middle, points[i] - middle) for i in range(len(points)))) / 2
    return shared / (a[2] * a[3] + b[2] * b[3] - shared)


def test_rotated_boxes():
    def some(count):
        return np.hstack(
            [
                rng.uniform(0, 20, (count, 2)),
                rng.uniform(1, 15, (count, 2)),
                rng.uniform(-400, 400, (count, 1)),
            ]
        )

    ones, others = some(40), some(50)
    expected = np.array([[rotated_iou(a, b) for b in others] for a in ones])
    assert 0.2 < (expected > 0).mean() < 0.9
    for kind, most in ((torch.float64, 1e-6), (torch.float32, 1e-4)):
        found = ops.box_iou(tensor(ones).to(kind), tensor(others).to(kind), fmt="cxcywhr")
        assert found.dtype == torch.float32 and np.abs(found.numpy() - expected).max() < most, kind
    straight = np.hstack([ones[:, :4], np.zeros((40, 1))])
    same = ops.box_iou(tensor(straight), tensor(straight), fmt="cxcywhr")
    assert torch.allclose(
        same.double(), ops.box_iou(tensor(ones[:, :4]), tensor(ones[:, :4]), fmt="cxcywh"), atol=1e-6
    )
    # the eight sides of a square and of the same square turned by 45 degrees
    square = tensor([[3, 4, 2, 2, 0]])
    eight = 8 * (math.sqrt(2) - 1)
    turned = ops.box_iou(square, tensor([[3, 4, 2, 2, 45]]), fmt="cxcywhr")
    assert abs(turned.item() - eight / (8 - eight)) < 1e-6
    # counter-clockwise: what is up on the right
    assert ops.box_iou(tensor([[0, 0, 10, 0.1, 45]]), tensor([[3, -3, 1, 1, 0]]), fmt="cxcywhr").item() > 0
    assert ops.box_iou(tensor([[0, 0, 10, 0.1, 45]]), tensor([[3, 3, 1, 1, 0]]), fmt="cxcywhr").item() == 0
    assert ops.box_iou(square, tensor([[3, 4, 0, 2, 0]]), fmt="cxcywhr").item() == 0
    # the other forms of the same boxes
    for form in ("xywhr", "xyxyxyxy"):
        changed = [ops.box_convert(tensor(boxes), "cxcywhr", form) for boxes in (ones, others)]
        assert np.abs(ops.box_iou(*changed, fmt=form).numpy() - expected).max() < 1e-4, form
    assert ops.box_iou(tensor(np.zeros((0, 5))), tensor(others), fmt="cxcywhr").shape == (0, 50)
    for wrong in (square[:, :4], square[0], square.half(), square.long()):
        try:
            raise AssertionError(torch.ops.torchvision.box_iou_rotated(wrong, wrong))
        except (RuntimeError, TypeError):
            pass


def test_registrations():
    """Shapes without data, gradients and schemas are those that PyTorch expects of an operator."""
    operators = torch.ops.torchvision
    x, rois = torch.randn(1, 4, 9, 9, requires_grad=True), torch.tensor([[0.0, 1, 1, 7, 6]])
    weight, offset, mask = torch.randn(2, 4, 3, 3), torch.randn(1, 18, 9, 9), torch.ones(1, 9, 9, 9)
    for operator, arguments in (
        (operators.roi_align, (x, rois, 1.0, 2, 2, 2, True)),
        (operators.roi_pool, (x, rois, 1.0, 2, 2)),
        (operators.ps_roi_align, (x, rois, 1.0, 2, 2, 2)),
        (operators.ps_roi_pool, (x, rois, 1.0, 2, 2)),
        (operators.deform_conv2d, (x, weight, offset, mask, torch.zeros(2), 1, 1, 1, 1, 1, 1, 1, 1, True)),
    ):
        checks = torch.library.opcheck(
            operator, arguments, test_utils=("test_schema", "test_autograd_registration", "test_faketensor")
        )
        assert set(checks.values()) == {"SUCCESS"}, (operator, checks)


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print(name, "ok", flush=True)
