"""A release of the whole distribution, as it is published: made twice, checked, and installed from."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_release import git
from tree import ROOT, tracked

CHANNEL = ROOT / "build/channel"


def release(root: Path, *words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "wmlce", "--root", str(root), "--json", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def copied_tree(root: Path) -> Path:
    """A clone of this tree with one commit."""
    for path in tracked():
        target = root / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
        target.chmod(path.stat().st_mode)
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "The release")
    return root


@pytest.mark.long
def test_the_whole_distribution(tmp_path: Path) -> None:
    if not (CHANNEL / "channel.json").is_file():
        pytest.skip(f"no channel in {CHANNEL}: wmlce channel build")
    release(ROOT, "release", "key", "new", str(tmp_path / "key"), "--no-passphrase")
    made = []
    for name in ("one", "two"):
        root = copied_tree(tmp_path / name)
        words = ["--from", str(CHANNEL), "--key", str(tmp_path / "key"), "--no-sources"]
        made.append(Path(release(root, "release", "make", *words)["folder"]))
    one, two = made
    for name in ("SHA256SUMS", "SHA256SUMS.sig", "channel/SHA256SUMS"):
        assert (one / name).read_bytes() == (two / name).read_bytes()
    page = (one / "index.html").read_text()
    assert "PyTorch 2." in page and re.search(
        r"<td>horovod-mpi</td><td>2\.[0-9.]+</td><td>2\.[0-9.]+</td>", page
    )
    trusted = str(tmp_path / "key.allowed_signers")
    assert release(ROOT, "release", "check", str(one), "--key", trusted)["trusted"]
    assert release(ROOT, "release", "diff", str(one), str(two))["packages"] == []
    assert {path.name for path in one.glob("locks/*")} >= {"powerai.lock", "powerai-cpu.lock"}
    [installer] = one.glob("installers/*.sh")
    done = subprocess.run(
        ["sh", installer, "--batch", "--prefix", tmp_path / "env", "--signers", trusted],
        env={"PATH": os.defpath},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0 and 'Good "ibm-wml-ce" signature' in done.stdout, done.stderr
    signed = ["--from", str(one / "channel"), "--require-signature", trusted]
    assert release(two.parents[2], "env", "create", "small", "ddl", *signed)["changed"]
    prefix = two.parents[2] / "build/envs/small"
    ran = subprocess.run([prefix / "bin/ddlrun", "-version"], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
