"""`wmlce lock wheels`: resolve recipes/wheels.yaml with pip's own resolver and write
recipes/wheels.lock.yaml.
"""

from __future__ import annotations

import configparser
import io
import json
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from email.message import Message
from email.parser import Parser
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlparse

import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from wmlce.recipes.licenses import stated_license
from wmlce.recipes.model import Recipe
from wmlce.recipes.recipe_set import load_source_lock, load_variants, read_variants
from wmlce.recipes.variant import Variant
from wmlce.recipes.wheel_lock import LockedWheel, WheelConfig, WheelLock, lock_path, read_config
from wmlce.sources.model import LockedArtifact, LockedFile, LockedSource, read_source_lock
from wmlce.sources.pypi import (
    NETWORK_WORDS,
    Target,
    WantedFile,
    ask_indexes,
    own_modules,
    problem_lines,
    pytorch_environment,
    releases,
    target_pip,
)
from wmlce.sources.settings import PYTORCH_INDEX, Settings
from wmlce.sources.unavailable import pytorch_index_remedy
from wmlce.util.clients import run_client
from wmlce.util.errors import WmlceError
from wmlce.util.files import write_atomic
from wmlce.util.layout import Layout
from wmlce.util.python import TARGET

_NOT_MODULES = {
    "test",
    "tests",
    "testing",
    "doc",
    "docs",
    "example",
    "examples",
    "benchmarks",
    "share",
    "scripts",
}
_LICENSE_FILE = re.compile(r"(?i)^(licen[cs]es?|copying|notice|unlicense)([-_.].*)?$")


class Unresolved(WmlceError):
    """pip finds no set of versions that fulfils the roots; the network is not to blame."""


class Resolved:
    """One distribution of pip's answer."""

    def __init__(self, item: Mapping[str, object]) -> None:
        metadata = item["metadata"]
        download = item["download_info"]
        assert isinstance(metadata, dict) and isinstance(download, dict)
        self.name = canonicalize_name(str(metadata["name"]))
        self.version = str(metadata["version"])
        self.requires = [Requirement(text) for text in metadata.get("requires_dist", [])]
        self.file = unquote(PurePosixPath(urlparse(download["url"]).path).name)
        self.sha256 = str(download.get("archive_info", {}).get("hashes", {}).get("sha256", ""))


def target_environment(layout: Layout, target: Target) -> dict[str, str]:
    """Marker values of a CPython on Linux; the full version is that of the locked CPython sources, if they
    are of it.
    """
    python = str(target.python)
    full = f"{python}.2"
    for entry in read_source_lock(layout):
        if entry.package == f"python{python}":
            full = entry.version.split("-")[0].split("+")[0]
    return {
        **{key: str(value) for key, value in default_environment().items()},
        "python_version": python,
        "python_full_version": full,
        "implementation_name": "cpython",
        "implementation_version": full,
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": target.platform.machine,
    }


def lock(layout: Layout, say: Callable[[str], None], constraints: Sequence[str] = ()) -> WheelLock:
    """Resolve, inspect and write; returns what was written. constraints: requirements that bound what pip
    may choose, as those of its option of that name.
    """
    config = read_config(layout)
    if not config.roots:
        raise WmlceError("recipes/wheels.yaml names no roots", remedy="list them: `roots: [numpy==2.4.6, …]`")
    target = Target()
    environment = target_environment(layout, target)
    say(f"resolving {len(config.roots)} roots with pip")
    resolved = resolve(layout, config, constraints, say, target)
    needs = _needs(resolved, config, environment)
    reachable = _reachable(resolved, needs, config)
    artifacts = {
        name: LockedArtifact(
            LockedSource(
                recipes=[config.conda_name(name)],
                kind="python",
                origin=config.rules(name).origin,
                package=name,
                version=resolved[name].version,
                files=[LockedFile(name=resolved[name].file, sha256=resolved[name].sha256)],
            ),
            LockedFile(name=resolved[name].file, sha256=resolved[name].sha256),
        )
        for name in reachable
    }
    sources = load_source_lock(layout)
    sources.fetch(artifacts.values(), say)
    unclear: list[str] = []
    wheels = [
        _inspect(resolved[name], sources.cached(artifacts[name]), needs[name], config, unclear)
        for name in sorted(reachable)
    ]
    require_clear(unclear, "recipes/wheels.yaml")
    result = WheelLock(python=str(target.python), roots=config.roots, packages=wheels)
    write(layout, result)
    return result


