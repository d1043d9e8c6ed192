"""Programs for a newer C library, made to start on this one: with a compiler, the loader, and a stub."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from wmlce.images.symbol_versions import relax_glibc
from wmlce.util.errors import WmlceError
from wmlce.util.host import glibc_version

_MAIN = """\
#include <stdio.h>
long newer(const char*, char**, int) __asm__("{name}");
int main(void) {{ printf("%ld\\n", newer("42", 0, 10)); return 0; }}
"""


def _program(folder: Path, symbol: str) -> Path:
    """One that wants `symbol` of glibc 2.99. The linker sees a stub, which gets the C library's name then."""
    (folder / "stub.c").write_text(f"long {symbol}(const char* t, char** e, int b) {{ return 0; }}\n")
    (folder / "stub.map").write_text(f"GLIBC_2.99 {{ {symbol}; }};\n")
    (folder / "main.c").write_text(_MAIN.format(name=symbol))
    stub = ["gcc", "-shared", "-fPIC", "-Wl,-soname,stub.so.6", "-Wl,--version-script=stub.map"]
    for words in ([*stub, "-o", "stub.so", "stub.c"], ["gcc", "-o", "program", "main.c", "stub.so"]):
        subprocess.run(words, cwd=folder, check=True, timeout=60)
    program = folder / "program"
    program.write_bytes(program.read_bytes().replace(b"stub.so.6", b"libc.so.6"))
    return program


def test_new_names_are_pointed_to_the_old_ones(tmp_path: Path) -> None:
    program = _program(tmp_path, "__isoc23_strtol")
    refused = subprocess.run([str(program)], capture_output=True, text=True, timeout=20)
    assert refused.returncode != 0 and "GLIBC_2.99" in refused.stderr
    assert relax_glibc(program, glibc_version()) == ["__isoc23_strtol"]
    assert subprocess.check_output([str(program)], text=True, timeout=20) == "42\n"
    before = program.read_bytes()
    assert relax_glibc(program, glibc_version()) == [] and program.read_bytes() == before


def test_what_is_really_new_is_refused(tmp_path: Path) -> None:
    program = _program(tmp_path, "something_new")
    before = program.read_bytes()
    with pytest.raises(WmlceError, match=r"needs something_new of GLIBC_2\.99"):
        relax_glibc(program, glibc_version())
    assert program.read_bytes() == before
