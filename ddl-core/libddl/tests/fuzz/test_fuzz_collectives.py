"""Random calls on random layouts of hosts, against float64: cpp/fuzz_collectives.cpp with AddressSanitizer.

The time bounds how many worlds are tried, never what counts as right. Each day and each commit begins with
other worlds; those that have failed once are in seeds.txt. A failure names the shortest command that
repeats it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rank_processes import ALLOW_ROOT, PREFIX, QUICK, ROOT, finish, own_environment, start

pytestmark = pytest.mark.slow

_SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=0",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "PMIX_MCA_gds": "hash",
    "UCX_MEM_EVENTS": "no",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
#: Ranks of a job, and its share of the time. Worlds of fewer ranks are among them.
_JOBS = ((8, 0.65), (12, 0.35))
_HANG_S = 400.0
_SEEDS = Path(__file__).with_name("seeds.txt")


@dataclass(frozen=True)
class Fuzz:
    """Starts the program."""

    program: Path
    mpirun: Path

    def words(self, ranks: int, *arguments: object, more: tuple[str, ...] = ()) -> list[str]:
        """The command; addresses are not random, as AddressSanitizer may find its own taken otherwise."""
        mpirun = ["setarch", "-R", str(self.mpirun), *more, "-n", str(ranks)]
        mpirun += ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
        return [*mpirun, str(self.program), *map(str, arguments)]

    def __call__(self, words: list[str], seconds: float = 0) -> tuple[int, str]:
        """Its exit status and output; failed if it hangs."""
        environment = {**own_environment(), **ALLOW_ROOT, **QUICK, **_SANITIZERS}
        child = start(words, environment, one_stream=True)
        output, _ = finish(child, seconds + _HANG_S)
        return child.returncode, output

    def shown(self, words: list[str]) -> str:
        """For a shell."""
        return shlex.join(["env", *(f"{name}={value}" for name, value in _SANITIZERS.items()), *words])

    def shortest(self, ranks: int, words: list[str], output: str) -> str:
        """What repeats a failure: one episode of one world, the world, or all that came before it as well."""
        failed = re.search(r"FAILED seed (\d+)(?:.*\n +in episode (\d+))?", output)
        if failed is None:
            return self.shown(words)
        seed, episode = failed.groups()
        for arguments in ([seed, episode] if episode else [], [seed]):
            shorter = self.words(ranks, 0, *arguments)
            if arguments and self(shorter)[0] != 0:
                return self.shown(shorter)
        return self.shown(words)

    def check(self, ranks: int, *arguments: object, seconds: float = 0) -> str:
        """Runs it. Returns: what it printed."""
        words = self.words(ranks, *arguments)
        status, output = self(words, seconds)
        print(output[-4000:])
        if status != 0 or "passed: " not in output:
            found = output[max(output.find("FAILED") - 3000, 0) :][:9000]
            pytest.fail(f"{found}\nrepeat it by\n{self.shortest(ranks, words, output)}", pytrace=False)
        return output


@pytest.fixture(scope="module")
def fuzz() -> Fuzz:
    build = Path(os.environ.get("DDL_FUZZ_BUILD") or ROOT / "build/ddl-core-asan")
    program = build / "libddl/tests/fuzz_collectives"
    mpirun = Path(os.environ.get("DDL_TEST_MPIRUN") or PREFIX / "bin/mpirun")
    for path in (program, mpirun):
        if not os.access(path, os.X_OK):
            pytest.skip(f"{path} is missing: ci/test builds it; or set DDL_FUZZ_BUILD and DDL_TEST_MPIRUN")
    return Fuzz(program, mpirun)


def _fresh_seed() -> int:
    """Of the day and the commit."""
    asked = os.environ.get("DDL_FUZZ_SEED")
    if asked:
        return int(asked)
    git = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=60)
    return zlib.crc32((time.strftime("%Y-%m-%d") + git.stdout).encode()) * 10_000


def _kept() -> Iterator[tuple[str, ...]]:
    for line in _SEEDS.read_text().splitlines():
        words = line.partition("#")[0].split()
        if words:
            yield tuple(words)


def _random_worlds(fuzz: Fuzz, seconds: float) -> None:
    seed = _fresh_seed()
    for ranks, share in _JOBS:
        print(f"{ranks} ranks, worlds from seed {seed} on")
        output = fuzz.check(ranks, seconds * share, seed, seconds=seconds * share)
        done = re.search(r"passed: (\d+) worlds", output)
        assert done and int(done[1]) > 0, output
        seed += 5_000


def test_random_calls_on_random_layouts(fuzz: Fuzz) -> None:
    _random_worlds(fuzz, 45)


@pytest.mark.long
def test_random_calls_for_ten_minutes(fuzz: Fuzz) -> None:
    _random_worlds(fuzz, 600)


@pytest.mark.parametrize("words", list(_kept()), ids=" ".join)
def test_what_has_failed_before(fuzz: Fuzz, words: tuple[str, ...]) -> None:
    fuzz.check(int(words[0]), 0, *words[1:])


@pytest.mark.parametrize("ranks", [2, 4, 7])
def test_a_lost_rank_is_the_same_error_for_all_others(fuzz: Fuzz, ranks: int) -> None:
    seed = _fresh_seed() + ranks
    # The launcher leaves the others alone, who have something to say.
    words = fuzz.words(ranks, "lost", seed, more=("--continuous",))
    _, output = fuzz(words)
    said = re.findall(r"^lost: (.*)$", output, re.MULTILINE)
    if "FAILED" in output or len(said) != ranks - 1 or len(set(said)) != 1:
        pytest.fail(f"{output[-9000:]}\nrepeat it by\n{fuzz.shown(words)}", pytrace=False)
