"""The single-file installer: it works where nothing is there, and gives an environment like any other."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import images
import installers
import pytest
from bare_roots import RELEASES, bare_system
from installers import CHANNEL, PATH, SCRATCH, SUM, VERSION, Installer, names, read, variables
from rattler import Channel, Gateway, MatchSpec, PrefixRecord, VirtualPackage, VirtualPackageOverrides, solve
from rattler import install as add_packages
from scratch_clone import Clone
from test_environments import altered
from test_house import tool
from tree import ROOT
from wmlce.channel import published
from wmlce.envs import environments


@pytest.fixture(scope="module")
def installed(small: Installer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment, on this machine."""
    prefix = tmp_path_factory.mktemp("installed") / "env"
    done = small("--batch", "--prefix", prefix)
    assert done.returncode == 0, done.stdout + done.stderr
    return prefix


@pytest.mark.parametrize("release", RELEASES)
def test_it_installs_on_a_bare_system_without_a_network(
    small: Installer, release: str, tmp_path: Path
) -> None:
    system = bare_system(release, tmp_path / "home")
    shutil.copy(small.file, system.home / "installer.sh")
    done = system.run("sh", "installer.sh", "--batch")
    assert done.returncode == 0, done.stdout + done.stderr
    assert names(system.home) == {"installer.sh", "ibm-wml-ce"}  # nothing but what was asked for
    assert f"/home/user/ibm-wml-ce/{VERSION}/bin/ddlrun -np 2" in done.stdout
    prefix = Path("/home/user/ibm-wml-ce") / VERSION
    summed = system.run(prefix / "bin/ddlrun", "-np", "2", "-timeout", "100", "python", "-c", SUM)
    assert summed.returncode == 0 and summed.stdout == "[3. 3. 3.]\n" * 2, summed.stdout + summed.stderr
    # as the last lines say, in the system's own shell
    used = system.run(
        "sh", "-euc", f". {prefix}/bin/activate; command -v ddlrun; deactivate; ! command -v ddlrun"
    )
    assert used.returncode == 0 and used.stdout == f"{prefix}/bin/ddlrun\n", used.stderr


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_it_is_for_everybody_whatever_the_umask_is(tiny: Installer, tmp_path: Path, shell: str) -> None:
    prefix = tmp_path / "new/env"
    old = os.umask(0o077)
    try:
        done = tiny("-b", "-p", prefix, interpreter=shell)
    finally:
        os.umask(old)
    assert done.returncode == 0, done.stderr
    for path in [prefix.parent, prefix, *prefix.rglob("*")]:
        wanted = 0o555 if path.is_dir() else 0o444
        assert path.is_symlink() or path.stat().st_mode & wanted == wanted, path


def test_what_is_printed_can_be_pasted(tiny: Installer, tmp_path: Path) -> None:
    prefix = tmp_path / "a@b~c"
    done = tiny("-b", "-p", prefix)
    assert done.returncode == 0 and f"rm -rf '{prefix}'" in done.stdout, done.stderr
    line = next(line for line in done.stdout.splitlines() if "rm -rf" in line)
    subprocess.run(["sh", "-c", line.partition(":")[2]], check=True, timeout=60)
    assert not prefix.exists()


@pytest.mark.long
@pytest.mark.parametrize("release", RELEASES)
def test_the_whole_distribution_trains_on_a_bare_system(release: str, tmp_path: Path) -> None:
    whole = installers.build("test-whole.sh")
    system = bare_system(release, tmp_path / "home")
    os.link(whole.file, system.home / "installer.sh")
    done = system.run("sh", "installer.sh", "--batch", "--prefix", "env", limit=900)
    assert done.returncode == 0, done.stdout + done.stderr
    print(re.findall(r"packages in .*", done.stdout))
    shutil.copytree(ROOT / "ddl-core/examples", system.home / "examples")
    for script, words in (
        ("tensorflow/keras_digits.py", ["--epochs", "3", "--rate", "0.01"]),
        ("pytorch/digits.py", []),
    ):
        run = ["env/bin/ddlrun", "-np", "2", "-timeout", "250", "python", f"examples/{script}", *words]
        trained = system.run(*run, limit=300)
        assert trained.returncode == 0, trained.stdout + trained.stderr
        assert "ranks 2" in trained.stdout, trained.stdout
    shutil.rmtree(system.home)


def test_it_is_an_environment_of_conda(small: Installer, installed: Path) -> None:
    assert not (installed / SCRATCH).exists()
    meta = {record["name"]: record for record in map(read, (installed / "conda-meta").glob("*.json"))}
    listed = {package["name"]: package for package in small.record["packages"]}
    assert {name: record["sha256"] for name, record in meta.items()} == {
        name: package["sha256"] for name, package in listed.items()
    }
    assert meta["ddl"]["url"] == f"https://ibm-wml-ce.invalid/linux-64/{listed['ddl']['file']}"
    assert meta["ddl"]["requested_specs"] == ["ddl"] and not meta["python"].get("requested_specs")
    assert '# update specs: ["ddl", "numpy", "wheel"]' in (installed / "conda-meta/history").read_text()
    assert SCRATCH not in "".join(json.dumps(record) for record in meta.values())
    assert altered(installed) == []
    # packages for any Python: programs, and compiled modules for those who cannot write here
    assert subprocess.run([installed / "bin/wheel", "version"], timeout=60).returncode == 0
    site = installed / "lib/python3.11/site-packages/wheel"
    assert len(list(site.glob("__pycache__/*.pyc"))) == len(list(site.glob("*.py"))) > 0
    # files are the environment's own: none has a second name in a cache
    assert all(path.stat().st_nlink == 1 for path in (installed / "bin").iterdir() if not path.is_symlink())


