from collections.abc import Sequence
from typing import Any

TORCH_VERSION: str

def create(rank: int, size: int, ranks: Sequence[int], timeout_seconds: float) -> Any: ...
def named_maximum(backend: Any, tensor: Any, name: str) -> Any: ...
