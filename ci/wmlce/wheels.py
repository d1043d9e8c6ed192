"""Recipes out of locked wheels.

recipes/wheels.yaml is written by hand (what is wanted), recipes/wheels.lock.yaml by `wmlce lock wheels` (what
was resolved). Together they give every wheel's recipe without the wheel itself being present.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from rattler_build import VariantConfig

from wmlce.errors import WmlceError
from wmlce.layout import Layout
from wmlce.recipes import Recipe
from wmlce.sources import LockedFile, LockedSource


class WheelRules(BaseModel):
    """What recipes/wheels.yaml may say about one distribution; every key is optional.

    imports:      modules that the test imports, instead of those found in the wheel
    commands:     shell commands that the test runs besides
    python_code:  Python code that the test runs besides
    run:          further run requirements, as conda match specs
    pins:         conda version specs that replace those of the METADATA, by the dependency's conda name
    constraints:  run constraints, as conda match specs
    leave_out:    files that the package does without, as patterns below site-packages
    drop:         dependencies (PyPI names) that the package does without; each with a reason
    pip_check:    false only where METADATA cannot be right; say why beside it
    license:      SPDX expression, where METADATA has none
    summary:      one line, where METADATA has none
    noarch:       false makes a pure Python package one of this Python version, with compiled modules
    inside: worth it where importing would otherwise compile hundreds of modules in every test and read-only
    environment
    number:       build number
    """

    model_config = ConfigDict(extra="forbid")
    imports: list[str] | None = None
    commands: list[str] = []
    python_code: str | None = None
    test_requires: list[str] = []
    run: list[str] = []
    pins: dict[str, str] = {}
    constraints: list[str] = []
    leave_out: list[str] = []
    drop: dict[str, str] = {}
    pip_check: bool = True
    license: str | None = None
    summary: str | None = None
    noarch: bool | None = None
    number: int = 0


class WheelChoice(BaseModel):
    """recipes/wheels.yaml.

    roots:    `name==version`, what the channel shall hold; the resolver adds what they need
    rename:   PyPI name -> conda-forge's name, where they differ (torch: pytorch)
    replace:  PyPI name of a dependency -> PyPI name of the distribution that stands in for it
              (tensorflow: tensorflow-cpu); the metadata of installed dependents is changed likewise
    drop:     PyPI name -> reason: left out of the channel, and out of the metadata of dependents
    provided: PyPI name -> reason: not taken as a wheel because a hand-written recipe makes it; dependents
    still depend on it
    packages: rules by PyPI name
    """

    model_config = ConfigDict(extra="forbid")
    roots: list[str] = []
    rename: dict[str, str] = {}
    replace: dict[str, str] = {}
    drop: dict[str, str] = {}
    provided: dict[str, str] = {}
    packages: dict[str, WheelRules] = {}

    @field_validator("rename", "replace", "drop", "provided", "packages", mode="after")
    @classmethod
    def _canonical(cls, value: dict[str, Any]) -> dict[str, Any]:
        return {canonicalize_name(key): item for key, item in value.items()}

    @field_validator("packages", mode="before")
    @classmethod
    def _empty_rules(cls, value: Any) -> Any:
        return {key: item or {} for key, item in (value or {}).items()}

    def rules(self, name: str) -> WheelRules:
        return self.packages.get(canonicalize_name(name), WheelRules())

    def conda_name(self, name: str) -> str:
        """The channel's name of a distribution."""
        canonical = canonicalize_name(name)
        return self.rename.get(canonical, canonical)