def test_packages_can_be_added_and_it_can_be_cloned(clone: Clone, installed: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    clone.ok("env", "clone", str(installed), str(copy))
    assert f"{copy}" in (copy / "bin/activate").read_text()

    # what `conda install -p` does: solve with what is there, and install what is missing
    async def add() -> None:
        there = [PrefixRecord.from_path(path) for path in sorted((copy / "conda-meta").glob("*.json"))]
        records = await solve(
            sources=[Channel(CHANNEL.as_uri())],
            specs=[MatchSpec("packaging"), *(MatchSpec(s) for r in there for s in r.requested_specs)],
            gateway=Gateway(),
            platforms=["linux-64", "noarch"],
            locked_packages=there,
            virtual_packages=VirtualPackage.detect(VirtualPackageOverrides.from_env()),
        )
        await add_packages(records, target_prefix=copy, cache_dir=tmp_path / "pkgs", show_progress=False)

    asyncio.run(add())
    program = "import packaging, sys, ddl; print(sys.prefix)"
    asked = subprocess.run([copy / "bin/python", "-c", program], capture_output=True, text=True, timeout=60)
    assert asked.stdout == f"{copy}\n", asked.stderr
    run = [copy / "bin/ddlrun", "-np", "2", "-timeout", "100", "python", "-c", SUM]
    summed = subprocess.run(run, env=variables(), capture_output=True, text=True, timeout=120)
    assert summed.stdout == "[3. 3. 3.]\n" * 2, summed.stderr


@pytest.fixture(scope="module", params=["dash", "bash", "zsh", "busybox"])
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A shell, as words of a command."""
    name = str(request.param)
    program = shutil.which(name)
    if name == "busybox":
        folder = tmp_path_factory.mktemp(name)
        program = program or str(next(images.apt_files(folder / "files", name).glob("**/bin/busybox")))
        return [program, "sh"]
    if program is None:
        pytest.skip(f"{name} is missing: apt-get install {name}")
    return [program]


def test_activation_is_undone(installed: Path, shell: list[str], tmp_path: Path) -> None:
    for kind in ("activate.d", "deactivate.d"):
        folder = installed / "etc/conda" / kind
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "test.sh").write_text(f'TEST_OF_ACTIVATION="{kind} $CONDA_PREFIX"\n')
    script = f"""
set -eu
PS1='> '
CONDA_PREFIX=/opt/other
set >"$HOME/before"
. {installed}/bin/activate
. {installed}/bin/activate
printf '%s\\n' "$CONDA_PREFIX $CONDA_SHLVL $PS1$TEST_OF_ACTIVATION"
command -v ddlrun
deactivate
printf '%s\\n' "$PATH $CONDA_PREFIX ${{CONDA_SHLVL-unset}} $PS1$TEST_OF_ACTIVATION"
unset TEST_OF_ACTIVATION
set >"$HOME/after"
"""
    home = tmp_path
    try:
        done = subprocess.run(
            [*shell, "-c", script],
            env={"PATH": PATH, "HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        shutil.rmtree(installed / "etc/conda/deactivate.d")
        (installed / "etc/conda/activate.d/test.sh").unlink()
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{installed} 1 (ibm-wml-ce {VERSION}) > activate.d {installed}",
        f"{installed}/bin/ddlrun",
        f"{PATH} /opt/other unset > deactivate.d {installed}",
    ]
    left = set((home / "after").read_text().splitlines()) - set((home / "before").read_text().splitlines())
    assert not [line for line in left if "wmlce" in line.lower() or "CONDA" in line], left


def test_activation_runs_no_program_of_another_environment(
    installed: Path, shell: list[str], tmp_path: Path
) -> None:
    """pyenv-virtualenv and old Anacondas have a program `deactivate`, and some users an alias; functions that
    other environments define are run.
    """
    programs = tmp_path / "function"
    programs.mkdir()
    for folder in (programs, tmp_path):
        program = folder / "deactivate"
        program.write_text(f"#!/bin/sh\necho ran >>{tmp_path}/ran\nexit 1\n")
        program.chmod(0o755)
    strict = "set -eu" if shell[0].endswith("dash") else "set -euo pipefail"
    script = f"""
{strict}
. {installed}/bin/activate
deactivate
PATH=:function:$PATH
. {installed}/bin/activate
deactivate
deactivate() {{ echo function of another; unset -f deactivate; return 3; }}
. {installed}/bin/activate
deactivate
if [ -n "${{BASH_VERSION-}}" ]; then shopt -s expand_aliases; fi
alias deactivate=false ls='ls -l'
. {installed}/bin/activate
command -v ddlrun
deactivate
echo end
"""
    file = tmp_path / "job"
    file.write_text(script)
    done = subprocess.run(
        [*shell, str(file)],
        env={"PATH": f"{programs}:{PATH}", "HOME": str(tmp_path), "LANG": "de_DE.UTF-8"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["function of another", f"{installed}/bin/ddlrun", "end"]
    assert not (tmp_path / "ran").exists()


def test_a_prefix_of_the_greatest_length(small: Installer, tmp_path: Path) -> None:
    limit = int(str(small.record["prefix_limit"]))
    room = limit - len(str(tmp_path)) - 1
    prefix = (
        tmp_path / "x" * (room // 2) / ("y" * (room - room // 2 - 1))
        if room > 200
        else tmp_path / ("x" * room)
    )
    assert len(str(prefix)) == limit
    done = small("-b", "-p", f"{prefix}z")
    assert done.returncode == 1 and f"has {limit + 1} bytes, and programs in the packages" in done.stderr
    done = small("-b", "-p", prefix)
    assert done.returncode == 0, done.stdout + done.stderr
    run = [prefix / "bin/ddlrun", "-np", "2", "-timeout", "100", "python", "-c", SUM]
    summed = subprocess.run(run, env=variables(), capture_output=True, text=True, timeout=120)
    assert summed.stdout == "[3. 3. 3.]\n" * 2, summed.stderr


def test_an_empty_folder_and_a_folder_of_home(tiny: Installer, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = tiny("-b", "-p", "empty/.//x/..", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "empty/lib/libz.so.1").exists() and not (tmp_path / "empty" / SCRATCH).exists()
    done = tiny("-b", "--prefix=~/of-home", HOME=str(tmp_path))
    assert done.returncode == 0 and (tmp_path / "of-home/conda-meta").is_dir(), done.stderr
    done = tiny("-b", HOME="")
    assert done.returncode == 2 and "HOME is not set" in done.stderr


@pytest.mark.long
def test_the_same_packages_give_the_same_file(clone: Clone, tiny: Installer, tmp_path: Path) -> None:
    command = ["installer", "build", "libzlib", "--from", str(CHANNEL)]
    clone.write("VERSION", (ROOT / "VERSION").read_text())
    first = clone.ok(*command)
    file = clone.root / "build/installers/ibm-wml-ce-2.0.0-linux-64.sh"
    assert first["built"] and first["installer"] == str(file) and os.access(file, os.X_OK)
    assert first["sha256"] == tiny.record["sha256"]
    assert str(clone.root).encode() not in file.read_bytes()
    inode = file.stat().st_ino
    assert not clone.ok(*command)["built"] and file.stat().st_ino == inode
    other = clone.ok(*command, "--channel", "file:///sw/channel/")
    assert other["built"] and other["sha256"] != first["sha256"]
    prefix = tmp_path / "env"
    done = subprocess.run(
        ["sh", file, "-b", "-p", prefix], env=variables(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    records = [read(path) for path in (prefix / "conda-meta").glob("*.json")]
    assert {record["channel"] for record in records} == {"file:///sw/channel"}
    assert names(file.parent) == {file.name, f"{file.name}.json"}


def test_a_package_that_is_not_the_indexed_one(clone: Clone, tmp_path: Path) -> None:
    channel = tmp_path / "channel"
    records = environments.solve_channel(CHANNEL, ["six"])
    for record in records:
        (channel / record.subdir).mkdir(parents=True, exist_ok=True)
        os.link(CHANNEL / record.subdir / record.file_name, channel / record.subdir / record.file_name)
    published.index(channel, {})
    (six,) = channel.glob("noarch/six-*.conda")
    content = six.read_bytes()
    six.unlink()
    # in the archive's directory, and in its content
    for place, message in ((-6, "is not a package that can be read"), (500, "is not the file that")):
        changed = bytearray(content)
        changed[place] ^= 1
        six.write_bytes(changed)
        error = clone.fails("installer", "build", "six", "--from", str(channel))
        assert f"{six} {message}" in error
        assert not list((clone.root / "build/installers").iterdir())


def test_channels_that_an_installer_cannot_be_made_of(clone: Clone, tmp_path: Path) -> None:
    assert "wmlce channel build" in clone.fails("installer", "build")
    assert "is not a channel" in clone.fails("installer", "build", "--from", str(tmp_path))
    clone.recipe("a")
    clone.built()
    # without Python in the channel there is nothing to install with
    assert "cannot give an environment with: python" in clone.fails("installer", "build", "a")
    assert "cannot give an environment with: b" in clone.fails("installer", "build", "b")
    assert "is a folder" in clone.fails("installer", "build", "a", "--output", str(tmp_path))
    bad = clone.fails("installer", "build", "a", "--channel", "a b")
    assert "is not a channel address" in bad


@pytest.mark.parametrize("script", ["installer.sh", "activate.sh"])
def test_the_shell_scripts_are_in_order(script: str) -> None:
    words = [tool("shellcheck"), str(ROOT / "ci/wmlce/installer" / script)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
