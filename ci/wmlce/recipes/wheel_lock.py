"""What recipes/wheels.yaml asks for (written by hand) and wheels.lock.yaml answers (`wmlce lock wheels`).

Together they give every wheel's recipe without the wheel itself being present.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from packaging.utils import canonicalize_name
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from wmlce.recipes.variant import Variant
from wmlce.sources.model import LockedFile, LockedSource
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout
from wmlce.util.python import TARGET

WheelOrigin = Literal["pypi", "pytorch-cpu"]


class WheelRules(BaseModel):
    """What recipes/wheels.yaml may say about one distribution; every key is optional.

    imports:      modules that the test imports, instead of those found in the wheel
    commands:     shell commands that the test runs besides
    python_code:  Python code that the test runs besides
    run:          further run requirements, as conda match specs
    pins:         conda version specs that replace those of the METADATA, by the dependency's conda name
    constraints:  run constraints, as conda match specs
    leave_out:    files that the package does without, as patterns below site-packages
    one_python:   true for wheels with modules for several versions of Python: those for others are left out
    drop:         dependencies (PyPI names) that the package does without; each with a reason
    pip_check:    false only where METADATA cannot be right; say why beside it
    license:      SPDX expression, where METADATA states none; from the licence itself, not by a guess
    license_inside: licences of what the wheel holds of other projects, as far as METADATA does not name them
    summary:      one line, where METADATA has none
    noarch:       false makes a pure Python package one of this Python version, with compiled modules
    inside: worth it where importing would otherwise compile hundreds of modules in every test and read-only
    environment
    number:       build number
    requires:     dependency (PyPI name) -> version specifier in place of that of the METADATA, where other
    versions work too and one has to be found for several distributions; the installed metadata says the same
    extras:       extras of the distribution whose dependencies the package has
    license_files: paths inside the wheel, where the text lies elsewhere than METADATA's standard has it
    license_from: wheel of another distribution, in sources.lock.yaml -> the text in it of a licence of what
    was linked into this one
    redistribute: false where the licence does not allow passing the package on: mirrors, bundles, images and
    installers leave it out
    unmodified:   true where the licence does not allow changed files: search paths stay as they are
    compile:      true for an unmodified wheel whose modules are compiled nevertheless, as those of others are
    links:        files below site-packages, as patterns, that the environment's lib/ has links to
    no_bytecode:  Python writes no bytecode while the package is made: for wheels of which Python imports a
    module whenever it starts, whose bytecode would name the folder of the build
    links_within: PLACE -> FILE, both below site-packages: a link in place of a copy that the wheel has of a
    library that another package has, or where an unmodified library looks for it
    needed:       library below site-packages -> libraries that it shall load, too
    run_exports:  match specs that packages built against this one need, too
    origin:       pytorch-cpu, where the locked file is of PyTorch's CPU wheel index and not of PyPI
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
    one_python: bool = False
    drop: dict[str, str] = {}
    pip_check: bool = True
    license: str | None = None
    license_inside: str | None = None
    summary: str | None = None
    noarch: bool | None = None
    number: int = 0
    requires: dict[str, str] = {}
    extras: list[str] = []
    license_files: list[str] = []
    license_from: dict[str, str] = {}
    redistribute: bool = True
    unmodified: bool = False
    compile: bool = False
    links: list[str] = []
    links_within: dict[str, str] = {}
    no_bytecode: bool = False
    needed: dict[str, list[str]] = {}
    run_exports: list[str] = []
    origin: WheelOrigin = "pypi"

    @field_validator("requires", mode="after")
    @classmethod
    def _canonical(cls, value: dict[str, str]) -> dict[str, str]:
        return {canonicalize_name(key): item for key, item in value.items()}

    @model_validator(mode="after")
    def _proprietary_has_a_name(self) -> WheelRules:
        if not self.redistribute and "LicenseRef-" not in (self.license or ""):
            raise ValueError("`redistribute: false` needs a `license` that names a LicenseRef-…")
        return self


