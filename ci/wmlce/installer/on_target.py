"""Installs the packages of a single-file installer. The file's shell script starts it on the target, with the
Python and the py-rattler that came in the same file; it has nothing else of this project.

Everything is made in the scratch folder WORK inside the prefix, with PREFIX as the place that its files name,
and takes its place in the prefix at the very end, in the time of a few renames.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

from rattler import Channel, MatchSpec, SparseRepoData, install
from rattler.install import InstallerReporter
from rattler.repo_data.record import RepoDataRecord

_HEARTBEAT_S = 5.0
_COMPILE_LIMIT_S = 1800
_SET_DEATH_SIGNAL = 1
_CHUNK = 1 << 24


def main(arguments: list[str]) -> int:
    """FILE OFFSET WORK PREFIX SHELL: offset of the first package in the file; process number of the shell."""
    file, offset, work, prefix, shell = arguments
    _end_with(int(shell))
    bootstrap = Path(__file__).resolve().parent
    index = json.loads((bootstrap / "index.json").read_text())
    try:
        _install(Path(file), int(offset), Path(work), Path(prefix), bootstrap, index)
    except Exception as error:  # rattler's errors have no common type; the shell clears everything away
        print(f"error: the packages could not be installed in {prefix}", file=sys.stderr)
        for line in str(error).splitlines()[:12]:
            print(f"    {line}", file=sys.stderr)
        return 1
    return 0


def _end_with(shell: int) -> None:
    """Be a group of its own, so that the shell can end all of it, and end when the shell is killed."""
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGTERM)
    if os.getppid() != shell:
        sys.exit(1)


def _install(
    file: Path, offset: int, work: Path, prefix: Path, bootstrap: Path, index: dict[str, Any]
) -> None:
    channel = bootstrap / "channel"
    _copy_packages(file, offset, channel, index["packages"])
    environment = work / "environment"
    # py-rattler's protocol has a body for every method, which mypy takes for none
    with _Progress(len(index["packages"])) as progress:  # type: ignore[abstract]
        asyncio.run(_link(_records(channel), environment, prefix, work, index["specs"], progress))
    shutil.rmtree(channel)
    _finish_records(environment, index)
    _compile_modules(environment, prefix)
    activate = environment / "bin/activate"
    activate.parent.mkdir(exist_ok=True)
    text = (bootstrap / "activate.sh").read_text()
    activate.write_text(text.replace("@PREFIX@", str(prefix)).replace("@NAME@", index["name"]))
    (environment / "CACHEDIR.TAG").unlink(
        missing_ok=True
    )  # an environment is no cache that backups leave out
    _move(environment, prefix)


def _copy_packages(file: Path, offset: int, channel: Path, packages: list[dict[str, Any]]) -> None:
    """The packages out of the file, as the channel whose index the bootstrap has brought."""
    print(f"copying {len(packages)} packages", flush=True)
    with file.open("rb") as source:
        for package in packages:
            place = channel / package["subdir"] / package["file"]
            place.parent.mkdir(parents=True, exist_ok=True)
            remaining = package["size"]
            source.seek(offset)
            with place.open("xb") as target:
                while remaining > 0:
                    data = source.read(min(remaining, _CHUNK))
                    if not data:
                        raise OSError(f"{file} ends within {package['file']}")
                    target.write(data)
                    remaining -= len(data)
            offset += package["size"]


def _records(channel: Path) -> list[RepoDataRecord]:
    source = Channel(channel.as_uri())
    records = []
    for subdir in sorted(path.name for path in channel.iterdir()):
        with SparseRepoData(source, subdir, channel / subdir / "repodata.json") as repodata:
            records += repodata.load_all_records()
    return records


async def _link(
    records: list[RepoDataRecord],
    environment: Path,
    prefix: Path,
    work: Path,
    specs: list[str],
    progress: InstallerReporter,
) -> None:
    await install(
        records,
        target_prefix=environment,
        alternative_target_prefix=prefix,
        # in the same file system, so that files are linked and not copied
        cache_dir=work / "packages",
        reporter=progress,
        # py-rattler 0.28 hands these on as they are, and its own MatchSpec is only a wrapper
        requested_specs=[MatchSpec(spec)._match_spec for spec in specs],
    )


class _Progress(InstallerReporter):
    """Says while packages are installed how far it has come."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.unpacked = 0
        self.linked = 0
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._beat = threading.Thread(target=self._tell_now_and_then, daemon=True)

    def __enter__(self) -> _Progress:
        print(f"unpacking and linking {self.total} packages", flush=True)
        self._beat.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._beat.join()

    def on_populate_cache_complete(self, cache_entry: int) -> None:
        with self._lock:
            self.unpacked += 1

    def on_link_complete(self, index: int) -> None:
        with self._lock:
            self.linked += 1

    def _tell_now_and_then(self) -> None:
        while not self._ended.wait(_HEARTBEAT_S):
            print(f"  {self.unpacked} unpacked and {self.linked} linked of {self.total}", flush=True)


