"""The index against the files."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from wmlce.channel import published
from wmlce.channel.verify.check import Check
from wmlce.util import conda_meta
from wmlce.util.files import sha256_file
from wmlce.util.host import cpu_count

_OF_A_PYTHON = re.compile(r"(?:^|_)py\d+h")
Job = tuple[str, Path, str, int | None]
"""A file to read: its key, its path, the digest and the size that it must have."""


def matches_files(folder: Path, part: Collection[str] | None = None) -> Check:
    """Every file is the one that was published, and the index says so.

    What counts is the digest that was recorded when the package was built: an index can be made of any file.
    part: what `folder` has to hold (`subdir/file`), where it is only a part of the channel around it
    """
    repodata = published.repodata(folder)
    recorded = published.read(folder if part is None else folder.parent)
    if part is not None:
        recorded.packages = {key: digest for key, digest in recorded.packages.items() if key in part}
        recorded.earlier = {key: earlier for key, earlier in recorded.earlier.items() if key in part}
    check = Check("index matches files", "")
    jobs: list[Job] = []
    for subdir in published.subdirs(folder):
        entries = repodata.get(subdir)
        if entries is None:
            check.findings.append(f"{subdir}/repodata.json is missing")
            continue
        jobs += _compare_names(folder, subdir, entries, recorded, check)
        plain = folder / subdir / "repodata.json"
        for name in ("repodata.json.zst", "repodata_shards.msgpack.zst"):
            form = folder / subdir / name
            if not form.is_file():
                check.findings.append(f"{subdir}/{name} is missing; clients that prefer it find no packages")
            elif form.stat().st_mtime < plain.stat().st_mtime - 2:
                check.findings.append(
                    f"{subdir}/{name} is older than repodata.json: run `wmlce channel index`"
                )
    with ThreadPoolExecutor(cpu_count()) as pool:
        check.findings += [finding for finding in pool.map(_examine, jobs) if finding]
    total = sum(path.stat().st_size for _, path, _, _ in jobs)
    check.summary = f"{len(jobs)} packages, {total / 1e6:.0f} MB"
    if recorded.earlier:
        check.summary += f", {len(recorded.earlier)} of them earlier builds"
    return check


def build_strings(folder: Path) -> Check:
    """A build that names a Python, as `pyNNNh…` does, depends on it: others are not made for each Python."""
    earlier = published.read(folder).earlier
    current = {key: entry for key, entry in published.entries(folder).items() if key not in earlier}
    check = Check("build strings", f"{len(current)} packages")
    for key, entry in sorted(current.items()):
        needs = {str(spec).split()[0] for spec in entry.get("depends", [])}
        if _OF_A_PYTHON.search(str(entry["build"])) and not needs & {"python", "python_abi"}:
            check.findings.append(
                f"{key}: its build names a Python, and it depends on none: use no ${{{{ python }}}} in the "
                "recipe, or name it in build.variant.ignore_keys"
            )
    return check


def _compare_names(
    folder: Path,
    subdir: str,
    entries: Mapping[str, Mapping[str, Any]],
    recorded: published.Published,
    check: Check,
) -> Iterator[Job]:
    """Put into the check which files the folder, the index and the record do not all have; yields those to
    read.
    """
    present = {path.name for path in (folder / subdir).glob("*.conda")}
    of_subdir = {
        key.partition("/")[2]
        for key in (*recorded.packages, *recorded.earlier)
        if key.startswith(f"{subdir}/")
    }
    for name in sorted(present | of_subdir | entries.keys()):
        key = f"{subdir}/{name}"
        digest = recorded.sha256(key)
        entry = entries.get(name)
        indexed = key not in recorded.earlier or recorded.earlier[key].indexed
        if name not in present:
            check.findings.append(
                f"{key} is in the index but missing" if entry else f"{key} was published, and is missing"
            )
        elif entry is None and indexed:
            check.findings.append(f"{key} is not in the index")
        elif digest is None and entry is not None:
            check.notes.append(f"{key} was put there by hand: no build is on record for it")
            yield key, folder / key, entry["sha256"], entry["size"]
        elif digest is not None:
            yield key, folder / key, digest, entry["size"] if entry else None
            if entry and entry["sha256"] != digest and sha256_file(folder / key) == digest:
                check.findings.append(f"{key}: the index has another sha256 than was published")


def _examine(job: Job) -> str | None:
    """What is wrong with a file's content."""
    key, path, digest, size = job
    if size is not None and path.stat().st_size != size:
        return f"{key}: {path.stat().st_size} bytes, the index says {size}"
    if sha256_file(path) != digest:
        return f"{key}: its sha256 is not that of the package that was published"
    return None


def pip_lines(command: list[str]) -> tuple[int, list[str]]:
    """Exit code and output of a short command with a limit of two minutes."""
    try:
        answer = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, [f"{command[0]}: {error}"]
    return answer.returncode, [line for line in (answer.stdout + answer.stderr).splitlines() if line.strip()]


def owners(prefix: Path) -> dict[str, str]:
    """File of an environment -> the package that it is of."""
    return {
        str(file): str(record["name"]) for record in conda_meta.readable(prefix) for file in record["files"]
    }
