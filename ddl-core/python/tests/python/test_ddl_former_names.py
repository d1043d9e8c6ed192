"""Names of modules from before they had packages of their own: the same modules, not copies."""

from __future__ import annotations

import pytest
from rank_processes import PREFIX, finish, own_environment, start

_SAME = """
import sys
import ddl, ddl_spark, ddl_sweep.cli, ddlrun.rank_variables
from ddl import sweep
from ddl.launch import rank_variables
from ddl.sweep.cli import main
import ddl.spark_cluster
assert sweep is ddl_sweep and ddl.spark_cluster is ddl_spark
assert main is ddl_sweep.cli.main and rank_variables is ddlrun.rank_variables
assert ddl_sweep.__spec__.name == ddl_sweep.__name__ == "ddl_sweep", ddl_sweep.__spec__
assert sys.modules["ddl.sweep.cli"] is sys.modules["ddl_sweep.cli"]
"""

_ABSENT = """
import ddl
try:
    import ddl.chainer
except ImportError as error:
    print(error)
"""


_NO_SWEEP = """
import importlib.util as util
find = util.find_spec
util.find_spec = lambda name, *rest: None if name == "ddl_sweep" else find(name, *rest)
import ddl
assert not hasattr(ddl, "sweep")
try:
    ddl.sweep
except AttributeError as error:
    print(error)
"""


def _python(*words: str) -> tuple[int, str, str]:
    child = start([str(PREFIX / "bin/python"), *words], {**own_environment(), "DDL_AUTO_INIT": "0"})
    out, err = finish(child, 60)
    return child.returncode, out, err


def test_the_modules_are_the_same() -> None:
    assert _python("-c", _SAME) == (0, "", "")


def test_what_is_not_installed_is_named() -> None:
    if list(PREFIX.glob("lib/python3*/site-packages/ddl_chainer")):
        pytest.skip("ddl-chainer is installed in the environment under test")
    code, out, err = _python("-c", _ABSENT)
    assert code == 0 and "conda install ddl-chainer" in out, out + err


def test_an_attribute_that_is_not_installed_is_absent() -> None:
    """As hasattr() and inspect ask for it."""
    code, out, err = _python("-c", _NO_SWEEP)
    assert code == 0 and "conda install ddl-sweep" in out, out + err


@pytest.mark.parametrize("module", ["ddl.launch", "ddl.spark_cluster", "ddl.sweep"])
def test_they_run_as_programs(module: str) -> None:
    code, out, err = _python("-m", module, "--help")
    assert code == 0 and "sage: " in out, err
