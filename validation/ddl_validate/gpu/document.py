"""The document of a run: what was checked, and on what, in terms that name no host and no serial number."""

from __future__ import annotations

import datetime
import platform
import re
from pathlib import Path
from typing import Any

from ..common import machine
from .checks import FAILED, NOT_RUN, PASSED, Result
from .facts import Facts

KIND, SCHEMA = "gpu-check", 1
_HOST_IN_TEXT = re.compile(r" ?\(host [^()]*\)")
_BUS_ADDRESS = re.compile(r",? ?\b[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}(\.[0-9a-f])?\b", re.IGNORECASE)


def make(facts: Facts, results: list[Result], quick: bool, named: bool = False) -> dict[str, Any]:
    """named: also the host's name, its load and its environment."""
    host = machine.facts()
    if not named:
        host = {name: host[name] for name in ("processor", "cores", "memory")}
        host["system"] = f"{platform.system()} {platform.machine()}"
    document = {
        "kind": KIND,
        "schema": SCHEMA,
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "verdict": verdict(results),
        "quick": quick,
        "machine": host,
        "gpus": facts.gpus,
        "driver_cuda": facts.driver_text or None,
        "nccl": facts.nccl,
        "checks": [vars(result) for result in results],
    }
    return document if named else _anonymous(document)


def verdict(results: list[Result]) -> str:
    """failed if a check failed; not run if there was no GPU; else passed."""
    if any(result.verdict == FAILED for result in results):
        return FAILED
    return PASSED if any(result.verdict == PASSED for result in results) else NOT_RUN


def _anonymous(value: Any) -> Any:
    """The same without names of hosts, places on a bus, and folders."""
    if isinstance(value, dict):
        return {name: _anonymous(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_anonymous(item) for item in value]
    if not isinstance(value, str):
        return value
    text = _BUS_ADDRESS.sub("", _HOST_IN_TEXT.sub("", value))
    text = text.replace(str(Path.home()), "~")
    return re.sub(rf"\b{re.escape(platform.node())}\b", "this-host", text) if platform.node() else text
