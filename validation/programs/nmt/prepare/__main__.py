"""`python -m nmt.prepare CATALOGUES OUTPUT`."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import sentencepiece

from ..errors import NmtError
from ..special import BEGIN, END, PAD, UNKNOWN
from .catalogues import catalogues, translated_paragraphs
from .cleaning import good_pairs
from .splitting import Pair, divide


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m nmt.prepare", description=__doc__)
    parser.add_argument("catalogues", type=Path, help="folder of gettext catalogues (*.po)")
    parser.add_argument("output", type=Path, help="folder for train, dev and test, and spm.model")
    parser.add_argument("--original", default="en", help="language of the originals (default en)")
    parser.add_argument("--translation", default="de", help="language of the translations (default de)")
    parser.add_argument("--shortest", type=int, default=3, help="words of a sentence at least (default 3)")
    parser.add_argument("--longest", type=int, default=30, help="words of a sentence at most (default 30)")
    parser.add_argument("--held-out", type=int, default=1000, help="pairs in dev and in test (default 1000)")
    parser.add_argument("--most", type=int, help="pairs to train on at most (default: all)")
    parser.add_argument("--vocabulary", type=int, default=4000, help="subwords (default 4000)")
    return parser.parse_args(arguments)


def _pairs(folder: Path, language: str, shortest: int, longest: int) -> Iterator[Pair]:
    for file in catalogues(folder, language):
        for original, translation in translated_paragraphs(file):
            yield from good_pairs(original, translation, shortest, longest)


def _train_subwords(sentences: Sequence[str], size: int) -> bytes:
    """A sentencepiece model of both languages; the same for the same sentences."""
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            model_type="bpe",
            vocab_size=size,
            character_coverage=1.0,
            pad_id=PAD,
            unk_id=UNKNOWN,
            bos_id=BEGIN,
            eos_id=END,
            num_threads=1,
            minloglevel=1,
        )
    except RuntimeError as error:
        raise NmtError(
            f"sentencepiece cannot make {size} subwords: {str(error).splitlines()[0]}; change --vocabulary"
        ) from None
    return model.getvalue()


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the corpus; returns the exit code."""
    options = _arguments(arguments)
    try:
        parts = divide(
            _pairs(options.catalogues, options.translation, options.shortest, options.longest),
            options.held_out,
            options.most,
        )
        model = _train_subwords([text for pair in parts.train for text in pair], options.vocabulary)
        options.output.mkdir(parents=True, exist_ok=True)
        for name, pairs in (("train", parts.train), ("dev", parts.dev), ("test", parts.test)):
            for side, language in enumerate((options.original, options.translation)):
                text = "".join(f"{pair[side]}\n" for pair in pairs)
                (options.output / f"{name}.{language}").write_text(text, "utf-8")
        (options.output / "spm.model").write_bytes(model)
    except (NmtError, OSError) as error:
        print(f"nmt.prepare: error: {error}", file=sys.stderr)
        return 1
    sizes = [len(part) for part in (parts.train, parts.dev, parts.test)]
    print(
        f"{sizes[0]} pairs to train on, {sizes[1]} to follow, {sizes[2]} to test; "
        f"{options.vocabulary} subwords"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
