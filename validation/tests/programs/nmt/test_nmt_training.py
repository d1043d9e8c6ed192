"""The translation program: real trainings on real sentences, with 1 and 2 ranks."""

from __future__ import annotations

import ast
import csv
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from program_runner import PROGRAMS, ROOT, Environment, Result

CASES_FILE = Path(__file__).parent / "nmt_cases.py"
EPOCHS, STEPS = 2, 20
#: Without dropout, whose draws differ from rank to rank.
OPTIONS = [
    *("--epochs", str(EPOCHS), "--steps-per-epoch", str(STEPS), "--batch", "32", "--train-sentences", "600"),
    *("--rate", "0.01", "--dropout", "0", "--hidden", "32"),
    *("--max-length", "25", "--display-every", "10", "--eval-sentences", "24", "--beam", "2"),
]


@pytest.fixture(scope="module")
def nmt_env(ddl_env: Environment) -> Environment:
    """The environment, with the package of the working tree and the texts of the channel."""
    for module in ("sacrebleu", "sentencepiece", "polib"):
        if not ddl_env.has(module):
            pytest.skip(f"{ddl_env.prefix} has no {module}")
    if not (ddl_env.prefix / "share/nmt/de-en/train.de").exists():
        pytest.skip(f"{ddl_env.prefix} has no texts: the package nmt-data-de-en")
    return ddl_env


def nmt(env: Environment, *words: str | Path, ranks: int = 1) -> Result:
    """The program, alone or as ranks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [PROGRAMS, os.environ.get("PYTHONPATH")])))
        command = ["-m", "nmt", *(str(word) for word in words)]
        if ranks == 1:
            return env.python(*command, OMP_NUM_THREADS="1", DDL_OPTIONS="-timeout 60")
        return env.ranks(ranks, *command, OMP_NUM_THREADS="1", DDL_OPTIONS="-timeout 60")


@dataclass(frozen=True)
class Trained:
    """A training: its folder and output."""

    folder: Path
    output: str

    def log(self) -> list[dict[str, float]]:
        with (self.folder / "log.csv").open() as file:
            return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def trained(nmt_env: Environment, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Trained]:
    """The same training with 1 rank and with 2."""
    made = {}
    for ranks in (1, 2):
        folder = tmp_path_factory.mktemp("nmt") / "folder"
        result = nmt(nmt_env, *OPTIONS, "--folder", folder, ranks=ranks).ok()
        made[ranks] = Trained(folder, result.out)
    return made


@pytest.mark.parametrize("ranks", [1, 2])
def test_it_learns(trained: dict[int, Trained], ranks: int) -> None:
    """On sentences to train on, and on others."""
    first, second = trained[ranks].log()
    assert second["loss"] < 0.97 * first["loss"]
    assert second["val_loss"] < first["val_loss"]
    assert 1 < second["dev_perplexity"] < first["dev_perplexity"]


def test_the_figures_of_two_ranks_are_those_of_one(trained: dict[int, Trained]) -> None:
    """Mean over both ranks, not one rank's."""
    for one, two in zip(trained[1].log(), trained[2].log(), strict=True):
        assert two["loss"] == pytest.approx(one["loss"], rel=1e-4)
        # An odd number of sentences to follow: 2 ranks leave out one of them.
        assert two["val_loss"] == pytest.approx(one["val_loss"], rel=2e-2)


@pytest.mark.parametrize("ranks", [1, 2])
def test_one_set_of_files_and_lines(trained: dict[int, Trained], ranks: int) -> None:
    """Rank 0 writes and speaks, the others do not."""
    run = trained[ranks]
    files = {file.name for file in run.folder.iterdir()}
    assert files == {
        *("checkpoint-0001.keras", "checkpoint-0002.keras", "log.csv", "model.json"),
        *("reference.en", "translation.en"),
    }
    said = re.findall(r"^epoch (\d) step (\d+)/20  loss", run.output, re.MULTILINE)
    assert said == [(str(epoch), str(step)) for epoch in (1, 2) for step in (10, 20)], run.output
    assert re.findall(r"^epoch (\d)  loss", run.output, re.MULTILINE) == ["1", "2"]
    assert re.findall(r"^ranks (\d)  test BLEU [0-9.]+  beam 2  24 sentences", run.output, re.MULTILINE) == [
        str(ranks)
    ]
    for name in ("translation.en", "reference.en"):
        assert len((run.folder / name).read_text().splitlines()) == 24


@pytest.fixture(scope="module")
def report(
    nmt_env: Environment, trained: dict[int, Trained], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """What the cases of nmt_cases.py have found."""
    folder = tmp_path_factory.mktemp("nmt_cases")
    data = nmt_env.prefix / "share/nmt/de-en"
    words = [folder, trained[1].folder, trained[2].folder, *OPTIONS, "--data", data]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [PROGRAMS, os.environ.get("PYTHONPATH")])))
        result = nmt_env.python(CASES_FILE, *words, OMP_NUM_THREADS="1").ok()
    assert (folder / "report.json").exists(), result.out + result.err
    found: dict[str, str] = json.loads((folder / "report.json").read_text())
    return found


def case_names() -> list[str]:
    """The cases, in their order."""
    tree = ast.parse(CASES_FILE.read_text())
    lists = [node.value for node in tree.body if isinstance(node, ast.AnnAssign)]
    (cases,) = [value for value in lists if isinstance(value, ast.List)]
    return [name.id for name in cases.elts if isinstance(name, ast.Name)]


@pytest.mark.parametrize("case", case_names())
def test_case(report: dict[str, str], case: str) -> None:
    """One case."""
    assert report[case] == "passed", report[case]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--data", "nowhere"], ["--data nowhere", "no such folder"]),
        (["--data", str(ROOT / "docs/train")], ["neither train.de nor train.tok.clean.bpe", "nmt.prepare"]),
        (["--source", "fr"], ["train.fr", "--source"]),
        (["--hidden", "31"], ["--hidden 31 is odd"]),
        (["--dropout", "1.5"], ["--dropout", "below 1"]),
        (["--batch", "8", "--batch-per-rank", "4"], ["--batch-per-rank", "--batch"]),
    ],
)
def test_errors_are_one_line(nmt_env: Environment, words: list[str], said: list[str]) -> None:
    """What was wrong and what to do, without a traceback."""
    result = nmt(nmt_env, *words)
    assert result.rc == 1 and "Traceback" not in result.err
    (line,) = [line for line in result.err.splitlines() if line.startswith("nmt: error: ")]
    for text in said:
        assert text in line, line


def test_two_ranks_say_an_error_once(nmt_env: Environment) -> None:
    """The job ends, and rank 0 has said why."""
    result = nmt(nmt_env, "--data", "nowhere", ranks=2)
    assert result.rc != 0
    assert len(re.findall("nmt: error: ", result.err)) == 1, result.err


def test_two_ranks_print_the_help_once(nmt_env: Environment) -> None:
    result = nmt(nmt_env, "--help", ranks=2)
    assert result.rc == 0 and result.out.count("usage: nmt") == 1, result.out + result.err
