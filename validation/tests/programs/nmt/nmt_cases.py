"""What is asked of the translation program from within: one process, so that TensorFlow starts once.

Usage: nmt_cases.py FOLDER ONE TWO OPTION…; writes FOLDER/report.json. ONE and TWO are the folders of
trainings with 1 and 2 ranks, which were made with the options.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import random
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nmt.bleu import corpus_bleu
from nmt.cli import main
from nmt.corpus import open_corpus, read_split
from nmt.model import Shape, build, sentence_loss
from nmt.search import BeamSearch
from nmt.special import BEGIN, END, PAD
from nmt.state import checkpoints
from nmt.vocabulary import Sentences, read_vocabularies

FOLDER, ONE, TWO = (Path(word) for word in sys.argv[1:4])
OPTIONS = sys.argv[4:]


def nmt(*words: str) -> tuple[int, str, str]:
    """The program with the options of the trainings and others: exit code, output, errors."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*OPTIONS, *words])
    return code, out.getvalue(), err.getvalue()


def weights(file: Path) -> list[Any]:
    """Of a checkpoint: the network's and the optimizer's."""
    model = keras.saving.load_model(file)
    return [*model.get_weights(), *(np.asarray(variable) for variable in model.optimizer.variables)]


def distance(a: list[Any], b: list[Any]) -> float:
    """The largest difference."""
    return max(float(np.max(np.abs(x - y))) for x, y in zip(a, b, strict=True))


def newest(folder: Path) -> Path:
    return checkpoints(folder)[-1][1]


def two_ranks_equal_one() -> None:
    """Within rounding the same weights after the same steps; a single epoch changes them far more."""
    (_, before), (_, after) = checkpoints(ONE)[-2:]
    moved = distance(weights(before), weights(after))
    assert moved > 0.05, moved
    found = distance(weights(after), weights(newest(TWO)))
    assert found < 1e-4, (found, moved)


def a_training_goes_on() -> None:
    """Stopped after an epoch and started again, it ends where one ends that was not stopped."""
    folder = FOLDER / "stopped"
    assert nmt("--folder", str(folder), "--epochs", "1")[0] == 0
    assert [epoch for epoch, _ in checkpoints(folder)] == [1]
    code, out, _ = nmt("--folder", str(folder))
    assert code == 0 and "from epoch 2" in out and "epoch 2 " in out and "epoch 1 " not in out, out
    assert distance(weights(newest(folder)), weights(newest(ONE))) < 1e-6
    assert len((folder / "log.csv").read_text().splitlines()) == len(
        (ONE / "log.csv").read_text().splitlines()
    )
    code, out, _ = nmt("--folder", str(folder))
    assert code == 0 and "are done already" in out, out


