"""Notices ranks whose weights drift apart although their gradients are averaged.

All ranks begin with the same weights and make the same updates, so the weights stay bitwise the same. They
do not where a rank's update was not averaged, its learning rate is another one, or a weight was set on one
rank alone. Nothing fails then, and each rank trains a model of its own. So DDL compares checksums of the
weights, and the learning rate, after the updates 1, 4, 16, 64, 256 and every 1024th, and those of the
smallest weight after every 8th. A comparison is one all-reduce of 56 bytes that goes on in the background
where the framework's calls allow it; the next update looks at its result. Only where it shows a difference
are weights exchanged, one at a time, to name the one that differs most.

The frameworks' integrations say when an update was made and how weights are read.
"""

from __future__ import annotations

import abc
import functools
import hashlib
import os
import struct
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ddl_drift import settings
from ddl_drift.ranks import Ranks as Ranks

#: Updates between comparisons of the smallest weight, and at most between those of all.
SPOT_DISTANCE = 8
LONGEST_DISTANCE = 1024
#: Of the smallest weight at most; a larger one is not looked at in between.
SPOT_ELEMENTS = 16384
#: An update may round differently on hosts of different kinds, by so many units in the last place.
ROUNDING_UNITS = 16

SWITCH = "DDL_DRIFT_CHECK"
_SHOWN = 3
_NO_RATE = float("nan")
#: Behind the name of a comparison, which an error shows if ranks make different calls.
_HINT = " (a rank without it skipped a step, or updates other parameters)"
#: Below the zero of a rank that does not take part.
_PRESENT = -1
#: Where in a comparison the digest of what is compared begins: behind presence, checksums and rate.
_OF_EXCLUSIONS = 5
_SAME_OPTIMIZER = "the same optimizer with the same settings (class, learning rate, weight decay, clipping)"
#: The distance of 1 to the next larger number.
_LAST_PLACE = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}


class Weights(abc.ABC):
    """The weights that an update changes, alike in number and order on all ranks.

    Args:
        variables: The framework's objects, which whoever updates them keeps.
        names: Of each.
        sizes: Elements of each.
        types: Element types, such as "float32".
    """

    def __init__(
        self, variables: Sequence[Any], names: Sequence[str], sizes: Sequence[int], types: Sequence[str]
    ) -> None:
        self._variables = [weakref.ref(variable) for variable in variables]
        self.names = names
        self.sizes = sizes
        self.types = types

    def variable(self, index: int) -> Any:
        """The object of one; None once it is gone."""
        return self._variables[index]()

    def compared(self) -> list[int]:
        """Returns those that were not declared to differ."""
        return [index for index in range(len(self.names)) if not is_excluded(self.variable(index))]

    def smallest(self, among: Sequence[int]) -> int:
        """Returns the one of the fewest elements, on all ranks the same."""
        return min(among, key=lambda index: (self.sizes[index], index))

    @abc.abstractmethod
    def checksums(self, chosen: Sequence[int]) -> Sequence[int]:
        """A `checksum` of each of the chosen ones, or a function of as many bits of the values."""

    @abc.abstractmethod
    def read(self, index: int) -> np.ndarray[Any, Any]:
        """The values of one, which is of a floating-point type; a view is enough."""


def checksum(values: np.ndarray[Any, Any]) -> int:
    """The sum of the bits of an array in words of 8 bytes, modulo 2**64: as fast as memory is read."""
    data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    whole = data.size // 8 * 8
    total = int(np.add.reduce(data[:whole].view(np.uint64)))
    return (total + int.from_bytes(data[whole:].tobytes(), "little")) % 2**64


#: Counts them.
_exclusions = 0


def exclude(variables: Any) -> None:
    """Declares variables that may differ between the ranks, although an optimizer updates them.

    Args:
        variables: A variable of TensorFlow or Keras or a parameter of PyTorch, or several of them. What one
        rank declares holds for all.
    """
    global _exclusions
    for variable in (
        variables if isinstance(variables, Iterable) and not hasattr(variables, "shape") else [variables]
    ):
        for part in (variable, *_parts(variable)):
            if not is_excluded(part):
                part._ddl_may_differ = True
                _exclusions += 1