def write(layout: Layout, result: WheelLock, variant: Variant | None = None) -> None:
    """Write recipes/wheels.lock.yaml, or that of a variant, in a stable order, without empty keys."""
    document = result.model_dump(exclude_none=True)
    document["packages"] = [
        {
            key: value
            for key, value in package.items()
            if value != [] and (key, value) != ("redistribute", True)
        }
        for package in document["packages"]
    ]
    option = f" --variant {variant.name}" if variant else ""
    head = f"# Written by `wmlce lock wheels{option}` from wheels.yaml; changes by hand are lost.\n"
    text = yaml.safe_dump(document, sort_keys=False, width=110, allow_unicode=True)
    write_atomic(lock_path(layout, variant), head + text)


def _versions_of_provided(layout: Layout, config: WheelConfig) -> dict[str, str]:
    """What hand-written recipes make of distributions, with the versions that they make."""
    variants = load_variants(read_variants(layout))
    versions = {}
    for name in config.provided:
        path = layout.recipes / name / "recipe.yaml"
        if path.is_file():
            recipe = Recipe(name, path.parent, path.read_text(), False, variants)
            versions[name] = recipe.outputs[0].version
    return versions


def resolve(
    layout: Layout,
    config: WheelConfig,
    constraints: Sequence[str],
    say: Callable[[str], None],
    target: Target,
    compiled: Mapping[str, str] | None = None,
) -> dict[str, Resolved]:
    """pip's answer, by name, to the roots of `config`. compiled: versions of what is taken for
    there without a wheel, as what is provided is
    """
    provided = {**_versions_of_provided(layout, config), **(compiled or {})}
    roots = {canonicalize_name(Requirement(text).name): Requirement(text) for text in config.roots}
    with tempfile.TemporaryDirectory(prefix="wmlce-resolve-") as scratch:
        versions = {
            name: _version_of_root(name, other, roots[canonicalize_name(other)])
            for name, other in config.replace.items()
            if canonicalize_name(other) in roots
        }
        stand_ins = [
            str(_stand_in(Path(scratch), name, version)) for name, version in {**provided, **versions}.items()
        ]
        report = Path(scratch) / "report.json"
        markers = Path(scratch) / "markers.json"
        markers.write_text(json.dumps(target_environment(layout, target)))
        command = target_pip(markers, "install", "--dry-run", "--ignore-installed", "--report", str(report))
        command += ["--only-binary", ":all:", *target.options(), "--target", f"{scratch}/target"]
        for path in _from_pytorch(roots.values(), config, Path(scratch) / "pytorch", say, target):
            command += ["--find-links", str(path.parent)]
        if constraints:
            bounds = Path(scratch) / "constraints.txt"
            bounds.write_text("".join(f"{line}\n" for line in constraints))
            command += ["--constraint", str(bounds)]
        answer = run_client(
            [*command, *config.roots, *stand_ins],
            title="resolving with pip",
            say=say,
            limit_s=1800,
            env=own_modules(),
        )
        if answer.code != 0:
            failed = any(word in answer.text for word in NETWORK_WORDS)
            raise (WmlceError if failed else Unresolved)(
                "pip cannot resolve recipes/wheels.yaml",
                detail=problem_lines(answer),
                remedy="change the roots so that they agree, and check the network (wmlce doctor)",
            )
        items = [Resolved(item) for item in json.loads(report.read_text())["install"]]
    return {item.name: item for item in items if item.name not in config.replace}


