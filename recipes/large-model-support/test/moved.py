"""Half of what autograd keeps goes to the host and comes back, and the gradients stay the same."""

import lms.torch
import torch


def gradients() -> list[torch.Tensor]:
    torch.manual_seed(1)
    layers = [layer for _ in range(8) for layer in (torch.nn.Linear(64, 64), torch.nn.GELU())]
    model = torch.nn.Sequential(*layers)
    model(torch.randn(128, 64)).square().sum().backward()
    return [parameter.grad for parameter in model.parameters()]


with lms.torch.enable("1GB"):
    wanted = gradients()
    whole = lms.torch.stats()
assert whole.moved_out == 0 and whole.peak_saved > 0, whole
with lms.torch.enable(whole.peak_saved // 2, min_size=1):
    found = gradients()
    half = lms.torch.stats()
assert all(map(torch.equal, found, wanted))
assert half.peak_saved <= whole.peak_saved // 2 and half.moved_in > 0, half