def _parts(variable: Any) -> Iterator[Any]:
    """The variables of the framework behind one of Keras, of mixed precision, or of a strategy."""
    for name in ("value", "_variable", "_primary"):
        part = getattr(variable, name, None)
        if part is not None and not callable(part):
            yield part
            yield from _parts(part)


def is_excluded(variable: Any) -> bool:
    """Whether a variable was declared to differ."""
    return getattr(variable, "_ddl_may_differ", False) is True


@functools.cache
def _switched_on() -> bool:
    text = os.environ.get(SWITCH, "1")
    if text not in ("0", "1"):
        raise ValueError(f"{SWITCH} is {text!r}; it must be 0 or 1")
    return text == "1"


@functools.cache
def _say_off(reason: str) -> None:
    sys.stderr.write(f"[INFO] {reason}: DDL does not notice ranks whose weights drift apart\n")


def enabled(ranks: Ranks) -> bool:
    """Whether ranks are compared. Rank 0 says so once where they are not.

    Raises:
        ValueError: DDL_DRIFT_CHECK is neither 0 nor 1.
    """
    if ranks.size > 1 and not _switched_on() and ranks.rank == 0:
        _say_off(f"{SWITCH}=0")
    return ranks.size > 1 and _switched_on()


def _comparison(update: int) -> str:
    """What is compared after an update: "all" weights, the smallest ("spot"), or nothing ("")."""
    power_of_four = update & (update - 1) == 0 and update.bit_length() % 2 == 1
    if (power_of_four and update <= LONGEST_DISTANCE) or update % LONGEST_DISTANCE == 0:
        return "all"
    return "spot" if update % SPOT_DISTANCE == 0 else ""


def _digest(numbers: np.ndarray[Any, Any]) -> int:
    return int.from_bytes(hashlib.blake2b(numbers.tobytes(), digest_size=8).digest(), "little")


def _words(*values: float | int) -> list[int]:
    """The bits of floats and of integers of 64 bits, as integers of 32 bits."""
    packed = b"".join(struct.pack("<d" if isinstance(value, float) else "<Q", value) for value in values)
    return list(np.frombuffer(packed, np.int32))