class LockedWheel(BaseModel):
    """One resolved wheel with what its recipe needs to know of its METADATA.

    requires:      dependencies that hold for the target, markers evaluated away, extras left out
    license_files: paths inside the wheel
    """

    model_config = ConfigDict(extra="forbid")
    name: str
    version: str
    file: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    requires: list[str] = []
    requires_python: str | None = None
    imports: list[str] = []
    entry_points: list[str] = []
    license: str | None = None
    license_files: list[str] = []
    summary: str | None = None
    homepage: str | None = None

    @field_validator("version", mode="before")
    @classmethod
    def _text(cls, value: object) -> object:
        return str(value)

    @property
    def noarch(self) -> bool:
        return self.file.endswith(("-py3-none-any.whl", "-py2.py3-none-any.whl"))

    @property
    def dist_info(self) -> str:
        """Name of the installed metadata folder, which is spelled as in the file name."""
        name, version = self.file.split("-")[:2]
        return f"{name}-{version}.dist-info"


class WheelLock(BaseModel):
    """recipes/wheels.lock.yaml."""

    model_config = ConfigDict(extra="forbid")
    python: str = "3.11"
    roots: list[str] = []
    packages: list[LockedWheel] = []


def _load(path: Path, what: str, remedy: str) -> Any:
    try:
        return yaml.safe_load(path.read_text()) or {}
    except yaml.YAMLError as error:
        raise WmlceError(f"{what} is not YAML", detail=str(error).splitlines()[:6], remedy=remedy) from error


def read_choice(layout: Layout) -> WheelChoice:
    """recipes/wheels.yaml, checked; an absent file wants no wheels."""
    path = layout.recipes / "wheels.yaml"
    if not path.is_file():
        return WheelChoice()
    try:
        return WheelChoice.model_validate(_load(path, "recipes/wheels.yaml", "correct it"))
    except ValidationError as error:
        raise WmlceError(
            "recipes/wheels.yaml says something that wmlce does not know",
            detail=str(error).splitlines()[:12],
            remedy="see the class WheelChoice in ci/wmlce/wheels.py for its keys",
        ) from error


def read_wheel_lock(layout: Layout) -> WheelLock:
    """recipes/wheels.lock.yaml, checked; an absent file locks nothing."""
    path = layout.recipes / "wheels.lock.yaml"
    if not path.is_file():
        return WheelLock()
    remedy = "restore it from git, or write it anew with `wmlce lock wheels`"
    try:
        return WheelLock.model_validate(_load(path, "recipes/wheels.lock.yaml", remedy))
    except ValidationError as error:
        raise WmlceError(
            "recipes/wheels.lock.yaml is damaged", detail=str(error).splitlines()[:12], remedy=remedy
        ) from error


def wheel_sources(layout: Layout) -> list[LockedSource]:
    """The locked wheels as sources."""
    choice = read_choice(layout)
    return [
        LockedSource(
            recipes=[choice.conda_name(wheel.name)],
            kind="pypi",
            package=wheel.name,
            version=wheel.version,
            files=[LockedFile(name=wheel.file, sha256=wheel.sha256)],
        )
        for wheel in read_wheel_lock(layout).packages
    ]


def wheel_recipes(layout: Layout, variants: VariantConfig) -> list[Recipe]:
    """One recipe for each locked wheel."""
    choice = read_choice(layout)
    lock = read_wheel_lock(layout)
    made = []
    for wheel in lock.packages:
        document = wheel_recipe(wheel, choice, lock.python)
        name = document["package"]["name"]
        made.append(Recipe(name, layout.recipes / name, json.dumps(document, indent=2), True, variants))
    return made


def conda_spec(requirement: Requirement, choice: WheelChoice, rules: WheelRules) -> str:
    """A PyPI requirement as a conda match spec: `torch~=2.1` -> `pytorch >=2.1,<3`."""
    wanted = canonicalize_name(requirement.name)
    name = choice.conda_name(choice.replace.get(wanted, wanted))
    if name in rules.pins:
        return f"{name} {rules.pins[name]}".strip()
    parts = []
    for spec in sorted(requirement.specifier, key=str):
        operator, version = spec.operator, spec.version
        if operator == "~=":
            release = Version(version).release
            upper = ".".join(map(str, (*release[:-2], release[-2] + 1)))
            parts += [f">={version}", f"<{upper}"]
        elif operator == "===":
            parts.append(f"=={version}")
        elif operator == "==" and version.endswith(".*"):
            parts.append(version)  # conda writes "any 1.2" as 1.2.*
        else:
            parts.append(f"{operator}{version}")
    return f"{name} {','.join(parts)}".strip()


