"""Python files come from indexes as files: nothing in them is run, the user's pip configuration holds, and
PyTorch's index is asked for its own files alone.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from local_wheels import ALONE, make_wheel, pip_wheel, python_recipes
from package_index import PASSWORD, Index, serving
from scratch_clone import Clone


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make_sdist(folder: Path, name: str, version: str, mark: Path) -> Path:
    """A source archive whose setup.py leaves a mark wherever it is run."""
    files = {
        "setup.py": f"open({str(mark)!r}, 'w').close()\nfrom setuptools import setup\nsetup()\n",
        "pyproject.toml": '[build-system]\nrequires = ["setuptools"]\n'
        'build-backend = "setuptools.build_meta"\n',
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "hello.txt": "hello\n",
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for file, text in files.items():
            member = tarfile.TarInfo(f"{name}-{version}/{file}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def entry(package: str, version: str, path: Path, origin: str = "pypi") -> dict[str, Any]:
    return {
        "recipes": ["user"],
        "kind": "python",
        "origin": origin,
        "package": package,
        "version": version,
        "files": [{"name": path.name, "sha256": digest(path)}],
    }


def lock(clone: Clone, *entries: dict[str, Any]) -> None:
    clone.without_build_root()
    clone.write("recipes/sources.lock.yaml", yaml.safe_dump(list(entries)))
    names = [file["name"] for item in entries for file in item["files"]]
    clone.recipe("user", source=[{"path": f"../../build/sources/{name}"} for name in names])


def test_setup_py_is_never_run(clone: Clone, tmp_path: Path) -> None:
    """Neither to lock nor to fetch; building from the locked file is another matter."""
    clone.without_build_root()
    links, mark = tmp_path / "links", tmp_path / "mark"
    first = make_sdist(links, "tricky", "1.0", mark)
    clone.env |= ALONE | {"PIP_FIND_LINKS": str(links), "PIP_NO_BUILD_ISOLATION": "0"}
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(tmp_path / "dest"), "tricky"]
    subprocess.run(pip, env={**os.environ, **clone.env}, capture_output=True, timeout=120, check=False)
    assert mark.exists(), "pip itself does not run it any more: this test shows nothing"
    mark.unlink()

    clone.recipe("user", source=[{"path": f"../../build/sources/{first.name}"}])
    clone.ok("lock", "sources", "--add", "pypi:tricky==1.0", "--recipe", "user", "--file", "*.tar.gz")
    locked = yaml.safe_load((clone.root / "recipes/sources.lock.yaml").read_text())
    assert locked == [entry("tricky", "1.0", first)]
    assert clone.ok("source", "fetch")["fetched"] == [first.name]
    assert digest(clone.root / "build/sources" / first.name) == digest(first)
    assert clone.ok("lock", "sources")["changes"] == []
    second = make_sdist(links, "tricky", "1.1", mark)
    make_sdist(links, "tricky", "2.0rc1", mark)
    assert clone.ok("lock", "sources")["changes"] == [], "versions move with --upgrade alone"
    changes = clone.ok("lock", "sources", "--upgrade", "user")["changes"]
    assert changes[0] == "tricky: 1.0 -> 1.1 (user)"
    assert second.name in (clone.root / "recipes/user/recipe.yaml").read_text()
    assert clone.ok("source", "fetch")["fetched"] == [second.name]
    assert not mark.exists()


def test_the_lock_and_not_pip_chooses_among_files(clone: Clone, tmp_path: Path) -> None:
    """`only-binary` is about what is installed; of two files with one name the locked content counts."""
    links, other = tmp_path / "links", tmp_path / "other"
    path = make_sdist(links, "tricky", "1.0", tmp_path / "mark")
    make_sdist(other, "tricky", "1.0", tmp_path / "another-mark")
    lock(clone, entry("tricky", "1.0", path))
    clone.env |= ALONE | {"PIP_FIND_LINKS": f"{other} {links}", "PIP_ONLY_BINARY": ":all:"}
    assert clone.ok("source", "fetch")["fetched"] == [path.name]


def test_all_that_is_missing_is_named_at_once(clone: Clone, tmp_path: Path) -> None:
    links = tmp_path / "links"
    gone = [make_wheel(links, name, "1.0") for name in ("one", "two")]
    there = make_wheel(links, "three", "1.0")
    lock(clone, *(entry(path.name.split("-")[0], "1.0", path) for path in [*gone, there]))
    digests = [digest(path) for path in gone]
    gone[0].unlink()
    gone[1].rename(links / "two-1.1-py3-none-any.whl")
    clone.env |= ALONE | {"PIP_FIND_LINKS": str(links)}
    error = clone.fails("source", "fetch")
    assert "2 sources" in error and all(path.name in error for path in gone)
    assert all(text in error for text in digests)
    for way in ("--offline DIR", "WMLCE_SOURCES", "wmlce lock wheels", "the Python package index"):
        assert way in error, way
    assert list(clone.cache.glob(f"sources/*/{there.name}")), "what was there is kept"


@pytest.fixture
def pytorch(tmp_path: Path) -> Iterator[Index]:
    """PyTorch's index: it has the CPU build, and (as the real one) other projects too."""
    folder = tmp_path / "pytorch"
    make_wheel(folder, "tiny", "1.0+cpu")
    make_wheel(folder, "tiny", "0.9+cpu")
    make_wheel(folder, "bystander", "1.0", files={"bystander/__init__.py": "of = 'pytorch'\n"})
    with serving(folder) as index:
        yield index


