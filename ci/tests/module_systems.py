"""The two module systems, and shells that use them, for tests."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

LMOD = Path("/usr/share/lmod/lmod/libexec")
# What the module systems remember for themselves, in names of their own.
_OWN = ("__LMOD_", "_ModuleTable", "LMOD_", "LOADEDMODULES", "_LMFILES_", "__MODULES_", "SHLVL", "_=")


@dataclass(frozen=True)
class ModuleSystem:
    """`command`: prints the shell code of a module command."""

    name: str
    command: str

    def shell(
        self, modulepath: Path, script: str, *, shell: str = "bash", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a script in which `module` works and `show NAME` writes the environment, for `environment`."""
        start = f"""\
module() {{ eval "$({self.command} {shell} "$@")"; }}
show() {{ printf '\\n<<%s\\n' "$1"; env -0 | tr '\\n\\0' '\\1\\n'; printf 'PS1=%s\\n>>\\n' "$PS1"; }}
PS1='> '
"""
        return subprocess.run(
            [shell, "-c", start + script],
            env={
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "HOME": "/nonexistent",
                "MODULEPATH": str(modulepath),
                "LMOD_IGNORE_CACHE": "yes",
                **(env or {}),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )


def environment(result: subprocess.CompletedProcess[str], name: str) -> dict[str, str]:
    """What `show NAME` wrote, without the module system's own variables."""
    assert f"<<{name}\n" in result.stdout, result.stdout + result.stderr
    lines = result.stdout.split(f"<<{name}\n", 1)[1].split("\n>>\n", 1)[0].splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith(_OWN))


def lmod() -> ModuleSystem:
    if not (LMOD / "lmod").exists():
        pytest.skip("Lmod is missing: apt-get install lmod")
    return ModuleSystem("lmod", str(LMOD / "lmod"))


def environment_modules(folder: Path) -> ModuleSystem:
    """Debian's package cannot be installed beside Lmod's, so it is fetched and unpacked."""
    tclsh = shutil.which("tclsh")
    if tclsh is None:
        pytest.skip("Environment Modules needs Tcl: apt-get install tcl")
    installed = next(Path("/usr/lib").glob("*/modulecmd.tcl"), None)
    if installed is None:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                fetched = subprocess.run(
                    ["apt-get", "-q", "download", "environment-modules"],
                    cwd=scratch,
                    capture_output=True,
                    text=True,
                    timeout=120,
                )
                message = fetched.stderr[-200:]
            except (OSError, subprocess.TimeoutExpired) as error:
                message = str(error)
            package = next(Path(scratch).glob("environment-modules_*.deb"), None)
            if package is None:
                pytest.skip(f"Environment Modules could not be fetched from Debian: {message.strip()}")
            subprocess.run(["dpkg-deb", "-x", str(package), str(folder)], check=True, timeout=60)
        installed = next(folder.glob("usr/lib/*/modulecmd.tcl"))
    return ModuleSystem("environment-modules", f"{tclsh} {installed}")
