"""Large Model Support in PyTorch: steps of a transformer, on a GPU whose memory they exceed.

Run it:  python torch_transformer.py --memory 0.1
which fails for lack of memory, as if the GPU had a tenth of what it has, then
         python torch_transformer.py --memory 0.1 --lms-limit 3GB

On a processor it shows the account alone, with a model that you make smaller: see --help.
"""

import argparse
import json
import os
import statistics
import time

import lms
import lms.torch
import torch
from torch import nn

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--layers", type=int, default=24)
parser.add_argument("--width", type=int, default=1024)
parser.add_argument("--length", type=int, default=512, help="tokens of a text")
parser.add_argument("--batch", type=int, default=16, help="texts of a step")
parser.add_argument("--steps", type=int, default=5, help="that are timed, after two that are not")
parser.add_argument("--memory", type=float, help="the part of the GPU's memory that may be used, 0 to 1")
parser.add_argument("--lms-limit", help="of saved tensors, for example 3GB; without it, nothing is moved")
parser.add_argument("--lms-min-size", default="1MB", help="smaller tensors stay on the device")
parser.add_argument("--lms-prefetch", type=int, default=2, help="tensors that are fetched ahead")
parser.add_argument("--unpinned", action="store_true", help="move to pageable memory of the host")
parser.add_argument("--deterministic", action="store_true", help="sums in the same order in every run")
parser.add_argument("--device", choices=("cpu", "gpu"), help="what computes; a GPU where there is one")
parser.add_argument("--json", action="store_true", help="print the figures as one line of JSON")
options = parser.parse_args()

device = torch.device("cuda" if options.device != "cpu" and torch.cuda.is_available() else "cpu")
if options.device == "gpu" and device.type == "cpu":
    parser.error("--device gpu: PyTorch sees no GPU here")
on_gpu = device.type == "cuda"
if options.memory is not None:
    if not on_gpu or not 0 < options.memory <= 1:
        parser.error(f"--memory {options.memory:g}: needs a GPU, and is more than 0 and at most 1")
    torch.cuda.set_per_process_memory_fraction(options.memory)
if options.deterministic:  # then the losses show that Large Model Support changes no bit
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)
torch.manual_seed(1)


class Block(nn.Module):
    """Attention and a perceptron, each beside a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, max(width // 64, 1), batch_first=True)
        self.inside = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normal = self.before(x)
        x = x + self.attention(normal, normal, normal, need_weights=False)[0]
        return x + self.inside(self.between(x))


VOCABULARY = 1000
with device:
    network = nn.Sequential(
        nn.Embedding(VOCABULARY, options.width),
        *[Block(options.width) for _ in range(options.layers)],
        nn.LayerNorm(options.width),
        nn.Linear(options.width, VOCABULARY),
    )
    tokens = torch.randint(VOCABULARY, (options.batch, options.length + 1))
optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
loss_of = nn.CrossEntropyLoss()


def step() -> float:
    """Its seconds, until all is computed."""
    start_time = time.perf_counter()
    optimizer.zero_grad()
    loss = loss_of(network(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    losses.append(loss.item())  # waits for the GPU
    if on_gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - start_time


losses: list[float] = []
# Without a limit it counts, and moves nothing.
lms.torch.enable(
    options.lms_limit or "1000TB",
    min_size=options.lms_min_size,
    prefetch=options.lms_prefetch,
    pinned=not options.unpinned,
    device=device.type,
)
for _ in range(2):
    step()  # memory is taken, and kernels are chosen
lms.torch.reset_stats()
seconds = statistics.median(step() for _ in range(options.steps))
stats = lms.torch.stats()
lms.torch.disable()

figures = {
    "device": torch.cuda.get_device_name() if on_gpu else "cpu",
    "seconds of a step": seconds,
    "peak of the GPU's memory": torch.cuda.max_memory_allocated() if on_gpu else None,
    "peak of saved tensors": stats.peak_saved,
    "the same without LMS": stats.peak_kept,
    "moved to the host in a step": stats.moved_out // options.steps,
    "tensors fetched early": stats.tensors_prefetched,
    "tensors fetched": stats.tensors_in,
    "losses": losses,
}
if options.json:
    print(json.dumps(figures))
else:
    for name, value in figures.items():
        is_bytes = isinstance(value, int) and "tensors fetched" not in name
        print(f"{name}: {lms.format_bytes(value) if is_bytes else value}")
