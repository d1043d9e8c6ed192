"""Runs the cases of a test program one after the other, so that one start of the ranks serves many."""

import sys
from collections.abc import Callable, Iterable

import torch.distributed as dist


def run(cases: Iterable[Callable[[], None]]) -> None:
    """Says of every case that it passed; ends the program's process group."""
    for case in cases:
        case()
        dist.barrier()
        sys.stdout.write(f"passed {case.__name__}\n")
        sys.stdout.flush()
    dist.destroy_process_group()


def refused(kind: type[Exception], words: str, call: Callable[[], object]) -> None:
    """Asserts that a call is refused with a text that has these words."""
    try:
        call()
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"accepted, but {words!r} was expected")
