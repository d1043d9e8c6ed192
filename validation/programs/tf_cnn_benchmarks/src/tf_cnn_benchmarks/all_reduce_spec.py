"""The grammar of --all_reduce_spec; what the algorithms do is in `local_all_reduce.py`.

nccl is known from job files. It is a ring over the devices, so where TensorFlow has no NCCL operators (as in
the build for CPUs) it stands for xring.

SPEC  = ALGORITHM[#SHARDS] { ":" LIMIT ":" ALGORITHM[#SHARDS] }
LIMIT = bytes, with k (1024) or m (1024 * 1024); tensors of at most that size take the algorithm before it
"""

from dataclasses import dataclass

from tf_cnn_benchmarks.errors import BenchmarkError, unknown

ALGORITHMS = ("pscpu", "psgpu", "xring")
STANDS_FOR = {"nccl": "xring"}
ELSEWHERE = {
    "nccl/xring": "is for several hosts",
    "pscpu/pscpu": "is for several hosts",
    "nccl/pscpu": "is for several hosts",
    "collective": "is for several hosts",
}


@dataclass(frozen=True)
class Range:
    """`algorithm` over `shards` pieces for tensors of at most `limit` bytes (None: any size)."""

    algorithm: str
    shards: int
    limit: int | None


def parse_spec(text: str) -> list[Range]:
    """The ranges in rising order, the last one without a limit; BenchmarkError says what is wrong."""
    parts = text.split(":")
    if len(parts) % 2 == 0:
        raise BenchmarkError(f"--all_reduce_spec='{text}' ends in a limit; an algorithm must follow it")
    ranges: list[Range] = []
    for algorithm_text, limit_text in zip(parts[0::2], [*parts[1::2], None], strict=True):
        algorithm, _, shards = algorithm_text.partition("#")
        if reason := ELSEWHERE.get(algorithm):
            raise BenchmarkError(
                f"--all_reduce_spec: {algorithm} {reason}; valid here: {', '.join(ALGORITHMS)}; "
                "between processes use --variable_update=ddl"
            )
        algorithm = STANDS_FOR.get(algorithm, algorithm)
        if algorithm not in ALGORITHMS:
            raise unknown("algorithm in --all_reduce_spec", algorithm, ALGORITHMS)
        if shards and not (shards.isdecimal() and int(shards) > 0):
            raise BenchmarkError(f"--all_reduce_spec: '#{shards}' is not a number; write {algorithm}#2")
        limit = None if limit_text is None else _bytes(limit_text)
        if limit is not None and ranges and limit <= (ranges[-1].limit or 0):
            raise BenchmarkError(f"--all_reduce_spec='{text}': the limits must rise, {limit_text} does not")
        ranges.append(Range(algorithm, int(shards or 1), limit))
    return ranges


def stands_for_nccl(text: str) -> str | None:
    """What a spec that asks for nccl becomes; None for a spec that does not."""
    parts = text.split(":")
    names = [part.partition("#")[0] for part in parts[0::2]]
    if not any(name in STANDS_FOR for name in names):
        return None
    parts[0::2] = [
        STANDS_FOR.get(name, name) + part[len(name) :] for name, part in zip(names, parts[0::2], strict=True)
    ]
    return ":".join(parts)


def _bytes(text: str) -> int:
    units = {"k": 1024, "m": 1024 * 1024}
    number, unit = (text[:-1], units[text[-1].lower()]) if text[-1:].lower() in units else (text, 1)
    if not number.isdecimal():
        raise BenchmarkError(f"--all_reduce_spec: '{text}' is not a limit in bytes; write 4096, 32k or 1m")
    return int(number) * unit
