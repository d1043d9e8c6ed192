"""The index against the files, and the licences that the index names."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from wmlce.channel import published
from wmlce.channel.verify import Check
from wmlce.util.files import sha256_file
from wmlce.util.host import cpu_count


def matches_files(folder: Path) -> Check:
    """Every entry has its file with that size and sha256, every file its entry, and all index forms agree."""
    repodata = published.repodata(folder)
    check = Check("index matches files", "")
    jobs: list[tuple[str, Path, dict[str, Any]]] = []
    for subdir in published.SUBDIRS:
        entries = repodata.get(subdir)
        if entries is None:
            check.findings.append(f"{subdir}/repodata.json is missing")
            continue
        present = {path.name for path in (folder / subdir).glob("*.conda")}
        check.findings += [
            f"{subdir}/{name} is not in the index" for name in sorted(present - entries.keys())
        ]
        check.findings += [
            f"{subdir}/{name} is in the index but missing" for name in sorted(entries.keys() - present)
        ]
        jobs += [
            (subdir, folder / subdir / name, entry) for name, entry in entries.items() if name in present
        ]
        plain = folder / subdir / "repodata.json"
        for name in ("repodata.json.zst", "repodata_shards.msgpack.zst"):
            form = folder / subdir / name
            if not form.is_file():
                check.findings.append(f"{subdir}/{name} is missing; clients that prefer it find no packages")
            elif form.stat().st_mtime < plain.stat().st_mtime - 2:
                check.findings.append(
                    f"{subdir}/{name} is older than repodata.json: run `wmlce channel index`"
                )

    def examine(job: tuple[str, Path, dict[str, Any]]) -> str | None:
        subdir, path, entry = job
        if path.stat().st_size != entry["size"]:
            return f"{subdir}/{path.name}: {path.stat().st_size} bytes, the index says {entry['size']}"
        if sha256_file(path) != entry["sha256"]:
            return f"{subdir}/{path.name}: its sha256 is not the index's"
        return None

    with ThreadPoolExecutor(cpu_count()) as pool:
        check.findings += [finding for finding in pool.map(examine, jobs) if finding]
    total = sum(entry["size"] for _, _, entry in jobs)
    check.summary = f"{len(jobs)} packages, {total / 1e6:.0f} MB"
    return check


def licenses(folder: Path) -> Check:
    """Every package names its licence."""
    check = Check("licences", "")
    counts: dict[str, int] = {}
    for subdir, entries in published.repodata(folder).items():
        for name, entry in sorted(entries.items()):
            license_ = str(entry.get("license") or "").strip()
            if not license_:
                check.findings.append(f"{subdir}/{name} names no licence: add about.license to its recipe")
            elif license_.startswith("LicenseRef-"):
                check.notes.append(f"{entry['name']}: {license_}")
            counts[license_] = counts.get(license_, 0) + 1
    check.summary = f"{sum(counts.values())} packages under {len(counts)} licences"
    return check


def pip_lines(command: list[str]) -> tuple[int, list[str]]:
    """Exit code and output of a short command with a limit of two minutes."""
    try:
        answer = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, [f"{command[0]}: {error}"]
    return answer.returncode, [line for line in (answer.stdout + answer.stderr).splitlines() if line.strip()]


def conda_meta(prefix: Path) -> list[dict[str, Any]]:
    """The records of an environment's installed packages."""
    return [json.loads(path.read_text()) for path in sorted((prefix / "conda-meta").glob("*.json"))]
