"""Variants of the channel: what is built and when, their locks, and what of them may not be passed on."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from local_wheels import make_wheel, settings_of_pip, variables_of_pip
from scratch_clone import Clone

FAST = {"summary": "a faster answer", "package": "hello", "values": {"answer": ["2.0"]}, "again": ["user"]}


@pytest.fixture
def with_variant(clone: Clone) -> Clone:
    """hello, user (of hello) and other; the variant `fast` has another hello, and builds user against it."""
    clone.write("recipes/variants.yaml", "answer: ['1.0']\n")
    clone.write("recipes/fast/variant.yaml", yaml.safe_dump(FAST))
    clone.recipe("other")
    clone.recipe("hello", run=["other"])
    document = (clone.root / "recipes/hello/recipe.yaml").read_text()
    clone.write("recipes/fast/hello/recipe.yaml", document.replace("echo hello", "echo fast"))
    clone.recipe(
        "user",
        host=["hello"],
        run=["hello"],
        script=["mkdir -p $PREFIX/share", "cp $PREFIX/share/hello $PREFIX/share/user"],
        test=["cat $CONDA_PREFIX/share/user", "test -f $CONDA_PREFIX/share/user"],
        extra={"package": {"version": "${{ answer }}"}},
    )
    return clone


def indexed(clone: Clone) -> dict[str, dict[str, Any]]:
    import json

    text = (clone.root / "build/channel/linux-64/repodata.json").read_text()
    return {
        f"{entry['name']} {entry['build']}": entry for entry in json.loads(text)["packages.conda"].values()
    }


def of_fast(clone: Clone) -> set[str]:
    return {name for name in clone.published() if "-fast_h" in name}


@pytest.mark.slow
def test_built_on_request_beside_the_others(with_variant: Clone) -> None:
    clone = with_variant
    assert clone.built() == {"hello", "other", "user"} and not of_fast(clone)
    before = clone.published()
    forecast = clone.ok("channel", "build", "--variant", "fast", "--dry-run")
    assert set(forecast["todo"]) == {"hello-fast", "user-fast"} and forecast["fetch"] == 0
    # what is of no variant is neither built again nor changed
    assert clone.built("--variant", "fast") == {"hello-fast", "user-fast"}
    assert clone.published() == before | of_fast(clone) and len(of_fast(clone)) == 2
    entries = indexed(clone)
    [user] = [entry for name, entry in entries.items() if name.startswith("user fast_")]
    assert user["version"] == "2.0" and user["track_features"]
    # the next build of the channel keeps them
    assert clone.built() == set() and len(of_fast(clone)) == 2
    clone.ok("env", "create", "plain", "hello")
    assert (clone.root / "build/envs/plain/share/hello").read_text() == "hello\n"
    clone.ok("env", "create", "quick", "user=2")
    assert (clone.root / "build/envs/quick/share/user").read_text() == "fast\n"
    # a change of the variant builds the variant
    path = clone.root / "recipes/fast/hello/recipe.yaml"
    path.write_text(path.read_text().replace("echo fast", "echo faster"))
    assert clone.built() == set() and not of_fast(clone)
    assert clone.built("hello", "--variant", "fast") == {"hello-fast"}
    assert {name for name in of_fast(clone) if name.startswith("hello-")}


@pytest.mark.slow
def test_built_on_what_its_users_have_whatever_this_user_overrides(with_variant: Clone) -> None:
    clone = with_variant
    clone.write(
        "recipes/fast/variant.yaml", yaml.safe_dump({**FAST, "system": {"CONDA_OVERRIDE_CUDA": "12.8"}})
    )
    path = clone.root / "recipes/fast/hello/recipe.yaml"
    document = yaml.safe_load(path.read_text())
    document["requirements"]["run"].append("__cuda >=12")
    path.write_text(yaml.safe_dump(document))
    clone.env["CONDA_OVERRIDE_CUDA"] = "11.4"
    assert {"hello-fast", "user-fast"} <= clone.built("--variant", "fast")


def test_bad_input(with_variant: Clone) -> None:
    clone = with_variant
    error = clone.fails("channel", "build", "--variant", "fats")
    assert "no variant 'fats'" in error and "did you mean fast?" in error
    clone.recipe("only")
    shutil.move(clone.root / "recipes/only", clone.root / "recipes/fast/only")
    error = clone.fails("channel", "build", "only", "--dry-run")
    assert "'only' is a package of the variant fast" in error and "--variant fast" in error
    clone.write("recipes/fast/variant.yaml", yaml.safe_dump({**FAST, "again": ["gone"]}))
    assert "builds 'gone' again, of which there is no recipe" in clone.fails("channel", "build", "--dry-run")
    clone.write("recipes/fast/variant.yaml", yaml.safe_dump({**FAST, "vales": {}}))
    assert "recipes/fast/variant.yaml cannot be read" in clone.fails("channel", "build", "--dry-run")
    clone.write("recipes/fast/variant.yaml", yaml.safe_dump(FAST))
    assert "recipes/fast/wheels.yaml names no roots" in clone.fails("lock", "wheels", "--variant", "fast")


@pytest.mark.slow
def test_no_installer_of_what_may_not_be_passed_on(clone: Clone) -> None:
    about = {"license": "LicenseRef-Secret", "license_family": "PROPRIETARY"}
    clone.recipe("secret", extra={"about": about})
    clone.recipe("user", run=["secret"])
    clone.built()
    error = clone.fails("installer", "build", "user", "--output", str(clone.root / "user.sh"))
    assert "the installer user.sh would hold 1 package whose" in error and "--proprietary" in error
    assert "secret 1.0: LicenseRef-Secret" in error
    # with the option it goes on, to the next thing that is missing in this small channel
    error = clone.fails(
        "installer", "build", "user", "--output", str(clone.root / "user.sh"), "--proprietary"
    )
    assert "LicenseRef-Secret" not in error and "python" in error


@pytest.fixture
def with_wheels(clone: Clone, tmp_path: Path) -> Clone:
    """A variant of three wheels: of `engine`, two others want versions that exclude each other."""
    clone.without_build_root()
    links = tmp_path / "links"
    header = {"engine/include/engine.h": "int engine(void);\n", "engine/__init__.py": ""}
    make_wheel(links, "engine", "2.0", files=header, license_="LicenseRef-Engine")
    make_wheel(links, "car", "1.0", requires=["engine==1.9", "wheel_of_base>=1"])
    make_wheel(links, "boat", "1.0", requires=["engine>=2", 'sail; extra == "wind"'])
    clone.env |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(links), "PIP_CONFIG_FILE": "/dev/null"}
    clone.env |= {"PIP_EXTRA_INDEX_URL": "", **variables_of_pip(settings_of_pip(tmp_path))}
    base = {
        "python": "3.11",
        "packages": [{"name": "wheel-of-base", "version": "1.5", "file": "b-1.5-py3-none-any.whl"}],
    }
    base["packages"][0]["sha256"] = "0" * 64  # type: ignore[index]
    clone.write("recipes/wheels.yaml", "roots: []\n")
    clone.write("recipes/wheels.lock.yaml", yaml.safe_dump(base))
    variant = {"summary": "s", "package": "car", "headers": {"engine": ["engine/include/*"]}}
    clone.write("recipes/fast/variant.yaml", yaml.safe_dump(variant))
    return clone


def choose(clone: Clone, **rules: Any) -> None:
    engine = {"license": "LicenseRef-Engine", "redistribute": False}
    choice = {"roots": ["car==1.0", "boat==1.0", "engine==2.0"], "packages": {"engine": engine, **rules}}
    clone.write("recipes/fast/wheels.yaml", yaml.safe_dump(choice))


def test_lock_of_a_variants_wheels(with_wheels: Clone) -> None:
    clone = with_wheels
    choose(clone)
    error = clone.fails("lock", "wheels", "--variant", "fast")
    assert "does not fit together" in error and "car 1.0 needs engine==1.9, and there is 2.0" in error
    choose(clone, car={"requires": {"engine": ">=2"}}, boat={"extras": ["wind"]})
    assert "boat 1.0 needs sail, and there is none" in clone.fails("lock", "wheels", "--variant", "fast")
    choose(clone, car={"requires": {"engine": ">=2"}})
    answer = clone.ok("lock", "wheels", "--variant", "fast")
    assert answer["packages"] == ["boat==1.0", "car==1.0", "engine==2.0"] and answer["bytes"] > 0
    recipe = clone.ok("recipe", "render", "car", "--variant", "fast")["outputs"][0]["recipe"]
    assert "engine >=2" in recipe["requirements"]["run"]
    assert not any("engine" in spec and "1.9" in spec for spec in recipe["requirements"]["run"])
    about = clone.ok("recipe", "render", "engine", "--variant", "fast")["outputs"][0]["recipe"]["about"]
    assert about["license_family"] == "PROPRIETARY"
    links = Path(clone.env["PIP_FIND_LINKS"])
    make_wheel(links, "boat", "1.0", files={"boat/__init__.py": "", "boat/libmotor.so.1": ""})
    make_wheel(links, "engine", "2.0", files={"engine/libmotor.so.1": "", "engine/include/engine.h": ""})
    choose(clone, car={"requires": {"engine": ">=2"}})
    error = clone.fails("lock", "wheels", "--variant", "fast")
    assert "files of what recipes/fast/wheels.yaml names exist twice" in error
    assert "libmotor.so.1: boat and engine" in error
    choose(clone, boat={"redistribute": False})
    assert "needs a `license` that names a LicenseRef-" in clone.fails("lock", "wheels", "--variant", "fast")


def test_what_may_not_be_passed_on_is_in_no_bundle(with_wheels: Clone, tmp_path: Path) -> None:
    clone = with_wheels
    choose(clone, car={"requires": {"engine": ">=2"}})
    clone.ok("lock", "wheels", "--variant", "fast")
    clone.write("recipes/wheels.lock.yaml", "packages: []\n")
    folder = tmp_path / "bundle"
    words = ("source", "bundle", str(folder), "--no-tools", "--variant", "fast")
    assert clone.ok(*words)["left_out"] == ["engine-2.0-py3-none-any.whl"]
    assert {path.name for path in folder.glob("*.whl")} == {
        "boat-1.0-py3-none-any.whl",
        "car-1.0-py3-none-any.whl",
    }
    assert "engine" not in (folder / "SHA256SUMS").read_text()
    assert clone.ok(*words, "--proprietary")["left_out"] == []
    assert (folder / "engine-2.0-py3-none-any.whl").is_file()
    assert clone.ok("source", "bundle", str(tmp_path / "plain"), "--no-tools")["files"] == 0


def test_headers_without_the_libraries(with_wheels: Clone) -> None:
    clone = with_wheels
    choose(clone, car={"requires": {"engine": ">=2"}})
    clone.ok("lock", "wheels", "--variant", "fast")
    [folder] = clone.ok("source", "headers", "--variant", "fast")["include"]
    assert (Path(folder) / "engine.h").read_text() == "int engine(void);\n"
    assert clone.ok("source", "headers", "--variant", "fast")["include"] == [folder]
    lock = clone.root / "recipes/fast/headers.lock.yaml"
    [item] = yaml.safe_load(lock.read_text())
    item["sha256"]["engine/include/engine.h"] = "1" * 64
    lock.write_text(yaml.safe_dump([item]))
    error = clone.fails("source", "headers", "--variant", "fast")
    assert "wrong sha256 for engine/include/engine.h" in error
    lock.unlink()
    assert "the variant fast has no locked headers" in clone.fails("source", "headers", "--variant", "fast")


def test_size_is_told_before_a_download(with_wheels: Clone) -> None:
    clone = with_wheels
    choose(clone, car={"requires": {"engine": ">=2"}})
    clone.ok("lock", "wheels", "--variant", "fast")
    clone.write("recipes/wheels.lock.yaml", "packages: []\n")
    lock = clone.root / "recipes/fast/wheels.lock.yaml"
    document = yaml.safe_load(lock.read_text())
    size = sum(wheel["size"] for wheel in document["packages"])
    said = clone.run("source", "fetch", "--variant", "fast").stderr
    assert re.search(
        r"\b3 sources to fetch.* 0\.00 GB.*\n.*fetching 2 Python artifacts with pip, 0 MB", said
    ), said
    assert size == sum(path.stat().st_size for path in (clone.cache / "sources").glob("*/*.whl"))
    for wheel in document["packages"]:
        wheel["size"], wheel["sha256"] = 10**18, "0" * 64
    lock.write_text(yaml.safe_dump(document))
    error = clone.fails("source", "fetch", "--variant", "fast")
    assert "3000000000.00 GB of sources have no room in" in error and "WMLCE_CACHE" in error
