"""Recipes out of locked wheels."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from rattler_build import VariantConfig

from wmlce.recipes.licenses import PROPRIETARY
from wmlce.recipes.model import Recipe
from wmlce.recipes.variant import Variant
from wmlce.recipes.wheel_lock import (
    LockedWheel,
    WheelConfig,
    WheelRules,
    lock_path,
    read_config,
    read_wheel_lock,
)
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout
from wmlce.util.python import TARGET


def wheel_recipes(layout: Layout, variants: VariantConfig, variant: Variant | None = None) -> list[Recipe]:
    """One recipe for each locked wheel of the channel, or of a variant."""
    config = read_config(layout, variant)
    lock = read_wheel_lock(layout, variant)
    if lock.packages and lock.python != str(TARGET):
        option = f" --variant {variant.name}" if variant else ""
        raise WmlceError(
            f"{lock_path(layout, variant).relative_to(layout.root)} is for Python {lock.python}, "
            f"and the channel's Python is {TARGET} (ci/wmlce/util/python.py)",
            remedy=f"lock the wheels again: wmlce lock wheels{option}",
        )
    locked_names = frozenset(config.conda_name(wheel.name) for wheel in lock.packages)
    recipes = []
    for wheel in lock.packages:
        rules = config.rules(wheel.name)
        if variant is None:
            document, folder = wheel_recipe(wheel, config, lock.python), layout.recipes
        else:
            document, folder = wheel_recipe(wheel, config, lock.python, locked_names), variant.folder(layout)
            document["source"] = [{"path": f"../../../build/sources/{wheel.file}"}]
        name = document["package"]["name"]
        scripts = _scripts(
            *(["require.py"] if rules.requires else []),
            *(["link.py"] if rules.links else []),
            *(["link_within.py"] if rules.links_within else []),
            *(["add_needed.py"] if rules.needed else []),
            *(["one_python.py"] if rules.one_python else []),
        )
        recipes.append(Recipe(name, folder / name, json.dumps(document, indent=2), True, variants, scripts))
    return recipes


def conda_spec(requirement: Requirement, config: WheelConfig, rules: WheelRules) -> str:
    """A PyPI requirement as a conda match spec: `torch~=2.1` -> `pytorch >=2.1,<3`."""
    project = canonicalize_name(requirement.name)
    name = config.conda_name(config.replace.get(project, project))
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
            parts.append(f"=={conda_version(version)}")
        elif operator == "==" and version.endswith(".*"):
            parts.append(version)  # conda writes "any 1.2" as 1.2.*
        else:
            parts.append(f"{operator}{conda_version(version)}")
    return f"{name} {','.join(parts)}".strip()


def conda_version(version: str) -> str:
    """A PyPI version without its local part (`2.13.0+cpu` -> `2.13.0`), which says how it was built: conda
    keeps that in the build string, and `==2.13.0` has to match.
    """
    return version.partition("+")[0].replace("-", "_")


def local_build_string(local: str, python: str, number: int) -> str:
    """`cpu` -> `cpu_py311h<hash>_0`: conda-forge's builds begin like that, so `pytorch=*=cpu*` finds this
    one.
    """
    return f"{re.sub('[^A-Za-z0-9]', '_', local)}_{python}h${{{{ hash }}}}_{number}"


def wheel_recipe(
    wheel: LockedWheel, config: WheelConfig, python: str, beside: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """The v1 recipe that installs `wheel` with pip and tests it.

    beside: packages that must be there when it is built, if it needs them: its search paths lead to them
    """
    rules = config.rules(wheel.name)
    major, minor = python.split(".")[:2]
    series = f"{major}.{minor}"
    run: list[str] = []
    edits: dict[str, str | None] = {}
    for text in wheel.requires:
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        if name in config.drop or name in {canonicalize_name(n) for n in rules.drop}:
            edits[name] = None
            continue
        if name in config.replace:
            edits[name] = config.replace[name]
        if name in rules.requires:
            requirement.specifier = SpecifierSet(rules.requires[name])
        run.append(conda_spec(requirement, config, rules))
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
    if rules.no_bytecode:
        script.insert(0, "export PYTHONDONTWRITEBYTECODE=1")
    if rules.leave_out:
        patterns = " ".join(_quoted(pattern) for pattern in rules.leave_out)
        script.append(f'"$PYTHON" "$RECIPE_DIR/leave_out.py" "$SP_DIR/{wheel.dist_info}" {patterns}')
    if rules.one_python:
        script.append(f'"$PYTHON" "$RECIPE_DIR/one_python.py" "$SP_DIR/{wheel.dist_info}"')
    if rules.requires:
        arguments = " ".join(_quoted(name + spec) for name, spec in sorted(rules.requires.items()))
        script.append(f'"$PYTHON" "$RECIPE_DIR/require.py" "$SP_DIR/{wheel.dist_info}" {arguments}')
    if rules.links:
        arguments = " ".join(map(_quoted, rules.links))
        script.append(f'"$PYTHON" "$RECIPE_DIR/link.py" "$SP_DIR" {arguments}')
    if rules.links_within:
        arguments = " ".join(_quoted(f"{file}={place}") for place, file in sorted(rules.links_within.items()))
        script.append(f'"$PYTHON" "$RECIPE_DIR/link_within.py" "$SP_DIR" {arguments}')
    for file, libraries in sorted(rules.needed.items()):
        arguments = " ".join(map(_quoted, [file, *libraries]))
        script.append(f'"$PYTHON" "$RECIPE_DIR/add_needed.py" "$SP_DIR" {arguments}')
    kind = "" if noarch or rules.unmodified else " --platform"
    script.append(
        f'"$PYTHON" "$RECIPE_DIR/finish_wheel.py" "$SP_DIR/{wheel.dist_info}" '
        f"{_quoted(json.dumps(edits, sort_keys=True))}{kind}"
    )
    licenses = []
    for number, file in enumerate(wheel.license_files):
        target = (
            f"license-files/{number}/{Path(file).name}" if len(wheel.license_files) > 1 else Path(file).name
        )
        folder = str(Path(target).parent)
        script.append(f'mkdir -p {_quoted(folder)} && cp "$SP_DIR"/{_quoted(file)} {_quoted(target)}')
        licenses.append(target)
    version = Version(wheel.version)
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
        if not rules.unmodified:
            host += [spec for spec in run if spec.split()[0] in beside]
        run = [f"python {series}.*", f"python_abi {series}.* *_cp{major}{minor}", *runtimes, *run]
    if version.local:
        build["string"] = local_build_string(
            version.local, "py" if noarch else f"py{major}{minor}", rules.number
        )
    requirements: dict[str, Any] = {"host": host, "run": list(dict.fromkeys(run))}
    if rules.constraints:
        requirements["run_constraints"] = rules.constraints
    if rules.run_exports:
        requirements["run_exports"] = rules.run_exports

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
    if not wheel.redistribute:
        about["license_family"] = PROPRIETARY
    if licenses:
        about["license_file"] = licenses
    if wheel.homepage:
        about["homepage"] = wheel.homepage
    return {
        "schema_version": 1,
        "package": {"name": config.conda_name(wheel.name), "version": conda_version(wheel.version)},
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
    requirement = Requirement(
        f"python{requires_python}" if requires_python[0] in "<>=!~" else f"python=={requires_python}"
    )
    return conda_spec(requirement, WheelConfig(), WheelRules()).partition(" ")[2]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


_RUNTIMES = ("libgcc", "libstdcxx")
"""What every wheel with compiled code may use without bringing it (the manylinux policy)."""


@cache
def _scripts(*more: str) -> dict[str, str]:
    """The files that lie beside a generated recipe: those of all, and `more`."""
    folder = files("wmlce.recipes") / "scripts"
    return {name: (folder / name).read_text() for name in ("finish_wheel.py", "leave_out.py", *more)}
