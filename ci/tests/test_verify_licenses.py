"""Licences: the policy, libraries inside wheels, and the texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scratch_clone import Clone
from small_channel import index, make_package
from test_verify import findings, verify
from tree import ROOT
from wmlce.channel.verify import licenses
from wmlce.images import image as images
from wmlce.images.debian import DebianPackage, listed_names
from wmlce.recipes import third_party
from wmlce.recipes import variant as variants
from wmlce.recipes.license_policy import judge, policy
from wmlce.recipes.licenses import canonical, unnamed
from wmlce.recipes.recipe_set import RecipeSet
from wmlce.recipes.third_party import bundled
from wmlce.recipes.wheel_lock import read_config
from wmlce.util.layout import Layout


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("MIT AND (BSD-3-Clause OR EUPL-1.2)", None),
        ("AGPL-3.0-only OR Apache-2.0", None),
        ("GPL-3.0-only WITH GCC-exception-3.1", None),
        ("GPL-3.0-only", "the licence GPL-3.0-only is unknown: declare it in "),
        ("Apache-2.0 AND EUPL-1.2", "the licence EUPL-1.2 is unknown: declare it in "),
        ("LicenseRef-Own", "the licence LicenseRef-Own is unknown: declare it in "),
        ("MIT AND AGPL-3.0-only", "AGPL-3.0-only is refused: "),
        ("BSD", "its licence is not an SPDX expression: BSD"),
    ],
)
def test_expressions(expression: str, problem: str | None) -> None:
    found = judge(expression).problems
    assert (not found) if problem is None else (len(found) == 1 and found[0].startswith(problem)), found


def test_of_two_the_one_without_conditions_is_taken() -> None:
    assert judge("GPL-3.0-or-later OR MIT").conditions == []
    [condition] = judge("GPL-3.0-or-later AND MIT").conditions
    assert condition.startswith("GPL-3.0-or-later: offer the sources")


def test_the_policy_is_consistent() -> None:
    rules = policy()
    groups = [rules.allowed, rules.conditional.keys(), rules.refused.keys()]
    names = [name for group in groups for name in group]
    assert len(set(names)) == len(names), "a licence is in two groups"
    assert all(canonical(name) == name for name in names)
    for library, license_ in rules.bundled.items():
        assert not judge(license_).problems, library


def test_names_of_libraries_inside_wheels() -> None:
    site = "lib/python3.11/site-packages"
    found = bundled(
        [
            f"{site}/numpy.libs/libgfortran-040039e1-0352e75f.so.5.0.0",
            f"{site}/numpy.libs/libscipy_openblas64_-32a4b2a6.so",
            f"{site}/torchvision.libs/libpng16.c2edc9e1.so.16",
            f"{site}/torch/lib/libtorch.so",
            "lib/libz.so.1",
        ]
    )
    assert list(found.values()) == ["libgfortran", "libscipy_openblas64_", "libpng16"]


SITE = "lib/python3.11/site-packages"
LAYOUT = Layout.locate(ROOT)
VARIANTS = ("cuda12", "plain")


def test_every_package_and_every_library_inside_is_judged(tmp_path: Path) -> None:
    libraries = (f"{SITE}/more.libs/{name}-0123abcd.so.1" for name in ("libz", "libodd", "libzmq"))
    make_package(tmp_path, "bare", license_=None)
    make_package(tmp_path, "good", subdir="linux-64")
    make_package(tmp_path, "more", files=dict.fromkeys(libraries, "x"), license_="MIT AND Zlib AND MPL-2.0")
    make_package(tmp_path, "copyleft", license_="GPL-3.0-or-later")
    make_package(tmp_path, "another", license_="GPL-3.0-or-later")
    make_package(tmp_path, "refused", license_="SSPL-1.0")
    check = licenses.allowed(index(tmp_path))
    bare, library, refused = check.findings
    assert bare == "noarch/bare-1.0-0.conda names no licence: add about.license to its recipe"
    assert library == (
        f"noarch/more-1.0-0.conda: it brings {SITE}/more.libs/libodd-0123abcd.so.1, and the licence of "
        "libodd is unknown: declare it in ci/wmlce/recipes/third_party.yaml"
    )
    assert refused.startswith("noarch/refused-1.0-0.conda: SSPL-1.0 is refused: ")
    gpl, mpl = check.notes
    assert gpl.startswith("GPL-3.0-or-later: ") and gpl.endswith(" (another, copyleft)")
    assert mpl.startswith("MPL-2.0: ") and mpl.endswith(" (more, more (libzmq))")
    assert check.summary == "6 packages under 5 licences, 2 projects of others inside"


def test_a_library_whose_declared_licence_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = f"{SITE}/more.libs/libz-0123abcd.so.1"
    make_package(tmp_path, "more", files={library: "x"})
    monkeypatch.setattr(third_party.declared().projects["zlib"], "license", "SSPL-1.0")
    [_, found] = licenses.allowed(index(tmp_path)).findings
    assert found.startswith(f"noarch/more-1.0-0.conda: {library}: zlib: SSPL-1.0 is refused: ")


def test_licences_of_what_is_inside_are_the_packages_too(tmp_path: Path) -> None:
    """Those of files of their own, and of what was linked in, which has none; of alternatives one is enough.
    A link to another package's library brings nothing.
    """
    closed = "LicenseRef-Intel-Simplified-Software"
    torch = str(third_party.declared().packages["powerai-pytorch"].seen)
    files = {f"{SITE}/torch/lib/libtorch_cpu.so": "x"}
    make_package(tmp_path / "a", "powerai-pytorch", torch, files=files)
    make_package(tmp_path / "a", "powerai-openmpi", files={"lib/openmpi/libfabric.so.1": "x"})
    wheel = {f"{SITE}/plain.libs/libgomp-e985bcbb.so.1.0.0": "x"}
    make_package(tmp_path / "a", "plain", files=wheel)
    make_package(
        tmp_path / "a", "linked", links={f"{SITE}/linked.libs/libgomp-e985bcbb.so.1.0.0": "../libgomp.so.1"}
    )
    check = licenses.allowed(index(tmp_path / "a"))
    text = "\n".join(check.findings)
    assert f"Intel oneMKL is in {SITE}/torch/lib/libtorch_cpu.so under {closed}, which the package" in text
    assert f"AsmJit is in {SITE}/torch/lib/libtorch_cpu.so under Zlib, which the package" in text
    assert "libfabric.so.1 under (BSD-2-Clause OR GPL-2.0-only), which the package does not name" in text
    assert (
        "libgomp-e985bcbb.so.1.0.0 under GPL-3.0-or-later WITH GCC-exception-3.1, which the package" in text
    )
    assert "linked-1.0" not in text
    about = json.loads(RecipeSet(LAYOUT).by_name["powerai-pytorch"].text)["about"]
    make_package(tmp_path / "b", "powerai-pytorch", torch, files=files, license_=about["license"])
    make_package(
        tmp_path / "b",
        "powerai-openmpi",
        files={"lib/openmpi/libfabric.so.1": "x"},
        license_="BSD-2-Clause AND MIT",
    )
    check = licenses.allowed(index(tmp_path / "b"))
    assert check.ok, check.findings
    [note] = [text for text in check.notes if text.startswith(f"{closed}: ")]
    assert note.endswith(" (powerai-pytorch, powerai-pytorch (Intel oneMKL))")


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [
        ("MIT", "Apache-2.0 AND MIT", []),
        ("MIT", "Apache-2.0 OR MIT", ["MIT"]),
        ("MIT AND ISC AND Zlib", "ISC", ["MIT", "Zlib"]),
        ("MIT OR ISC", "ISC AND Zlib", []),
        ("MIT OR ISC", "Zlib AND (ISC OR MIT)", []),
        ("MIT OR ISC", "Zlib", ["(MIT OR ISC)"]),
        ("mit", "MIT", []),
        (
            "GPL-3.0-or-later WITH GCC-exception-3.1",
            "GPL-3.0-or-later",
            ["GPL-3.0-or-later WITH GCC-exception-3.1"],
        ),
    ],
)
def test_licences_that_the_whole_does_not_name(part: str, whole: str, expected: list[str]) -> None:
    assert unnamed(part, whole) == expected


def test_licences_inside_a_wheel_are_added_to_its_own() -> None:
    for name, own, inside in (
        ("numpy", "BSD-3-Clause", "GPL-3.0-or-later WITH GCC-exception-3.1"),
        ("pillow", "MIT-CMU", "FTL"),
    ):
        parts = json.loads(RecipeSet(LAYOUT).by_name[name].text)["about"]["license"].split(" AND ")
        assert {own, inside} <= set(parts) and len(set(parts)) == len(parts), parts


def test_a_damaged_package_is_for_other_checks_to_report(tmp_path: Path) -> None:
    package = make_package(tmp_path, "low")
    index(tmp_path)
    package.write_bytes(b"damaged")
    assert licenses.allowed(tmp_path).ok


def test_texts_of_a_package_and_of_the_wheel_inside(tmp_path: Path) -> None:
    """Each text once, wherever else it is; no empty ones, and no other files."""
    info = f"{SITE}/plain-1.0.dist-info"
    package = make_package(
        tmp_path / "channel",
        "plain",
        files={
            "info/licenses/COPYING": "the text",
            "info/licenses/deep/../NOTICE": "notice",
            "info/about.json": "{}",
            f"{info}/licenses/vendored/LICENSE": "of a library",
            f"{info}/LICENSE.txt": "the text",
            f"{info}/AUTHORS": "somebody",
            f"{info}/COPYING": "",
            f"{info}/METADATA": "Name: plain",
        },
    )
    expected = {
        "COPYING": "the text",
        "deep/NOTICE": "notice",
        "vendored/LICENSE": "of a library",
        "AUTHORS": "somebody",
    }
    assert {name: text.decode() for name, text in licenses.texts(package)} == expected
    for number in range(24):
        make_package(tmp_path / "channel", f"other{number}")
    index(tmp_path / "channel")
    said: list[str] = []
    assert licenses.collect(tmp_path / "channel", tmp_path / "texts", said.append) == len(expected)
    assert said == ["read the licences of 25 of 25 packages"]
    for name, text in expected.items():
        assert (tmp_path / "texts" / package.stem / name).read_text() == text


def test_unknown_and_refused_licences_stop_it(clone: Clone) -> None:
    """One line each, with the package, what was found and where to declare it; the channel stays."""
    place = "$PREFIX/lib/python3.11/site-packages/wheel.libs"
    clone.recipe("odd", license_="LicenseRef-Own")
    clone.recipe("refused", license_="AGPL-3.0-or-later")
    clone.recipe("wheel", script=[f"mkdir -p {place}", f"echo x > {place}/libodd-0123abcd.so.1"])
    clone.built()
    before = clone.channel_state()
    error = clone.fails("channel", "verify")
    after = clone.channel_state()
    assert {name: after[name] for name in before} == before
    lines = [line.strip() for line in error.splitlines()]
    odd, refused, wheel = sorted(line for line in lines if line.startswith("linux-64/"))
    assert odd.startswith("linux-64/odd-1.0-") and odd.endswith(
        ": the licence LicenseRef-Own is unknown: declare it in ci/wmlce/recipes/license_policy.yaml"
    )
    assert ": AGPL-3.0-or-later is refused: " in refused
    assert "wheel.libs/libodd-0123abcd.so.1, and the licence of libodd is unknown: declare it in" in wheel
    assert len(findings(verify(clone), "licences")) == 3


def test_texts_are_collected(clone: Clone, tmp_path: Path) -> None:
    """Those that a recipe names, and those in a wheel's metadata; each text once."""
    info = "$PREFIX/lib/python3.11/site-packages/plain-1.0.dist-info/licenses/vendored"
    clone.write("recipes/plain/COPYING", "the text\n")
    clone.recipe(
        "plain",
        source=[{"path": "COPYING"}],
        script=[f"mkdir -p {info}", f"echo 'of a library' > {info}/LICENSE", f"cp COPYING {info}/.."],
        extra={"about": {"license": "MIT", "license_file": "COPYING"}},
    )
    clone.built()
    clone.ok("channel", "verify", "--licenses", str(tmp_path / "texts"))
    found = {
        str(path.relative_to(tmp_path / "texts")).partition("/")[2]: path.read_text()
        for path in (tmp_path / "texts").rglob("*")
        if path.is_file()
    }
    assert found == {"COPYING": "the text\n", "vendored/LICENSE": "of a library\n"}


