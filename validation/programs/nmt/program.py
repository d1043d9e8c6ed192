"""A run of the program: training, then BLEU."""

from __future__ import annotations

import dataclasses
import math
import time
from pathlib import Path
from typing import Any

import ddl
import keras

from .batches import Pairs, TrainingBatches, evaluation_dataset
from .bleu import corpus_bleu
from .corpus import Corpus, Split, read_split
from .errors import NmtError
from .model import Shape, build, compile_model, make_optimizer
from .options import Options
from .progress import Progress
from .rate import halved_at_the_end
from .search import BeamSearch
from .state import (
    OldCheckpoints,
    check_description,
    checkpoint_path,
    describe,
    read_description,
    restore,
    write_description,
)
from .translate import translate
from .vocabulary import Sentences, Vocabularies, Vocabulary, join_subwords, read_vocabularies

_EVALUATED_AT_ONCE = 64
_ENCODED_AT_ONCE = 100_000


def run(options: Options, corpus: Corpus) -> None:
    """Does what the options ask for. Collective."""
    folder = options.folder or (Path(path) if (path := ddl.checkpoint_dir()) else None)
    vocabularies = read_vocabularies(corpus)
    if options.eval_only:
        model = _trained(options, vocabularies, folder)
    else:
        model = _train(options, corpus, vocabularies, folder)
    _measure(options, corpus, vocabularies, model, folder)


def _say(text: str) -> None:
    if ddl.rank() == 0:
        print(text, flush=True)


def _read_pairs(split: Split, vocabularies: Vocabularies, limit: int | None = None) -> Pairs:
    source, target = read_split(split, limit)
    return Pairs(_encode(vocabularies.source, source), _encode(vocabularies.target, target))


def _encode(vocabulary: Vocabulary, sentences: list[str]) -> Sentences:
    """In pieces, for lists of the numbers of millions of sentences would take many times the memory."""
    parts = (sentences[i : i + _ENCODED_AT_ONCE] for i in range(0, len(sentences), _ENCODED_AT_ONCE))
    return Sentences.of(numbers for part in parts for numbers in vocabulary.encode(part))


def _shape(options: Options, vocabularies: Vocabularies) -> Shape:
    return Shape(
        vocabularies.source.size,
        vocabularies.target.size,
        options.embedding or options.hidden,
        options.hidden,
        options.layers,
        options.dropout,
    )


def _make(options: Options, shape: Shape) -> Any:
    """A compiled network, whose optimizer has its variables, so that a checkpoint can be put into it."""
    # Weights are rank 0's anyway; what is left out by dropout must differ.
    keras.utils.set_random_seed(options.seed + ddl.rank())
    model = build(shape)
    optimizer = make_optimizer(options.optimizer, options.rate or 0.0, options.clip)
    compile_model(model, optimizer)
    optimizer.build(model.trainable_variables)
    return model


def _trained(options: Options, vocabularies: Vocabularies, folder: Path | None) -> Any:
    """The network of the newest checkpoint."""
    if folder is None:
        raise NmtError("--eval-only needs --folder, that of a training")
    description = read_description(folder)
    if description is None:
        raise NmtError(f"--eval-only: --folder {folder} holds no model; name the folder of a training")
    # What it is made of is noted there, and need not be asked for again.
    try:
        shape = Shape(**{field.name: description[field.name] for field in dataclasses.fields(Shape)})
        options = dataclasses.replace(options, optimizer=description["optimizer"])
    except KeyError as error:
        raise NmtError(f"--folder {folder}: its model.json has no {error}; take another folder") from None
    check_description(folder, description, describe(shape, options.optimizer, vocabularies))
    model = _make(options, shape)
    epochs = restore(folder, model)
    if not epochs:
        raise NmtError(f"--eval-only: --folder {folder} holds no checkpoint; train there first")
    ddl.broadcast_variables(model.weights)
    _say(f"checkpoint of epoch {epochs}")
    return model