def test_pytorch_index_is_asked_for_what_pip_does_not_find(
    clone: Clone, tmp_path: Path, pytorch: Index
) -> None:
    path = pytorch.folder / "tiny-1.0+cpu-py3-none-any.whl"
    lock(clone, entry("tiny", "1.0+cpu", path, "pytorch-cpu"))
    clone.env |= ALONE | {"PIP_FIND_LINKS": str(tmp_path)}
    error = clone.fails("source", "fetch")
    assert path.name in error and "set WMLCE_PYTORCH_INDEX" in error and "install page" in error
    assert "--offline DIR" in error and digest(path) in error and not pytorch.asked

    assert "~/.netrc" in clone.fails("source", "fetch", "--pytorch-index", pytorch.url) and not pytorch.asked
    clone.env["WMLCE_PYTORCH_INDEX"] = pytorch.url
    assert clone.ok("source", "fetch")["fetched"] == [path.name]
    assert any(path.startswith("/simple/tiny") for path in pytorch.asked)
    # where pip finds the file by itself the index is not asked
    pytorch.asked.clear()
    for cached in clone.cache.glob("sources/*/*.whl"):
        cached.unlink()
    clone.env["PIP_FIND_LINKS"] = str(pytorch.folder)
    assert clone.ok("source", "fetch")["fetched"] == [path.name]
    assert not pytorch.asked


def test_pytorch_index_gives_nothing_else(clone: Clone, tmp_path: Path, pytorch: Index) -> None:
    path = pytorch.folder / "bystander-1.0-py3-none-any.whl"
    lock(clone, entry("bystander", "1.0", path))
    clone.env |= ALONE | {"PIP_FIND_LINKS": str(tmp_path), "WMLCE_PYTORCH_INDEX": pytorch.url}
    assert path.name in clone.fails("source", "fetch")
    assert not pytorch.asked


def test_a_password_of_the_index_is_not_shown(clone: Clone, tmp_path: Path, pytorch: Index) -> None:
    path = pytorch.folder / "tiny-1.0+cpu-py3-none-any.whl"
    lock(clone, entry("tiny", "1.0+cpu", path, "pytorch-cpu"))
    wrong = pytorch.url.replace(PASSWORD, "Wr0ng-word")
    clone.env |= ALONE | {"PIP_FIND_LINKS": str(tmp_path), "WMLCE_PYTORCH_INDEX": wrong, "PIP_NO_INPUT": "1"}
    result = clone.run("source", "fetch")
    assert result.returncode == 1
    assert "Wr0ng-word" not in result.stdout + result.stderr


def lock_wheels(clone: Clone, links: Path, roots: Sequence[str]) -> None:
    clone.env |= ALONE | {"PIP_FIND_LINKS": str(links)}
    rules = {"tiny": {"origin": "pytorch-cpu"}}
    clone.write("recipes/wheels.yaml", yaml.safe_dump({"roots": list(roots), "packages": rules}))


