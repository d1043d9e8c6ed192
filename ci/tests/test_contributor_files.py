"""Files for editors, hooks, containers and reports: they fit their schemas, and what they name exists."""

from __future__ import annotations

import configparser
import fnmatch
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from ddlrun.command_line.options import SECTIONS
from tree import ROOT, tracked
from wmlce.cli.main import app

TEMPLATES = sorted((ROOT / ".github").rglob("*.yml"))
PROSE = [*TEMPLATES, ROOT / ".github/PULL_REQUEST_TEMPLATE.md", ROOT / "SECURITY.md"]
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())


def editor_settings(name: str, sections: configparser.ConfigParser) -> dict[str, str]:
    """The settings of .editorconfig for a file; a later section goes before an earlier one."""
    settings: dict[str, str] = {}
    for pattern in sections.sections():
        braces = re.fullmatch(r"(.*)\{(.+)\}", pattern)
        patterns = [f"{braces[1]}{end}" for end in braces[2].split(",")] if braces else [pattern]
        if any(fnmatch.fnmatch(name, each) for each in patterns):
            settings.update(sections[pattern])
    return settings


def test_every_file_is_as_the_editor_settings_say() -> None:
    sections = configparser.ConfigParser()
    sections.read_string(
        (ROOT / ".editorconfig").read_text().replace("root = true", "[DEFAULT]\nroot = true")
    )
    assert set(sections.sections()) == {"*", "*.{py,pyi}", "*.md", "*.patch"}
    for file in tracked():
        settings = editor_settings(file.name, sections)
        text = file.read_bytes().decode(settings["charset"])
        assert "\r" not in text, f"{file}: lines end with {settings['end_of_line']}"
        assert not text or (text.endswith("\n") and not text.endswith("\n\n")), f"{file}: the last line's end"
        if settings["trim_trailing_whitespace"] == "true":
            assert not re.search(r"[ \t]$", text, re.MULTILINE), f"{file}: blanks at the end of a line"
        if file.suffix != ".patch":
            assert not re.search(r"^ *\t", text, re.MULTILINE), f"{file}: a tab as indentation"


def test_editor_settings_agree_with_the_formatters() -> None:
    sections = configparser.ConfigParser()
    sections.read_string((ROOT / ".editorconfig").read_text().partition("root = true")[2])
    length = sections["*"]["max_line_length"]
    assert f"line-length = {length}\n" in (ROOT / "pyproject.toml").read_text()
    assert f"ColumnLimit: {length}\n" in (ROOT / ".clang-format").read_text()


def hooks() -> list[dict[str, Any]]:
    return [hook for repository in HOOKS["repos"] for hook in repository["hooks"]]


def test_hooks_are_local() -> None:
    assert [repository["repo"] for repository in HOOKS["repos"]] == ["local"]
    assert {hook["language"] for hook in hooks()} == {"system"}


@pytest.mark.parametrize("hook", hooks(), ids=lambda hook: str(hook["id"]))
def test_commands_of_the_hooks_work(hook: dict[str, Any], tmp_path: Path) -> None:
    """Each hook's command, on one clean file; those that run tests only collect them."""
    program, *arguments = shlex.split(hook["entry"])
    assert Path(program).parent == Path("build/tools/bin")
    if "pytest" in arguments:
        arguments.append("--collect-only")
    elif hook["id"] == "clang-format":
        source = ROOT / "ddl-core/libddl/include/ddl.h"
        arguments = ["--dry-run", "--Werror", *(word for word in arguments if word != "-i"), str(source)]
    else:
        (tmp_path / "clean.py").write_text('"""Nothing."""\n')
        arguments.append(str(tmp_path / "clean.py"))
    tool = Path(sys.executable).parent / Path(program).name
    result = subprocess.run(
        [tool, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "no tests collected" not in result.stdout


def test_hooks_run_every_test_of_the_house_once() -> None:
    """ruff and clang-format as themselves, the others by name."""
    expressions = [shlex.split(hook["entry"])[-1] for hook in hooks() if "pytest" in hook["entry"]]
    assert expressions == ["mypy", "not (mypy or ruff or clang_format)"]


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: str(path.name))
def test_issue_templates_fit_their_schema(template: Path) -> None:
    schema = "vendor.github-issue-config" if template.name == "config.yml" else "vendor.github-issue-forms"
    check = Path(sys.executable).parent / "check-jsonschema"
    result = subprocess.run(
        [check, "--builtin-schema", schema, template], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stdout


def test_reports_ask_for_commands_that_exist() -> None:
    options = {name for section in SECTIONS.values() for option in section for name in option.names}
    group: Any = typer.main.get_command(app)
    named: set[str] = set()
    for file in PROSE:
        for command in re.findall(r"`([^`\n]+)`", file.read_text()):
            first, *rest = command.split()
            if first == "ddlrun":
                named.add(command)
                asked = [word[1:] for word in rest if word.startswith("-")]
                assert set(asked) <= options, f"{file}: {command}"
            elif Path(first).name == "wmlce":
                named.add(command)
                place = group
                for word in rest:
                    if word.islower() and not word.startswith("-"):
                        assert word in place.commands, f"{file}: {command}"
                        place = place.commands[word]
                    elif word.startswith("-"):
                        assert any(word in option.opts for option in place.params), f"{file}: {command}"
    assert {"ddlrun -doctor", "build/tools/bin/wmlce doctor"} <= named


def test_the_development_container_uses_what_the_project_names() -> None:
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    folder = ROOT / ".devcontainer"
    dockerfile = (folder / container["build"]["dockerfile"]).read_text()
    context = folder / container["build"]["context"]
    for source in re.findall(r"^COPY (\S+)", dockerfile, re.MULTILINE):
        assert (context / source).is_file(), source
    (program,) = re.findall(r"awk '(.+?)'", dockerfile)
    packages = subprocess.run(
        ["awk", program, ROOT / "ci/debian-packages.txt"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.split()
    assert {"git", "python3-venv", "gcc", "slurm-wlm"} <= set(packages)
    assert "mmdebstrap" not in packages and all(re.fullmatch(r"[a-z0-9.+-]+", name) for name in packages)
    command = container["postCreateCommand"]
    assert ". ci/bootstrap.sh" in command and "wmlce dev" in command
    syntax = subprocess.run(["bash", "-n"], input=command, text=True, capture_output=True, timeout=60)
    assert syntax.returncode == 0, syntax.stderr
