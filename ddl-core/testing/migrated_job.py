"""The job of docs/train/migrating.md that is taken from 2019 to today, for the tests that run it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _block(language: str, start: str) -> str:
    """The one block of the page that is in this language and begins so."""
    page = (ROOT / "docs/train/migrating.md").read_text()
    [text] = [body for name, body in _BLOCK.findall(page) if name == language and body.startswith(start)]
    return text


def program() -> str:
    """The diff of train.py."""
    return _block("diff", " import ddl\n")


def lsf_script() -> str:
    """The diff of the job file for LSF."""
    return _block("diff", " #!/bin/bash\n #BSUB ")


def slurm_script() -> str:
    """The job file for Slurm."""
    return _block("sh", "#!/bin/bash\n#SBATCH ")


def before(diff: str) -> str:
    """The file as it is before the changes."""
    return "".join(line[1:] or "\n" for line in diff.splitlines(keepends=True) if not line.startswith("+"))


def after(diff: str) -> str:
    """The file as it is after the changes."""
    return "".join(line[1:] or "\n" for line in diff.splitlines(keepends=True) if not line.startswith("-"))


def small(script: str, *, ranks: int) -> str:
    """The job file with so many ranks on each host, and a benchmark that takes seconds on a processor."""
    few = "--model MobileNetV2 --batch-size 1" + "".join(
        f" --num-{length} 1" for length in ("warmup-batches", "batches-per-iter", "iters")
    )
    assert script.count("-accelerators 6") == 2 and script.count("--batch-size 64") == 1
    return script.replace("-accelerators 6", f"-accelerators {ranks}").replace("--batch-size 64", few)


def check(output: str, ranks: int, folder: Path) -> None:
    """Fails unless every line of the job file has done what the page says, on so many ranks in all."""
    assert re.search(r"^ddl-tensorflow-test: passed: .* a step of 2 ranks is", output, re.MULTILINE), output
    assert re.search(rf"^ranks {ranks} accuracy 0\.[89]", output, re.MULTILINE), output
    assert (folder / "model.keras").is_file()
    assert re.search(rf"^Total img/sec on {ranks} CPU\(s\): \d", output, re.MULTILINE), output
