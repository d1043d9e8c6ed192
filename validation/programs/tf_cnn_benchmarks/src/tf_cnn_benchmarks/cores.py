"""How many threads a rank should use."""

import os


def threads(flag: int | None, local_size: int) -> int:
    """The value of a thread flag; 0 and None stand for the cores this process may use.

    A launcher that binds ranks to cores has already divided them: the affinity mask is the answer. Where it
    has not, the `local_size` ranks of a host share what the mask shows, or they would fight for every core.
    """
    if flag:
        return flag
    allowed = len(os.sched_getaffinity(0))
    bound = allowed < (os.cpu_count() or allowed)
    return allowed if bound else max(1, allowed // local_size)
