"""Disjoint data by rank."""

from __future__ import annotations

from typing import Any

from torch.utils.data import distributed

import ddl


class DistributedSampler(distributed.DistributedSampler):  # type: ignore[misc]
    """torch's DistributedSampler for DDL's ranks; works without a process group, and alone.

    Call set_epoch(n) before each epoch, or every epoch has the same order.
    """

    def __init__(self, dataset: Any, **options: Any) -> None:
        """Args: dataset and the options of torch's; num_replicas and rank are DDL's unless given."""
        options.setdefault("num_replicas", ddl.size())
        options.setdefault("rank", ddl.rank())
        super().__init__(dataset, **options)