def test_of_this_channel() -> None:
    check = licenses.allowed(ROOT / "build/channel")
    assert check.ok, check.findings
    assert any("numpy (OpenBLAS)" in note for note in check.notes)


def test_every_debian_package_of_an_image_has_a_licence() -> None:
    declared = third_party.declared().debian
    assert sorted(declared) == sorted(listed_names(ROOT / "containers/debian-packages.txt"))
    assert all(canonical(license_) == license_ for license_ in declared.values())


def test_the_licences_of_a_whole_image(tmp_path: Path) -> None:
    """The label is made of the environment's records, what is inside the packages, and Debian's packages."""
    root = tmp_path / "root"
    records = root / images.PREFIX.relative_to("/") / "conda-meta"
    records.mkdir(parents=True)
    torch = f"{SITE}/torch/lib/libtorch_cpu.so"
    for name, license_, file in (
        ("powerai-pytorch", "MIT AND (ISC OR 0BSD)", torch),
        ("odd", "no expression", "a"),
    ):
        record = {"name": name, "version": "1.0", "subdir": "noarch", "license": license_, "files": [file]}
        record["paths_data"] = {"paths": [{"_path": file}]}
        (records / f"{name}.json").write_text(json.dumps(record))
    bash = DebianPackage("bash", "1", "bash_1_amd64.deb", "0" * 64, tmp_path)
    found = images._licenses(images.Content("", {}, "1", [], {}, [bash]), root)
    parts = found.split(" AND ")
    assert parts == sorted(set(parts)) and canonical(found) == found
    wanted = {
        "MIT",
        "(ISC OR 0BSD)",
        "GPL-3.0-or-later",
        "LicenseRef-Intel-Simplified-Software",
        "Apache-2.0",
    }
    assert wanted <= set(parts)


def test_the_decision_on_onemkl() -> None:
    """Passed on, as its licence allows: unmodified, in binary form, with its text. Search paths stay as they
    are, and links lead to the environment's libraries. It is in the builds for GPUs, too.
    """
    for variant in (None, *VARIANTS):
        rules = read_config(LAYOUT, variants.find(LAYOUT, variant) if variant else None).rules("torch")
        assert rules.unmodified and rules.compile and rules.redistribute, variant
        assert "LicenseRef-Intel-Simplified-Software" in str(rules.license)
        assert list(rules.license_from.values()) == ["mkl_include-2024.2.2.dist-info/LICENSE.txt"]
        assert not [file for file in rules.needed if "libtorch_cpu" in file]
    [text] = rules.license_from.values()
    document = json.loads(RecipeSet(LAYOUT).by_name["powerai-pytorch"].text)
    copied = [line for line in document["build"]["script"] if text in line]
    assert len(copied) == 1 and document["about"]["license_file"][-1] in copied[0]
    assert not [line for line in document["build"]["script"] if "--platform" in line]
