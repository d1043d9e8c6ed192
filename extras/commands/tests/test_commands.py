"""The commands of WML CE, with an environment of a few files."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from wml_ce_commands import cli, components

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment that has the samples of ddl, which it may not write, and nothing else."""
    samples = tmp_path / "env/ddl/examples"
    (samples / "more/__pycache__").mkdir(parents=True)
    (samples / "more/__pycache__/a.pyc").write_bytes(b"0")
    for name in ("one.py", "more/two.py"):
        (samples / name).write_text(f"print('{name}')\n")
        (samples / name).chmod(0o444)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    return tmp_path / "env"


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Runs a command with words, as the file in `bin` calls it."""

    def call(command: str, *words: str) -> Ended:
        monkeypatch.setattr(sys, "argv", [f"/environment/bin/{command}", *words])
        status = cli.run()
        return Ended(status, *capsys.readouterr())

    return call


def test_the_samples_of_every_component_are_packed() -> None:
    """What components.py names is what the recipes install, and the sample that it starts is among them."""
    for name, samples in components.SAMPLES.items():
        package = {"horovod": "horovod", "tensorflow": "ddl-tensorflow"}.get(name, samples.package)
        folder = ROOT / "recipes" / package
        text = "".join(file.read_text() for file in folder.iterdir() if file.is_file())
        assert re.search(rf"\$PREFIX/{samples.folder.partition('/')[0]}\b", text), f"{name}: {package}"
        source = re.search(r"path: \.\./\.\./(\S*examples\S*)", text)
        started = re.search(r"python (\S+)", samples.start)
        assert source and started and (ROOT / source[1] / started[1]).is_file(), name


def test_packages_with_horovods_samples_have_the_command_that_copies_them() -> None:
    """Directly, or by the package ddl, which depends on it."""
    outputs = yaml.safe_load((ROOT / "recipes/horovod/recipe.yaml").read_text())["outputs"]
    packing = [output for output in outputs if "cp -r examples $PREFIX/horovod/" in output["build"]["script"]]
    assert len(packing) == 2
    for output in packing:
        names = {requirement.split()[0] for requirement in output["requirements"]["run"]}
        assert names & {"ddl", "wml-ce-commands"}, output["package"]["name"]


Run = Callable[..., Ended]


def test_samples_are_copied(prefix: Path, run: Run, tmp_path: Path) -> None:
    mine = tmp_path / "mine/samples"
    ended = run("ddl-install-samples", str(mine))
    assert ended.status == 0
    assert sorted(str(file.relative_to(mine)) for file in mine.rglob("*.py")) == ["more/two.py", "one.py"]
    assert (mine / "one.py").stat().st_mode & stat.S_IWUSR, "it is the user's own"
    assert str(mine) in ended.out and "  more/two.py\n" in ended.out and "pyc" not in ended.out
    assert ended.out.endswith("Start one of them there: ddlrun -np 2 python regression.py\n")


def test_files_of_the_user_are_replaced_by_force_only(prefix: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("mine")
    ended = run("ddl-install-samples", str(tmp_path))
    assert ended.status == 1 and "one.py already" in ended.err
    assert (tmp_path / "one.py").read_text() == "mine" and not (tmp_path / "more").exists()
    assert run("ddl-install-samples", "--force", str(tmp_path)).status == 0
    assert (tmp_path / "one.py").read_text() == "print('one.py')\n"
    assert not list(tmp_path.glob(".one.py*")), "a scratch file is left"


def test_a_folder_that_cannot_be_written(prefix: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = run("ddl-install-samples", str(tmp_path / "file/below"))
    assert ended.status == 1 and "cannot write" in ended.err


@pytest.mark.parametrize("component", sorted(components.SAMPLES.keys() - {"ddl"}))
def test_a_component_without_samples_names_its_package(
    component: str, prefix: Path, run: Run, tmp_path: Path
) -> None:
    ended = run(f"{component}-install-samples", str(tmp_path / "mine"))
    assert ended.status == 1
    assert ended.err.endswith(f"install the package {components.SAMPLES[component].package}\n")
    assert not (tmp_path / "mine").exists()


def test_a_component_that_is_not_installed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = components.Test({"no_such_package.part": "ddl-tensorflow"}, 2)
    monkeypatch.setitem(components.TESTS, "ddl-tensorflow", missing)
    ended = run("ddl-tensorflow-test")
    assert ended.status == 1
    assert ended.out.startswith("ddl-tensorflow-test: failed: ") and ended.out.count("\n") == 1
    assert "no Python module no_such_package.part: install the package ddl-tensorflow" in ended.out


@pytest.mark.parametrize(
    ("program", "limit", "reason"),
    [
        ("echo because; exit 7", 60, "exit status 7"),
        ("exit 0", 60, "exit status 0"),
        ("sleep 60 & wait", 1, "not finished after 1 s"),
    ],
)
def test_a_check_that_fails(
    program: str, limit: int, reason: str, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A Python that fails, computes nothing, or hangs stands in for the environment's."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{program}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr("wml_ce_commands.testing._LIMIT_S", limit)
    monkeypatch.setitem(components.TESTS, "pytorch", components.Test({"json": "python"}, 1))
    ended = run("pytorch-test")
    assert ended.status == 1
    assert ended.out == f"pytorch-test: failed: {reason}; its last lines are on stderr\n"
    assert ("because" in ended.err) == ("because" in program)


def test_a_check_has_no_settings_of_the_job(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A Python that prints its environment stands in for the environment's."""
    python = tmp_path / "python"
    names = (
        "DDL_AUTO_INIT",
        "DDL_TF1",
        "DDL_OPTIONS",
        "TF_USE_LEGACY_KERAS",
        "KERAS_BACKEND",
        "DDL_CACHE_DIR",
    )
    settings = "".join(f"[${{{name}-}}]" for name in names)
    python.write_text(f'#!/bin/sh\necho "checked: {settings}"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setitem(components.TESTS, "pytorch", components.Test({"json": "python"}, 1))
    job = {
        **{"DDL_AUTO_INIT": "0", "DDL_OPTIONS": "-mode p:4x2", "DDL_TF1": "1"},
        **{"KERAS_BACKEND": "torch", "TF_USE_LEGACY_KERAS": "1"},
    }
    for name, value in {**job, "DDL_CACHE_DIR": "/cache"}.items():
        monkeypatch.setenv(name, value)
    assert run("pytorch-test").out == "pytorch-test: passed: [][][][][tensorflow][/cache]\n"


@pytest.mark.parametrize("command", sorted(components.GONE))
def test_commands_with_nothing_behind_them(command: str, run: Run) -> None:
    ended = run(command, "train", "-solver", "x.prototxt")
    assert ended.status == 1 and ended.err.count("\n") == 1
    assert ended.err.startswith(f"{command}: ") and len(ended.err) > 80


@pytest.mark.parametrize("place", ["bin", "ddl/bin"])
def test_activation_files(place: str, tmp_path: Path) -> None:
    """Sourced twice through a link such as /opt/DL, while the environment is not active, and while it is."""
    for folder in ("bin", "ddl/bin"):
        (tmp_path / "my env" / folder).mkdir(parents=True)
        target = tmp_path / "my env" / folder / "ddl-activate"
        target.write_bytes((ROOT / "extras/commands/activate.sh").read_bytes())
    (tmp_path / "my env/bin/python").symlink_to(sys.executable)
    (tmp_path / "DL").symlink_to("my env")
    script = f'source "{tmp_path}/DL/{place}/ddl-activate"\n' * 2 + 'echo "$PATH"\n'
    active = f"{tmp_path}/my env/bin:/usr/bin:/bin"
    for path in ("/usr/bin:/bin", active):
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            env={"PATH": path},
            capture_output=True,
            text=True,
            timeout=20,
        )
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout == f"{active}\n"
        assert ended.stderr.startswith("ddl-activate: ") and ended.stderr.count("\n") == 1
        assert f"the environment is {tmp_path}/my env" in ended.stderr


def test_activation_files_in_other_shells(tmp_path: Path) -> None:
    """In dash, Debian's /bin/sh, one line says why the file does nothing."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(sys.executable)
    target = tmp_path / "bin/ddl-activate"
    target.write_bytes((ROOT / "extras/commands/activate.sh").read_bytes())
    ended = subprocess.run(
        ["dash", "-uc", f'. "{target}"; echo "$? $PATH"'],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert ended.stdout == "1 /usr/bin:/bin\n"
    assert ended.stderr.count("\n") == 1 and "needs bash or zsh" in ended.stderr
