"""Files that are either complete or absent: atomic writes, checked links, hashes."""

from __future__ import annotations

import errno
import glob
import hashlib
import io
import json
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wmlce.util.errors import OutOfSpace, WmlceError

_LARGEST_TEXT = 256 << 20


def open_file(path: Path) -> io.BufferedReader:
    """A file of a folder that others write to, for reading.

    Raises:
        OSError: It cannot be read, or is no file, such as a pipe that nobody writes to.
    """
    stream = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "no file", str(path))
    return stream


def text_of(path: Path, largest: int = _LARGEST_TEXT) -> str:
    """The text of a file that others may have put there.

    Raises:
        OSError: As `open_file`; or it has more than `largest` bytes.
        UnicodeDecodeError: It is no text.
    """
    with open_file(path) as stream:
        content = stream.read(largest + 1)
    if len(content) > largest:
        raise OSError(errno.EFBIG, f"more than {largest} bytes", str(path))
    return content.decode()


def sha256_file(path: Path) -> str:
    """Hex digest of a file's content, which `open_file` opens."""
    with open_file(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def disk_errors(activity: str) -> Iterator[None]:
    """Turn the operating system's storage errors into one that names what was being written."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OutOfSpace(
                f"no space left while {activity} ({error.filename or 'unknown file'})",
                remedy="free some space, or point WMLCE_CACHE at a larger file system; then run it again",
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise WmlceError(
                f"not allowed to write while {activity}: {error.filename}: {error.strerror}",
                remedy="make the folder writable for this user, or name another one (WMLCE_CACHE, --root)",
            ) from error
        raise


@contextmanager
def for_others() -> Iterator[None]:
    """What is made meanwhile can be read by everybody, whatever the umask is (root often has 077); it still
    decides who may write.
    """
    old = os.umask(0o022)
    os.umask(old & 0o022)
    try:
        yield
    finally:
        os.umask(old)


def write_atomic(path: Path, content: str | bytes, *, mode: int = 0o644) -> None:
    """Write so that readers, and a run after a crash, see the old content or the new, never a part."""
    data = content.encode() if isinstance(content, str) else content
    with disk_errors(f"writing {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(name, mode)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def write_json(path: Path, value: Any) -> None:
    """`write_atomic` of an indented JSON document."""
    write_atomic(path, json.dumps(value, indent=1, sort_keys=True) + "\n")


def store_atomic(source: Path, target: Path) -> None:
    """Move a finished file to its place (also across file systems) and make it durable before it has its
    name.
    """
    with disk_errors(f"storing {target}"):
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        os.close(handle)
        try:
            try:
                os.replace(source, name)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                shutil.copyfile(source, name)
                source.unlink()
            os.chmod(name, 0o644)
            with open(name, "rb") as stream:
                os.fsync(stream.fileno())
            os.replace(name, target)
            directory = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def link_or_copy(source: Path, target: Path) -> None:
    """A hard link where the file system allows one, else a copy; an older file of that name is replaced."""
    with disk_errors(f"placing {target}"):
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        os.close(handle)
        os.unlink(name)
        try:
            try:
                os.link(source, name)
            except OSError as error:
                if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
                    raise
                shutil.copyfile(source, name)
                os.chmod(name, 0o644)
            os.replace(name, target)
        finally:
            # rename() of two links to one inode does nothing and keeps both names
            Path(name).unlink(missing_ok=True)


@contextmanager
def scratch_beside(output: Path) -> Iterator[Path]:
    """A folder to make `output` in, on the same file system; removed at the end, as is what an earlier,
    killed call left of its own. Only one at a time for an output."""
    output.parent.mkdir(parents=True, exist_ok=True)
    for leftover in output.parent.glob(f".{glob.escape(output.name)}.part-*"):
        remove_tree(leftover)
    scratch = Path(tempfile.mkdtemp(prefix=f".{output.name}.part-", dir=output.parent))
    try:
        yield scratch
    finally:
        remove_tree(scratch)


def remove_tree(path: Path) -> None:
    """Delete a folder, read-only subfolders included; an absent one is fine."""
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return

    def retry(function: Any, name: str, _: Any) -> None:
        os.chmod(os.path.dirname(name), 0o700)
        if os.path.isdir(name) and not os.path.islink(name):
            os.chmod(name, 0o700)
        try:
            function(name)
        except FileNotFoundError:
            pass

    try:
        shutil.rmtree(path, onerror=retry)
    except RecursionError:  # of folders in folders, which a build may leave
        subprocess.run(["chmod", "-R", "u+rwX", "--", str(path)], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["rm", "-rf", "--", str(path)], check=True, stderr=subprocess.DEVNULL)
