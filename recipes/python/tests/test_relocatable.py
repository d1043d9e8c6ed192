"""No path of the building machine is in the package; only glibc is loaded from outside the environment."""

import importlib
import os
import subprocess
import sys
import sysconfig
import unittest
from pathlib import Path

PREFIX = Path(os.environ["CONDA_PREFIX"])
GLIBC = {
    "@loader_name@",
    "libc.so.6",
    "libdl.so.2",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
    "libutil.so.1",
    "linux-vdso.so.1",
}
MODULES = """
    _bz2 _ctypes _curses _curses_panel _decimal _elementtree _hashlib _lzma _posixshmem _socket _sqlite3 _ssl
    _uuid _zoneinfo audioop fcntl grp mmap pyexpat readline resource select syslog termios zlib
"""


def libraries(path: Path) -> list[tuple[str, str]]:
    """(name, where it is found) of all that the dynamic linker loads for `path`."""
    text = subprocess.run(["ldd", path], check=True, capture_output=True, text=True, timeout=60).stdout
    found = []
    for line in text.splitlines():
        name, arrow, place = line.strip().partition(" => ")
        found.append((Path(name.split(" (")[0]).name, place.split(" (")[0] if arrow else ""))
    return found


class Libraries(unittest.TestCase):
    def test_only_glibc_from_outside(self) -> None:
        files = [PREFIX / "bin/python@python_series@", PREFIX / "lib/libpython@python_series@.so.1.0"]
        files += sorted((PREFIX / "lib/python@python_series@/lib-dynload").glob("*.so"))
        self.assertGreater(len(files), 50)
        for file in files:
            for name, place in libraries(file):
                if name not in GLIBC:
                    inside = os.path.realpath(place).startswith(os.path.realpath(PREFIX))
                    self.assertTrue(inside, f"{file} loads {name} from {place}")

    def test_modules_are_there(self) -> None:
        for name in MODULES.split():
            self.assertTrue(importlib.import_module(name))

    def test_prefix(self) -> None:
        self.assertEqual(os.path.realpath(sys.prefix), os.path.realpath(PREFIX))
        self.assertEqual(sysconfig.get_config_var("prefix"), sys.prefix)


class BuildFlags(unittest.TestCase):
    def test_sysconfig_names_generic_tools(self) -> None:
        self.assertEqual(sysconfig.get_config_var("CC").split()[0], "gcc")
        self.assertEqual(sysconfig.get_config_var("CXX").split()[0], "g++")
        recorded = importlib.import_module(sysconfig._get_sysconfigdata_name()).build_time_vars
        self.assertGreater(len(recorded), 500)
        for key, value in recorded.items():
            rest = str(value).replace(str(PREFIX), "")
            for word in ("build_env", "/work", "placehold", "prefix-map"):
                self.assertNotIn(word, rest, key)


if __name__ == "__main__":
    unittest.main()
