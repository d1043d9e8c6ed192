"""Hosts that others use as well: what a neighbour has put into /tmp, into the current folder, or says at a
port."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from ddlrun import runfolder
from ddlrun.errors import LaunchError
from ddlrun_program import Ddlrun


def _owned_by_a_neighbour(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to give a file to another user")
    os.chown(path, 65534, 65534, follow_symlinks=False)


def _folder(monkeypatch: pytest.MonkeyPatch, base: Path) -> Path:
    monkeypatch.setenv("TMPDIR", str(base))
    with runfolder.RunFolder() as made:
        return made.path


def test_the_run_folder_is_private(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = _folder(monkeypatch, tmp_path)
    for folder in (path, path.parent):
        assert folder.stat().st_mode & 0o777 == 0o700 and folder.stat().st_uid == os.geteuid()
    assert path.parent.name == f"DDLRUN.{path.name.split('.')[1]}"
    assert _folder(monkeypatch, tmp_path).parent == path.parent


def test_a_folder_that_others_may_enter_is_closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = _folder(monkeypatch, tmp_path).parent
    own.chmod(0o777)
    assert _folder(monkeypatch, tmp_path).parent == own
    assert own.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_a_neighbour_made_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is not used, and does not stop anybody."""
    own = _folder(monkeypatch, tmp_path).parent
    shutil.rmtree(own)
    own.mkdir(0o777)
    own.chmod(0o1777)
    _owned_by_a_neighbour(own)
    path = _folder(monkeypatch, tmp_path)
    assert path.parent != own and path.parent.stat().st_mode & 0o777 == 0o700 and not list(own.iterdir())


@pytest.mark.parametrize("to", ["folder", "nowhere"])
def test_a_link_that_a_neighbour_planted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, to: str) -> None:
    """Even to a folder of this user."""
    own = _folder(monkeypatch, tmp_path).parent
    shutil.rmtree(own)
    target = tmp_path / to
    if to == "folder":
        target.mkdir(0o700)
    own.symlink_to(target)
    path = _folder(monkeypatch, tmp_path)
    assert path.parent != own and not path.parent.is_symlink()
    assert not target.exists() or not list(target.iterdir())


def test_a_base_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="TMPDIR"):
        _folder(monkeypatch, tmp_path / "missing")


def test_modules_in_the_current_folder_are_not_imported(ddlrun: Ddlrun) -> None:
    """A json.py of anybody's, where ddlrun is started: neither ddlrun nor its probe of the host runs it."""
    caught = ddlrun.folder / "caught"
    for name in ("json", "socket", "subprocess", "array", "ddl"):
        (ddlrun.folder / f"{name}.py").write_text(
            f"open({str(caught)!r}, 'a').write({name!r}); raise SystemExit(9)\n"
        )
    run = ddlrun("-np", "2", "sh", "-c", "echo here")
    assert run.code == 0 and run.out.count("here") == 2, run.err
    assert not caught.exists(), caught.read_text()


def test_programs_of_the_host_load_the_libraries_of_the_host(ddlrun: Ddlrun) -> None:
    """mpirun's own search path is not handed on; the user's is, word for word."""
    show = 'echo "path=$LD_LIBRARY_PATH"'
    run = ddlrun("-np", "2", "sh", "-c", show)
    assert run.code == 0 and run.out.count("path=\n") == 2, run.out
    run = ddlrun("-np", "1", "sh", "-c", show, LD_LIBRARY_PATH="/my own:/other")
    assert "path=/my own:/other\n" in run.out, run.out
    run = ddlrun("-np", "1", "-x", "LD_LIBRARY_PATH=/given", "sh", "-c", show)
    assert "path=/given\n" in run.out, run.out
    run = ddlrun(
        "-np",
        "1",
        "python",
        "-c",
        "import ddl, os; print('rank', ddl.rank(), 'LD_LIBRARY_PATH' in os.environ)",
    )
    assert "rank 0 False" in run.out, run.out + run.err


def test_a_store_cannot_hand_out_variables(ddlrun: Ddlrun, tmp_path: Path) -> None:
    """A stranger who writes to torch's store: its folder is not this user's, so nothing in it is believed."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to give a folder to another user")
    name = "ddl-" + "0" * 32
    planted = tmp_path / "planted" / name
    planted.mkdir(parents=True)
    (planted / "1").write_text(json.dumps({"OMPI_MCA_mca_base_component_path": "/evil"}))
    for path in (planted.parent, planted):
        os.chown(path, 65534, 65534)
    program = f"""
import os
from ddl._errors import DDLError
from ddl.bootstrap import rendezvous
from ddl.bootstrap.ranks import Ranks

class Store(dict):
    def check(self, keys): return all(key in self for key in keys)
    def get(self, key): return self[key]
    def add(self, key, n): return 1

place = object.__new__(rendezvous.Rendezvous)
place.ranks, place.seconds, place._end, place._address = Ranks(1, 2, "0"), 1.0, 1e18, "h:1"
job = rendezvous.Job({name!r}, (("h", (0, 1)),), {{0: 1, 1: 2}}, 0, 1)
for folder in ({str(planted)!r}, "/nowhere/{name}", {str(tmp_path)!r}):
    place._store = Store({{"server/0": folder.encode()}})
    try:
        place.receive(job)
    except DDLError as error:
        assert "private folder" in str(error), error
    else:
        raise SystemExit("believed " + folder)
print("refused")
"""
    python = ddlrun.prefix / "bin/python"
    done = subprocess.run(
        [python, "-c", program], capture_output=True, text=True, timeout=60, env=ddlrun.environment()
    )
    assert "refused" in done.stdout, done.stdout + done.stderr
