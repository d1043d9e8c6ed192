"""Compiling the timing programs at first use."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .errors import PeerMissing

SOURCES = Path(__file__).resolve().parent / "programs"
_FLAGS = ("-O2", "-std=gnu11", "-Wall", "-Wextra")
_LIMIT_SECONDS = 120


def default_cache() -> Path:
    """$DDL_BENCH_CACHE, or ddl-bench in the user's cache folder."""
    given = os.environ.get("DDL_BENCH_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ddl-bench"


def _key(command: Sequence[str], sources: Sequence[Path], depends: Sequence[Path]) -> str:
    """Changes with the sources, the command, and the compiler wrapper and libraries it uses."""
    made = hashlib.sha256("\0".join(command).encode())
    for source in [*sources, SOURCES / "timing.h"]:
        made.update(source.read_bytes())
    for path in depends:
        status = path.stat()
        made.update(f"{path.resolve()} {status.st_size} {status.st_mtime_ns}".encode())
    return made.hexdigest()[:16]


def compiled(name: str, compiler: Path, options: Sequence[str], depends: Sequence[Path], cache: Path) -> Path:
    """The program out of programs/NAME.c and the timing loop, compiled unless the cache holds it.

    compiler: mpicc of the MPI library. options: for what else is linked. depends: files whose change makes a
    new program. Raises PeerMissing with the compiler's words.
    """
    sources = [SOURCES / f"{name}.c", SOURCES / "timing.c", SOURCES / "binding.c"]
    return _compiled(name, compiler, sources, options, depends, cache)


def compiled_alone(name: str, compiler: Path, options: Sequence[str], cache: Path) -> Path:
    """The same for a program that is no peer's: programs/NAME.c by itself."""
    return _compiled(name, compiler, [SOURCES / f"{name}.c"], options, [], cache)


def _compiled(
    name: str,
    compiler: Path,
    sources: Sequence[Path],
    options: Sequence[str],
    depends: Sequence[Path],
    cache: Path,
) -> Path:
    command = [str(compiler), *_FLAGS, *map(str, sources), *options]
    missing = [str(path) for path in [compiler, *depends] if not path.exists()]
    if missing:
        raise PeerMissing(f"{', '.join(missing)}: no such file")
    program = cache / f"{name}-{_key(command, sources, [compiler, *depends])}"
    if program.exists():
        return program
    cache.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(prefix=f"{name}.", dir=cache)
    os.close(handle)
    try:
        done = subprocess.run(
            [*command, "-o", draft], capture_output=True, text=True, timeout=_LIMIT_SECONDS, check=False
        )
        if done.returncode:
            raise PeerMissing(
                f"its timing program does not compile: {' '.join(command)}: exit code {done.returncode}\n"
                f"{done.stdout}{done.stderr}".rstrip()
                + ("" if "not found" not in done.stderr else "\ninstall a C compiler (Debian package gcc)")
            )
        Path(draft).chmod(0o755)
        Path(draft).replace(program)
    except subprocess.TimeoutExpired:
        raise PeerMissing(f"{' '.join(command)}: not finished after {_LIMIT_SECONDS} s") from None
    finally:
        Path(draft).unlink(missing_ok=True)
    return program
