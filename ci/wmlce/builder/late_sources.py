"""Fetching the sources of late builds beside the early ones: compiling does not wait for the network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

from wmlce.sources.model import LockedArtifact
from wmlce.sources.store import SourceLock
from wmlce.util import clients


class LateSources:
    """One fetch of all of them, in a thread; `future` ends with it, and has its error."""

    def __init__(
        self, lock: SourceLock, by_recipe: Mapping[str, Sequence[LockedArtifact]], say: Callable[[str], None]
    ) -> None:
        self._lock = lock
        self._by_recipe = by_recipe
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="fetch")
        by_digest = {item.file.sha256: item for items in by_recipe.values() for item in items}
        self.future: Future[object] = self._pool.submit(lock.fetch, list(by_digest.values()), say)

    def lacks(self, recipe: str) -> bool:
        """Is a source of this recipe not in the cache, yet or for good?"""
        return any(not self._lock.present(item) for item in self._by_recipe.get(recipe, ()))

    def stop(self) -> None:
        """End it, if it goes on; what has arrived is kept."""
        while not self.future.done():
            clients.end_all()
            wait([self.future], timeout=0.1)
        self._pool.shutdown()