def _from_pytorch(
    roots: Iterable[Requirement],
    config: WheelConfig,
    folder: Path,
    say: Callable[[str], None],
    target: Target,
) -> list[Path]:
    """Fetch from PyTorch's index those roots that are of it and that pip does not find as it is set up. The
    resolver sees the files alone: of that index's other projects nothing is wanted.
    """
    settings = Settings.from_environment()
    wheels = []
    for root in roots:
        if config.rules(root.name).origin != "pytorch-cpu":
            continue
        found_by_pip = releases(root.name, say, target=target)
        if any(root.specifier.contains(item.version, prereleases=True) for item in found_by_pip):
            continue
        if not settings.pytorch_index:
            raise Unresolved(
                f"pip does not find {root}, which is of PyTorch's CPU wheel index",
                remedy=pytorch_index_remedy(),
            )
        env = pytorch_environment(settings)
        offered = releases(root.name, say, env, target)
        fitting = [item for item in offered if root.specifier.contains(item.version, prereleases=True)]
        if not fitting:
            raise Unresolved(
                f"PyTorch's index has no {root}",
                detail=[f"it has: {', '.join(dict.fromkeys(item.version for item in offered))}"],
                remedy=f"correct the root in recipes/wheels.yaml, or {PYTORCH_INDEX}",
            )
        say(f"fetching {fitting[0].file} from PyTorch's index")
        request = WantedFile(root.name, fitting[0].file)
        fetched = ask_indexes(folder, say, fetch=[request], env=env).fetched[request.file]
        if not fetched["path"]:
            raise WmlceError(
                f"{request.file} cannot be fetched from PyTorch's index",
                detail=str(fetched["error"]).splitlines()[:4],
                remedy="check the network with `wmlce doctor`, then try again",
            )
        wheels.append(Path(fetched["path"]))
    return wheels


def _version_of_root(name: str, other: str, root: Requirement) -> str:
    """The version of what a distribution is replaced by."""
    version = next((spec.version for spec in root.specifier if spec.operator == "=="), None)
    if version is None:
        raise WmlceError(
            f"recipes/wheels.yaml: the root {other}, which replaces {name}, has no exact version",
            remedy=f"write {other}==VERSION",
        )
    return version


def _stand_in(folder: Path, name: str, version: str) -> Path:
    """A wheel with metadata alone, so that the resolver neither fetches nor weighs a distribution that is
    replaced or provided.
    """
    stem = f"{name.replace('-', '_')}-{version}"
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        info = f"{stem}.dist-info"
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def _needs(
    resolved: Mapping[str, Resolved], config: WheelConfig, environment: dict[str, str]
) -> dict[str, list[Requirement]]:
    """What each distribution needs on the target. `b[x]` also brings what b wants for x, as conda has no
    extras.
    """

    def holds(requirement: Requirement, extra: str) -> bool:
        return requirement.marker is None or requirement.marker.evaluate({**environment, "extra": extra})

    def needed(name: str, extras: frozenset[str], seen: set[tuple[str, str]]) -> list[Requirement]:
        item = resolved.get(name)
        if item is None:
            return []
        requirements = []
        for requirement in item.requires:
            plain = holds(requirement, "")
            if (plain and not extras) or any(not plain and holds(requirement, extra) for extra in extras):
                requirements.append(requirement)
                other = canonicalize_name(requirement.name)
                for extra in requirement.extras:
                    if (other, extra) not in seen:
                        seen.add((other, extra))
                        requirements += needed(other, frozenset([extra]), seen)
        return requirements

    needs: dict[str, list[Requirement]] = {}
    for name in resolved:
        unique: dict[str, Requirement] = {}
        for requirement in needed(name, frozenset(), set()):
            other = canonicalize_name(requirement.name)
            if other == name:
                continue
            if other in unique:
                unique[other].specifier &= requirement.specifier
            else:
                bare = Requirement(requirement.name)
                bare.specifier = requirement.specifier
                unique[other] = bare
        needs[name] = list(unique.values())
    return needs