def _finish_records(environment: Path, index: dict[str, Any]) -> None:
    """The records name the packages' channel instead of the scratch folder, and are for all who may look into
    the environment; conda finds in its history what was asked for.
    """
    meta = environment / "conda-meta"
    others = environment.stat().st_mode & 0o044
    for path in meta.glob("*.json"):
        record = json.loads(path.read_text())
        record["channel"] = index["channel"]
        record["url"] = f"{index['channel']}/{record['subdir']}/{record['fn']}"
        for gone in ("extracted_package_dir", "package_tarball_full_path", "link"):
            record.pop(gone, None)
        forget_links(record)
        path.write_text(json.dumps(record, indent=2) + "\n")
        path.chmod(path.stat().st_mode | others)
    now = datetime.now().strftime("%Y-%m-%d %H:%M:%S")
    lines = [f"==> {now} <==", f"# cmd: {index['name']} installer"]
    lines += [
        f"+{index['channel']}/{p['subdir']}::{p['file'].removesuffix('.conda')}" for p in index["packages"]
    ]
    lines += [f"# update specs: {json.dumps(index['specs'])}"]
    (meta / "history").write_text("\n".join(lines) + "\n")


def forget_links(record: dict[str, Any]) -> bool:
    """py-rattler records of a link the digest of the path in it. `conda doctor` reads the file behind it, and
    would call that altered; conda records nothing. False where there was nothing to forget.
    """
    links = [path for path in record["paths_data"]["paths"] if path.get("path_type") == "softlink"]
    return any([path.pop("sha256_in_prefix", None) is not None for path in links])


def _compile_modules(environment: Path, prefix: Path) -> None:
    """Compile the modules of packages for any Python; others bring theirs compiled."""
    python = environment / "bin/python3"
    modules: list[str] = []
    for path in (environment / "conda-meta").glob("*.json"):
        record = json.loads(path.read_text())
        if record.get("noarch") == "python":
            modules += [str(environment / name) for name in record["files"] if name.endswith(".py")]
    if not python.exists() or not modules:
        return
    print(f"compiling {len(modules)} Python modules", flush=True)
    workers = str(min(16, len(os.sched_getaffinity(0))))
    place = ["-s", str(environment), "-p", str(prefix)]
    subprocess.run(
        [str(python), "-I", "-m", "compileall", "-q", "-j", workers, *place, "-i", "-"],
        input="\n".join(sorted(modules)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"},
        timeout=_COMPILE_LIMIT_S,
        check=False,  # packages bring templates and files of other Python versions, which do not compile
    )


def _move(environment: Path, prefix: Path) -> None:
    """The records last: whoever looks for an environment sees none, or all of it."""
    for path in sorted(environment.iterdir(), key=lambda path: path.name == "conda-meta"):
        path.rename(prefix / path.name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
