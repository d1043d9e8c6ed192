"""`wmlce env kernel`: Jupyter starts a kernel in an environment of the channel, and runs cells there."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from scratch_clone import Clone
from tree import ROOT
from wmlce.envs.kernel import data_folder, register
from wmlce.util.errors import WmlceError

CHANNEL = ROOT / "build" / "channel"
_CELLS = """\
import json, sys
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name=sys.argv[1], startup_timeout=90)
shown = []
answer = client.execute_interactive(
    "import os, shutil, sys; total = sum(range(11));"
    "print(total, sys.prefix, os.environ['CONDA_PREFIX'], shutil.which('python'),"
    " os.environ.get('FROM_SCRIPT'), os.environ.get('TAKEN_AWAY'))",
    timeout=60, output_hook=lambda m: shown.append(m["content"].get("text", "")),
)
client.stop_channels()
manager.shutdown_kernel(now=True)
print(json.dumps([answer["content"]["status"], "".join(shown).split()]))
"""


@pytest.mark.slow
def test_cells_run_in_the_environment(clone: Clone, tmp_path: Path) -> None:
    if not any(CHANNEL.glob("*/ipykernel-*.conda")):
        pytest.skip("build/channel has no ipykernel: wmlce channel build")
    (clone.root / "build").mkdir()
    (clone.root / "build/channel").symlink_to(CHANNEL)
    clone.ok("env", "create", "Notes", "ipykernel")
    prefix = clone.root / "build/envs/Notes"
    script = prefix / "etc/conda/activate.d/test.sh"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text("export FROM_SCRIPT='5$HOME'\nunset TAKEN_AWAY\n")
    made = clone.ok(
        "env", "kernel", "Notes", "--display-name", "My notes", "--data", str(tmp_path / "jupyter")
    )
    assert made["kernel"] == "notes" and not made["replaced"]
    described = json.loads((tmp_path / "jupyter/kernels/notes/kernel.json").read_text())
    assert described["display_name"] == "My notes" and described["language"] == "python"

    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TAKEN_AWAY": "here"}
    run = subprocess.run(
        [prefix / "bin/python", "-c", _CELLS, "notes"],
        env={**environment, "JUPYTER_DATA_DIR": str(tmp_path / "jupyter")},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert run.returncode == 0, run.stderr
    status, words = json.loads(run.stdout.splitlines()[-1])
    assert status == "ok"
    assert words == ["55", str(prefix), str(prefix), f"{prefix}/bin/python", "5$HOME", "None"]

    again = clone.ok("env", "kernel", "Notes", "--data", str(tmp_path / "jupyter"))
    assert again["replaced"]
    other = tmp_path / "other"
    (other / "lib/python3.11/site-packages").mkdir(parents=True)
    (other / "conda-meta").mkdir()
    assert "has no ipykernel" in clone.fails("env", "kernel", str(other))
    (other / "lib/python3.11/site-packages/ipykernel_launcher.py").touch()
    refused = clone.fails(
        "env", "kernel", str(other), "--kernel", "notes", "--data", str(tmp_path / "jupyter")
    )
    assert "of another Python" in refused and str(prefix) in refused


def test_where_jupyter_looks() -> None:
    assert data_folder({"HOME": "/home/a"}) == Path("/home/a/.local/share/jupyter")
    assert data_folder({"HOME": "/home/a", "XDG_DATA_HOME": "/data"}) == Path("/data/jupyter")
    assert data_folder({"HOME": "/home/a", "JUPYTER_DATA_DIR": "/j"}) == Path("/j")
    assert data_folder(os.environ).name


def test_names_of_kernels_are_no_paths(tmp_path: Path) -> None:
    for name in ("../x", "a b", "", ".hidden"):
        with pytest.raises(WmlceError, match="not a valid name for a Jupyter kernel"):
            register(tmp_path, name, name, tmp_path)