def _reachable(
    resolved: Mapping[str, Resolved], needs: Mapping[str, list[Requirement]], config: WheelConfig
) -> set[str]:
    """Distributions to lock: the roots and what they need, without the dropped, replaced and provided
    ones.
    """
    left_out = {*config.drop, *config.provided, *config.replace}
    todo: list[str] = [canonicalize_name(Requirement(text).name) for text in config.roots]
    reachable: set[str] = set()
    while todo:
        name: str = canonicalize_name(todo.pop())
        if name in reachable or name in left_out:
            continue
        if name not in resolved:
            raise WmlceError(
                f"pip's resolution holds no {name}, which recipes/wheels.yaml needs",
                remedy="name it among the roots, or under `provided` or `drop` with a reason",
            )
        reachable.add(name)
        dropped = {canonicalize_name(n) for n in config.rules(name).drop}
        for requirement in needs[name]:
            other = canonicalize_name(requirement.name)
            if other not in dropped:
                todo.append(config.replace.get(other, other))
    for name in reachable:
        if not resolved[name].sha256:
            raise WmlceError(
                f"pip reported no sha256 for {resolved[name].file}", remedy="use an index with hashes"
            )
    return reachable


def _inspect(
    item: Resolved, path: Path, needs: list[Requirement], config: WheelConfig, unclear: list[str]
) -> LockedWheel:
    """Read from the wheel what its recipe needs to know; `unclear` receives it if its licence is not."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        info = info_folder(item.file, names)
        metadata = archive.read(f"{info}/METADATA").decode("utf-8")
        entry_points = f"{info}/entry_points.txt"
        scripts = archive.read(entry_points).decode() if entry_points in names else ""
    return described(
        LockedWheel(name=item.name, version=item.version, file=item.file, sha256=item.sha256),
        names,
        Parser().parsestr(metadata),
        scripts,
        needs,
        config,
        unclear,
    )


def info_folder(file: str, names: Iterable[str]) -> str:
    """The folder of a wheel's metadata."""
    folder = next((name.split("/")[0] for name in names if name.split("/")[0].endswith(".dist-info")), None)
    if folder is None:
        raise WmlceError(f"{file} has no metadata", remedy="choose another release in recipes/wheels.yaml")
    return folder


def described(
    wheel: LockedWheel,
    names: Sequence[str],
    metadata: Message,
    scripts: str,
    needs: list[Requirement],
    config: WheelConfig,
    unclear: list[str],
) -> LockedWheel:
    """The locked wheel with what its own files tell: their names, METADATA and entry_points.txt."""
    rules = config.rules(wheel.name)
    license_ = stated_license(metadata.get("License-Expression"), metadata.get("License"))
    if license_ is None and rules.license is None:
        unclear.append(f"{wheel.name}: {_said_of_license(metadata)}")
    absent = sorted(set(rules.license_files) - set(names))
    if absent:
        raise WmlceError(f"{wheel.file} has no {absent[0]}", remedy="correct license_files in wheels.yaml")
    return wheel.model_copy(
        update={
            "origin": rules.origin,
            "requires": sorted(str(requirement) for requirement in needs),
            "requires_python": _requires_python(metadata),
            "imports": modules(names),
            "entry_points": console_scripts(scripts),
            "license": license_,
            "license_files": rules.license_files or _license_files(info_folder(wheel.file, names), names),
            "redistribute": rules.redistribute,
            "summary": (metadata.get("Summary") or "").strip() or None,
            "homepage": _homepage(metadata),
        }
    )


def require_clear(unclear: Sequence[str], title: str) -> None:
    """An error for wheels of which nobody has said what their licence is."""
    if unclear:
        raise WmlceError(
            f"METADATA states no SPDX licence for {len(unclear)} of the wheels",
            detail=unclear,
            remedy=f"read their licences, and state them in {title}: packages.NAME.license",
        )


