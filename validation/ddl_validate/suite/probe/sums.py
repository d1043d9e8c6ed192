"""Are DDL's sums right, the same on all ranks and each time, and does every host compute the same?

Sums are of whole numbers that every type holds exactly, whatever the order: numpy's, made by each rank for
itself in double precision, must be equal bit by bit. Sums of fractions have no such reference; they must be
the same on all ranks and each time. Where something is wrong, sums within groups of hosts tell which host's
part makes them so (bisection.py).
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from ..bisection import Group, Suspects, bisect
from .exact import is_wrong, judged, largest, whole_numbers
from .world import World, options

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_TYPES = ("float32", "float64", "bfloat16", "int64")
_SIZES = (1, 1000, 65_536, 300_007)
_MOST_TERMS = 1 << 27  # of a reference: elements and ranks
_FRACTIONS = 300_007
_ORDER = 192  # of the matrices
_GROUP_OPTIONS = "-timeout 60"  # a shape that was given for all ranks is none of a group


def _digest(values: NDArray[Any]) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()[:16]


class Sums:
    """The sums of this rank with others."""

    def __init__(self, world: World, repeats: int) -> None:
        import ml_dtypes
        import numpy as np

        self.np, self.world, self.repeats = np, world, repeats
        self.references: dict[tuple[int, int, int], NDArray[np.float64]] = {}
        self.types = {
            "float32": np.dtype(np.float32),
            "float64": np.dtype(np.float64),
            "bfloat16": np.dtype(ml_dtypes.bfloat16),
            "int64": np.dtype(np.int64),
        }

    def products(self) -> dict[str, Any]:
        """How many elements of products of integer matrices differ from integer arithmetic."""
        np = self.np
        factor = whole_numbers(1, _ORDER * _ORDER, 1, 7).reshape(_ORDER, _ORDER)
        right = whole_numbers(2, _ORDER * _ORDER, 1, 7).reshape(_ORDER, _ORDER)
        expected = np.einsum("ij,jk->ik", factor.astype(np.int64), right.astype(np.int64))
        wrong = 0
        for kind in (np.float32, np.float64):
            for _ in range(self.repeats):
                product = np.matmul(factor.astype(kind), right.astype(kind))
                wrong += int(np.count_nonzero(product != expected))
        return {"wrong": wrong}

    def among(self, group: Group | None) -> dict[str, Any]:
        """Sums among the ranks of `group`'s hosts (None: of all). All of these ranks call it. wrong: elements
        that differ from the reference, by type; digests: of the sums of fractions."""
        import ddl

        ranks = (
            list(range(self.world.size))
            if group is None
            else [
                host * self.world.each + number for host in sorted(group) for number in range(self.world.each)
            ]
        )
        comm = self.world.comm
        subset = comm.Create_group(comm.Get_group().Incl(ranks)) if group is not None else comm
        ddl.init(None if group is None else _GROUP_OPTIONS, comm=subset)
        wrong: Counter[str] = Counter()
        digests = []
        for _ in range(self.repeats):
            for name in _TYPES:
                for size in self._sizes(len(ranks)):
                    wrong[name] += self._wrong(ddl, ranks, name, size)
            digests.append(self._fractions(ddl))
        ddl.finalize()
        if group is not None:
            subset.Free()
        return {"wrong": {name: count for name, count in wrong.items() if count}, "digests": digests}

    def _sizes(self, ranks: int) -> list[int]:
        return [size for size in _SIZES if size * ranks <= _MOST_TERMS]

    def _wrong(self, ddl: Any, ranks: list[int], name: str, size: int) -> int:
        np, kind = self.np, self.types[name]
        count = len(ranks)
        most = largest(name, count)
        values = whole_numbers(ranks.index(self.world.rank), size, count, most).astype(kind)
        key = (count, size, most)
        if key not in self.references:
            self.references[key] = sum(
                (whole_numbers(number, size, count, most) for number in range(count)), np.zeros(size)
            )
        summed = ddl.allreduce(values, "sum")
        return int(np.count_nonzero(summed.astype(np.float64) != self.references[key]))

    def _fractions(self, ddl: Any) -> str:
        random = self.np.random.default_rng(self.world.rank)
        return _digest(ddl.allreduce(random.standard_normal(_FRACTIONS, dtype=self.np.float32), "sum"))


def _in_groups(world: World, sums: Sums, groups: list[Group]) -> list[bool] | None:
    """Rank 0 hands in the groups; all ranks take part. On rank 0: which of them were wrong."""
    announced: list[Group] = world.tell(groups)
    mine = next((group for group in announced if world.host in group), None)
    results = world.collect(None if mine is None else sums.among(mine))
    if results is None:
        return None
    each = world.each
    return [
        is_wrong(judged([results[host * each + number] for host in sorted(group) for number in range(each)]))
        for group in announced
    ]


def _suspects(world: World, sums: Sums) -> Suspects | None:
    """Rank 0 bisects, the others take part until it sends no more groups."""
    if world.rank:
        while _in_groups_or_end(world, sums):
            pass
        return None
    asking = bisect(range(world.hosts))
    try:
        groups = next(asking)
        while True:
            world.tell(True)
            groups = asking.send(_in_groups(world, sums, groups) or [])
    except StopIteration as stop:
        world.tell(False)
        suspects: Suspects = stop.value
        return suspects


def _in_groups_or_end(world: World, sums: Sums) -> bool:
    if not world.tell(None):
        return False
    _in_groups(world, sums, [])
    return True


def main(arguments: list[str] | None = None) -> int:
    os.environ["DDL_AUTO_INIT"] = "0"
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"):
        os.environ[name] = "1"
    parser = options(__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="how often each sum is made")
    settings = parser.parse_args(arguments)
    world = World(settings.ranks, settings.limit)
    sums = Sums(world, settings.repeats)
    products = world.collect(sums.products())
    results = world.collect(sums.among(None))
    verdict = judged(results) if results is not None else None
    wrong = world.tell(is_wrong(verdict) if verdict is not None else None)
    suspects = _suspects(world, sums) if wrong else None
    if products is None or verdict is None:
        return 0
    each = world.each
    world.print_result(
        {
            **verdict,
            "products": sorted({rank // each for rank, product in enumerate(products) if product["wrong"]}),
            "sums": settings.repeats * (len(_TYPES) * len(sums._sizes(world.size)) + 1),
            "culprits": suspects.culprits if suspects else [],
            "undecided": suspects.undecided if suspects else [],
            "rounds": suspects.rounds if suspects else 0,
        }
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
