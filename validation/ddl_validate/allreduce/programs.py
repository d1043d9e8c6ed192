"""Compiling the timing programs at first use."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..common.running import run_text
from .errors import PeerMissing

PACKAGE = Path(__file__).resolve().parents[1]
SOURCES = PACKAGE / "allreduce" / "programs"
_FLAGS = ("-O2", "-std=gnu11", "-Wall", "-Wextra")
_LIMIT_SECONDS = 120
_LOOP = (SOURCES / "timing.c", SOURCES / "binding.c")
DRAFT = "@draft@"


def default_cache() -> Path:
    """$DDL_BENCH_CACHE, or ddl-bench in the user's cache folder."""
    folder = os.environ.get("DDL_BENCH_CACHE")
    if folder:
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ddl-bench"


def _key(command: Sequence[str], sources: Sequence[Path], depends: Sequence[Path]) -> str:
    """Changes with the sources, the command, and the compiler wrapper and libraries it uses."""
    digest = hashlib.sha256("\0".join(command).encode())
    for source in [*sources, SOURCES / "timing.h"]:
        digest.update(source.read_bytes())
    for path in depends:
        status = path.stat()
        digest.update(f"{path.resolve()} {status.st_size} {status.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]


def compiled(name: str, compiler: Path, options: Sequence[str], depends: Sequence[Path], cache: Path) -> Path:
    """The program out of programs/NAME.c and the timing loop, compiled unless the cache holds it.

    compiler: mpicc of the MPI library. options: for what else is linked. depends: files whose change makes a
    new program. Raises PeerMissing with the compiler's words.
    """
    sources = [SOURCES / f"{name}.c", *_LOOP]
    command = [str(compiler), *_FLAGS, *map(str, sources), *options]
    return _compiled(name, [command], sources, [compiler, *depends], cache)


def compiled_cpp(
    name: str, compilers: tuple[Path, Path], options: Sequence[str], depends: Sequence[Path], cache: Path
) -> Path:
    """The same out of programs/NAME.cpp. compilers: mpicc and mpicxx of the MPI library."""
    c, cpp = compilers
    source = SOURCES / f"{name}.cpp"
    objects = [f"{DRAFT}.{part.stem}.o" for part in _LOOP]
    commands = [
        [str(c), *_FLAGS, "-c", str(part), "-o", target] for part, target in zip(_LOOP, objects, strict=True)
    ]
    commands.append([str(cpp), "-O2", "-std=gnu++17", "-Wall", "-Wextra", str(source), *objects, *options])
    return _compiled(name, commands, [source, *_LOOP], [c, cpp, *depends], cache)


def compiled_alone(name: str, compiler: Path, options: Sequence[str], cache: Path) -> Path:
    """The same for a program that is no peer's: programs/NAME.c by itself."""
    source = SOURCES / f"{name}.c"
    return _compiled(name, [[str(compiler), *_FLAGS, str(source), *options]], [source], [compiler], cache)


def _compiled(
    name: str,
    commands: Sequence[Sequence[str]],
    sources: Sequence[Path],
    depends: Sequence[Path],
    cache: Path,
) -> Path:
    """What the last command makes. DRAFT in their words stands for a path that nobody else uses."""
    missing = [str(path) for path in depends if not path.exists()]
    if missing:
        raise PeerMissing(f"{', '.join(missing)}: no such file")
    program = cache / f"{name}-{_key([word for command in commands for word in command], sources, depends)}"
    if program.exists():
        return program
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{name}.", dir=cache) as folder:
        draft = str(Path(folder) / "program")
        for arguments in [*commands[:-1], [*commands[-1], "-o", DRAFT]]:
            command = [word.replace(DRAFT, draft) for word in arguments]
            try:
                done = run_text(command, _LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                raise PeerMissing(f"{' '.join(command)}: not finished after {_LIMIT_SECONDS} s") from None
            if done.returncode:
                remedy = "\ninstall a C compiler (Debian package gcc)" if "not found" in done.stderr else ""
                raise PeerMissing(
                    f"its timing program does not compile: {' '.join(command)}: exit code {done.returncode}\n"
                    f"{done.stdout}{done.stderr}".rstrip()
                    + remedy
                )
        Path(draft).replace(program)
    return program
