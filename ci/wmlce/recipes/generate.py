"""Recipes out of locked wheels."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from rattler_build import VariantConfig

from wmlce.recipes.licenses import PROPRIETARY, unnamed
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
            document["source"] = [{"path": f"../{source['path']}"} for source in document["source"]]
        name = document["package"]["name"]
        scripts = _scripts(
            *(["require.py"] if rules.requires else []),
            *(["link.py"] if rules.links else []),
            *(["link_within.py"] if rules.links_within else []),
            *(["add_needed.py"] if rules.needed else []),
            *(["one_python.py"] if rules.one_python else []),
            *(["compile.py"] if rules.compile else []),
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

    Args:
        wheel: The wheel.
        config: Rules of all wheels.
        python: The version of Python that it is for, where it is not for any.
        beside: Packages that must be there when it is built, if it needs them: its search paths lead to them.
    """
    rules = config.rules(wheel.name)
    noarch = wheel.noarch and rules.noarch is not False and not _is_pip(wheel)
    run, edits = _dependencies(wheel, config, rules)
    licenses = _license_targets(wheel, rules)
    build: dict[str, Any] = {"number": rules.number, "script": _script(wheel, rules, noarch, edits, licenses)}
    major, minor = python.split(".")[:2]
    interpreter = f"python {major}.{minor}.*"
    host = [interpreter] + ([] if _is_pip(wheel) else ["pip"])
    if noarch:
        build["noarch"] = "python"
        if wheel.entry_points:
            build["python"] = {"entry_points": wheel.entry_points}
        run = [f"python {python_spec(wheel.requires_python)}".strip(), *run]
    else:
        # a wheel's libraries find each other as they are, and those of the environment by the search path
        # that the script gives them; the script also compiles its modules, all at once; only scripts in bin/
        # name the prefix
        build["python"] = {"skip_pyc_compilation": ["**/*.py"]}
        build["dynamic_linking"] = {"binary_relocation": False}
        build["prefix_detection"] = {"ignore": [f"lib/python{major}.{minor}/**"]}
        runtimes = () if wheel.noarch else _RUNTIMES
        compiled = [f"python_abi {major}.{minor}.* *_cp{major}{minor}", *runtimes]
        host += [*compiled, *rules.run]
        if not rules.unmodified:
            host += [spec for spec in run if spec.split()[0] in beside]
        run = [interpreter, *compiled, *run]
    if local := Version(wheel.version).local:
        build["string"] = local_build_string(local, "py" if noarch else f"py{major}{minor}", rules.number)
    requirements: dict[str, Any] = {"host": host, "run": list(dict.fromkeys(run))}
    if rules.constraints:
        requirements["run_constraints"] = rules.constraints
    if rules.run_exports:
        requirements["run_exports"] = rules.run_exports
    return {
        "schema_version": 1,
        "package": {"name": config.conda_name(wheel.name), "version": conda_version(wheel.version)},
        "source": [{"path": f"../../build/sources/{file}"} for file in (wheel.file, *rules.license_from)],
        "build": build,
        "requirements": requirements,
        "tests": _tests(wheel, rules),
        "about": _about(wheel, rules, licenses),
    }


def _is_pip(wheel: LockedWheel) -> bool:
    """Whether it is the wheel of pip, which installs itself."""
    return canonicalize_name(wheel.name) == "pip"


def _dependencies(
    wheel: LockedWheel, config: WheelConfig, rules: WheelRules
) -> tuple[list[str], dict[str, str | None]]:
    """What the package needs at run time.

    Also, by project, what replaces a requirement in the wheel's metadata; None for one that goes.
    """
    run: list[str] = []
    edits: dict[str, str | None] = {}
    dropped = {*config.drop, *(canonicalize_name(name) for name in rules.drop)}
    for text in wheel.requires:
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        if name in dropped:
            edits[name] = None
            continue
        if name in config.replace:
            edits[name] = config.replace[name]
        if name in rules.requires:
            requirement.specifier = SpecifierSet(rules.requires[name])
        run.append(conda_spec(requirement, config, rules))
    named = {spec.split()[0] for spec in run}
    run += [f"{name} {spec}".strip() for name, spec in sorted(rules.pins.items()) if name not in named]
    return run + rules.run, edits


