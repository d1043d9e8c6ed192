"""`channel verify` finds what it is there to find, and passes what is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scratch_clone import Clone


def verify(clone: Clone, *arguments: str) -> dict[str, Any]:
    """verify.json after a run, checked against the exit code."""
    result = clone.run("channel", "verify", *arguments)
    document: dict[str, Any] = json.loads((clone.root / "build/channel/verify.json").read_text())
    assert (result.returncode == 0) == document["ok"], result.stderr
    assert result.returncode in (0, 1) and "Traceback" not in result.stderr
    return document


def findings(document: dict[str, Any], check: str) -> list[str]:
    return [finding for item in document["checks"] if check in item["name"] for finding in item["findings"]]


def with_findings(document: dict[str, Any]) -> set[str]:
    """The names of the checks that found something."""
    return {check["name"] for check in document["checks"] if check["findings"]}


def test_a_good_channel_passes(library_and_program: Clone) -> None:
    clone = library_and_program
    clone.built()
    clone.ok("env", "create", "program")
    document = verify(clone, "--env", "program")
    assert document["ok"], document
    assert document["packages"] == 2 and len(document["checks"]) == 17


def test_foreign_library(clone: Clone) -> None:
    """A program that links a library of the build machine, which no package provides."""
    clone.recipe(
        "linker",
        script=[
            "mkdir -p $PREFIX/bin own",
            "echo 'int f(void) { return 0; }' > f.c && gcc -shared -fPIC -o own/libforeign.so f.c",
            "echo 'int f(void); int main(void) { return f(); }' > m.c",
            "gcc -o $PREFIX/bin/linker m.c -Lown -lforeign",
        ],
    )
    clone.built()
    clone.ok("env", "create", "linker")
    found = findings(verify(clone, "--env", "linker"), "libraries")
    assert found == ["linker: bin/linker needs libforeign.so: no file of the environment provides it"]


def test_library_that_is_there_but_not_found(clone: Clone) -> None:
    clone.recipe(
        "lost",
        script=[
            "mkdir -p $PREFIX/bin $PREFIX/elsewhere",
            "echo 'int f(void) { return 0; }' > f.c && gcc -shared -fPIC -o $PREFIX/elsewhere/libf.so f.c",
            "echo 'int f(void); int main(void) { return f(); }' > m.c",
            "gcc -o $PREFIX/bin/lost m.c -L$PREFIX/elsewhere -lf",
        ],
        extra={"build": {"dynamic_linking": {"binary_relocation": False}}},
    )
    clone.built()
    clone.ok("env", "create", "lost")
    found = findings(verify(clone, "--env", "lost"), "libraries")
    assert len(found) == 1 and "elsewhere/libf.so, where its search path does not lead" in found[0]


def test_search_path_out_of_the_environment(clone: Clone) -> None:
    clone.recipe(
        "wanderer",
        script=[
            "mkdir -p $PREFIX/bin",
            "echo 'int main(void) { return 0; }' > m.c",
            "gcc -o $PREFIX/bin/wanderer m.c -Wl,-rpath,/opt/site/lib",
        ],
        extra={"build": {"dynamic_linking": {"binary_relocation": False}}},
    )
    clone.built()
    clone.ok("env", "create", "wanderer")
    found = findings(verify(clone, "--env", "wanderer"), "libraries")
    assert found == [
        "wanderer: bin/wanderer needs /opt/site/lib: its search path leads outside the environment"
    ]


def test_leaked_path(clone: Clone) -> None:
    clone.recipe("leaky", script=["mkdir -p $PREFIX/share", "echo built in $SRC_DIR > $PREFIX/share/notes"])
    clone.recipe("prefixed", script=["mkdir -p $PREFIX/share", "echo lives in $PREFIX > $PREFIX/share/where"])
    clone.built()
    found = findings(verify(clone), "path")
    assert len(found) == 1, found
    assert found[0].startswith("leaky-1.0-") and "share/notes" in found[0]
    # the answer is remembered, not forgotten
    assert findings(verify(clone), "path") == found


def test_damaged_missing_and_unlisted_files(clone: Clone) -> None:
    for name in ("a", "b", "c"):
        clone.recipe(name)
    clone.built()
    folder = clone.root / "build/channel/linux-64"
    files = {path.name[0]: path for path in folder.glob("*.conda")}
    content = bytearray(files["a"].read_bytes())
    content[len(content) // 2] ^= 1
    files["a"].unlink()  # a link to the cache: the copy there must stay as it is
    files["a"].write_bytes(content)
    (folder / "extra-1.0-0.conda").write_bytes(files["c"].read_bytes())
    files["b"].unlink()
    found = findings(verify(clone), "index")
    assert any("a-1.0" in text and "sha256" in text for text in found)
    assert any("b-1.0" in text and "missing" in text for text in found)
    assert any("extra-1.0" in text and "not in the index" in text for text in found)
    clone.built()  # publishes again what is missing
    assert not any("b-1.0" in text for text in findings(verify(clone), "index"))


def test_missing_licence(clone: Clone) -> None:
    clone.recipe("free")
    clone.recipe("bare", license_=None)
    clone.recipe("copyleft", license_="MIT AND GPL-3.0-or-later")
    clone.built()
    document = verify(clone)
    found = findings(document, "licences")
    assert len(found) == 1 and "bare-1.0" in found[0]
    notes = [note for check in document["checks"] for note in check["notes"]]
    assert any("GPL-3.0-or-later: offer the sources" in note and "copyleft" in note for note in notes)


def test_vague_licence(clone: Clone) -> None:
    """Refused where it is written; in a package of another builder, which reads none, it is found."""
    recipe = clone.recipe("vague", license_="BSD")
    assert "recipes/vague/recipe.yaml" in clone.fails("channel", "build", "vague")
    recipe.write_text(recipe.read_text().replace('"BSD"', '"MIT"'))
    clone.built()
    channel = clone.root / "build/channel"
    for repodata in channel.glob("*/repodata.json"):
        repodata.write_text(repodata.read_text().replace('"MIT"', '"BSD"'))
    found = findings(verify(clone), "licences")
    assert len(found) == 1 and "vague-1.0" in found[0] and "BSD" in found[0]


def test_package_that_cannot_be_installed(clone: Clone) -> None:
    """A requirement that another channel would have to fulfil."""
    clone.recipe("base")
    clone.recipe("user", run=["base"])
    clone.built()
    channel = clone.root / "build/channel"
    next(channel.glob("linux-64/base-*.conda")).unlink()
    clone.ok("channel", "index")
    found = findings(verify(clone), "closed")
    assert len(found) == 1 and found[0].startswith("user ==1.0")


def test_libraries_left_to_the_site_are_allowed_only_to_their_users(clone: Clone) -> None:
    """A plugin for the site's InfiniBand driver passes and is mentioned; the same need elsewhere is a
    finding.
    """

    def plugin(path: str) -> list[str]:
        folder = Path(path).parent
        return [
            f"mkdir -p $PREFIX/{folder} own",
            "echo 'int v(void) { return 0; }' > v.c",
            "gcc -shared -fPIC -Wl,-soname,libibverbs.so.1 -o own/libibverbs.so v.c",
            "echo 'int v(void); int use(void) { return v(); }' > u.c",
            f"gcc -shared -fPIC -o $PREFIX/{path} u.c -Lown -libverbs",
        ]

    clone.recipe("plugin", script=plugin("lib/ucx/libuct_ib.so"))
    clone.recipe("other", script=plugin("lib/libother.so"))
    clone.built()
    clone.ok("env", "create", "good", "plugin")
    clone.ok("env", "create", "bad", "other")
    good = verify(clone, "--env", "good")
    assert with_findings(good) <= {"every shared object has an owner"}
    assert any("libibverbs.so.1 is the site's" in note for check in good["checks"] for note in check["notes"])
    found = findings(verify(clone, "--env", "bad"), "libraries")
    assert found == ["other: lib/libother.so needs libibverbs.so.1: no file of the environment provides it"]


def test_not_an_environment(clone: Clone, tmp_path: Path) -> None:
    clone.recipe("a")
    clone.built()
    assert "is not an environment" in clone.fails("channel", "verify", "--env", str(tmp_path))


def test_a_package_above_the_floor_of_glibc(clone: Clone) -> None:
    """The floor is lowered below what a finished package needs; nothing else of it changes."""
    clone.library_for_glibc_2_27("new")
    clone.built()
    assert not findings(verify(clone), "glibc of packages")
    path = clone.root / "recipes/build-root.yaml"
    path.write_text(path.read_text().replace('glibc: "2.28"', 'glibc: "2.17"'))
    found = findings(verify(clone), "glibc of packages")
    assert len(found) == 1 and "new-1.0" in found[0] and "needs glibc 2.27" in found[0]


def test_library_that_is_loaded_before(clone: Clone) -> None:
    """Files that must not be changed find what others have loaded; it has to be in the environment all the
    same. And what is for hosts with a driver is closed, although there is none here.
    """
    place = "lib/python3.11/site-packages/nvidia/cudnn/lib"
    clone.recipe(
        "zlib",
        script=[
            "mkdir -p $PREFIX/lib",
            "echo 'int f(void) { return 0; }' > f.c",
            "gcc -shared -fPIC -Wl,-soname,libz.so.1 -o $PREFIX/lib/libz.so.1.0 f.c",
            "ln -s libz.so.1.0 $PREFIX/lib/libz.so.1",
        ],
    )
    user = {
        "host": ["zlib"],
        "run": ["__cuda >=12", "zlib"],
        "script": [
            f"mkdir -p $PREFIX/{place}",
            "echo 'int f(void); int g(void) { return f(); }' > g.c",
            f"gcc -shared -fPIC -o $PREFIX/{place}/libcudnn.so.9 g.c $PREFIX/lib/libz.so.1",
        ],
        "extra": {"build": {"dynamic_linking": {"binary_relocation": False}}},
    }
    clone.env["CONDA_OVERRIDE_CUDA"] = "12.0"
    clone.recipe("cudnn", **user)
    clone.built()
    clone.ok("env", "create", "good", "cudnn")
    clone.env["CONDA_OVERRIDE_CUDA"] = ""
    document = verify(clone, "--env", "good")
    assert with_findings(document) <= {"every shared object has an owner"}
    (clone.root / "build/envs/good/lib/libz.so.1").unlink()
    found = findings(verify(clone, "--env", "good"), "libraries")
    assert found == [f"cudnn: {place}/libcudnn.so.9 needs libz.so.1: no file of the environment provides it"]
