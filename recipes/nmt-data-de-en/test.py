"""No sentence is in two parts, and the subwords join to the sentences they were cut from."""

import sys
from pathlib import Path

from sentencepiece import SentencePieceProcessor

folder = Path(sys.argv[1])
names = ("train.de", "dev.de", "test.de", "test.en")
lines = {name: (folder / name).read_text().splitlines() for name in names}
german = [set(lines[f"{part}.de"]) for part in ("train", "dev", "test")]
assert sum(map(len, german)) == len(set.union(*german)), "a sentence is in two parts"
subwords = SentencePieceProcessor(model_file=str(folder / "spm.model"))
for language in ("de", "en"):
    sentences = lines[f"test.{language}"]
    pieces = subwords.encode(sentences, out_type=int)
    assert subwords.decode(pieces) == sentences
    words = sum(len(sentence.split()) for sentence in sentences)
    assert words < sum(map(len, pieces)) < 3 * words