def _license_targets(wheel: LockedWheel, rules: WheelRules) -> list[str]:
    """Where the package's files of licenses are copied to: those of `license_files`, then those of others."""
    texts = [*wheel.license_files, *rules.license_from.values()]
    if len(texts) == 1:
        return [Path(texts[0]).name]
    return [f"license-files/{number}/{Path(file).name}" for number, file in enumerate(texts)]


def _script(
    wheel: LockedWheel,
    rules: WheelRules,
    noarch: bool,
    edits: Mapping[str, str | None],
    licenses: Sequence[str],
) -> list[str]:
    """The commands that build the package."""

    def change(program: str, place: str, *arguments: str) -> str:
        return " ".join([f'"$PYTHON" "$RECIPE_DIR/{program}.py" "{place}"', *map(_quoted, arguments)])

    info = f"$SP_DIR/{wheel.dist_info}"
    install = f"./{wheel.file}"
    runner = f'"$PYTHON" {install}/pip' if _is_pip(wheel) else '"$PYTHON" -m pip'
    script = ["export PYTHONDONTWRITEBYTECODE=1"] if rules.no_bytecode else []
    script.append(
        f"{runner} install --no-deps --no-index --no-compile --no-warn-script-location "
        f"--root-user-action=ignore "
        f"--disable-pip-version-check {install}"
    )
    if rules.leave_out:
        script.append(change("leave_out", info, *rules.leave_out))
    if rules.one_python:
        script.append(change("one_python", info))
    if rules.requires:
        specs = (name + spec for name, spec in sorted(rules.requires.items()))
        script.append(change("require", info, *specs))
    if rules.links:
        script.append(change("link", "$SP_DIR", *rules.links))
    if rules.links_within:
        links = (f"{file}={place}" for place, file in sorted(rules.links_within.items()))
        script.append(change("link_within", "$SP_DIR", *links))
    for file, libraries in sorted(rules.needed.items()):
        script.append(change("add_needed", "$SP_DIR", file, *libraries))
    kind = "" if noarch or rules.unmodified else " --platform"
    script.append(change("finish_wheel", info, json.dumps(edits, sort_keys=True)) + kind)
    if rules.compile:
        script.append(change("compile", info))
    texts = [('"$SP_DIR"', file) for file in wheel.license_files]
    for other, file in rules.license_from.items():
        place = f"{Path(other).stem}.unpacked"
        script.append(f'"$PYTHON" -m zipfile -e {_quoted(other)} {_quoted(place)}')
        texts.append((_quoted(place), file))
    for (place, file), target in zip(texts, licenses, strict=True):
        folder = _quoted(str(Path(target).parent))
        script.append(f"mkdir -p {folder} && cp {place}/{_quoted(file)} {_quoted(target)}")
    return script


def _tests(wheel: LockedWheel, rules: WheelRules) -> list[dict[str, Any]]:
    """Imports, and the commands that the rules name; without either, pip's check."""
    tests: list[dict[str, Any]] = []
    imports = wheel.imports if rules.imports is None else rules.imports
    if imports:
        tests.append({"python": {"imports": imports, "pip_check": rules.pip_check}})
    commands = list(rules.commands)
    if rules.python_code:
        commands.append(f"python - <<'TEST'\n{rules.python_code.rstrip()}\nTEST")
    if commands or not imports:
        body: dict[str, Any] = {"script": commands or ["python -m pip check"]}
        required = [*rules.test_requires, *([] if commands else ["pip"])]
        if required:
            body["requirements"] = {"run": required}
        tests.append(body)
    return tests


def _about(wheel: LockedWheel, rules: WheelRules, licenses: list[str]) -> dict[str, Any]:
    """What the package says of itself."""
    about: dict[str, Any] = {
        "summary": rules.summary or wheel.summary or f"{wheel.name} {wheel.version}",
        "license": _license(wheel, rules),
    }
    if not wheel.redistribute:
        about["license_family"] = PROPRIETARY
    if licenses:
        about["license_file"] = licenses
    if wheel.homepage:
        about["homepage"] = wheel.homepage
    return about


def _license(wheel: LockedWheel, rules: WheelRules) -> str:
    """Licence of the distribution, and those of what is inside the wheel besides."""
    stated = rules.license or wheel.license or f"LicenseRef-{wheel.name}"
    if rules.license_inside is None:
        return stated
    further = unnamed(rules.license_inside, stated)
    return " AND ".join([f"({stated})" if " OR " in stated else stated, *further])


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
