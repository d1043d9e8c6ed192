"""The environment with torch in which torchrun is tested, and runs in it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from rank_processes import ALLOW_ROOT, QUICK, finish, own_environment, prefix_with, start

PROGRAMS = Path(__file__).parent / "programs"
LIMIT = 120.0


@dataclass
class Run:
    """How a run ended."""

    code: int
    out: str
    err: str

    def lines(self, start: str) -> list[str]:
        """The rest of every line of standard output that starts with `start`, sorted."""
        return sorted(line[len(start) :] for line in self.out.splitlines() if line.startswith(start))


class Ranks:
    """Runs programs of one environment; nothing of a run is left when it has ended."""

    def __init__(self, prefix: Path, folder: Path) -> None:
        self.prefix, self.folder = prefix, folder
        self.torchrun = str(prefix / "bin/torchrun")
        self.python = str(prefix / "bin/python3")

    def environment(self, **more: str) -> dict[str, str]:
        own = {"TMPDIR": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        return {**own_environment(), **ALLOW_ROOT, **QUICK, **own, **more}

    def start(self, words: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[str]:
        return start(words, env, folder=self.folder)

    def finish(self, child: subprocess.Popen[str], limit: float = LIMIT) -> Run:
        # A process that is left holds the pipes open, so this waits for it too.
        out, err = finish(child, limit)
        return Run(child.returncode, out, err)

    def __call__(self, *words: str, **more: str) -> Run:
        return self.finish(self.start(words, self.environment(**more)))

    def by_hand(self, size: int, port: int, program: str, *arguments: str, **more: str) -> list[Run]:
        """Ranks with torch's variables, but no torchrun that watches them."""
        variables = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **more}
        ranks = [
            self.start(
                [self.python, str(PROGRAMS / program), *arguments],
                self.environment(**variables, RANK=str(rank)),
            )
            for rank in range(size)
        ]
        return [self.finish(rank) for rank in ranks]

    def servers(self) -> list[str]:
        """What is left of the servers: processes that still live, and folders."""
        left = [path.name for path in self.folder.glob("ddl-bootstrap.*")]
        for status in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = status.read_bytes().split(b"\0")
                environment = status.with_name("environ").read_bytes()
            except OSError:
                continue
            mine = f"TMPDIR={self.folder}".encode() in environment.split(b"\0")
            if words[0].endswith(b"/ddl-bootstrap") and mine:
                left.append(status.parent.name)
        return left

    def await_no_servers(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self.servers():
            assert time.monotonic() < end, self.servers()
            time.sleep(0.05)


@pytest.fixture(scope="session")
def torch_prefix() -> Path:
    prefix = prefix_with("bin/torchrun", "ddl-torchrun", "ddl", "mpi4py", "pytorch")
    programs = list(prefix.glob("lib/python3*/site-packages/ddl/bootstrap/ddl-bootstrap"))
    assert programs, f"the DDL in {prefix} was built without DDL_BUILD_BOOTSTRAP"
    return prefix


@pytest.fixture
def ranks(torch_prefix: Path, tmp_path: Path) -> Ranks:
    return Ranks(torch_prefix, tmp_path)
