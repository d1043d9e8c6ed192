"""Moving for real: on a device of torch with streams that are late and memory that the host cannot read.

That is ddl-core's stand-in where STANDIN_DEVICE names its library, and a GPU where DDL_TEST_DEVICE is cuda.
"""

import contextlib
import gc
import os
import sys
from pathlib import Path
from typing import Any

import torch
from _cases import run

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "ddl-core/python/tests/torch/programs"))
from _device import DEVICE, load_stand_in

if DEVICE == "standin":
    load_stand_in()

import lms.torch

WIDTH, ROWS, LAYERS = 64, 256, 16
NBYTES = WIDTH * ROWS * 4


def weights() -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(1)
    return [
        (torch.randn(WIDTH, WIDTH, generator=made) / 8).to(DEVICE).requires_grad_() for _ in range(LAYERS)
    ]


def batch(seed: int = 0) -> torch.Tensor:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def forward(layers: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    for layer in layers:
        x = torch.tanh(x @ layer)
    return x.square().sum()


def gradients(steps: int = 3) -> list[torch.Tensor]:
    """Of all steps."""
    layers = weights()
    for seed in range(steps):
        forward(layers, batch(seed)).backward()
    return [layer.grad.cpu() for layer in layers]


def same(these: list[torch.Tensor], those: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(these, those, strict=True))


def nothing_is_left() -> None:
    gc.collect()
    stats = lms.torch.stats()
    assert (stats.saved, stats.kept, stats.host) == (0, 0, 0), stats


def gradients_are_the_same() -> None:
    wanted = gradients()
    for blocks in (3, 8):
        for prefetch in (0, 1, 3):
            with lms.torch.enable(blocks * NBYTES, min_size=1, prefetch=prefetch):
                assert same(gradients(), wanted), (blocks, prefetch)
                nothing_is_left()
                stats = lms.torch.stats()
                assert stats.peak_saved <= blocks * NBYTES < stats.peak_kept, stats
                assert stats.moved_out >= 3 * (LAYERS - blocks) * NBYTES, stats
                assert (stats.tensors_prefetched > 0) == (prefetch > 0), stats


def on_other_streams() -> None:
    wanted = gradients()
    with lms.torch.enable(4 * NBYTES, min_size=1):
        for _ in range(3):
            side = torch.Stream(DEVICE)
            side.wait_stream(torch.accelerator.current_stream()) if hasattr(side, "wait_stream") else None
            with side:
                assert same(gradients(), wanted)
        nothing_is_left()


def graphs_are_dropped_while_copies_run() -> None:
    """Their memory is not another tensor's before."""
    wanted = gradients()
    with lms.torch.enable(4 * NBYTES, min_size=1):
        for turn in range(6):
            layers = weights()
            loss = forward(layers, batch())
            if turn % 2:
                # some have come back, others are on their way
                part = torch.autograd.grad(loss, layers[-4:], retain_graph=True)
                del part
            del loss, layers
            nothing_is_left()
            assert same(gradients(), wanted), turn


class Stop(Exception):
    pass


class Keep(torch.autograd.Function):
    """Saves a copy that is made when the stream comes to it; nothing here waits for a stream."""

    @staticmethod
    def forward(ctx: Any, token: torch.Tensor, source: torch.Tensor, results: list[Any], most: int) -> Any:
        ctx.save_for_backward(torch.empty_like(source).copy_(source))
        ctx.results, ctx.most = results, most
        return torch.empty_like(token)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        if len(ctx.results) == ctx.most:
            raise Stop
        [saved] = ctx.saved_tensors
        ctx.results.append(torch.empty_like(saved).copy_(saved))
        return torch.empty_like(grad), None, None, None


def nothing_waits() -> None:
    """The host is far ahead of the streams; what was freed is written to, and looked at in the end."""
    noise = torch.full((ROWS, WIDTH), -1.0).to(DEVICE)
    sources = [torch.full((ROWS, WIDTH), float(number)).to(DEVICE) for number in range(LAYERS)]
    for turn in range(24):
        others = []
        with lms.torch.enable((2 + turn % 5) * NBYTES, min_size=1, prefetch=turn % 4):
            # some graphs are dropped when half of the tensors have come back, and others are on their way
            for most in (LAYERS // 2, LAYERS // 2 + 3, LAYERS):
                results: list[torch.Tensor] = []
                first = token = torch.empty(4, device=DEVICE, requires_grad=True)
                for source in sources:
                    token = Keep.apply(token, source, results, most)
                    if turn % 2:
                        others.append(torch.empty_like(noise).copy_(noise))
                with contextlib.suppress(Stop):
                    torch.autograd.backward(token, torch.empty(4, device=DEVICE))
                del first, token
                others += [torch.empty_like(noise).copy_(noise) for _ in range(6)]
            nothing_is_left()
            assert lms.torch.stats().moved_out > 0
        found = [result.cpu().unique().tolist() for result in results]
        assert found == [[number] for number in reversed(range(LAYERS))], (turn, found)
        assert all(other.cpu().eq(-1).all() for other in others), turn


def graphs_are_kept() -> None:
    results = []
    for limit in (10**9, 4 * NBYTES):
        layers = weights()
        with lms.torch.enable(limit, min_size=1):
            loss = forward(layers, batch())
            for again in (True, True, False):
                loss.backward(retain_graph=again)
            del loss
            nothing_is_left()
            assert (lms.torch.stats().moved_out > 0) == (limit < 10**9)
        results.append([layer.grad.cpu() for layer in layers])
    assert same(*results)


def without_pinned_memory() -> None:
    wanted = gradients()
    with lms.torch.enable(4 * NBYTES, min_size=1, pinned=False):
        assert same(gradients(), wanted)
        nothing_is_left()


def other_devices() -> None:
    """Tensors of the processor are neither counted nor moved."""
    with lms.torch.enable(0, min_size=1):
        x = torch.ones(100, 100, requires_grad=True)
        x.exp().exp().sum().backward()
        stats = lms.torch.stats()
        assert stats.peak_kept == 0 and stats.limit == 0, stats


def one_training() -> None:
    """Whose memory is looked at from outside; a GPU's allocator tells its peak itself."""
    limit = os.environ.get("LIMIT")
    if limit is None:
        gradients()
    else:
        with lms.torch.enable(limit, min_size=1):
            gradients()
            assert lms.torch.stats().moved_out > 0
    if DEVICE == "cuda":
        print(f"peak: {torch.cuda.max_memory_allocated()}")


run(
    *(gradients_are_the_same, on_other_streams, graphs_are_dropped_while_copies_run, nothing_waits),
    *(graphs_are_kept, without_pinned_memory, other_devices, one_training),
)
