"""`module load` on every host: the real Lmod in a real login shell, and what is said of hosts that differ."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from program_runner import Environment

from ddl_validate.common.mpi import MPI_AS_ROOT
from ddl_validate.suite.bench import Bench, Host
from ddl_validate.suite.checks import module
from ddl_validate.suite.levels import LEVELS
from ddl_validate.suite.model import CheckResult, Kind, Status

LMOD = Path("/usr/share/lmod/lmod/init/bash")
PREFIX = "/sw/ibm-wml-ce/2.0.0"
GOOD = {"state": "loaded", "prefix": PREFIX, "ddlrun": f"{PREFIX}/bin/ddlrun"}
NONE = {"state": "no module command", "message": "exit code 41"}


def bench_of(prefix: Path, folder: Path) -> Bench:
    hosts = (Host("localhost", 1, 0, {}),)
    return Bench(prefix, (), hosts, False, 1, 0, LEVELS["smoke"], 0.3, folder, lambda _: None)


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (NONE, "h2 has no module command"),
        ({"state": "failed", "message": "unknown module"}, "fails on h2: unknown module"),
        ({**GOOD, "prefix": "/old/ibm-wml-ce/2.0.0"}, "gives /old/ibm-wml-ce/2.0.0 on h2, not /sw/"),
        ({**GOOD, "ddlrun": "/home/me/bin/ddlrun"}, "on h2, ddlrun is /home/me/bin/ddlrun, not /sw/"),
    ],
)
def test_a_host_that_differs_is_named(told: dict[str, str], says: str) -> None:
    hosts = {"h1": GOOD, "h2": told, "h3": GOOD}
    (finding,) = module.findings("ibm-wml-ce/2.0.0", PREFIX, hosts)
    assert (finding.kind, finding.where, finding.hosts) == (Kind.ENVIRONMENT, "host h2", ("h2",))
    assert says in finding.text
    assert module.findings("ibm-wml-ce/2.0.0", PREFIX, {"h1": GOOD}) == []


def test_an_environment_that_is_no_module_is_passed_over(tmp_path: Path) -> None:
    result = module.check(bench_of(tmp_path, tmp_path), [])
    assert result.status is Status.SKIPPED and "not installed by `wmlce module install`" in result.reason


@pytest.fixture
def loaded(
    env: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], CheckResult]:
    """The check of an environment in a software tree: its programs call those of the environment under test.
    loaded(MODULEFILE, PROFILE): PROFILE is the user's .bash_profile.
    """
    for name, value in MPI_AS_ROOT.items():
        monkeypatch.setenv(name, value)
    prefix = tmp_path / "sw/ibm-wml-ce/1.0"
    (prefix / "bin").mkdir(parents=True)
    for name in ("ddlrun", "python"):
        script = prefix / "bin" / name
        script.write_text(f'#!/bin/sh\nexec "{env.prefix}/bin/{name}" "$@"\n')
        script.chmod(0o755)

    def run(modulefile: str, profile: str) -> CheckResult:
        folder = tmp_path / "modulefiles/ibm-wml-ce"
        folder.mkdir(parents=True)
        (folder / "1.0.lua").write_text(modulefile.replace("@PREFIX@", str(prefix)))
        home = tmp_path / "home"
        home.mkdir()
        (home / ".bash_profile").write_text(profile.replace("MODULEFILES", str(folder.parent)))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HOME", str(home))
            return module.check(bench_of(prefix, tmp_path / "logs"), [])

    return run


PROFILE = f". {LMOD}\nexport LMOD_IGNORE_CACHE=yes\nmodule use MODULEFILES\necho a greeting\n"
MODULEFILE = 'setenv("CONDA_PREFIX", "@PREFIX@")\nprepend_path("PATH", "@PREFIX@/bin")\n'


@pytest.mark.skipif(not LMOD.exists(), reason="Lmod is missing: apt-get install lmod")
@pytest.mark.parametrize(
    ("modulefile", "says"),
    [
        (MODULEFILE, ""),
        (MODULEFILE.replace('"@PREFIX@")', '"@PREFIX@/../0.9")'), "gives "),
        ('setenv("CONDA_PREFIX", "@PREFIX@")\n', "ddlrun is "),
        ('LmodError("closed for maintenance")', "closed for maintenance"),
    ],
)
def test_a_real_login_shell(loaded: Callable[[str, str], CheckResult], modulefile: str, says: str) -> None:
    result = loaded(modulefile, PROFILE)
    assert result.facts["module"] == "ibm-wml-ce/1.0"
    if not says:
        assert result.status is Status.PASSED, result
    else:
        (finding,) = result.findings
        assert result.status is Status.FAILED and says in finding.text, finding


def test_a_host_without_modules_is_passed_over(loaded: Callable[[str, str], CheckResult]) -> None:
    result = loaded(MODULEFILE, "unset -f module ml\nunset BASH_ENV\n")
    assert result.status is Status.SKIPPED and "no host has a module command" in result.reason, result
