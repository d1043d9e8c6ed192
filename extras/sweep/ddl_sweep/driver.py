"""Runs the trials of a sweep on an engine, several at a time."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from .engines import Engine
from .errors import TrialLost
from .plan import Plan
from .progress import Progress
from .worker import Outcome

#: How often a trial may lose what runs it, before it counts as failed: it may be what kills its worker.
_LOSSES = 3


def drive(plan: Plan, engine: Engine, at_once: int | None, numbers: list[int], progress: Progress) -> None:
    """Runs these trials. An exception, such as that of Ctrl-C, ends those that run without a result."""
    losses: Counter[int] = Counter()
    waiting = list(reversed(numbers))
    running: dict[Future[Outcome], int] = {}
    pool: ThreadPoolExecutor | None = None
    try:
        width = engine.start(at_once)
        pool = ThreadPoolExecutor(width, thread_name_prefix="trial")
        while waiting or running:
            while waiting and len(running) < width:
                number = waiting.pop()
                task = plan.begin(number)
                running[pool.submit(engine.run, task)] = number
            done, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
            for future in done:
                number = running.pop(future)
                try:
                    outcome = future.result()
                except TrialLost as error:
                    losses[number] += 1
                    if losses[number] < _LOSSES:
                        progress.lost(number, str(error))
                        waiting.append(number)
                        continue
                    outcome = _given_up(plan, number, str(error))
                plan.end(outcome)
                progress.ended(outcome)
    except BaseException:
        engine.cancel()
        raise
    finally:
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
        engine.stop()


def _given_up(plan: Plan, number: int, why: str) -> dict[str, Any]:
    begun = plan.folder.begun_one(number) or {"params": {}}
    return {
        "number": number,
        "status": "failed",
        "params": begun["params"],
        "value": None,
        "metrics": {},
        "error": f"lost {_LOSSES} times what ran it, at last: {why}",
        "attempts": _LOSSES,
        "began": None,
        "seconds": 0.0,
        "host": "",
    }
