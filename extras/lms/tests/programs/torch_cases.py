"""Trainings with saved tensors on the host against the same without; all on the processor."""

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator

import lms
import lms.torch
import torch
from _cases import refused, run
from torch import nn
from torch.utils.checkpoint import checkpoint

KB = 1000


class Attention(nn.Module):
    """Its projections are views of one storage."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).chunk(3, dim=-1)
        weights = (q @ k.transpose(-1, -2) / 6).softmax(-1)
        return x + self.out(nn.functional.dropout(weights, 0.1) @ v)


def perceptron() -> nn.Module:
    blocks = [
        nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32), nn.Dropout(0.2)) for _ in range(8)
    ]
    return nn.Sequential(*blocks)


def convolutions() -> nn.Module:
    first = [
        nn.Unflatten(1, (2, 4, 4)),
        nn.Conv2d(2, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
    ]
    blocks = [
        layer for _ in range(3) for layer in (nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU())
    ]
    return nn.Sequential(*first, *blocks, nn.MaxPool2d(2), nn.Flatten())


def attention() -> nn.Module:
    return nn.Sequential(nn.Unflatten(0, (8, 16)), *[Attention() for _ in range(4)])


def model_of(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(1)
    return make()


def batch(seed: int = 0) -> torch.Tensor:
    return torch.randn(128, 32, generator=torch.Generator().manual_seed(seed))


def step(model: nn.Module, seed: int = 0) -> None:
    torch.manual_seed(3 + seed)
    model(batch(seed)).square().mean().backward()


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad for parameter in model.parameters()]


def same(these: list[torch.Tensor], those: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(these, those, strict=True))


def nothing_is_left() -> None:
    gc.collect()
    stats = lms.torch.stats()
    assert (stats.saved, stats.kept, stats.host) == (0, 0, 0), stats


@contextlib.contextmanager
def limited(limit: int = 100 * KB, **more: object) -> Iterator[lms.torch.Support]:
    """Something is moved, and nothing stays."""
    with lms.torch.enable(limit, min_size=1, **more) as support:
        yield support
        nothing_is_left()
        stats = lms.torch.stats()
        assert stats.moved_out > 0 and stats.peak_over <= 0, stats


def gradients_are_the_same() -> None:
    for make, limit in ((perceptron, 100 * KB), (convolutions, 150 * KB), (attention, 150 * KB)):
        wanted = model_of(make)
        step(wanted)
        with lms.torch.enable(10**9):
            step(model_of(make))
            whole = lms.torch.stats()
        assert whole.moved_out == 0 and whole.peak_saved == whole.peak_kept > 300 * KB, whole
        nothing_is_left()
        for prefetch in (0, 3):
            with limited(limit, prefetch=prefetch):
                model = model_of(make)
                step(model)
                assert same(gradients(wanted), gradients(model)), make
                stats = lms.torch.stats()
                assert stats.peak_saved <= limit < stats.peak_kept == whole.peak_kept, (stats, whole)
                assert stats.moved_out == stats.moved_in >= whole.peak_kept - limit, stats
                assert (stats.tensors_prefetched > 0) == (prefetch > 0), stats


def as_little_as_possible() -> None:
    """A limit of nothing leaves what the operation that runs has in hand."""
    wanted, model = model_of(perceptron), model_of(perceptron)
    step(wanted)
    with lms.torch.enable(0, min_size=1):
        step(model)
        stats = lms.torch.stats()
    assert same(gradients(wanted), gradients(model))
    assert 0 < stats.peak_over == stats.peak_saved < stats.peak_kept / 8, stats


def weights_after_steps() -> None:
    """Several steps, with gradients of two batches summed up, and an optimizer."""
    models = [model_of(perceptron), model_of(perceptron)]
    for model, enabled in zip(models, (False, True), strict=True):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        with limited() if enabled else contextlib.nullcontext():
            for seed in range(4):
                step(model, seed)
                if seed % 2:
                    optimizer.step()
                    optimizer.zero_grad()
    assert same(*([parameter.detach() for parameter in model.parameters()] for model in models))


def autocast() -> None:
    results = []
    for enabled in (False, True):
        model = model_of(attention)
        with limited(80 * KB) if enabled else contextlib.nullcontext():
            with torch.autocast("cpu", torch.bfloat16):
                torch.manual_seed(0)
                loss = model(batch()).float().square().mean()
            loss.backward()
            del loss
        results.append(gradients(model))
    assert same(*results)


def checkpoints() -> None:
    """What checkpoint keeps is moved; what it computes again is saved in the backward pass."""
    for reentrant in (False, True):
        results = []
        for enabled in (False, True):
            model = model_of(perceptron)
            with limited(40 * KB) if enabled else contextlib.nullcontext():
                torch.manual_seed(2)
                x = batch().requires_grad_()
                for block in model:
                    x = checkpoint(block, x, use_reentrant=reentrant)
                x.square().mean().backward()
                del x
            results.append(gradients(model))
        assert same(*results), reentrant


def second_derivatives() -> None:
    """Hooks are called in the backward pass, too, and tensors are asked for twice."""
    results = []
    for enabled in (False, True):
        model = model_of(perceptron)
        with limited() if enabled else contextlib.nullcontext():
            torch.manual_seed(2)
            x = batch().requires_grad_()
            [slope] = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
            slope.square().sum().backward()
            del x, slope
        results.append(gradients(model))
    assert same(*results)


def graphs_that_are_kept() -> None:
    """Three backward passes over one graph: what came back is moved again."""
    results = []
    for enabled in (False, True):
        model = model_of(perceptron)
        with limited() if enabled else contextlib.nullcontext():
            torch.manual_seed(2)
            loss = model(batch()).square().mean()
            for again in (True, True, False):
                loss.backward(retain_graph=again)
            del loss
        results.append(gradients(model))
    assert same(*results)


class Doubling(torch.autograd.Function):
    """Changes in its backward pass what it saved, which only a second pass sees."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x * 1)
        return x * 2

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor) -> torch.Tensor:
        [saved] = ctx.saved_tensors
        result = grad * saved
        saved.data.add_(1)
        return result


