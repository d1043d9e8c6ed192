"""The program ddl-bootstrap, a child of this process, and the thread that carries what it exchanges."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import threading
from pathlib import Path
from typing import IO

from ddl._errors import DDLError
from ddl.bootstrap.rendezvous import Exchange, Job

PROGRAM = Path(__file__).with_name("ddl-bootstrap")
_HEADER = struct.Struct("<cIQ")
_END_SECONDS = 5.0


def _cores() -> int:
    return len(os.sched_getaffinity(0))


class Server:
    """The PMIx server of this host; lives as long as a rank of the host needs it."""

    def __init__(self, job: Job, exchange: Exchange) -> None:
        if not os.access(PROGRAM, os.X_OK):
            raise DDLError(
                "[ERROR DDL-1-5] this DDL was built without the program that starts MPI under torchrun: "
                f"{PROGRAM} is missing; in ddl.init; install the package ddl, or start with ddlrun or mpirun",
                5,
            )
        self._exchange = exchange
        # its own pipes only; what it has to say goes with the rank's standard error
        self._child = subprocess.Popen([PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._child.stdin and self._child.stdout
        self._to: IO[bytes] = self._child.stdin
        self._from: IO[bytes] = self._child.stdout
        host, ranks = job.hosts[job.host_index]
        description = {
            "namespace": job.name,
            "hosts": [{"name": name, "ranks": members} for name, members in job.hosts],
            "here": job.host_index,
            "processes": [job.processes[rank] for rank in ranks],
            "oversubscribed": len(ranks) > _cores(),
        }
        self._write(b"J", 0, json.dumps(description).encode())
        kind, _, content = self._read()
        if kind != b"R":
            self.close()
            why = content.decode(errors="replace") or f"it ended with code {self._child.poll()}"
            raise DDLError(
                f"[ERROR DDL-1-5] {PROGRAM.name} cannot serve the ranks of {host}: {why}; "
                "in ddl.init; see that the folder for temporary files can be written, or start with "
                "ddlrun or mpirun",
                5,
            )
        #: rank -> the variables by which it finds the server
        self.environments: dict[int, dict[str, str]] = {
            int(rank): variables for rank, variables in json.loads(content).items()
        }
        threading.Thread(target=self._serve, name="ddl-bootstrap", daemon=True).start()

    def _write(self, kind: bytes, number: int, content: bytes) -> None:
        try:
            self._to.write(_HEADER.pack(kind, number, len(content)) + content)
            self._to.flush()
        except (OSError, ValueError):
            pass  # it has ended, or close() was called; whoever waits for it learns that by reading

    def _read(self) -> tuple[bytes, int, bytes]:
        """A frame; empty ones when the program has ended."""
        header = self._from.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return b"", 0, b""
        kind, number, size = _HEADER.unpack(header)
        return kind, number, self._from.read(size)

    def _serve(self) -> None:
        while True:
            kind, number, content = self._read()
            if kind != b"F":
                return
            try:
                self._write(b"D", number, self._exchange.all_gather(number, content))
            except (RuntimeError, ValueError):
                # the store is gone, or a host did not come within its limit: MPI reports the failure
                self._write(b"B", number, b"")

    @property
    def ended(self) -> bool:
        """Whether the program has ended."""
        return self._child.poll() is not None

    def close(self) -> None:
        """Lets it end when the other ranks of the host no longer need it; waits for that a moment."""
        try:
            self._to.close()
            self._child.wait(_END_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            pass  # it ends by itself, after them