def test_lock_wheels_of_pytorchs_index(clone: Clone, tmp_path: Path, pytorch: Index) -> None:
    """The root is of that index, what it needs is not; and the lock says so for each."""
    links = tmp_path / "links"
    make_wheel(links, "bystander", "1.0")
    make_wheel(links, "app", "1.0", requires=["tiny==1.0", "bystander"])
    lock_wheels(clone, links, ["app==1.0", "tiny==1.0+cpu"])
    assert "set WMLCE_PYTORCH_INDEX" in clone.fails("lock", "wheels")
    clone.env["WMLCE_PYTORCH_INDEX"] = pytorch.url
    assert clone.ok("lock", "wheels")["packages"] == ["app==1.0", "bystander==1.0", "tiny==1.0+cpu"]
    text = (clone.root / "recipes/wheels.lock.yaml").read_text()
    origins = {item["name"]: item["origin"] for item in yaml.safe_load(text)["packages"]}
    assert origins == {"app": "pypi", "bystander": "pypi", "tiny": "pytorch-cpu"}
    sums = {item["name"]: item["sha256"] for item in yaml.safe_load(text)["packages"]}
    assert sums["bystander"] == digest(links / "bystander-1.0-py3-none-any.whl")
    assert PASSWORD not in text and not any("bystander" in path for path in pytorch.asked)
    lock_wheels(clone, links, ["tiny==7.0+cpu"])
    assert "0.9+cpu" in clone.fails("lock", "wheels")


@pytest.mark.long
def test_the_local_version_moves_to_the_build_string(clone: Clone, tmp_path: Path) -> None:
    """`tiny ==1.0` is 1.0+cpu, `tiny=*=cpu*` too, and a wheel that wants exactly +cpu gets it."""
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the packages python and pip are those of the running interpreter, which is not 3.11")
    links = tmp_path / "links"
    _, pip_version = pip_wheel(links)
    make_wheel(links, "tiny", "1.0+cpu")
    make_wheel(links, "app", "1.0", requires=["tiny==1.0+cpu"])
    make_wheel(links, "other", "1.0", requires=["tiny>=1.0"])
    python_recipes(clone)
    lock_wheels(clone, links, [f"pip=={pip_version}", "app==1.0", "other==1.0", "tiny==1.0+cpu"])
    clone.ok("lock", "wheels")
    clone.recipe("user", run=["tiny 1.0.*", "tiny * cpu_*", "other"])
    clone.ok("channel", "build", "app", "user")
    name = next(name for name in clone.published() if name.startswith("tiny-"))
    version, build = name.removesuffix(".conda").split("-")[1:]
    assert version == "1.0" and build.startswith("cpu_pyh") and build.endswith("_0"), name
    clone.ok("env", "create", "e", "app", "tiny ==1.0", "tiny=*=cpu*")
    site = next((clone.root / "build/envs/e").glob("lib/python3.*/site-packages"))
    assert (site / "tiny-1.0+cpu.dist-info/METADATA").is_file()
    # the content hash is in the build string: another content is another file
    before = clone.published()
    (links / "tiny-1.0+cpu-py3-none-any.whl").unlink()
    make_wheel(links, "tiny", "1.0+cpu", files={"tiny/__init__.py": "changed = True\n"})
    clone.ok("lock", "wheels")
    clone.ok("channel", "build", "app", "user")
    assert not {name for name in before if name.startswith("tiny-")} & clone.published()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("origin: somewhere", "found 'somewhere'"),
        ("origin: debian", "debian has nothing of the kind python"),
        ("suite: bookworm", "suite and snapshot are Debian's"),
    ],
)
def test_a_lock_with_an_origin_that_cannot_be(clone: Clone, tmp_path: Path, text: str, said: str) -> None:
    item = entry("tiny", "1.0", make_wheel(tmp_path, "tiny", "1.0"))
    key, value = text.split(": ")
    clone.write("recipes/sources.lock.yaml", yaml.safe_dump([item | {key: value}]))
    error = clone.fails("source", "fetch")
    assert "sources.lock.yaml is damaged" in error and said in error
