"""Frameworks in one process: the channel's own train in both orders; a pair that cannot is named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tree import ROOT
from wmlce.channel.verify import pairs
from wmlce.channel.verify.pairs import Framework

PYTHON = Path(sys.executable)
STEP = "before, after = 1.0, 0.5"
QUIET = print


def framework(name: str, code: str = "pass", step: str = STEP) -> Framework:
    """One whose import runs `code`; what was imported before it is in sys.modules, as with real ones."""
    statement = f"import sys\n{code}\nsys.modules['fake_{name}'] = object()"
    return Framework.model_validate({"name": name, "modules": [name], "import": statement, "step": step})


def checked(*frameworks: Framework) -> list[str]:
    return pairs.check(PYTHON, frameworks, QUIET, limit_s=20).findings


@pytest.mark.slow
def test_frameworks_of_the_channel_in_both_orders() -> None:
    prefix = ROOT / "build/envs/powerai"
    check = pairs.together(prefix, QUIET)
    assert check.ok, check.findings
    names = check.summary.partition(";")[0].split(", ")
    assert {"tensorflow", "torch", "horovod.tensorflow", "horovod.torch"} <= set(names)
    assert list(check.parts) == [" ".join(names), " ".join(reversed(names))]


def test_a_crash_names_the_pair_and_its_order() -> None:
    """A process that dies in one order of one pair of six."""
    crash = "import os, signal\nif 'fake_b' in sys.modules: os.kill(os.getpid(), signal.SIGSEGV)"
    others = [framework(name) for name in "acdf"]
    [found] = checked(*others[:2], framework("b"), others[2], framework("e", crash), others[3])
    assert found == "b imported before e: e: import: killed by SIGSEGV"


def test_an_import_that_harms_one_before_it() -> None:
    """The training of what was imported first fails because of what came later."""
    step = f"import sys\nassert 'fake_d' not in sys.modules or sys.first != 'a', 'harmed'\n{STEP}"
    first = "if not hasattr(sys, 'first'): sys.first = '{}'"
    frameworks = [framework(name, first.format(name), step if name == "a" else STEP) for name in "abcd"]
    [found] = checked(*frameworks)
    assert found == "a imported before d: a: step: AssertionError: harmed"


def test_one_that_fails_alone_and_a_loss_that_does_not_fall() -> None:
    found = checked(framework("a"), framework("b", step="before = after = 1.0"))
    assert found == ["b fails alone: step: ArithmeticError: the loss did not fall: 1, then 1"]


def test_nan_is_no_training() -> None:
    [found] = checked(framework("a", step="before, after = 1.0, float('nan')"))
    assert "the loss did not fall: 1, then nan" in found


def test_one_that_hangs_is_ended() -> None:
    hang = framework("a", step="import time; time.sleep(600)")
    found = pairs.check(PYTHON, [hang], QUIET, limit_s=6).findings
    assert found == ["a fails alone: step: not finished after 6 s"]


def test_what_was_run_is_said() -> None:
    said: list[str] = []
    check = pairs.check(PYTHON, [framework(name) for name in "abc"], said.append, limit_s=20)
    assert check.ok and check.summary == "a, b, c; 3 pairs, both orders"
    assert check.parts == {"a b c": [], "c b a": []}
    begin = "one step of training each, imported in the order: "
    assert said == [f"{begin}a b c", f"{begin}c b a"]
    said.clear()
    bad = [framework("a"), framework("b", "raise ValueError('bad')")]
    check = pairs.check(PYTHON, bad, said.append, limit_s=20)
    told = "b fails alone: import: ValueError: bad"
    assert check.findings == [told] and check.parts == {"a b": [told], "b a": [told]}
    search = "b failed; looking for the reason: b"
    assert said == [f"{begin}a b", search, f"{begin}b a", search]
    assert pairs.check(PYTHON, [], said.append).summary == "no framework; 0 pairs, both orders"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import os; os._exit(0)", "a fails alone: import: exit code 0: no output"),
        (
            "import os; print('why', flush=True); print(flush=True); os._exit(3)",
            "a fails alone: import: exit code 3: why",
        ),
        (
            "import atexit, os; atexit.register(os._exit, 4)",
            "a fails alone: end of the process: exit code 4: no output",
        ),
    ],
)
def test_a_process_that_ends_itself(code: str, told: str) -> None:
    assert checked(framework("a", code)) == [told]


def test_a_failure_that_does_not_come_again(tmp_path: Path) -> None:
    code = (
        f"import pathlib\nmark = pathlib.Path({str(tmp_path / 'mark')!r})\n"
        "if not mark.exists():\n    mark.touch()\n    raise OSError('once')"
    )
    found = checked(framework("a", code))
    assert found == ["a failed once, and not again: import: OSError: once"]


def test_what_the_user_has_set_for_python_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    users = ("PYTHONSTARTUP", "LD_BIND_NOW", "OMPI_COMM_WORLD_RANK")
    for name in (*users, "ORDINARY"):
        monkeypatch.setenv(name, "1")
    code = (
        f"import os\nassert not [name for name in {users} if name in os.environ]\n"
        "assert os.environ['ORDINARY'] == '1' and not os.environ['CUDA_VISIBLE_DEVICES']\n"
        f"assert os.environ['PATH'].split(':')[0] == {str(PYTHON.parent)!r}"
    )
    assert checked(framework("a", code)) == []


def test_two_runtimes_of_openmp(tmp_path: Path) -> None:
    """A wheel's own beside the environment's: the pair is named, and both files; links to one are one."""
    for name in ("one/libgomp.so.1.0.0", "two/libgomp-0123abcd.so.1.0.0"):
        (tmp_path / name).parent.mkdir()
        source = "int runtime(void) { return 1; }"
        command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(tmp_path / name)]
        subprocess.run(command, input=source, text=True, check=True)
    (tmp_path / "three").mkdir()
    (tmp_path / "three/libgomp.so.1").symlink_to("../one/libgomp.so.1.0.0")
    load = "import ctypes; ctypes.CDLL({!r})"
    one, two, three = (
        load.format(str(tmp_path / name))
        for name in ("one/libgomp.so.1.0.0", "two/libgomp-0123abcd.so.1.0.0", "three/libgomp.so.1")
    )
    assert checked(framework("a", one), framework("b"), framework("d", three)) == []
    found = checked(framework("a", one), framework("b"), framework("c", two), framework("d", three))
    told = "c: import: RuntimeError: the process has 2 runtimes of OpenMP: "
    files = f"{tmp_path}/one/libgomp.so.1.0.0, {tmp_path}/two/libgomp-0123abcd.so.1.0.0"
    assert [text[:300] for text in found] == [
        f"{first} imported before c: {told}{files}"[:300] for first in "ad"
    ]


def test_three_that_fail_only_together() -> None:
    code = "assert not {'fake_a', 'fake_b'} <= set(sys.modules), 'all three'"
    [found] = checked(framework("a"), framework("b"), framework("c", code))
    assert found.startswith("c fails after the imports a b c, but after neither half of them: import: ")


def test_declared_frameworks_are_well_formed() -> None:
    names = [one.name for one in pairs.declared()]
    assert len(set(names)) == len(names) >= 11
    for one in pairs.declared():
        compile(one.statement, one.name, "exec")
        compile(one.step, one.name, "exec")
        assert "before" in one.step and "after" in one.step


@pytest.mark.parametrize("name", ["chainer", "xgboost", "lightgbm", "onnxruntime", "snapml"])
def test_of_an_environment_without_it(name: str, tmp_path: Path) -> None:
    (tmp_path / "conda-meta").mkdir()
    assert pairs.together(tmp_path, QUIET).summary.startswith("no framework")
    [one] = [one for one in pairs.declared() if one.name == name]
    for module in one.modules:
        (tmp_path / "lib/python3.11/site-packages" / module).mkdir(parents=True)
        (tmp_path / "lib/python3.11/site-packages" / module / "__init__.py").touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(PYTHON)
    [found] = pairs.together(tmp_path, QUIET).findings
    assert found.startswith(f"{name} fails alone: ")
