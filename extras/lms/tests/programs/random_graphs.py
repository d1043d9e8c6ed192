"""Reads graphs of operations, one a line, and answers what their gradients are with and without moving."""

import gc
import json
import sys
from typing import Any

import lms.torch
import torch
from torch.utils.checkpoint import checkpoint

ONE = {
    "exp": lambda x: (x / 4).exp(),
    "sin": torch.sin,
    "square": lambda x: x * x,
    "softmax": lambda x: x.softmax(-1),
    "transpose": lambda x: x.t(),
    "half": lambda x: x[:, : x.shape[1] // 2].repeat(1, 2),
    "expand": lambda x: x[:1].expand(16, 16) * x,
    "bfloat16": lambda x: x.to(torch.bfloat16).tanh().float(),
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.3),
    "in_place": lambda x: (x * 1).relu_(),
    "checkpoint": lambda x: checkpoint(lambda y: y.sigmoid().sin(), x, use_reentrant=False),
}
TWO = {"add": torch.add, "multiply": torch.multiply, "matmul": lambda x, y: torch.tanh(x @ y / 4)}


def gradients(graph: dict[str, Any]) -> list[torch.Tensor]:
    torch.manual_seed(graph["seed"])
    leaves = [torch.randn(16, 16, requires_grad=True) for _ in range(2)]
    values: list[torch.Tensor | None] = [*leaves]
    for name, first, second, dropped in graph["operations"]:
        there = [value for value in values if value is not None]
        x, y = there[first % len(there)], there[second % len(there)]
        values.append(ONE[name](x) if name in ONE else TWO[name](x, y))
        if dropped and len(there) > 2:
            at = first % len(there)
            values[next(i for i, value in enumerate(values) if value is there[at])] = None
        del x, y, there
    loss = sum((value.sin().sum() for value in values if value is not None), torch.zeros(()))
    values.clear()
    given = torch.autograd.grad(
        loss, leaves, create_graph=graph["twice"], allow_unused=True, materialize_grads=True
    )
    if graph["twice"]:
        norm = sum((each.square().sum() for each in given), torch.zeros(()))
        if norm.requires_grad:
            given += torch.autograd.grad(norm, leaves, allow_unused=True, materialize_grads=True)
        del norm
    return [each.detach() for each in given]


for line in sys.stdin:
    graph = json.loads(line)
    wanted = gradients(graph)
    with lms.torch.enable(graph["limit"], min_size=1, prefetch=graph["prefetch"]):
        found = gradients(graph)
        gc.collect()
        stats = lms.torch.stats()
    equal = all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(wanted, found, strict=True))
    left = stats.saved + stats.kept + stats.host
    answer = {
        "equal": equal,
        "left": left,
        "out": stats.moved_out,
        "kept": stats.peak_kept,
        "in": stats.moved_in,
    }
    print(json.dumps(answer), flush=True)
