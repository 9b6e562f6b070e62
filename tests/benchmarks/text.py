"""Raw text to ids, and BPE training, against the libraries used plainly."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from gptcore.papers.storyworld.write import generate
from gptcore.text.bpe import WordTokenizer
from gptcore.text.clean import clean, split_clean, splitter
from gptcore.text.counting import count_words
from gptcore.text.spacy_words import standardise
from tests.benchmarks.table import beside

_MERGES = 40_000
_BARE_CHARACTERS = 6_000_000  # of books, every so many-th of which the plain way reads: it takes a second for 0.6 MB


def texts_of_books() -> list[str]:
    """The real books where GPTMILL_REAL_DATA has them, as they are on disk; else generated ones with DOS line ends."""
    if folder := os.environ.get("GPTMILL_REAL_DATA"):
        return [_read(path) for path in sorted(Path(folder, "books").glob("*.txt"))]
    with tempfile.TemporaryDirectory() as world:
        generate(Path(world) / "world", seed=1, books=8, characters=400_000, pages=80)
        return [_read(path).replace("\n", "\r\n") for path in sorted((Path(world) / "world" / "books").glob("*.txt"))]


def _read(path: Path) -> str:
    with open(path, encoding="utf-8-sig", newline="") as file:
        return file.read()


def run(_seconds: float, _folder: Path) -> None:
    """Rows 3 and 5."""
    import ftfy
    import spacy

    texts = texts_of_books()
    size = sum(len(text.encode()) for text in texts)
    cleaned = [clean(text) for text in texts]
    merges = min(_MERGES, size // 100)
    tokenizer = WordTokenizer.train(cleaned, merges)
    every = max(1, size // _BARE_CHARACTERS)
    sample = texts[::every]
    bare = spacy.blank("en").tokenizer

    def ours() -> float:
        splitter.cache_clear()
        fresh = WordTokenizer(tokenizer.vocabulary, tokenizer.merges)
        for text in texts:
            fresh.encode(text)
        return size / 1e6

    def plain() -> float:
        for text in sample:
            for part in _parts(standardise(ftfy.fix_text(text))):
                [token.text.lower() for token in bare(part)]
        return sum(len(text.encode()) for text in sample) / 1e6

    what = f"raw text -> ids, one core, cold, {len(texts)} books, {size / 1e6:.0f} MB"
    beside("3", what, "MB/s", 0.0, ours, (plain, ">= 13x", "ftfy + spaCy alone"))

    def learnt() -> float:
        WordTokenizer.from_counts(count_words(cleaned), merges)
        return size / 1e6

    def by_library() -> float:
        _library_training(cleaned, merges)
        return size / 1e6

    peer = (by_library, ">= 0.83x", "tokenizers alone")
    beside("5", f"BPE training, {merges:,} merges", "MB/s", 0.0, learnt, peer, turns=2)


def _parts(text: str) -> Iterator[str]:
    for start in range(0, len(text), 900_000):  # spaCy's bound on one text
        yield text[start : start + 900_000]


def _library_training(cleaned: list[str], merges: int) -> Any:
    from tokenizers import Tokenizer as Library
    from tokenizers import models, pre_tokenizers, trainers

    library = Library(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=merges + 1000, end_of_word_suffix="</w>", special_tokens=["<unk>"], show_progress=False
    )
    words = (split_clean(text) for text in cleaned)
    library.train_from_iterator((" ".join(rows) for text in words for rows in _rows(text)), trainer)
    return library


def _rows(words: list[str]) -> Iterator[list[str]]:
    entries = iter(words)
    while row := list(islice(entries, 50_000)):
        yield row
