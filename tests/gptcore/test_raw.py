"""Text that stays as it is: its rows, their ids, a raw corpus, and the way from books to shards and back."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.config import CorpusConfig, ShardConfig
from gptcore.data.encode import encode_corpus
from gptcore.data.shards import Shards
from gptcore.text import raw
from gptcore.text.byte_bpe import ByteTokenizer
from gptcore.text.corpus import build_corpus, read_corpus
from gptcore.text.raw import raw_rows
from gptcore.text.sources import RawCorpus

LIKELY = "aet'sS12 \n\t.,\u00a0\u2003\u0301\u4e2d\u00e9"
TEXTS = ["The old king doesn't know the new king's 12 horses.\n\nIt'll rain...\t  he said,  'why?'"] * 4
texts = st.one_of(st.text(st.sampled_from(LIKELY), max_size=200), st.text(st.characters(codec="utf-8"), max_size=60))


@pytest.fixture(scope="module")
def tokenizer() -> ByteTokenizer:
    return ByteTokenizer.train(TEXTS, 60)


@pytest.fixture
def short_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw, "ROW", 5)
    monkeypatch.setattr(raw, "SEGMENT", 7)


@settings(deadline=None, max_examples=300)
@given(text=texts, cuts=st.lists(st.integers(0, 200), max_size=6))
def test_rows_are_the_text_however_it_came(text: str, cuts: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(raw, "ROW", 5)
        patched.setattr(raw, "SEGMENT", 7)
        rows = list(raw_rows([text]))
        places = [0, *sorted(cuts), len(text)]
        assert list(raw_rows(text[a:b] for a, b in itertools.pairwise(places))) == rows
    assert "".join(rows) == text
    assert all(0 < len(row) <= 12 for row in rows)


@settings(deadline=None, max_examples=400)
@given(words=st.lists(st.text(st.sampled_from(LIKELY), max_size=5), max_size=40))
def test_ids_of_the_rows_are_those_of_the_text(tokenizer: ByteTokenizer, words: list[str]) -> None:
    """Of any text with a place to cut every few characters; between those, a row may end within a piece."""
    text = " a".join(words)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(raw, "ROW", 5)
        patched.setattr(raw, "SEGMENT", 40)
        rows = list(tokenizer.rows([text]))
    assert np.concatenate([[], *map(tokenizer.encode_clean, rows)]).tolist() == tokenizer.encode(text)


def test_a_stretch_without_a_place_to_cut_is_cut_all_the_same(short_rows: None) -> None:
    assert list(raw_rows(["x" * 30])) == ["x" * 11, "x" * 11, "x" * 8]


def test_from_books_to_shards_and_back(tmp_path: Path) -> None:
    """Capitals, tabs, curly quotes, mojibake and runs of blank lines come out as they went in."""
    books = {
        f"{number}.txt": f"Book {number}.\n\n\tThe “Cafés” of  Paris, schÃ¶n.\n" * (20 + number) for number in range(6)
    }
    (tmp_path / "books").mkdir()
    for name, text in books.items():
        (tmp_path / "books" / name).write_text(text.replace("\n", "\r\n"), encoding="utf-8", newline="")
    config = CorpusConfig(validation_fraction=0.3, raw=True)
    report = build_corpus(RawCorpus.at(str(tmp_path / "books")), tmp_path / "corpus", config)
    kept = ["".join(rows) for split in ("train", "validation") for _, rows in read_corpus(tmp_path / "corpus", split)]
    assert sorted(kept) == sorted(books.values())
    assert report["words"] == sum(len(text.split()) for text in books.values())
    assert report["characters_repaired"]["ftfy"] == 0

    tokenizer = ByteTokenizer.from_corpus(tmp_path / "corpus", 20)
    assert tokenizer.n_merges == 20
    encode_corpus(tmp_path / "corpus", tokenizer, tmp_path / "shards", ShardConfig())
    found = []
    for split in ("train", "validation"):
        shards = Shards(tmp_path / "shards" / split)
        for row in range(len(shards.lengths)):
            ids = shards.tokens(row).tolist()
            assert ids[0] == ids[-1] == tokenizer.end_of_text  # a border on either side of a document
            found.append(tokenizer.decode(ids[1:-1]))
    assert sorted(found) == sorted(books.values())


def test_cleaning_is_part_of_what_a_corpus_is(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The OLD king. " * 30, encoding="utf-8")
    for raw_text, expected in ((False, "the old king"), (True, "The OLD king")):
        out = tmp_path / f"out-{raw_text}"
        build_corpus(RawCorpus.at(str(tmp_path / "a.txt")), out, CorpusConfig(validation_fraction=0, raw=raw_text))
        (text,) = ["".join(rows) for _, rows in read_corpus(out, "train")]
        assert text.startswith(expected)


@settings(deadline=None, max_examples=200)
@given(text=texts.filter(bool))
def test_ids_written_one_by_one_add_up_to_the_text(tokenizer: ByteTokenizer, text: str) -> None:
    """Characters of several ids come whole, with the last of them."""
    first, *ids = tokenizer.encode(f".{text}")
    add = tokenizer.following(first)
    parts = [add(index) for index in ids]
    assert tokenizer.decode([first]) + "".join(parts) == f".{text}"
    assert "\ufffd" not in "".join(parts) or "\ufffd" in text


def test_what_goes_on_a_text_is_set_apart_from_it(tokenizer: ByteTokenizer) -> None:
    for text, joined in (("king", " king"), (", he said", ", he said"), ("'s horse", "'s horse"), ("", " ")):
        assert tokenizer.encode_next(text) == tokenizer.encode(joined)