def saved_tensors_that_change() -> None:
    results = []
    for enabled in (False, True):
        with limited(17 * KB) if enabled else contextlib.nullcontext():
            x = batch().requires_grad_()
            outputs = Doubling.apply(Doubling.apply(Doubling.apply(x)))
            for _ in range(3):
                outputs.sum().backward(retain_graph=True)
            del outputs
        results.append([x.grad])
    assert same(*results)


def exceptions() -> None:
    class Fails(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyError("no such layer")

    model = nn.Sequential(model_of(perceptron), Fails())
    with limited():
        refused(KeyError, "no such layer", model, batch())
        nothing_is_left()
        step(model[0])


def without_gradients() -> None:
    with lms.torch.enable(0, min_size=1), torch.no_grad():
        model_of(perceptron)(batch())
        assert lms.torch.stats().peak_kept == 0
    with lms.torch.enable(0, min_size=1), torch.inference_mode():
        model_of(perceptron)(batch())
        assert lms.torch.stats().peak_kept == 0


def parameters_are_not_counted() -> None:
    weight = nn.Parameter(torch.ones(64, 32))
    x = torch.ones(128, 32, requires_grad=True)
    with lms.torch.enable(0, min_size=1):
        kept = [x @ weight.t(), x[:5] * weight[:5], weight.exp()]
        stats = lms.torch.stats()
        # the result of exp alone, which is in use
        assert stats.kept == stats.saved == 64 * 32 * 4 and stats.moved_out == 0, (stats, len(kept))


def storages_are_counted_once() -> None:
    with lms.torch.enable(10**9, min_size=1):
        x = batch().requires_grad_() * 2
        nbytes = x.untyped_storage().nbytes()
        views = [x, x.t(), x[3:40, ::2], x.view(-1), x.unsqueeze(0).expand(5, -1, -1)]
        kept = [view * view for view in views]
        assert lms.torch.stats().kept == nbytes, (lms.torch.stats(), len(kept))


def views_come_back() -> None:
    """Of many kinds, after their storage has been away."""

    def saved(z: torch.Tensor) -> Iterator[torch.Tensor]:
        c = torch.view_as_complex(z.view(-1, 2))
        yield c.conj().imag
        yield (c.conj() * c).abs()
        yield z.t()[3:9, ::2] * z.t()[3:9, ::2]
        yield z[0].expand(7, -1) * z[1].expand(7, -1)
        yield z.to(torch.float64).exp()
        yield z[z > 0.5] * 2

    results = []
    for enabled in (False, True):
        x = batch().requires_grad_()
        with limited(90 * KB) if enabled else contextlib.nullcontext():
            total = torch.zeros((), dtype=torch.float64)
            for part in saved(x * 3):
                total = total + (part * part).sum()
            del part
            model = model_of(perceptron)
            (total + model(batch()).sum()).backward()
            del total
        results.append([x.grad, *gradients(model)])
    assert same(*results)


def what_is_in_use_stays() -> None:
    """Moving it would free nothing. When the program has dropped it, it goes."""
    with lms.torch.enable(64 * KB, min_size=1):
        x = batch().requires_grad_()
        held = [x * 1]
        for _ in range(9):
            held.append(held[-1] * held[-1])
        stats = lms.torch.stats()
        assert stats.moved_out == 0 and stats.peak_over > 64 * KB, stats
        last = held.pop()
        held.clear()
        result = last * last
        stats = lms.torch.stats()
        assert stats.saved <= 64 * KB and stats.moved_out >= 5 * 16384, stats
        del last
        result.sum().backward()
        with torch.no_grad():
            wanted = 2.0**10 * batch().double() ** (2**10 - 1)
        assert torch.allclose(
            x.grad.double().nan_to_num(posinf=0, neginf=0),
            wanted.float().double().nan_to_num(posinf=0, neginf=0),
            rtol=1e-3,
        )
        del result
        nothing_is_left()


def what_is_saved_last_goes_last() -> None:
    """Also if it was saved before: the backward pass needs it soon."""
    leaf = torch.ones(2000, requires_grad=True)
    with lms.torch.enable(12_500, min_size=1):
        twice = leaf * 1
        results = [twice.sin()]
        results.append((leaf[:1000] * 1).sin())
        results.append(twice.cos())
        del twice
        results.append((leaf[:1000] * 2).sin())
        stats = lms.torch.stats()
        assert (stats.moved_out, stats.saved, len(results)) == (4000, 12_000, 4), stats


def changes_in_place_are_found() -> None:
    """As without hooks: of what was on the device then, was moved since, or is never moved."""
    for kind in ("result", "input", "leaf", "moved"):
        for enabled in (False, True):
            with lms.torch.enable(40 * KB, min_size=1) if enabled else contextlib.nullcontext():
                x = batch().requires_grad_()
                y = x * 1 if kind != "leaf" else x
                total = (y.exp() if kind == "result" else y.sin()).sum()
                if kind == "result":
                    y = x.exp()
                    total = (y * 2).sum()
                with torch.no_grad():
                    y.add_(1)
                if kind == "moved":
                    del y
                    step(model_of(perceptron))
                refused(RuntimeError, "modified by an inplace operation", total.backward)
                del total
                y = None
                if enabled:
                    nothing_is_left()
                    assert (lms.torch.stats().moved_out > 0) == (kind == "moved"), kind


def small_tensors_stay() -> None:
    with lms.torch.enable(0, min_size="1MB"):
        step(model_of(perceptron))
        stats = lms.torch.stats()
        assert stats.moved_out == 0 and stats.peak_saved == stats.peak_kept > 0, stats


def the_host_has_a_limit() -> None:
    with lms.torch.enable(100 * KB, min_size=1, host_limit="64KiB"):
        refused(lms.HostMemoryError, "65.54 KB (host_limit) are in use", step, model_of(perceptron))
        nothing_is_left()
        assert lms.torch.stats().peak_host <= 65536
    wanted, model = model_of(perceptron), model_of(perceptron)
    step(wanted)
    with limited(host_limit="1MiB"):
        step(model)
    assert same(gradients(wanted), gradients(model))


def switching() -> None:
    refused(TypeError, "limit is None", lms.torch.enable, None)
    refused(ValueError, "limit is '12XB'", lms.torch.enable, "12XB")
    refused(ValueError, "limit is 1.5", lms.torch.enable, 1.5)
    refused(ValueError, "limit is -1", lms.torch.enable, -1)
    assert not lms.torch.enabled()
    support = lms.torch.enable(0.5)
    assert abs(lms.torch.stats().limit - lms._sizes.machine_memory() / 2) < 2
    refused(lms.LmsError, "enabled already", lms.torch.enable, "1GB")
    lms.torch.disable()
    assert not support.enabled and torch._C._autograd._top_saved_tensors_default_hooks(False) is None
    with lms.torch.enable(0, min_size=1), torch.autograd.graph.save_on_cpu():
        lms.torch.disable()
        step(model_of(perceptron))
    step(model_of(perceptron))
    assert lms.torch.stats().peak_kept == 0
    # what was saved before comes back afterwards
    wanted, model = model_of(perceptron), model_of(perceptron)
    for each, enabled in ((wanted, False), (model, True)):
        torch.manual_seed(5)
        with lms.torch.enable(0, min_size=1) if enabled else contextlib.nullcontext():
            loss = each(batch()).sum()
        loss.backward()
    del loss
    assert same(gradients(wanted), gradients(model))
    nothing_is_left()
    # torch's stack of hooks may still have some that do nothing
    while torch._C._autograd._top_saved_tensors_default_hooks(False) is not None:
        torch._C._autograd._pop_saved_tensors_default_hooks()


def a_new_limit() -> None:
    with lms.torch.enable("1GB", min_size=1) as support:
        step(model_of(perceptron))
        assert lms.torch.stats().moved_out == 0
        support.limit = 100 * KB
        lms.torch.reset_stats()
        step(model_of(perceptron))
        stats = lms.torch.stats()
        assert stats.limit == 100 * KB >= stats.peak_saved and stats.moved_out > 0, stats


def threads() -> None:
    """Backward passes of two graphs at once, in threads of their own, beside Python's collector."""
    wanted = [model_of(perceptron) for _ in range(2)]
    models = [model_of(perceptron) for _ in range(2)]
    for seed, model in enumerate(wanted):
        step(model, seed)
    gc.set_threshold(20, 2, 2)
    with limited():
        losses = []
        for seed, model in enumerate(models):
            torch.manual_seed(3 + seed)
            cycle: list[object] = [model(batch(seed)).square().mean()]
            cycle.append(cycle)
            losses.append(cycle)
        backwards = [threading.Thread(target=loss[0].backward) for loss in losses]
        for thread in backwards:
            thread.start()
        for thread in backwards:
            thread.join(60)
            assert not thread.is_alive()
        losses.clear()
        del cycle, backwards
    gc.set_threshold(700, 10, 10)
    assert all(same(gradients(a), gradients(b)) for a, b in zip(wanted, models, strict=True))


def compiled() -> None:
    """What a compiled function saves is moved as well; it saves less."""
    results = []
    for enabled in (False, True):
        torch.compiler.reset()
        model = model_of(perceptron)
        with limited(60 * KB) if enabled else contextlib.nullcontext():
            call = [torch.compile(block, backend="aot_eager") for block in model]
            torch.manual_seed(2)
            x = batch()
            for block in call:
                x = block(x)
            x.square().mean().backward()
            del x, call
        results.append(gradients(model))
    assert same(*results)


def transforms() -> None:
    """torch.func refuses hooks by itself."""
    with lms.torch.enable(0):
        refused(RuntimeError, "saved tensor hooks", torch.func.grad(lambda w: (w**2).sum()), torch.ones(3))


def names_of_wml_ce() -> None:
    lms.torch.install_compat()
    torch.cuda.set_limit_lms(100 * KB)
    torch.cuda.set_size_lms(1)
    assert not torch.cuda.get_enabled_lms()
    torch.cuda.set_enabled_lms(True)
    assert torch.cuda.get_enabled_lms() and torch.cuda.get_limit_lms() == 100 * KB
    step(model_of(perceptron))
    stats = lms.torch.stats()
    assert stats.peak_saved <= 100 * KB and stats.moved_out > 0, stats
    torch.cuda.set_limit_lms(80 * KB)
    lms.torch.reset_stats()
    step(model_of(perceptron))
    assert lms.torch.stats().peak_saved <= 80 * KB
    torch.cuda.set_enabled_lms(False)
    assert not lms.torch.enabled()


def advice() -> None:
    """Is what a step then keeps."""
    for make in (perceptron, convolutions, attention):
        model = model_of(make)
        told = lms.torch.advise(model, batch(), loss=lambda output: output.square().mean())
        with lms.torch.enable("1GB"):
            step(model)
            stats = lms.torch.stats()
        assert (told.saved, told.largest) == (stats.peak_kept, stats.largest), (make, told, stats)
        parameters = sum(parameter.nbytes for parameter in model.parameters())
        assert told.parameters == told.gradients == parameters
        assert told.buffers == sum(buffer.nbytes for buffer in model.buffers())
    with torch.device("meta"):
        huge = nn.Sequential(*[nn.Linear(50_000, 50_000, bias=False) for _ in range(4)])
        told = lms.torch.advise(huge, torch.empty(1000, 50_000))
    assert told.parameters == 4 * 50_000**2 * 4 and told.saved == 4 * 1000 * 50_000 * 4, told
    refused(ValueError, "are not enough", told.limit, "80GB")
    assert told.limit("200GB") == 200 * 10**9 - 4 * 40 * 10**9 - 4 * 200 * 10**6 - 20 * 10**9
    assert "saved for backward" in str(told) and "800.00 MB" in str(told), str(told)


run(
    *(gradients_are_the_same, as_little_as_possible, weights_after_steps, autocast, checkpoints),
    *(second_derivatives, graphs_that_are_kept, saved_tensors_that_change, exceptions, without_gradients),
    *(parameters_are_not_counted, storages_are_counted_once, views_come_back, what_is_in_use_stays),
    what_is_saved_last_goes_last,
    *(changes_in_place_are_found, small_tensors_stay, the_host_has_a_limit, switching, a_new_limit, threads),
    *(compiled, transforms, names_of_wml_ce, advice),
)
