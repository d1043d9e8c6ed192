"""Small computations with a known result, one for each component: what `<component>-test` runs.

Run by that command:  python -m wml_ce_commands.checks COMPONENT RANKS
"""

from __future__ import annotations

import sys

import numpy as np

MARK = "checked: "
"""Begins the line in which rank 0 says what it has computed."""


def _line(ranks: int) -> tuple[np.ndarray, np.ndarray]:
    """Points, and their distances from a line: the same on every rank, which takes its share."""
    x = np.linspace(-1.0, 1.0, 12 * ranks, dtype=np.float32)
    return x, 3.0 * x - 1.0


def _slope_of_loss(x: np.ndarray, y: np.ndarray, weight: float) -> float:
    """The derivative of mean((weight x - y)^2) by the weight, which frameworks are compared with."""
    return float(np.mean(2.0 * (weight * x - y) * x))


def ddl(ranks: int) -> tuple[int, str]:
    """Sums arrays of random numbers, which every rank can compute for all."""
    import ddl

    assert ddl.size() == ranks, f"{ddl.size()} ranks instead of {ranks}"
    arrays = [np.random.default_rng(rank).integers(0, 1000, 100_003).astype("f") for rank in range(ranks)]
    np.testing.assert_array_equal(ddl.allreduce(arrays[ddl.rank()]), np.sum(arrays, axis=0))
    return ddl.rank(), f"ddl {ddl.__version__}: the sum over {ranks} ranks is right"


def tensorflow(ranks: int) -> tuple[int, str]:
    """Compares a gradient with the derivative."""
    import tensorflow as tf

    x, y = _line(ranks)
    weight = tf.Variable(0.5)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((weight * x - y) ** 2)
    np.testing.assert_allclose(tape.gradient(loss, weight), _slope_of_loss(x, y, 0.5), rtol=1e-5)
    return 0, f"TensorFlow {tf.__version__}: the gradient is right"


def pytorch(ranks: int) -> tuple[int, str]:
    """Compares a gradient with the derivative."""
    import torch

    x, y = _line(ranks)
    weight = torch.tensor(0.5, requires_grad=True)
    ((weight * torch.from_numpy(x) - torch.from_numpy(y)) ** 2).mean().backward()
    assert weight.grad is not None
    np.testing.assert_allclose(weight.grad, _slope_of_loss(x, y, 0.5), rtol=1e-5)
    return 0, f"PyTorch {torch.__version__}: the gradient is right"


def ddl_tensorflow(ranks: int) -> tuple[int, str]:
    """Takes one step on the ranks' shares, by the optimizer that `import ddl` makes average."""
    import ddl
    import tensorflow as tf

    assert ddl.size() == ranks, f"{ddl.size()} ranks instead of {ranks}"
    x, y = _line(ranks)
    mine = slice(ddl.rank(), None, ranks)
    weight = tf.Variable(0.5)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((weight * x[mine] - y[mine]) ** 2)
    tf.keras.optimizers.SGD(1.0).apply_gradients([(tape.gradient(loss, weight), weight)])
    np.testing.assert_allclose(weight.numpy(), 0.5 - _slope_of_loss(x, y, 0.5), rtol=1e-5)
    versions = f"ddl-tensorflow {ddl.__version__}, TensorFlow {tf.__version__}"
    return ddl.rank(), f"{versions}: a step of {ranks} ranks is that of one process"


def ddl_pytorch(ranks: int) -> tuple[int, str]:
    """Averages a gradient by DistributedDataParallel."""
    import ddl
    import torch
    import torch.distributed as dist

    dist.init_process_group("ddl")
    assert dist.get_world_size() == ranks, f"{dist.get_world_size()} ranks instead of {ranks}"
    x, y = (torch.from_numpy(values)[dist.get_rank() :: ranks, None] for values in _line(ranks))
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(model.weight, 0.5)
    distributed = torch.nn.parallel.DistributedDataParallel(model)  # it averages as long as it is there
    torch.nn.functional.mse_loss(distributed(x), y).backward()
    assert model.weight.grad is not None
    np.testing.assert_allclose(model.weight.grad.item(), _slope_of_loss(*_line(ranks), 0.5), rtol=1e-5)
    rank = dist.get_rank()
    dist.destroy_process_group()
    versions = f"ddl-pytorch {ddl.__version__}, PyTorch {torch.__version__}"
    return rank, f"{versions}: the gradient of {ranks} ranks is that of one process"


def horovod(ranks: int) -> tuple[int, str]:
    """Sums a tensor of each framework."""
    import horovod
    import horovod.tensorflow as hvd_tensorflow
    import horovod.torch as hvd_torch
    import tensorflow as tf
    import torch

    for hvd in (hvd_tensorflow, hvd_torch):
        hvd.init()
        assert hvd.size() == ranks, f"{hvd.size()} ranks instead of {ranks}"
    value, total = float(hvd_torch.rank() + 1), ranks * (ranks + 1) / 2
    summed = hvd_torch.allreduce(torch.full((5,), value), op=hvd_torch.Sum)
    np.testing.assert_array_equal(summed, np.full(5, total))
    summed = hvd_tensorflow.allreduce(tf.fill([7], value), op=hvd_tensorflow.Sum)
    np.testing.assert_array_equal(summed, np.full(7, total))
    rank = int(hvd_torch.rank())
    versions = f"Horovod {horovod.__version__}, PyTorch {torch.__version__}, TensorFlow {tf.__version__}"
    return rank, f"{versions}: the sums over {ranks} ranks are right"


CHECKS = {
    "ddl": ddl,
    "ddl-pytorch": ddl_pytorch,
    "ddl-tensorflow": ddl_tensorflow,
    "horovod": horovod,
    "pytorch": pytorch,
    "tensorflow": tensorflow,
}

if __name__ == "__main__":
    rank, text = CHECKS[sys.argv[1]](int(sys.argv[2]))
    if rank == 0:
        print(MARK + text, flush=True)
