"""`wmlce channel plan` against an index on this machine."""

from __future__ import annotations

from pathlib import Path

import yaml
from local_wheels import make_wheel
from scratch_clone import Clone


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
        return {item["recipe"]: item["how"] if not item["there"] else "there" for item in answer}

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
    assert "is no platform" in clone.fails("channel", "plan", "--platform", "linux-128")
    assert "is no version of Python" in clone.fails("channel", "plan", "--python", "4")
