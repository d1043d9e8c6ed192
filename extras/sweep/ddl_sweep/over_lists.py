"""A function over lists of arguments, one run of Spark's for each: as in the tutorials for Spark clusters."""

from __future__ import annotations

import functools
import itertools
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .engines.spark import use_this_python
from .errors import SweepError

_LAST_LINES = 20


def grid(args_dict: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """The lists of all combinations, for launch(): each argument's list is as long as there are combinations.

    Example:
        >>> grid({"rate": [0.1, 0.01], "width": [16, 32]})
        {'rate': [0.1, 0.1, 0.01, 0.01], 'width': [16, 32, 16, 32]}
    """
    combined = list(itertools.product(*args_dict.values()))
    return {name: [values[index] for values in combined] for index, name in enumerate(args_dict)}


def launch(spark: Any, map_fun: Callable[..., Any], args_dict: Mapping[str, Sequence[Any]]) -> list[Any]:
    """Calls a function once for each position of some lists, every call in a task of Spark.

    Run i is `map_fun(learning_rate=args_dict["learning_rate"][i], …)`. No folder is written; run() keeps
    results, and has samplers, limits and more engines.

    Args:
        spark: A SparkSession.
        map_fun: The function. What it returns must be picklable.
        args_dict: The arguments' names, each with a list; all lists are equally long.

    Returns:
        What each run returned, in the order of the lists.

    Raises:
        SweepError: The lists differ in length, or runs failed; the text has their errors. The others ended
            before, and are in the error's attribute `values`, with None for failed ones.
    """
    lengths = {name: len(values) for name, values in args_dict.items()}
    if not lengths or len(set(lengths.values())) != 1 or 0 in lengths.values():
        raise SweepError(
            f"launch needs lists of equal length, at least one; given are {lengths}; sweep.grid(…) makes "
            "those of all combinations"
        )
    count = next(iter(lengths.values()))
    calls = [{name: values[index] for name, values in args_dict.items()} for index in range(count)]
    use_this_python(spark)
    answers = spark.sparkContext.parallelize(calls, count).map(functools.partial(_call, map_fun)).collect()
    failed = [f"run {index} {calls[index]}:\n{text}" for index, (ok, text) in enumerate(answers) if not ok]
    if failed:
        error = SweepError(f"{len(failed)} of {count} runs failed\n" + "\n".join(failed))
        error.values = [value if ok else None for ok, value in answers]
        raise error
    return [value for _, value in answers]


def _call(map_fun: Callable[..., Any], arguments: dict[str, Any]) -> tuple[bool, Any]:
    """An exception is a result: Spark would call again, up to four times."""
    try:
        return True, map_fun(**arguments)
    except Exception:
        return False, "\n".join(traceback.format_exc().splitlines()[-_LAST_LINES:])
