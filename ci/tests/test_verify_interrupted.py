"""`channel verify` leaves no unpacked packages behind, however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from scratch_clone import Clone

# the command, except that each package waits at a gate once it is unpacked
_HELD = """
import sys, time
from pathlib import Path
from wmlce.channel.verify import paths
from wmlce.cli.main import main

gate, real = Path(sys.argv.pop(1)), paths.extract

def held(package, folder):
    real(package, folder)
    gate.with_name("unpacked").touch()
    limit = time.monotonic() + 60
    while not gate.exists() and time.monotonic() < limit:
        time.sleep(0.01)

paths.extract = held
main()
"""


def unpacked(clone: Clone) -> list[Path]:
    return list((clone.cache / "scratch").rglob("share/thing"))


def held(clone: Clone, gate: Path) -> subprocess.Popen[str]:
    """`channel verify` with a package unpacked that it has not searched yet."""
    mark = gate.with_name("unpacked")
    for path in (gate, mark):
        path.unlink(missing_ok=True)
    for answer in (clone.cache / "verified").glob("*"):
        answer.unlink()
    process = subprocess.Popen(
        [sys.executable, "-c", _HELD, str(gate), "--root", str(clone.root), "channel", "verify"],
        env=clone.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: [signal.signal(one, signal.SIG_DFL) for one in (signal.SIGINT, signal.SIGHUP)],
    )
    limit = time.monotonic() + 60
    while not mark.exists():
        assert process.poll() is None and time.monotonic() < limit, "no package was unpacked"
        time.sleep(0.01)
    assert len(unpacked(clone)) == 1
    return process


def test_nothing_unpacked_is_left(clone: Clone, tmp_path: Path) -> None:
    clone.recipe("thing")
    clone.built()
    gate = tmp_path / "gate"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        process = held(clone, gate)
        process.send_signal(number)
        gate.touch()
        _, said = process.communicate(timeout=60)
        assert process.returncode == 130 and "Traceback" not in said, said
        assert not list((clone.cache / "scratch").iterdir())
    process = held(clone, gate)
    process.kill()
    process.communicate(timeout=60)
    assert len(unpacked(clone)) == 1
    # the next run sweeps; what a run beside it has unpacked stays
    process = held(clone, gate)
    [own] = unpacked(clone)
    assert clone.run("channel", "verify").returncode == 0
    assert unpacked(clone) == [own]
    gate.touch()
    process.communicate(timeout=60)
    assert process.returncode == 0 and not list((clone.cache / "scratch").iterdir())
