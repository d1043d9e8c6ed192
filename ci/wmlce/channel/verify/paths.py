"""No path of the build machine in any package: what such a path names does not exist where the package is
used.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rattler.package_streaming import extract

from wmlce.channel import published
from wmlce.channel.verify.check import Check
from wmlce.util.files import remove_tree, sha256_file, write_json
from wmlce.util.host import cpu_count
from wmlce.util.layout import Layout
from wmlce.util.scratch import scratch_folder

_BUILD_FOLDER = b"/bld/rattler-build_"
"""Part of every path inside a build, on whichever machine the package was built."""


def needles(layout: Layout) -> list[bytes]:
    """The paths that must not occur: build folders, the cache, this clone's own files, a user's home."""
    paths = [_BUILD_FOLDER, f"{layout.cache}/".encode()]
    # a clone may lie at /work or /src, which other projects' build machines also use: name what is in it
    paths += [f"{layout.root}/{child.name}/".encode() for child in layout.root.iterdir() if child.is_dir()]
    home = Path.home()
    if len(home.parts) > 2:  # /home/someone, but not /root, which documentation mentions freely
        paths.append(f"{home}/".encode())
    return sorted(set(paths))


def no_build_paths(layout: Layout, folder: Path, say: Callable[[str], None]) -> Check:
    """Search all files of all packages; answers are remembered by package content."""
    patterns = needles(layout)
    key = hashlib.sha256(b"\0".join(patterns)).hexdigest()[:16]
    check = Check("no build machine's path", "")
    jobs = [
        (folder / key, str(entry["sha256"]))
        for key, entry in sorted(published.entries(folder).items())
        if (folder / key).is_file()
    ]
    memory = layout.cache / "verified"
    stop = threading.Event()

    def examine(job: tuple[Path, str]) -> list[str]:
        path, digest = job
        remembered = memory / f"{digest}-{key}.json"
        try:
            answer = json.loads(remembered.read_text())
            return [str(item) for item in answer]
        except (OSError, ValueError):
            pass
        hits = search_package(path, patterns, scratch, stop)
        # an answer about a damaged file must not outlive its repair, and half a search is none
        if sha256_file(path) == digest and not stop.is_set():
            write_json(remembered, hits)
        return hits

    done = 0
    # unpacked packages are large: in the cache there is room where packages have it
    with (
        scratch_folder(layout.cache / "scratch", "search") as scratch,
        ThreadPoolExecutor(cpu_count()) as pool,
    ):
        try:
            for hits in pool.map(examine, jobs):
                check.findings += hits
                done += 1
                if done % 25 == 0:
                    say(f"searched {done} of {len(jobs)} packages")
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    check.summary = f"{len(jobs)} packages searched for {len(patterns)} paths"
    return check


def search_package(path: Path, patterns: Sequence[bytes], folder: Path, stop: threading.Event) -> list[str]:
    """`package: file: path found` for each hit; the placeholder prefix that installers replace is no hit.
    It is unpacked in `folder`, and not searched to its end once `stop` is set.
    """
    scratch = Path(tempfile.mkdtemp(dir=folder))
    try:
        try:
            extract(path, scratch)
        except Exception as error:  # a damaged archive; rattler's errors have no common type
            return [f"{path.name}: cannot be unpacked: {str(error).splitlines()[0][:200]}"]
        placeholders: dict[str, bytes] = {}
        listed = json.loads((scratch / "info" / "paths.json").read_text())["paths"]
        for entry in listed:
            if entry.get("prefix_placeholder"):
                placeholders[entry["_path"]] = entry["prefix_placeholder"].encode()
        hits = []
        for file in sorted(scratch.rglob("*")):
            if stop.is_set():
                break
            name = str(file.relative_to(scratch))
            if name == "info/paths.json" or file.is_symlink() or not file.is_file():
                continue
            hit = search_file(file, patterns, placeholders.get(name))
            if hit is not None:
                hits.append(f"{path.name}: {name}: …{hit}…")
        return hits
    finally:
        remove_tree(scratch)


def search_file(file: Path, patterns: Iterable[bytes], placeholder: bytes | None) -> str | None:
    """The text around the first wanted path in a file, or None."""
    if file.stat().st_size == 0:
        return None
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as view:
        content: bytes | mmap.mmap = view
        if placeholder is not None and view.find(placeholder) >= 0:
            content = view[:].replace(placeholder, b"")
        for needle in patterns:
            at = content.find(needle)
            if at >= 0:
                around = content[max(0, at - 20) : at + len(needle) + 60]
                return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in around)
    return None
