"""`python -m …probe.gpu_load SECONDS LEVEL`: ddl-gpu-check on this host, and DCGM's diagnosis if it is there.
At LEVEL 1 both are short.

Needs the standard library alone. Tells what both programs said; neither sees the job around it, so that
ddl-gpu-check starts ranks of its own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from . import outside
from .lines import tell

CHECKS = "driver,copies,ipc-copies,values,gpus,nccl"


def gpu_check(seconds: float, quick: bool) -> dict[str, Any]:
    """The document of ddl-gpu-check, or its error."""
    program = Path(sys.prefix) / "bin/ddl-gpu-check"
    with tempfile.TemporaryDirectory(prefix="gpu-load.") as folder:
        output = Path(folder) / "gpu.json"
        limit = max(10.0, seconds / 2)
        command = [str(program), "--only", CHECKS, "--limit", f"{limit:g}", "--json", str(output)]
        command += ["--quick"] if quick else []
        try:
            done = outside.run(command, seconds)
            if output.exists():
                report: dict[str, Any] = json.loads(output.read_text())
                return report
            return {"error": (done.stderr or done.stdout).strip()[-300:] or f"exit code {done.returncode}"}
        except subprocess.TimeoutExpired:
            return {"error": f"ddl-gpu-check did not end within {seconds:.0f} s"}
        except (OSError, ValueError) as error:
            return {"error": str(error)}


def dcgm(level: int, seconds: float) -> dict[str, Any] | None:
    """What `dcgmi diag` said as JSON, or its error; None where it is not installed."""
    program = shutil.which("dcgmi")
    if program is None:
        return None
    try:
        done = outside.run([program, "diag", "-r", str(level), "-j"], seconds)
        report = json.loads(done.stdout[done.stdout.index("{") :])
        return report if isinstance(report, dict) else {"error": "dcgmi diag -j printed no JSON object"}
    except subprocess.TimeoutExpired:
        return {"error": f"dcgmi diag -r {level} did not end within {seconds:.0f} s"}
    except (OSError, ValueError):
        return {"error": (done.stderr or done.stdout).strip()[-300:] or "dcgmi diag printed nothing"}


if __name__ == "__main__":
    share, level = float(sys.argv[1]) / 2, int(sys.argv[2])
    tell({"check": gpu_check(share, level == 1), "dcgm": dcgm(level, share)})
