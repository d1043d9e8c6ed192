"""Packages that a test needs beside the environment under test: installed by pip into a folder of the cache.

They are no part of the channel: what people bring themselves, such as another backend of Keras, or a trainer.
Each
list in overlays/ names them with version and sha256; the rest of what they need is in the environment.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from rank_processes import PREFIX

_LISTS = Path(__file__).parent / "overlays"
_LIMIT = 900


def _cache() -> Path:
    named = os.environ.get("WMLCE_CACHE")
    if named:
        return Path(named) / "test-overlays"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wmlce" / "test-overlays"


def overlay(name: str) -> Path:
    """A folder for PYTHONPATH with the packages of overlays/NAME.txt; the test is skipped where pip cannot
    get them."""
    listed = _LISTS / f"{name}.txt"
    python = PREFIX / "bin/python"
    version = subprocess.run([python, "-VV"], capture_output=True, text=True, check=True, timeout=60).stdout
    folder = _cache() / f"{name}-{hashlib.sha256(listed.read_bytes() + version.encode()).hexdigest()[:12]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run beside each other
        if folder.exists():
            return folder
        staging = folder.with_name(f".{folder.name}.new")
        shutil.rmtree(staging, ignore_errors=True)
        # A release without a wheel is built with what the environment has; it needs no compiler.
        command = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
        command += [
            "--require-hashes",
            "--disable-pip-version-check",
            "--target",
            str(staging),
            "-r",
            str(listed),
        ]
        environment = {
            **os.environ,
            "DS_BUILD_OPS": "0",
        }  # DeepSpeed's operators are compiled when one is used
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT, env=environment)
        if done.returncode != 0:
            shutil.rmtree(staging, ignore_errors=True)
            pytest.skip(f"pip cannot install overlays/{name}.txt: {done.stderr.strip().splitlines()[-1:]}")
        staging.rename(folder)
    return folder