def wheel_recipe(wheel: LockedWheel, choice: WheelChoice, python: str) -> dict[str, Any]:
    """The v1 recipe that installs `wheel` with pip and tests it."""
    rules = choice.rules(wheel.name)
    major, minor = python.split(".")[:2]
    series = f"{major}.{minor}"
    run: list[str] = []
    edits: dict[str, str | None] = {}
    for text in wheel.requires:
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        if name in choice.drop or name in {canonicalize_name(n) for n in rules.drop}:
            edits[name] = None
            continue
        if name in choice.replace:
            edits[name] = choice.replace[name]
        run.append(conda_spec(requirement, choice, rules))
    named = {spec.split()[0] for spec in run}
    run += [f"{name} {spec}".strip() for name, spec in sorted(rules.pins.items()) if name not in named]
    run += rules.run

    install = f"./{wheel.file}"
    is_pip = canonicalize_name(wheel.name) == "pip"
    runner = f'"$PYTHON" {install}/pip' if is_pip else '"$PYTHON" -m pip'
    script = [
        f"{runner} install --no-deps --no-index --no-compile --no-warn-script-location "
        f"--root-user-action=ignore "
        f"--disable-pip-version-check {install}"
    ]
    noarch = wheel.noarch and rules.noarch is not False and not is_pip
    if rules.leave_out:
        script.append(
            f'"$PYTHON" - "$SP_DIR/{wheel.dist_info}" <<\'LEAVE\'\n{_leave_out(rules.leave_out)}LEAVE'
        )
    script.append(f'"$PYTHON" - "$SP_DIR/{wheel.dist_info}" <<\'FINISH\'\n{_finish(edits, not noarch)}FINISH')
    licenses = []
    for number, file in enumerate(wheel.license_files):
        kept = (
            f"license-files/{number}/{Path(file).name}" if len(wheel.license_files) > 1 else Path(file).name
        )
        folder = str(Path(kept).parent)
        script.append(f'mkdir -p {_quoted(folder)} && cp "$SP_DIR"/{_quoted(file)} {_quoted(kept)}')
        licenses.append(kept)
    build: dict[str, Any] = {"number": rules.number, "script": script}
    host = [f"python {series}.*"] + ([] if is_pip else ["pip"])
    runtimes = () if wheel.noarch else _RUNTIMES
    if noarch:
        build["noarch"] = "python"
        if wheel.entry_points:
            build["python"] = {"entry_points": wheel.entry_points}
        floor = python_spec(wheel.requires_python)
        run = [f"python {floor}".strip(), *run]
    else:
        host += [f"python_abi {series}.* *_cp{major}{minor}", *runtimes, *rules.run]
        # a wheel's libraries find each other as they are, and those of the environment by the search path
        # that the script gives them; the script also compiles its modules, all at once; only scripts in bin/
        # name the prefix
        build["python"] = {"skip_pyc_compilation": ["**/*.py"]}
        build["dynamic_linking"] = {"binary_relocation": False}
        build["prefix_detection"] = {"ignore": [f"lib/python{series}/**"]}
        run = [f"python {series}.*", f"python_abi {series}.* *_cp{major}{minor}", *runtimes, *run]
    requirements: dict[str, Any] = {"host": host, "run": list(dict.fromkeys(run))}
    if not wheel.noarch:
        requirements["build"] = ["patchelf"]
    if rules.constraints:
        requirements["run_constraints"] = rules.constraints

    tests: list[dict[str, Any]] = []
    imports = wheel.imports if rules.imports is None else rules.imports
    if imports:
        tests.append({"python": {"imports": imports, "pip_check": rules.pip_check}})
    commands = list(rules.commands)
    if rules.python_code:
        commands.append(f"python - <<'TEST'\n{rules.python_code.rstrip()}\nTEST")
    if commands or not imports:
        body: dict[str, Any] = {"script": commands or ["python -m pip check"]}
        needed = [*rules.test_requires, *([] if commands else ["pip"])]
        if needed:
            body["requirements"] = {"run": needed}
        tests.append(body)
    about: dict[str, Any] = {
        "summary": rules.summary or wheel.summary or f"{wheel.name} {wheel.version}",
        "license": rules.license or wheel.license or f"LicenseRef-{wheel.name}",
    }
    if licenses:
        about["license_file"] = licenses
    if wheel.homepage:
        about["homepage"] = wheel.homepage
    return {
        "schema_version": 1,
        "package": {"name": choice.conda_name(wheel.name), "version": wheel.version.replace("-", "_")},
        "source": [{"path": f"../../build/sources/{wheel.file}"}],
        "build": build,
        "requirements": requirements,
        "tests": tests,
        "about": about,
    }


