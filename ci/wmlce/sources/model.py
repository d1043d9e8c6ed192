"""What recipes/sources.lock.yaml says: packages of public archives at exact versions and content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import yaml
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, field_validator

from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout

Kind = Literal["debian-source", "debian-binary", "pypi"]


class LockedFile(BaseModel):
    """One file with the digest of its content."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+~_%!-]*$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class LockedSource(BaseModel):
    """One package of a public archive at an exact version, and those of its files that recipes use."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    recipes: list[str] = Field(validation_alias=AliasChoices("recipes", "recipe"))
    kind: Kind
    # both become arguments of apt-get and pip, so nothing that these read as an option or an operator
    package: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+_-]*$")
    version: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+~:_!-]*$")
    files: list[LockedFile] = Field(min_length=1)

    @field_validator("recipes", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    @field_validator("version", mode="before")
    @classmethod
    def _text(cls, value: object) -> object:
        return str(value)

    def title(self) -> str:
        return f"{self.package} {self.version}"


@dataclass(frozen=True)
class LockedArtifact:
    """A locked file together with the entry that says where it comes from."""

    entry: LockedSource
    file: LockedFile

    def recipes(self) -> str:
        return ", ".join(self.entry.recipes)


def read_source_lock(layout: Layout, name: str = "sources.lock.yaml") -> list[LockedSource]:
    """recipes/sources.lock.yaml, checked."""
    path = layout.recipes / name
    if not path.is_file():
        return []
    try:
        raw = yaml.safe_load(path.read_text()) or []
        return [LockedSource.model_validate(item) for item in raw]
    except (yaml.YAMLError, ValidationError, TypeError) as error:
        raise WmlceError(
            f"recipes/{name} is damaged",
            detail=str(error).splitlines()[:12],
            remedy="restore it from git, or write it anew with `wmlce lock sources`",
        ) from error
