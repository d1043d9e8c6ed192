"""The command line's options."""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from .errors import NmtError

#: Where the package nmt-data-de-en puts its texts.
INSTALLED_DATA = Path("share/nmt/de-en")


@dataclass(frozen=True)
class Options:
    """What a run was asked for; `--help` explains each."""

    data: Path
    source: str
    target: str
    dev: str | None
    test: str | None
    folder: Path | None
    epochs: int
    steps_per_epoch: int | None
    batch: int | None
    batch_per_rank: int | None
    hidden: int
    embedding: int | None
    layers: int
    dropout: float
    optimizer: str
    rate: float | None
    warmup_epochs: int
    clip: float
    max_length: int
    train_sentences: int | None
    beam: int
    length_penalty: float
    eval_only: bool
    eval_sentences: int | None
    display_every: int
    seed: int


class _Parser(argparse.ArgumentParser):
    """Raises its errors, for every rank finds them and one says them."""

    def error(self, message: str) -> NoReturn:
        raise NmtError(f"{message}; see --help")


def _number(
    least: float, kind: Callable[[str], float] = int, below: float = math.inf
) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not least <= value < below:
            limit = f" and below {below:g}" if below < math.inf else ""
            noun = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"{text!r} is not {noun} of at least {least:g}{limit}")
        return value

    return read


def parser() -> argparse.ArgumentParser:
    """The options, their defaults and what they are."""
    p = _Parser(
        prog="nmt",
        description="Train an LSTM encoder and decoder with attention to translate, on one process or on all "
        "ranks of ddlrun, and measure BLEU by beam search.",
        epilog="In a folder with checkpoints the training goes on from the newest one.",
    )
    _add_texts(p)
    _add_network(p)
    _add_training(p)
    _add_results(p)
    return p


def _add_texts(p: argparse.ArgumentParser) -> None:
    data = p.add_argument_group("texts")
    data.add_argument(
        "--data",
        "--data-dir",
        type=Path,
        default=Path(sys.prefix) / INSTALLED_DATA,
        metavar="FOLDER",
        help="train, dev and test as `python -m nmt.prepare` writes them, or WMT16 as its usual scripts do "
        f"(default: {INSTALLED_DATA} of this environment, the sentences of Debian's manuals)",
    )
    data.add_argument("--source", default="de", help="suffix of the texts to translate from (default de)")
    data.add_argument("--target", default="en", help="suffix of the texts to translate into (default en)")
    data.add_argument(
        "--dev",
        metavar="NAME",
        help="texts to follow the training with (default dev, or the newstest before)",
    )
    data.add_argument(
        "--test", metavar="NAME", help="texts to measure BLEU on (default test, or the newest newstest)"
    )
    data.add_argument(
        "--max-length",
        type=_number(1),
        default=50,
        help="leave out longer sentences in training (default 50)",
    )
    data.add_argument("--train-sentences", type=_number(1), help="train on the first so many alone")


def _add_network(p: argparse.ArgumentParser) -> None:
    net = p.add_argument_group("network")
    net.add_argument("--hidden", type=_number(2), default=256, help="size of the LSTMs' states (default 256)")
    net.add_argument("--embedding", type=_number(1), help="size of the words' vectors (default: --hidden)")
    net.add_argument("--layers", type=_number(1), default=1, help="LSTMs on each side (default 1)")
    net.add_argument(
        "--dropout", type=_number(0, float, 1), default=0.2, help="share that is left out (default 0.2)"
    )


def _add_training(p: argparse.ArgumentParser) -> None:
    training = p.add_argument_group("training")
    training.add_argument("--epochs", type=_number(1), default=10, help="until so many are done (default 10)")
    training.add_argument(
        "--steps-per-epoch",
        type=_number(1),
        help="call so many steps an epoch, with a checkpoint after each (default: all sentences once)",
    )
    size = training.add_mutually_exclusive_group()
    size.add_argument("--batch", type=_number(1), help="sentences of a step over all ranks (default 128)")
    size.add_argument(
        "--batch-per-rank",
        type=_number(1),
        help="sentences of a step on each rank; the learning rate then grows with the number of ranks, with "
        "its square root for adam",
    )
    training.add_argument(
        "--optimizer", choices=("adam", "sgd"), default="adam", help="adam (default) or sgd"
    )
    training.add_argument(
        "--rate", type=_number(1e-9, float), help="learning rate (default 0.002 for adam, 1 for sgd)"
    )
    training.add_argument(
        "--warmup-epochs", type=_number(0), default=1, help="epochs until the rate of many ranks (default 1)"
    )
    training.add_argument(
        "--clip", type=_number(1e-9, float), default=5.0, help="largest norm of the gradient (default 5)"
    )
    training.add_argument("--seed", type=_number(0), default=1, help="of weights and order (default 1)")


def _add_results(p: argparse.ArgumentParser) -> None:
    result = p.add_argument_group("translation and files")
    result.add_argument(
        "--folder",
        type=Path,
        help="for checkpoints, the log and translations; written by rank 0 (default: that of ddlrun "
        "-checkpoint-dir; without either nothing is written)",
    )
    result.add_argument("--beam", type=_number(1), default=5, help="width of the beam (default 5)")
    result.add_argument(
        "--length-penalty",
        type=_number(0, float),
        default=1.0,
        help="exponent of the penalty for short translations (default 1)",
    )
    result.add_argument(
        "--eval-only", action="store_true", help="train nothing; measure BLEU of the newest checkpoint"
    )
    result.add_argument("--eval-sentences", type=_number(1), help="measure BLEU on the first so many alone")
    result.add_argument(
        "--display-every", type=_number(1), default=50, help="steps between lines of progress (default 50)"
    )


def parse(arguments: Sequence[str]) -> Options:
    """The options of a command line, checked."""
    options = Options(**vars(parser().parse_args(arguments)))
    if options.hidden % 2:
        raise NmtError(
            f"--hidden {options.hidden} is odd; take an even number: each direction of the encoder has half"
        )
    if options.batch is None and options.batch_per_rank is None:
        options = dataclasses.replace(options, batch=128)
    if options.rate is None:
        options = dataclasses.replace(options, rate=2e-3 if options.optimizer == "adam" else 1.0)
    return options