def python_spec(requires_python: str | None) -> str:
    """METADATA's Requires-Python as a conda version spec."""
    if not requires_python:
        return ">=3.9"
    found = Requirement(
        f"python{requires_python}" if requires_python[0] in "<>=!~" else f"python=={requires_python}"
    )
    return conda_spec(found, WheelChoice(), WheelRules()).partition(" ")[2]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


_RUNTIMES = ("libgcc", "libstdcxx")
"""What every wheel with compiled code may use without bringing it (the manylinux policy)."""

# Search paths that lead nowhere are left out at the same time: the shorter text then fits where the old one
# was, and patchelf need not move a large library's tables.
_RELINK = """
    import os, subprocess
    def ask(*command):
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    library_folder = pathlib.Path(os.environ["PREFIX"], "lib")
    provided = {path.name for path in library_folder.glob("lib*.so*")}
    for line in (folder / "RECORD").read_text(encoding="utf-8").splitlines():
        name = line.split(",")[0]
        path = folder.parent / name
        if path.is_symlink() or not path.is_file() or path.open("rb").read(4) != b"\\x7fELF":
            continue
        wanted = provided.intersection(ask("patchelf", "--print-needed", path))
        if not wanted:
            continue
        given = ":".join(ask("patchelf", "--print-rpath", path)).split(":")
        kept = [entry for entry in given if os.path.isdir(entry.replace("$ORIGIN", str(path.parent)))]
        kept.append("$ORIGIN/" + os.path.relpath(library_folder, path.parent.resolve()))
        # a RUNPATH where there was none would end what the file inherits from its users' RPATH
        kind = [] if "(RUNPATH)" in ask("readelf", "-d", path) else ["--force-rpath"]
        subprocess.run(["patchelf", *kind, "--set-rpath", ":".join(dict.fromkeys(kept)), path], check=True)
        relinked.add(name)
""".lstrip("\n")


def _leave_out(patterns: list[str]) -> str:
    """Python code that deletes files, and forgets them in pip's record."""
    return f"""
import pathlib, sys
folder = pathlib.Path(sys.argv[1])
gone = set()
for pattern in {patterns!r}:
    found = [path for path in folder.parent.glob(pattern) if path.is_file()]
    if not found:
        sys.exit(f"leave_out: no file matches {{pattern}}")
    gone.update(found)
record = folder / "RECORD"
names = {{path.relative_to(folder.parent).as_posix() for path in gone}}
lines = record.read_text(encoding="utf-8").splitlines()
record.write_text("".join(f"{{line}}\\n" for line in lines if line.split(",")[0] not in names))
for path in gone:
    path.unlink()
""".lstrip()