def a_damaged_checkpoint_is_passed_over() -> None:
    """Half a file, as a killed training leaves it: the one before is taken, and it is said."""
    folder = FOLDER / "stopped"
    last = newest(folder)
    last.write_bytes(last.read_bytes()[: last.stat().st_size // 2])
    code, out, _ = nmt("--folder", str(folder), "--eval-only")
    assert code == 0 and "passed over" in out and last.name in out and "checkpoint of epoch 1" in out, out
    checkpoints(folder)[0][1].write_bytes(b"nothing")
    code, _, err = nmt("--folder", str(folder), "--eval-only")
    assert code == 1 and "no checkpoint" in err and "another --folder" in err, err


def another_network_is_refused() -> None:
    """A folder of another network: the error says what differs."""
    code, _, err = nmt("--folder", str(ONE), "--hidden", "20", "--embedding", "32", "--epochs", "9")
    assert code == 1 and err.startswith("nmt: error: ") and "hidden" in err and "20" in err, err
    code, _, err = nmt("--folder", str(FOLDER / "empty"), "--eval-only")
    assert code == 1 and "holds no model" in err, err


def one_rank_translates_like_two() -> None:
    """The same checkpoint, other ranks: the same translations in the same order."""
    wanted = (TWO / "translation.en").read_text()
    (TWO / "translation.en").unlink()
    code, out, err = nmt("--folder", str(TWO), "--eval-only")
    assert code == 0 and "test BLEU" in out, out + err
    assert (TWO / "translation.en").read_text() == wanted and wanted.strip()


def sentences(number: int) -> tuple[Any, Any]:
    """The first sentences of the test, as the network takes them, and the trained network."""
    corpus = open_corpus(Path(OPTIONS[OPTIONS.index("--data") + 1]), "de", "en")
    source, _ = read_split(corpus.test, number)
    numbers = Sentences.of(read_vocabularies(corpus).source.encode(source))
    return numbers.padded(np.arange(number), end=True), keras.saving.load_model(newest(ONE))


def a_beam_of_one_is_greedy() -> None:
    """The reference: the whole network is asked again for every word, one sentence at a time."""
    source, model = sentences(6)
    longest = 12
    for sentence, found in zip(source, BeamSearch(model, 1)(source, longest), strict=True):
        sentence = sentence[sentence != PAD][None, :]
        words, total = [BEGIN], 0.0
        for _ in range(longest):
            logits = np.asarray(model([sentence, np.array([words], np.int32)]))[0, -1].astype(np.float64)
            logits[[PAD, BEGIN]] = -np.inf
            words.append(int(np.argmax(logits)))
            total += float(logits[words[-1]] - np.log(np.exp(logits - logits.max()).sum()) - logits.max())
            if words[-1] == END:
                break
        assert list(found.tokens) == [word for word in words[1:] if word != END], (found, words)
        assert abs(found.log_probability - total) < 2e-3, (found, total)


def random_network(seed: int) -> Any:
    """A small one, whose words are not alike in probability."""
    keras.utils.set_random_seed(seed)
    model = build(Shape(9, 7, 8, 12, 2, 0.0))
    model.set_weights([2.0 * weight for weight in model.get_weights()])
    return model


def a_wide_beam_finds_the_best() -> None:
    """The reference: the probability of every possible translation, by the whole network."""
    longest = 4
    source = np.array([[5, 6, END, PAD], [8, 4, 7, END], [4, END, PAD, PAD]], np.int32)
    by_length = [list(itertools.product([1, 4, 5, 6], repeat=length)) for length in range(longest)]
    for seed, penalty in ((1, 0.0), (2, 0.0), (3, 1.0)):
        model = random_network(seed)
        found = BeamSearch(model, 100, penalty)(source, longest)
        for sentence, translation in zip(source, found, strict=True):
            scores: dict[tuple[int, ...], float] = {}
            for same_length in by_length:
                begun = np.array([[BEGIN, *words] for words in same_length], np.int32)
                logits = model([np.repeat(sentence[None, :], len(begun), axis=0), begun])
                every = np.asarray(tf.nn.log_softmax(logits))
                for words, steps in zip(same_length, every, strict=True):
                    total = sum(float(step[word]) for step, word in zip(steps, (*words, END), strict=True))
                    scores[words] = total / ((6 + len(words)) / 6) ** penalty
            assert len(scores) == 1 + 4 + 16 + 64
            best = max(scores, key=lambda words: scores[words])
            assert translation.tokens == best, (translation, best, scores[best])
            assert abs(translation.score - scores[best]) < 1e-4


def a_wider_beam_is_more_probable() -> None:
    """On the whole: a single sentence may lose its best beginning to better ones."""
    source, model = sentences(12)
    means = []
    for width in (1, 3, 8):
        means.append(float(np.mean([one.log_probability for one in BeamSearch(model, width)(source, 12)])))
    assert means[0] <= means[1] <= means[2] and means[2] > means[0], means


def the_loss_leaves_the_padding_out() -> None:
    """The reference: each sentence alone, without padding, by plain arithmetic."""
    random_numbers = np.random.default_rng(1)
    words = np.array([[4, 5, END, PAD, PAD], [6, 4, 4, 5, END]], np.int32)
    logits = random_numbers.normal(size=(2, 5, 7)).astype(np.float32)
    found = np.asarray(sentence_loss(words, logits))
    for row, length in ((0, 3), (1, 5)):
        wanted = sum(
            np.log(np.exp(logits[row, i]).sum()) - logits[row, i, words[row, i]] for i in range(length)
        )
        assert abs(float(found[row]) - wanted) < 1e-4


def padding_changes_nothing() -> None:
    """The same sentences with more padding: the same logits, so batches may be of any length."""
    model = random_network(4)
    source, target = np.array([[5, 6, END]], np.int32), np.array([[BEGIN, 4, 6]], np.int32)
    alone = np.asarray(model([source, target]))
    padded = np.asarray(model([np.pad(source, [(0, 0), (0, 4)]), np.pad(target, [(0, 0), (0, 3)])]))
    assert np.allclose(alone, padded[:, :3], atol=1e-5)
    assert not np.allclose(alone, np.asarray(model([source[:, 1:], target])), atol=1e-3)


def gradients_of_embeddings_are_sparse() -> None:
    """What the ranks exchange of the embeddings are the rows that were used."""
    model = random_network(5)
    with tf.GradientTape() as tape:
        logits = model([np.array([[5, END]], np.int32), np.array([[BEGIN, 4]], np.int32)])
        loss = tf.reduce_sum(sentence_loss(np.array([[4, END]], np.int32), logits))
    gradients = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
    sparse = [
        variable.path
        for variable, gradient in zip(model.trainable_variables, gradients, strict=True)
        if isinstance(gradient, tf.IndexedSlices)
    ]
    assert sparse == ["source_embedding/embeddings", "target_embedding/embeddings"], sparse


def bleu_is_sacrebleus() -> None:
    """The reference: sacrebleu's own command on the same texts."""
    _, references = read_split(open_corpus(Path(OPTIONS[OPTIONS.index("--data") + 1]), "de", "en").test, 40)
    chooser = random.Random(3)
    worse = [
        " ".join(word for word in line.split() if chooser.random() < 0.8) + " indeed" for line in references
    ]
    for name, lines in (("references", references), ("worse", worse)):
        (FOLDER / name).write_text("".join(f"{line}\n" for line in lines))
    for tokenised in (False, True):
        command = [sys.executable, "-m", "sacrebleu", str(FOLDER / "references"), "-i", str(FOLDER / "worse")]
        command += ["--force", "--tokenize", "none"] if tokenised else []
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        wanted = json.loads(answer.stdout)
        found = corpus_bleu(worse, references, tokenised=tokenised)
        assert 20 < found.score < 90 and round(found.score, 1) == wanted["score"], (found, wanted)
        assert found.signature == wanted["signature"]


CASES: list[Callable[[], None]] = [
    two_ranks_equal_one,
    one_rank_translates_like_two,
    a_training_goes_on,
    a_damaged_checkpoint_is_passed_over,
    another_network_is_refused,
    a_beam_of_one_is_greedy,
    a_wide_beam_finds_the_best,
    a_wider_beam_is_more_probable,
    the_loss_leaves_the_padding_out,
    padding_changes_nothing,
    gradients_of_embeddings_are_sparse,
    bleu_is_sacrebleus,
]

if __name__ == "__main__":
    report = {}
    for case in CASES:
        try:
            case()
            report[case.__name__] = "passed"
        except Exception:
            report[case.__name__] = traceback.format_exc()
        # After each, so that what was found is there if one ends the process.
        (FOLDER / "report.json").write_text(json.dumps(report))