def keras_learning_rate(optimizer: Any) -> float | None:
    """The present learning rate of an optimizer of Keras; None in a graph, and for a schedule."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    rate = getattr(inner, "_learning_rate", None)
    if rate is None:
        rate = (getattr(inner, "_hyper", None) or {}).get("learning_rate")
    value: Any = getattr(rate, "value", rate)
    try:
        return float(rate if callable(value) else value)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        return None


_watches: weakref.WeakKeyDictionary[Any, Watch] = weakref.WeakKeyDictionary()


def watch_of(owner: Any) -> Watch | None:
    """The watch of an optimizer, where it has one."""
    return _watches.get(owner)


def make_watch(owner: Any, ranks: Ranks, learning_rate: Callable[[Any], float | None]) -> Watch:
    """The watch of an optimizer, with which it is forgotten.

    Args:
        owner: The optimizer.
        ranks: Those that are compared.
        learning_rate: Returns the present one of an optimizer; None where it has none.
    """
    watch = _watches.get(owner)
    if watch is None:
        name = str(getattr(owner, "name", None) or getattr(owner, "_name", None) or type(owner).__name__)
        reference = weakref.ref(owner)

        def optimizer() -> Any:
            present: Any = reference()
            return present.find_optimizer() if hasattr(present, "find_optimizer") else present

        _watches[owner] = watch = Watch(name, ranks, lambda: learning_rate(reference()), optimizer)
    return watch


_all_watches: weakref.WeakSet[Watch] = weakref.WeakSet()
#: Whose comparison of a name is under way.
_under_way: weakref.WeakValueDictionary[str, Watch] = weakref.WeakValueDictionary()
_stopped = False


def stop(ranks: Ranks, reason: str) -> None:
    """Compares no more, on all ranks from the same update on. Rank 0 says why."""
    global _stopped
    if ranks.rank == 0 and enabled(ranks):
        _say_off(reason)
    _stopped = True


def restart() -> None:
    """Counts the updates of all optimizers anew, on all ranks before they make the next one.

    Ranks that have made different numbers of updates would compare after different ones, and wait for each
    other for ever.
    """
    for watch in list(_all_watches):
        watch.restart()


class Watch:
    """Compares the ranks' weights after some of the updates of one optimizer. Collective.

    Args:
        owner: The optimizer, for errors.
        ranks: Those that are compared.
        learning_rate: Returns the present one; None where it has none.
        optimizer: Returns it, of whose settings an error tells; None where there is none.
    """

    def __init__(
        self,
        owner: str,
        ranks: Ranks,
        learning_rate: Callable[[], float | None] = lambda: None,
        optimizer: Callable[[], Any] = lambda: None,
    ) -> None:
        self._owner = owner
        self._ranks = ranks
        self._learning_rate = learning_rate
        self._optimizer = optimizer
        self._weights: Weights | None = None
        self._identity: object = None
        #: Those that are compared, and the smallest of them, unless it is large.
        self._compared: list[int] = []
        self._spot: list[int] = []
        #: What other ranks have excluded.
        self._excluded_elsewhere: set[int] = set()
        #: How many exclusions they were chosen after.
        self._exclusions = -1
        self._updates = 0
        #: Before `restart`, after which ranks may have made different numbers of them.
        self._updates_before = 0
        #: The comparison that is under way, and its name.
        self._result: Callable[[], np.ndarray[Any, Any]] | None = None
        self._name = ""
        self._rounds = False
        _all_watches.add(self)

    def takes(self, identity: object) -> bool:
        """Whether the weights of this identity are not yet those that are compared."""
        if self._identity == identity:
            return False
        self._identity = identity
        return True

    def watch(self, weights: Weights) -> None:
        """Compares these weights from now on."""
        self._weights = weights
        self._excluded_elsewhere.clear()
        self._exclusions = -1

    def updated(self) -> None:
        """Called after each update, on all ranks.

        Raises:
            Exception: That of the ranks, on all of them, when the weights or learning rates differed at an
            earlier update.
        """
        if _stopped:
            return
        self._updates += 1
        self.settle()
        kind = _comparison(self._updates)
        if kind and self._weights is not None:
            self._start(kind)

    def settle(self) -> None:
        """Looks at the result of a comparison that is under way. Raises as `updated`."""
        result, self._result = self._result, None
        if result is None:
            return
        del _under_way[self._name]
        highest = result()
        half = len(highest) // 2
        if highest[0] != _PRESENT:
            return  # A rank takes part with zeros: it has no more batches (Horovod's join).
        differs = highest[:half] != ~highest[half:]
        if differs.any():
            self._check_same_weights()
        if differs[_OF_EXCLUSIONS:].any():
            self._share_exclusions()
        elif differs.any():
            self._explain()

    def restart(self) -> None:
        """Counts the updates anew. Looks at the comparison that is under way; raises as `updated`."""
        self.settle()
        self._updates_before += self._updates
        self._updates = 0

    def finish(self) -> None:
        """Compares all weights now, at the end of an epoch. Collective; raises as `updated`."""
        self.settle()
        if self._weights is not None:
            self._start("all")
            self.settle()

    def _start(self, kind: str) -> None:
        assert self._weights is not None
        self._choose(self._weights)
        chosen = self._compared if kind == "all" else [] if self._rounds else self._spot
        sums = np.array(list(self._weights.checksums(chosen)), np.uint64)
        # With nothing to compare each rank trains a model of its own, with a rate of its own.
        rate = self._rate() if self._compared else _NO_RATE
        mine = np.array([_PRESENT, *_words(_digest(sums), rate, _digest(np.array(self._compared)))], np.int32)
        # Equal where the highest is the lowest, which is the complement of the highest complement.
        # Without what may differ between the ranks, such as the optimizer's class. Of a name only one can be
        # under way.
        self._name = f"comparison of weights after update {self._updates}{_HINT}"
        other = _under_way.get(self._name)
        if other is not None:
            other.settle()
        _under_way[self._name] = self
        self._result = self._ranks.start_maximum(np.concatenate([mine, ~mine]), self._name)

    def _choose(self, weights: Weights) -> None:
        if self._exclusions != _exclusions:
            self._exclusions = _exclusions
            self._compared = [i for i in weights.compared() if i not in self._excluded_elsewhere]
            small = [index for index in self._compared if weights.sizes[index] <= SPOT_ELEMENTS]
            self._spot = [weights.smallest(small)] if small else []

    def _share_exclusions(self) -> None:
        """What one rank excludes, such as weights that it alone has updated, is compared by none."""
        assert self._weights is not None
        mine = np.ones(len(self._weights.names), np.int64)
        mine[self._compared] = 0
        excluded = self._ranks.gather(mine, "exclusions from the comparison of weights").any(axis=0)
        self._excluded_elsewhere = set(np.flatnonzero(excluded).tolist())
        self._exclusions = -1

    def _rate(self) -> float:
        rate = self._learning_rate()
        return _NO_RATE if rate is None else float(rate)

    def _explain(self) -> None:
        assert self._weights is not None
        names = self._weights.names
        mine = np.array(list(self._weights.checksums(self._compared)), np.uint64).view(np.int64)
        sums = self._ranks.gather(mine, "checksums of the weights")
        rates = self._ranks.gather(np.array([self._rate()]), "learning rates")[:, 0]
        apart_at = (sums != sums[0]).any(axis=0)
        differing = [index for index, apart in zip(self._compared, apart_at, strict=True) if apart]
        apart = [distance for index in differing if (distance := self._distance(index)) is not None]
        same_rate = len({struct.pack("<d", rate) for rate in rates.tolist()}) == 1
        if apart or not same_rate:
            optimizer = self._optimizer()
            group_rates = settings.learning_rates(optimizer)
            if (
                not group_rates
                and np.isnan(self._rate())
                and (rate := keras_learning_rate(optimizer)) is not None
            ):
                group_rates = {"learning rate": f"{rate:g}"}
            of_groups = self._differences(group_rates, "known learning rates")
            others = self._differences(settings.describe(optimizer), "settings of the optimizer")
            if not same_rate and not of_groups:
                other = next(rank for rank, rate in enumerate(rates) if repr(rate) != repr(rates[0]))
                of_groups = [f"learning rate {rates[0]:g} on rank 0, {rates[other]:g} on rank {other}"]
            raise self._ranks.error(self._error(sorted(apart, reverse=True), of_groups, others))
        if differing and not self._rounds:
            self._rounds = True
            if self._ranks.rank == 0:
                sys.stderr.write(
                    f"[WARN] the weights of the ranks differ by rounding, {names[differing[0]]} the first, "
                    f"in {self._owner}: hosts of different kinds round differently; only larger differences "
                    "are errors\n"
                )

    def _check_same_weights(self) -> None:
        """Raises where the ranks do not update the same weights. Equal ones may have other names."""
        assert self._weights is not None
        names, sizes = self._weights.names, self._weights.sizes
        kinds = self._ranks.gather(
            np.array([len(sizes), _digest(np.array(sizes)) >> 1], np.int64), "sizes of the weights"
        )
        if (kinds == kinds[0]).all():
            return
        mine = {name.replace("\t", " "): f"{size} elements" for name, size in zip(names, sizes, strict=True)}
        other, differences = settings.differences(self._ranks, mine, "names of the weights", "not updated")
        listing = "; ".join(
            f"{name}: {value} on rank 0, {other_value} on rank {other}"
            for name, value, other_value in differences[:_SHOWN]
        )
        more = f"; and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
        raise self._ranks.error(
            f"[ERROR DDL-1-7] the ranks have drifted apart: they update different weights: "
            f"{listing or 'their number or order differs'}{more}; found after update {self._updates} of "
            f"{self._owner}; give the optimizer the same weights on all ranks, and freeze a layer on all of "
            f"them; {SWITCH}=0 switches the comparison off"
        )

    def _differences(self, mine: dict[str, str], title: str) -> list[str]:
        """The settings in which ranks differ, as an error shows them. Collective."""
        other, differences = settings.differences(self._ranks, mine, title)
        # Another class has other settings.
        differences = [each for each in differences if each[0] == settings.KIND] or differences
        return [
            f"{name} {value} on rank 0, {other_value} on rank {other}"
            for name, value, other_value in differences[:_SHOWN]
        ]

    def _distance(self, index: int) -> tuple[float, str, int] | None:
        """How far the ranks are from rank 0 in a weight: the largest difference, its name, the rank.

        None where it is that of rounding.
        """
        assert self._weights is not None
        name, last_place = self._weights.names[index], _LAST_PLACE.get(self._weights.types[index])
        if last_place is None:
            return (float("inf"), name, 1)
        values = self._weights.read(index)
        values = np.asarray(values, np.float64 if values.dtype.itemsize == 8 else np.float32)
        root = self._ranks.broadcast(values, f"values of weight {index}")
        with np.errstate(invalid="ignore"):
            difference = float(np.max(np.abs(values - root), initial=0.0))
            scale = float(np.max(np.abs(root), initial=0.0))
        same_nans = bool((np.isnan(values) == np.isnan(root)).all())
        if np.isnan(difference):
            difference = float(np.nanmax(np.abs(values - root), initial=0.0)) if same_nans else float("inf")
        differences = self._ranks.gather(np.array([difference, scale]), f"difference of weight {index}")
        rank = int(np.argmax(differences[:, 0]))
        largest = float(differences[rank, 0])
        updates = min(self._updates_before + self._updates, LONGEST_DISTANCE)
        allowed = ROUNDING_UNITS * last_place * updates * float(differences[0, 1])
        return None if largest <= allowed else (largest, name, rank)

    def _error(
        self, apart: Sequence[tuple[float, str, int]], rates: Sequence[str], others: Sequence[str]
    ) -> str:
        parts = []
        if apart:
            listing = "; ".join(
                f"{name} by up to {distance:.3g} (rank {rank} against rank 0)"
                for distance, name, rank in apart[:_SHOWN]
            )
            more = f"; and {len(apart) - _SHOWN} more" if len(apart) > _SHOWN else ""
            parts.append(f"weights differ, which are to be the same: {listing}{more}")
        parts += [*rates, *others]
        return (
            f"[ERROR DDL-1-7] the ranks have drifted apart: {'; '.join(parts)}; found after update "
            f"{self._updates} of {self._owner}; {self._remedy(bool(rates), bool(others))}; weights that may "
            f"differ: {self._ranks.exclusion}; {SWITCH}=0 switches the comparison off"
        )

    def _remedy(self, other_rates: bool, other_settings: bool) -> str:
        if other_rates and not other_settings:
            return f"set the same learning rate on all ranks; {self._ranks.same_figures}"
        if other_settings:
            return f"give all ranks {_SAME_OPTIMIZER}"
        if self._updates <= 3 and self._updates_before:
            return (
                "after hvd.join, broadcast the weights and the optimizer's state of the rank that it returns"
            )
        if self._updates <= 3:
            return (
                f"give all ranks the same weights before the first update and {_SAME_OPTIMIZER}, and have an "
                "optimizer make the update whose gradients are averaged on all ranks"
            )
        return (
            "look for a weight that is set on one rank alone (a checkpoint, an assignment), for an update "
            f"whose gradients are not averaged, and give all ranks {_SAME_OPTIMIZER}"
        )