def _finish(edits: Mapping[str, str | None], platform_wheel: bool) -> str:
    """Python code that runs after pip.

    It makes the installed metadata say what the channel provides, so that `pip check` can be right; removes
    pip's note of where the wheel lay; leads libraries to those of the environment, where a wheel counts on
    the machine's; and compiles, with names and dates that do not depend on the build.
    """
    return f"""
import compileall, pathlib, py_compile, re, sys
edits = {dict(edits)!r}
folder = pathlib.Path(sys.argv[1])
path = folder / "METADATA"
head, gap, body = path.read_text(encoding="utf-8").partition("\\n\\n")
lines = []
for line in head.split("\\n"):
    found = re.match(r"Requires-Dist:\\s*([A-Za-z0-9._-]+)(.*)", line)
    name = re.sub(r"[-_.]+", "-", found[1]).lower() if found else None
    if name in edits:
        if edits[name] is not None:
            lines.append(f"Requires-Dist: {{edits[name]}}{{found[2]}}")
    else:
        lines.append(line)
path.write_text("\\n".join(lines) + gap + body, encoding="utf-8")
(folder / "direct_url.json").unlink(missing_ok=True)
relinked = set()
if {platform_wheel}:
{_RELINK}(folder / "INSTALLER").write_text("conda\\n")
record = folder / "RECORD"
kept = []
for line in record.read_text(encoding="utf-8").splitlines():
    name = line.split(",")[0]
    if name.endswith(".dist-info/direct_url.json"):
        continue
    changed = name in relinked or name.endswith((".dist-info/METADATA", ".dist-info/INSTALLER"))
    kept.append(f"{{name}},," if changed else line)
record.write_text("\\n".join(kept) + "\\n", encoding="utf-8")
if {platform_wheel}:
    site = folder.parent
    for line in kept:
        name = line.split(",")[0]
        if name.endswith(".py") and not name.startswith(".."):
            compileall.compile_file(
                site / name, quiet=2, stripdir=str(site), prependdir="",
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
""".lstrip()


_SPDX_OF_CLASSIFIER = {
    "Apache Software License": "Apache-2.0",
    "MIT License": "MIT",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "Python Software Foundation License": "PSF-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
    "zlib/libpng License": "Zlib",
    "GNU General Public License v2 (GPLv2)": "GPL-2.0-only",
    "GNU General Public License v2 or later (GPLv2+)": "GPL-2.0-or-later",
    "GNU General Public License v3 (GPLv3)": "GPL-3.0-only",
    "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
    "GNU Lesser General Public License v2 or later (LGPLv2+)": "LGPL-2.0-or-later",
}
_SPDX_OF_TEXT = {
    "apache 2.0": "Apache-2.0",
    "apache-2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache 2": "Apache-2.0",
    "apache": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "mit": "MIT",
    "mit license": "MIT",
    "the mit license": "MIT",
    "bsd": "BSD-3-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "bsd-3-clause": "BSD-3-Clause",
    "3-clause bsd license": "BSD-3-Clause",
    "new bsd": "BSD-3-Clause",
    "bsd-2-clause": "BSD-2-Clause",
    "simplified bsd": "BSD-2-Clause",
    "isc": "ISC",
    "psf": "PSF-2.0",
    "psf-2.0": "PSF-2.0",
    "mpl-2.0": "MPL-2.0",
}


@lru_cache(maxsize=1024)
def _spdx(text: str) -> str | None:
    return _SPDX_OF_TEXT.get(re.sub(r"\s+", " ", text.strip()).lower())


def spdx_license(expression: str | None, text: str | None, classifiers: list[str]) -> str | None:
    """An SPDX expression from METADATA's License-Expression, its classifiers or its License line; None if
    unclear.
    """
    if expression:
        return expression
    found = []
    for classifier in classifiers:
        if classifier.startswith("License ::"):
            name = classifier.rsplit(" :: ", 1)[1]
            if name in _SPDX_OF_CLASSIFIER:
                found.append(_SPDX_OF_CLASSIFIER[name])
    short = _spdx(text) if text and len(text) < 80 else None
    if short and (not found or short in ("BSD-2-Clause", "ISC") or len(found) > 1):
        return short
    return " OR ".join(dict.fromkeys(found)) or short