def _train(options: Options, corpus: Corpus, vocabularies: Vocabularies, folder: Path | None) -> Any:
    shape = _shape(options, vocabularies)
    description = describe(shape, options.optimizer, vocabularies)
    present = read_description(folder) if folder else None
    if folder and present:
        check_description(folder, present, description)

    pairs = _read_pairs(corpus.train, vocabularies, options.train_sentences).no_longer_than(
        options.max_length
    )
    dev = _read_pairs(corpus.dev, vocabularies).no_longer_than(options.max_length)
    batch = options.batch or (options.batch_per_rank or 0) * ddl.size()
    batches = TrainingBatches(pairs, batch, options.seed)
    steps = options.steps_per_epoch or batches.steps
    model = _make(options, shape)
    done = restore(folder, model) if folder else 0
    _say(
        f"{corpus.source} -> {corpus.target}: {len(pairs)} pairs to train on, {len(dev)} to follow; "
        f"{shape.source_words} and {shape.target_words} words; {model.count_params()} weights"
    )
    _say(f"{ddl.size()} rank(s), {batch} sentences a step, {steps} steps an epoch, from epoch {done + 1}")
    if done >= options.epochs:
        _say(f"--epochs {options.epochs} are done already")
        ddl.broadcast_variables(model.weights)
        return model
    if folder and ddl.rank() == 0:
        folder.mkdir(parents=True, exist_ok=True)
        write_description(folder, description)
    model.fit(
        batches.dataset(done * steps),
        steps_per_epoch=steps,
        initial_epoch=done,
        epochs=options.epochs,
        validation_data=evaluation_dataset(dev, _EVALUATED_AT_ONCE),
        callbacks=_callbacks(options, batches, steps, pairs, dev, folder),
        shuffle=False,
        verbose=0,
    )
    return model


def _callbacks(
    options: Options, batches: TrainingBatches, steps: int, pairs: Pairs, dev: Pairs, folder: Path | None
) -> list[Any]:
    rate = options.rate or 0.0
    # A batch that grows with the number of ranks takes a larger rate; one that they share does not.
    factor = 1.0
    if options.batch_per_rank:
        factor = math.sqrt(ddl.size()) if options.optimizer == "adam" else float(ddl.size())
    callbacks = [
        ddl.DDLCallback(),
        ddl.LearningRateWarmupCallback(rate, warmup_epochs=options.warmup_epochs, multiplier=factor),
        keras.callbacks.LearningRateScheduler(halved_at_the_end(rate * factor, options.epochs)),
        ddl.on_rank_0(
            Progress(batches, steps, options.display_every, pairs.predictions(), dev.predictions())
        ),
    ]
    if folder:
        callbacks += [
            ddl.DDLModelCheckpoint(checkpoint_path(folder)),
            ddl.on_rank_0(OldCheckpoints(folder)),
            ddl.on_rank_0(keras.callbacks.CSVLogger(str(folder / "log.csv"), append=True)),
        ]
    return [*callbacks, ddl.DDLGlobalVariablesCallback()]


def _measure(
    options: Options, corpus: Corpus, vocabularies: Vocabularies, model: Any, folder: Path | None
) -> None:
    """Translates the test's sentences and prints BLEU."""
    source, references = read_split(corpus.test, options.eval_sentences)
    if corpus.subwords:
        references = [join_subwords(sentence) for sentence in references]
    start = last = time.perf_counter()

    def progress(sentences: int, total: int) -> None:
        nonlocal last
        if time.perf_counter() - last > 10:
            last = time.perf_counter()
            _say(f"translated {sentences}/{total} of this rank's sentences")

    translations = translate(
        BeamSearch(model, options.beam, options.length_penalty),
        _encode(vocabularies.source, source),
        vocabularies.target,
        progress,
    )
    seconds = time.perf_counter() - start
    if ddl.rank() != 0:
        return
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        for name, lines in (("translation", translations), ("reference", references)):
            (folder / f"{name}.{corpus.target}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    bleu = corpus_bleu(translations, references, tokenised=corpus.subwords)
    print(
        f"ranks {ddl.size()}  test BLEU {bleu.score:.2f}  beam {options.beam}  {len(source)} sentences  "
        f"{seconds:.1f} s  {bleu.signature}",
        flush=True,
    )
