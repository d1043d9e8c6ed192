"""What one TCP stream between two emulated hosts carries, to compare with the rates that bounds.py
assumes."""

from __future__ import annotations

import subprocess
import sys

from ..cluster import ClusterError
from .errors import BenchError
from .testbed import EmulatedTestbed

_SECONDS, _LIMIT = 2.0, 30.0
# The first half second fills the token buckets' credit and opens the window: it does not count.
_RECEIVE = """
import socket, time
server = socket.create_server(("", 5001)); server.settimeout(20); print("ready", flush=True)
peer, _ = server.accept(); peer.settimeout(20)
first = time.monotonic(); began, total = None, 0
while data := peer.recv(1 << 20):
    total += len(data)
    if began is None and time.monotonic() - first > 0.5: began, total = time.monotonic(), 0
print(total / (time.monotonic() - began))
"""
_SEND = """
import socket, sys, time
stream = socket.create_connection((sys.argv[1], 5001), 10)
end, block = time.monotonic() + 0.5 + float(sys.argv[2]), bytes(1 << 16)
while time.monotonic() < end: stream.sendall(block)
"""


def measure(testbed: EmulatedTestbed) -> dict[str, float]:
    """Bytes a second by tier: between two hosts of a rack, and between two racks, as far as there are
    such."""
    scenario = testbed.scenario
    racks = scenario.rack_members()
    pairs = {}
    within = next((rack for rack in racks if len(rack) > 1), None)
    if within:
        pairs["host links"] = (within[0], within[1])
    if len(racks) > 1:
        pairs["rack uplinks"] = (racks[0][0], racks[1][0])
    return {tier: _stream(testbed, *pair) for tier, pair in pairs.items()}


def _stream(testbed: EmulatedTestbed, sender: str, receiver: str) -> float:
    child = subprocess.Popen(
        testbed.command(receiver, [sys.executable, "-I", "-c", _RECEIVE]), stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout
        if child.stdout.readline() != "ready\n":
            raise BenchError(f"links: no receiver starts on {receiver}")
        testbed.run(sender, [sys.executable, "-I", "-c", _SEND, receiver, str(_SECONDS)], _LIMIT)
        out, _ = child.communicate(timeout=_LIMIT)
        return float(out)
    except (ClusterError, subprocess.TimeoutExpired, ValueError) as error:
        raise BenchError(f"links: no stream from {sender} to {receiver}: {error}") from error
    finally:
        child.kill()
        child.wait()
