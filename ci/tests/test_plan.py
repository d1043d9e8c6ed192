"""`wmlce channel plan` against an index on this machine."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from local_wheels import make_wheel, settings_of_pip, variables_of_pip
from scratch_clone import Clone
from wmlce.channel.plan_solve import nearest


def test_what_another_platform_and_another_python_lack(clone: Clone, tmp_path: Path) -> None:
    clone.without_build_root()
    files = tmp_path / "files"
    made = make_wheel(files, "pure", "1.0")
    for name in (
        "both-1.0-cp311-cp311-manylinux_2_17_x86_64.whl",
        "both-1.0-cp311-cp311-manylinux_2_17_aarch64.whl",
        "both-1.0-cp312-cp312-manylinux_2_17_x86_64.whl",
        "stable-1.0-cp39-abi3-manylinux2014_x86_64.whl",
        "stable-0.9-cp39-abi3-manylinux2014_aarch64.whl",
        "source-1.0-cp311-cp311-manylinux_2_17_x86_64.whl",
        "newglibc-1.0-cp311-cp311-manylinux_2_39_aarch64.whl",
        "local-1.0+cpu-cp311-cp311-manylinux_2_17_x86_64.whl",
        "local-1.0-cp311-cp311-manylinux_2_17_aarch64.whl",
        "packed-1.0-py3-none-manylinux_2_17_aarch64.whl",
        "packed-1.0-py3-none-manylinux_2_17_x86_64.whl",
    ):
        (files / name).write_bytes(made.read_bytes())
    (files / "source-1.0.tar.gz").write_bytes(b"")
    names = ["pure", "both", "stable", "source", "newglibc"]
    packages = [
        {"name": n, "version": "1.0", "file": f"{n}-1.0-py3-none-any.whl", "sha256": "0" * 64} for n in names
    ]
    packages[1]["file"] = "both-1.0-cp311-cp311-manylinux_2_17_x86_64.whl"
    built = {
        **packages[1],
        "name": "local",
        "version": "1.0+cpu",
        "file": packages[1]["file"].replace("both", "local"),
    }
    lock = {"python": "3.11", "roots": [], "packages": [*packages, built]}
    clone.write("recipes/wheels.lock.yaml", yaml.safe_dump(lock))
    clone.recipe("compiled")
    clone.recipe("for-python", host=["python"])
    clone.recipe("python")
    wheel, debian = (
        "packed-1.0-py3-none-manylinux_2_17_${{ machine }}.whl",
        "x_1-1_${{ debian_architecture }}.deb",
    )
    clone.recipe("packed", source=[{"path": f"../../build/sources/{wheel}"}])
    clone.recipe("from-debian", source=[{"path": f"../../build/sources/{debian}"}])
    clone.recipe("anywhere", extra={"build": {"noarch": "generic"}})
    clone.env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(files), "PIP_CONFIG_FILE": "/dev/null"}

    def planned(*options: str) -> dict[str, str]:
        answer = clone.ok("channel", "plan", *options)["recipes"]
        return {item["recipe"]: item["how"] if not item["available"] else "there" for item in answer}

    arm = planned("--platform", "linux-aarch64")
    assert arm == {
        "pure": "there",
        "both": "there",
        "stable": "no wheel of this version; the newest with one is 0.9",
        "source": "no wheel of this version: has to be compiled from its source archive",
        "newglibc": "the index has nothing that fits",
        "local": "no wheel of the build +cpu, only another one of 1.0; "
        "PyTorch's index is not asked (WMLCE_PYTORCH_INDEX)",
        "compiled": "has to be compiled on linux-aarch64",
        "for-python": "has to be compiled on linux-aarch64",
        "python": "has to be compiled on linux-aarch64",
        "packed": "there",
        "from-debian": "packs Debian's files: to be locked for arm64",
        "anywhere": "there",
    }
    clone.write("recipes/wheels.lock.yaml", yaml.safe_dump({**lock, "python": "3.10"}))
    error = clone.fails("channel", "build", "--dry-run")
    assert "wheels.lock.yaml is for Python 3.10" in error and "wmlce lock wheels" in error
    clone.write("recipes/wheels.lock.yaml", yaml.safe_dump(lock))
    power = planned("--platform", "linux-ppc64le")
    assert power["packed"] == power["both"] == "the index has nothing that fits"
    assert power["from-debian"].endswith("ppc64el") and power["pure"] == "there"
    clone.env["WMLCE_OFFLINE"] = "1"
    assert "needs the network" in clone.fails("channel", "plan", "--python", "3.12")
    del clone.env["WMLCE_OFFLINE"]
    clone.env["WMLCE_DEBIAN_MIRROR"] = f"file://{tmp_path}/none"
    next_python = planned("--python", "3.12")
    assert next_python["python"].startswith("unknown whether Debian has its source: ")
    assert next_python["for-python"] == "has to be compiled on linux-64"
    assert next_python["compiled"] == next_python["packed"] == "there"
    assert next_python["both"] == next_python["stable"] == next_python["pure"] == "there"
    assert "source archive" in next_python["source"]
    assert planned()["source"] == "there"
    assert "is not a platform" in clone.fails("channel", "plan", "--platform", "linux-128")
    assert "is not a version of Python" in clone.fails("channel", "plan", "--python", "4")


_X86, _ARM = "manylinux_2_17_x86_64", "manylinux_2_17_aarch64"


def _wheels(folder: Path) -> None:
    """An index with what a resolver can meet on another platform, or with another Python."""

    def wheel(name: str, version: str, *tags: str, requires: Sequence[str] = ()) -> None:
        made = make_wheel(folder, name, version, requires=requires)
        for tag in tags:
            shutil.copy(made, folder / f"{name}-{version}-{tag}.whl")
        if tags:
            made.unlink()

    wheel("base", "1.0", f"cp311-cp311-{_X86}", f"cp312-cp312-{_X86}")
    for version in ("0.9", "1.1", "1.2"):
        wheel("base", version, f"cp311-cp311-{_X86}", f"cp311-cp311-{_ARM}")
    wheel("tied", "1.0", requires=["base==1.0"])
    wheel("tied", "1.5", requires=["base>=1.1"])
    wheel("tied", "2.0", requires=["base>=2"])
    wheel("gone", "1.0", f"cp311-cp311-{_X86}", f"cp312-cp312-{_X86}")
    wheel("source", "1.0", f"cp311-cp311-{_X86}", f"cp312-cp312-{_X86}")
    (folder / "source-1.0.tar.gz").write_bytes(b"")
    wheel(
        "needy",
        "1.0",
        requires=["source>=1", "new; python_version >= '3.12'", "arm; platform_machine == 'aarch64'"],
    )
    wheel("new", "1.0")
    wheel("arm", "1.0")


def test_pip_resolves_the_roots_for_another_target(clone: Clone, tmp_path: Path) -> None:
    clone.without_build_root()
    _wheels(tmp_path / "files")
    roots = ["base==1.0", "tied==1.0", "gone==1.0", "source==1.0", "needy==1.0"]
    clone.write("recipes/wheels.yaml", yaml.safe_dump({"roots": roots}))
    packages = [
        {"name": n, "version": "1.0", "file": f"{n}-1.0-cp311-cp311-{_X86}.whl", "sha256": "0" * 64}
        for n in ("base", "gone", "source")
    ]
    clone.write("recipes/wheels.lock.yaml", yaml.safe_dump({"python": "3.11", "packages": packages}))
    clone.env = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "files"),
        "PIP_CONFIG_FILE": "/dev/null",
        **variables_of_pip(settings_of_pip(tmp_path)),
    }

    def solved(*options: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        solution = clone.ok("channel", "plan", "--solve", *options)["solution"]
        return solution, {root["name"]: root for root in solution["roots"]}

    here, found = solved("--platform", "linux-64")
    assert not here["refusal"] and not here["compiled"] and all(root["held"] for root in found.values())
    assert here["versions"] == {name: "1.0" for name in ("base", "gone", "source", "tied", "needy")}

    # markers are those of the target, whatever Python runs pip
    python, found = solved("--platform", "linux-64", "--python", "3.12")
    assert not python["refusal"] and set(python["versions"]) - set(here["versions"]) == {"new"}

    arm, found = solved("--platform", "linux-aarch64")
    assert any("base==1.0" in line for line in arm["refusal"]) and not arm["unsolved"]
    assert arm["compiled"] == {"source": "1.0"}
    assert arm["versions"] == {"arm": "1.0", "base": "1.1", "source": "1.0", "tied": "1.5", "needy": "1.0"}
    assert found["base"]["requirement"] == "base==1.1" and "newest with one is 1.2" in found["base"]["why"]
    assert found["tied"]["requirement"] == "tied" and "base==1.0" in found["tied"]["why"]
    assert found["gone"]["requirement"] is None and found["gone"]["why"] == "the index has nothing that fits"
    assert found["source"]["held"] and "source archive" in found["source"]["why"]
    assert found["needy"]["held"] and not found["needy"]["why"]

    text = clone.run("channel", "plan", "--solve", "--platform", "linux-aarch64").stdout
    assert "With 2 others and without 1 roots: 5 distributions, of which 1 have to be compiled" in text
    assert not (clone.root / "recipes/wheels.lock.yaml").read_text().count("1.5")  # nothing is written


def test_a_resolver_without_an_answer_says_so(clone: Clone, tmp_path: Path) -> None:
    clone.without_build_root()
    files = tmp_path / "files"
    make_wheel(files, "top", "1.0", requires=["middle"])
    make_wheel(files, "middle", "1.0", requires=["nowhere"])
    clone.write("recipes/wheels.yaml", yaml.safe_dump({"roots": ["top==1.0"]}))
    clone.env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(files), "PIP_CONFIG_FILE": "/dev/null"}
    solution = clone.ok("channel", "plan", "--solve")["solution"]
    assert not solution["versions"] and any("nowhere" in line for line in solution["unsolved"])


@pytest.mark.parametrize(
    ("pin", "versions", "near"),
    [
        ("2.13.0+cpu", ["2.12.0", "2.13.0", "2.14.0"], "2.13.0"),
        ("1.5", ["1.4", "1.6", "1.10", "2.0"], "1.6"),
        ("1.5", ["1.4", "1.2", "1.6rc1", "not a version"], "1.4"),
        ("1.5", [], None),
    ],
)
def test_the_nearest_version(pin: str, versions: list[str], near: str | None) -> None:
    assert nearest(pin, versions) == near
