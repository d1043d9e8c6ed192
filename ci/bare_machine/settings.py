"""What comes along from the machine into a bare system: how it reaches package archives, and nothing else."""

from __future__ import annotations

import configparser
import io
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bare_machine.mirrors import acquire_settings

CERTIFICATE_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_PROXY_VARIABLES = re.compile(r"^(https?|ftp|all|no)_proxy$", re.IGNORECASE)
_SITE_CERTIFICATES = Path("/usr/local/share/ca-certificates")
_APT_LOGINS = (Path("/etc/apt/auth.conf"), Path("/etc/apt/auth.conf.d"))
_INSIDE = Path("/etc/ssl/machine")
"""Certificate files lie here in the system: the packages installed there write /etc/ssl/certs themselves."""


@dataclass
class Settings:
    """environment: variables for every command. folders: of the machine, mounted read-only at the same path.
    certificates: files of the machine by their path in the system. pip: the text of the system's pip.conf.
    """

    environment: dict[str, str] = field(default_factory=dict)
    folders: set[Path] = field(default_factory=set)
    certificates: dict[Path, Path] = field(default_factory=dict)
    pip: str = ""

    def install(self, system: Path) -> None:
        """Write what is not passed by environment or mount into the system."""
        for name in ("resolv.conf", "hosts"):
            target = system / "etc" / name
            target.unlink(missing_ok=True)  # may be a link out of the system
            shutil.copyfile(Path("/etc") / name, target)
        _write(system / "etc/pip.conf", self.pip)
        _write(system / "etc/apt/apt.conf.d/90machine", acquire_settings())
        for inside, file in self.certificates.items():
            _copy(file, system / inside.relative_to("/"))
        for file in sorted(_SITE_CERTIFICATES.rglob("*.crt")):
            _copy(file, system / file.relative_to("/"))
        for login in _APT_LOGINS:
            for file in sorted(login.iterdir()) if login.is_dir() else [login] if login.is_file() else []:
                _copy(file, system / file.relative_to("/"), mode=0o600)


def _write(file: Path, text: str) -> None:
    if text:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def _copy(file: Path, target: Path, mode: int = 0o644) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, target)
    target.chmod(mode)


def of_machine(environment: Mapping[str, str] = os.environ, home: Path | None = None) -> Settings:
    """The settings of this machine and user."""
    settings = Settings()
    for name, value in environment.items():
        if name in CERTIFICATE_VARIABLES:
            if Path(value).is_file():
                settings.environment[name] = _certificate(settings, value)
        elif name == "PIP_CONFIG_FILE":
            continue  # its content goes into the system's pip.conf
        elif name.startswith("PIP_") or _PROXY_VARIABLES.match(name):
            settings.environment[name] = value
            settings.folders |= _local_folders(value, index="INDEX" in name)
    pip = _pip_settings(environment, home or Path.home())
    for section in pip.sections():
        for key, value in pip.items(section):
            if key == "cert" and Path(value).is_file():
                pip[section][key] = _certificate(settings, value)
            settings.folders |= _local_folders(value, index="index" in key)
    text = io.StringIO()
    pip.write(text)
    settings.pip = text.getvalue()
    return settings


def _certificate(settings: Settings, value: str) -> str:
    inside = _INSIDE / Path(value).name
    settings.certificates[inside] = Path(value)
    return str(inside)


def _pip_settings(environment: Mapping[str, str], home: Path) -> configparser.RawConfigParser:
    """The machine's pip.conf and the user's, as pip lays them over each other."""
    base = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    config_file = environment.get("PIP_CONFIG_FILE")
    files = [
        Path("/etc/pip.conf"),
        home / ".pip/pip.conf",
        base / "pip/pip.conf",
        *([Path(config_file)] if config_file else []),
    ]
    settings = configparser.RawConfigParser()
    for file in files:
        try:
            settings.read_string(file.read_text(), str(file))
        except (OSError, configparser.Error):
            continue  # pip itself says what is wrong with it
    return settings


def _local_folders(value: str, *, index: bool) -> set[Path]:
    """Folders that a value of pip's settings names by path or by file:// address; of an index, whose pages
    link to files beside it, the folder that holds it.
    """
    folders = set()
    for word in value.split():
        path = Path(unquote(urlsplit(word).path) if word.startswith("file://") else word)
        if path.is_absolute() and path.is_dir():
            path = path.parent if index else path
            if len(path.parts) > 2:  # never a whole /opt or /home
                folders.add(path)
    return folders