class WheelConfig(BaseModel):
    """recipes/wheels.yaml.

    roots:    `name==version`, what the channel shall hold; the resolver adds what they need
    rename:   PyPI name -> the name here: conda-forge's where they differ (opt-einsum: opt_einsum), or one
    of its own (torch: powerai-pytorch)
    replace:  PyPI name of a dependency -> PyPI name of the distribution that stands in for it
              (tensorflow: tensorflow-cpu); the metadata of installed dependents is changed likewise
    drop:     PyPI name -> reason: left out of the channel, and out of the metadata of dependents
    provided: PyPI name -> reason: not taken as a wheel because a hand-written recipe makes it; dependents
    still depend on it, and the resolver takes the version that the recipe makes
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

    origin:        where anyone gets it
    size:          in bytes; what a download will take is told before it starts
    requires:      dependencies that hold for the target, markers evaluated away, extras left out
    license_files: paths inside the wheel
    redistribute:  see WheelRules
    """

    model_config = ConfigDict(extra="forbid")
    name: str
    version: str
    origin: WheelOrigin = "pypi"
    file: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: int | None = None
    requires: list[str] = []
    requires_python: str | None = None
    imports: list[str] = []
    entry_points: list[str] = []
    license: str | None = None
    license_files: list[str] = []
    redistribute: bool = True
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
    python: str = str(TARGET)
    roots: list[str] = []
    packages: list[LockedWheel] = []


def _load(path: Path, title: str, remedy: str) -> Any:
    try:
        return yaml.safe_load(path.read_text()) or {}
    except yaml.YAMLError as error:
        raise WmlceError(f"{title} is not YAML", detail=str(error).splitlines()[:6], remedy=remedy) from error


def config_path(layout: Layout, variant: Variant | None = None) -> Path:
    return (variant.folder(layout) if variant else layout.recipes) / "wheels.yaml"


def lock_path(layout: Layout, variant: Variant | None = None) -> Path:
    return config_path(layout, variant).with_name("wheels.lock.yaml")


def read_config(layout: Layout, variant: Variant | None = None) -> WheelConfig:
    """recipes/wheels.yaml, checked; an absent file wants no wheels. That of a variant goes on from it: names
    are the same unless it gives others, and it has its own roots, packages and what is provided.
    """
    path = config_path(layout, variant)
    title = str(path.relative_to(layout.root))
    if not path.is_file():
        return WheelConfig()
    try:
        config = WheelConfig.model_validate(_load(path, title, "correct it"))
    except ValidationError as error:
        raise WmlceError(
            f"{title} says something that wmlce does not know",
            detail=str(error).splitlines()[:12],
            remedy="see the classes WheelConfig and WheelRules in ci/wmlce/recipes/wheel_lock.py",
        ) from error
    if variant is None:
        return config
    base = read_config(layout)
    return config.model_copy(
        update={
            "rename": {**base.rename, **config.rename},
            "replace": {**base.replace, **config.replace},
            "drop": {**base.drop, **config.drop},
        }
    )


def read_wheel_lock(layout: Layout, variant: Variant | None = None) -> WheelLock:
    """recipes/wheels.lock.yaml or that of a variant, checked; an absent file locks nothing."""
    path = lock_path(layout, variant)
    title = str(path.relative_to(layout.root))
    if not path.is_file():
        return WheelLock()
    option = f" --variant {variant.name}" if variant else ""
    remedy = f"restore it from git, or write it again with `wmlce lock wheels{option}`"
    try:
        return WheelLock.model_validate(_load(path, title, remedy))
    except ValidationError as error:
        raise WmlceError(f"{title} is damaged", detail=str(error).splitlines()[:12], remedy=remedy) from error


def wheel_sources(layout: Layout, variant: Variant | None = None) -> list[LockedSource]:
    """The locked wheels as sources."""
    config = read_config(layout, variant)
    return [wheel_source(wheel, config, variant) for wheel in read_wheel_lock(layout, variant).packages]


def wheel_source(wheel: LockedWheel, config: WheelConfig, variant: Variant | None = None) -> LockedSource:
    name = config.conda_name(wheel.name)
    return LockedSource(
        recipes=[variant.recipe_name(name) if variant else name],
        kind="python",
        origin=wheel.origin,
        package=wheel.name,
        version=wheel.version,
        files=[LockedFile(name=wheel.file, sha256=wheel.sha256, size=wheel.size)],
        variant=variant.name if variant else None,
        redistribute=wheel.redistribute,
    )