def _said_of_license(metadata: Message) -> str:
    """What METADATA says instead of an SPDX expression, in one line."""
    text = " ".join(str(metadata.get("License") or "").split())
    classes = [str(line) for line in metadata.get_all("Classifier", [])]
    named = [line.rsplit(" :: ", 1)[1] for line in classes if line.startswith("License ::")]
    return ", ".join(filter(None, [text[:60], *named])) or "nothing"


def _requires_python(metadata: Message) -> str | None:
    """What can be read; the rest says nothing, to pip neither."""
    text = metadata.get("Requires-Python")
    try:
        SpecifierSet(text or "")
    except InvalidSpecifier:
        return None
    return text


def _homepage(metadata: Message) -> str | None:
    links: dict[str, str] = {}
    for line in metadata.get_all("Project-URL", []):
        label, _, url = str(line).partition(",")
        links[label.strip().lower()] = url.strip()
    for label in ("homepage", "home", "repository", "source", "source code", "documentation"):
        if _is_homepage(links.get(label, "")):
            return links[label]
    page = str(metadata.get("Home-page") or "")
    return page if _is_homepage(page) else None


def _is_homepage(url: str) -> bool:
    """A page of the project itself, not its entry in a package index."""
    return url.startswith("http") and "/project/" not in url


def _license_files(info: str, names: Iterable[str]) -> list[str]:
    files = []
    for name in names:
        parts = PurePosixPath(name).parts
        if parts[0] == info and not name.endswith("/"):
            inside_licenses = len(parts) > 2 and parts[1] in ("licenses", "license_files")
            if inside_licenses or (len(parts) == 2 and _LICENSE_FILE.match(parts[1])):
                files.append(name)
    return sorted(files)


def console_scripts(text: str) -> list[str]:
    """The commands that entry_points.txt asks for, as `name = module:function`."""
    parser = configparser.ConfigParser(delimiters=("=",), strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_file(io.StringIO(text))
    scripts = []
    for section in ("console_scripts", "gui_scripts"):
        if parser.has_section(section):
            for name, target in parser.items(section):
                scripts.append(f"{name} = {target.split('[')[0].strip()}")
    return scripts


def modules(names: Iterable[str]) -> list[str]:
    """Modules to import in a test: top-level packages and modules, or the first level below a namespace."""
    tree: dict[str, set[str]] = {}
    importable: set[str] = set()
    for name in names:
        parts = PurePosixPath(name).parts
        if parts[0].endswith(".data"):
            if len(parts) < 3 or parts[1] not in ("purelib", "platlib"):
                continue
            parts = parts[2:]
        if parts[0].endswith((".dist-info", ".libs")):
            continue
        if len(parts) == 1:
            stem = _module_stem(parts[0])
            if stem:
                importable.add(stem)
        elif parts[0].isidentifier():
            if len(parts) == 2 and (parts[1] == "__init__.py" or parts[1].startswith("__init__.")):
                importable.add(parts[0])
            elif len(parts) == 3 and parts[2] == "__init__.py" and parts[1].isidentifier():
                tree.setdefault(parts[0], set()).add(f"{parts[0]}.{parts[1]}")
    for package, below in tree.items():
        if package not in importable:
            importable |= below
    public = {name for name in importable if not any(part.startswith("_") for part in name.split("."))}
    chosen = {name for name in public or importable if name.split(".")[-1] not in _NOT_MODULES}
    return sorted(chosen)


def _module_stem(name: str) -> str | None:
    if name.endswith(".py"):
        stem = name[:-3]
    elif name.endswith((".abi3.so", ".so")) and (f".cpython-{TARGET.number}" in name or ".abi3." in name):
        stem = name.split(".")[0]
    else:
        return None
    return stem if stem.isidentifier() else None
