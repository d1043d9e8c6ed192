"""A small Debian archive in a folder, signed with a key of its own, for the real apt and for what reads it
without apt.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

LIMIT_S = 60


class Key:
    """An OpenPGP key without a password, in a folder of its own (sockets need a short path)."""

    def __init__(self) -> None:
        if shutil.which("gpg") is None:
            pytest.skip("a Debian archive of one's own needs gpg: apt-get install gpg gpg-agent")
        self.home = Path(tempfile.mkdtemp(prefix="wmlce-gpg-"))
        self._gpg("--quick-generate-key", "archive@example.invalid", "ed25519", "sign", "never")
        self.public = self.home / "archive.gpg"
        self._gpg("--output", str(self.public), "--export")

    def _gpg(self, *arguments: str) -> None:
        command = ["gpg", "--homedir", str(self.home), "--batch", "--yes", "--passphrase", "", *arguments]
        result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        assert result.returncode == 0, result.stderr

    def sign(self, path: Path, target: Path) -> None:
        self._gpg("--clearsign", "--output", str(target), str(path))

    def forget(self) -> None:
        subprocess.run(
            ["gpgconf", "--homedir", str(self.home), "--kill", "gpg-agent"],
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
        shutil.rmtree(self.home, ignore_errors=True)


def tarball(path: Path, content: Mapping[str, str]) -> Path:
    """A .tar.gz or .tar.xz with one folder at its top; the same content gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, text in sorted(content.items()):
            member = tarfile.TarInfo(f"top/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    if path.suffix == ".xz":
        path.write_bytes(lzma.compress(plain.getvalue()))
    else:
        path.write_bytes(gzip.compress(plain.getvalue(), mtime=0))
    return path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Mirror:
    """`folder`/debian, as a site's mirror of one release; what it offers can be changed at any time."""

    def __init__(self, folder: Path, key: Key, suite: str = "bookworm") -> None:
        self.folder = folder
        self.key = key
        self.suite = suite
        self.sources: dict[str, dict[str, list[Path]]] = {}
        self.binaries: dict[str, tuple[str, Path]] = {}

    @property
    def root(self) -> Path:
        return self.folder / "debian"

    def add(self, package: str, version: str, *, orig: Mapping[str, str], debian: Mapping[str, str]) -> None:
        """A source package of format 3.0 (quilt), whose tarballs hold these files."""
        plain = version.partition(":")[2] or version
        pool = self.root / "pool" / package
        upstream = plain.rpartition("-")[0]
        files = [
            tarball(pool / f"{package}_{upstream}.orig.tar.gz", orig),
            tarball(pool / f"{package}_{plain}.debian.tar.xz", debian),
        ]
        dsc = pool / f"{package}_{plain}.dsc"
        dsc.write_text(f"Format: 3.0 (quilt)\nSource: {package}\nVersion: {version}\n")
        self.sources.setdefault(package, {})[version] = [dsc, *files]

    def add_binary(self, package: str, version: str) -> Path:
        """A binary package for the lists; what its file holds is none, as only its digest is asked for."""
        place = self.root / "pool" / package / f"{package}_{version.partition(':')[2] or version}_amd64.deb"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{package} {version}")
        self.binaries[package] = (version, place)
        return place

    def remove(self, package: str, version: str) -> None:
        """As mirrors do: files that no listed version uses go."""
        gone = self.sources[package].pop(version)
        kept = {path for files in self.sources[package].values() for path in files}
        for path in gone:
            if path not in kept:
                path.unlink()

    def publish(self, *, signed: bool = True, **fields: str) -> None:
        """Write the lists as they are now, and sign them. fields: other ones of the release"""
        release = self.root / "dists" / self.suite
        shutil.rmtree(release, ignore_errors=True)
        lists = {"main/source/Sources": self._sources(), "main/binary-amd64/Packages": self._binaries()}
        named = {
            **{"Origin": "Debian", "Suite": self.suite, "Codename": self.suite},
            **{"Date": "Sat, 21 Nov 2026 00:00:00 UTC", "Architectures": "amd64", "Components": "main"},
            **{name.replace("_", "-"): text for name, text in fields.items()},
        }
        lines = [*(f"{name}: {text}" for name, text in named.items()), "SHA256:"]
        for name, text in lists.items():
            path = release / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            packed = path.with_name(f"{path.name}.xz")
            packed.write_bytes(lzma.compress(text.encode()))
            for file in (path, packed):
                lines.append(f" {digest(file)} {file.stat().st_size} {file.relative_to(release)}")
        (release / "Release").write_text("\n".join(lines) + "\n")
        if signed:
            self.key.sign(release / "Release", release / "InRelease")

    def _sources(self) -> str:
        stanzas = []
        for package, versions in self.sources.items():
            for version, files in versions.items():
                sums = "".join(f"\n {digest(path)} {path.stat().st_size} {path.name}" for path in files)
                md5 = "".join(
                    f"\n {hashlib.md5(path.read_bytes()).hexdigest()} {path.stat().st_size} {path.name}"
                    for path in files
                )
                stanzas.append(
                    f"Package: {package}\nBinary: {package}\nVersion: {version}\nMaintainer: nobody\n"
                    f"Architecture: any\nFormat: 3.0 (quilt)\nDirectory: pool/{package}\n"
                    f"Files:{md5}\nChecksums-Sha256:{sums}\n"
                )
        return "\n".join(stanzas)

    def _binaries(self) -> str:
        return "\n".join(
            f"Package: {package}\nVersion: {version}\nArchitecture: amd64\nMaintainer: nobody\n"
            f"Description: none\nFilename: {path.relative_to(self.root)}\nSize: {path.stat().st_size}\n"
            f"SHA256: {digest(path)}\n"
            for package, (version, path) in self.binaries.items()
        )

    def environment(self, *, insecure: bool = False) -> dict[str, str]:
        """Variables under which apt takes this for the machine's own mirror."""
        if shutil.which("apt-get") is None:
            pytest.skip("this machine has no apt-get")
        listing = self.folder / "sources.list"
        listing.write_text(f"deb [signed-by={self.key.public}] file:{self.root} {self.suite} main\n")
        configuration = self.folder / "apt.conf"
        text = f'Dir::Etc::sourcelist "{listing}"; Dir::Etc::sourceparts "-";\n'
        if insecure:
            text += 'Acquire::AllowInsecureRepositories "true"; APT::Get::AllowUnauthenticated "true";\n'
        configuration.write_text(text)
        return {"APT_CONFIG": str(configuration)}

    def settings(self, address: str | None = None) -> dict[str, str]:
        """Variables by which a user names this mirror and its key, by an address or as a folder."""
        return {
            "WMLCE_DEBIAN_MIRROR": address or f"file://{self.root}",
            "WMLCE_DEBIAN_KEYRING": str(self.key.public),
        }


def without_apt(folder: Path) -> str:
    """A PATH with every program of this machine but those of Debian's package management."""
    folder.mkdir()
    for name in os.environ["PATH"].split(os.pathsep):
        for program in Path(name).iterdir() if Path(name).is_dir() else ():
            place = folder / program.name
            if not program.name.startswith(("apt", "dpkg")) and not place.is_symlink():
                place.symlink_to(program)
    return str(folder)
