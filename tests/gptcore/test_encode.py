"""From a cleaned corpus to token shards, the same whatever runs the jobs; and the local copy of remote shards."""

from __future__ import annotations

import hashlib
import itertools
import pickle
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from gptcore.base.files import read_json, sha256_file, write_json_atomic
from gptcore.config import CorpusConfig, ShardConfig
from gptcore.data.encode import encode_corpus, encode_partition
from gptcore.data.masking import PieceTable
from gptcore.data.shards import Shards, token_dtype, write_index, write_shards
from gptcore.text import parts as raw
from gptcore.text.bpe import WordTokenizer
from gptcore.text.byte_bpe import ByteTokenizer
from gptcore.text.corpus import build_corpus
from gptcore.text.mixing import check_weights, copies, weight_of
from gptcore.text.parts import raw_rows, read_corpus
from gptcore.text.sources import RawCorpus
from gptcore.text.wordpiece import WordPieceTokenizer

Row = tuple[str, int, str]

TRAIN: list[list[Row]] = [
    [("a", 0, "the old king"), ("a", 1, "\n went home"), ("b", 0, "the end")],
    [("c", 0, "home . home ."), ("d", 0, ""), ("d", 1, "king"), ("c", 0, "home . home .")],
]
VALIDATION: list[list[Row]] = [[("e", 0, "the king went")]]
TOKENIZER = WordTokenizer.train([text for part in TRAIN for _, _, text in part], 10)


def write_corpus(folder: Path, splits: dict[str, list[list[Row]]]) -> Path:
    for split, parts in splits.items():
        (folder / split).mkdir(parents=True)
        for number, rows in enumerate(parts):
            columns = zip(("document", "part", "text"), zip(*rows, strict=True), strict=True)
            table = pa.table({name: list(values) for name, values in columns})
            with pa.ipc.new_file(str(folder / split / f"part-{number:05d}.arrow"), table.schema) as writer:
                writer.write_table(table, max_chunksize=2)  # a document may lie across record batches
    return folder


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "corpus", {"train": TRAIN, "validation": VALIDATION})


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): sha256_file(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def test_documents_are_the_encoded_rows_joined(corpus, tmp_path):
    done: list[int] = []
    meta = encode_corpus(corpus, TOKENIZER, tmp_path / "out", ShardConfig(), progress=done.append)
    for split, parts in (("train", TRAIN), ("validation", VALIDATION)):
        shards = Shards(tmp_path / "out" / split)
        found = [(shards.document(row), shards.tokens(row).tolist()) for row in range(shards.n_rows)]
        expected = []
        for part in parts:
            starts = [i for i, row in enumerate(part) if row[1] == 0]
            for start, end in zip(starts, [*starts[1:], len(part)], strict=True):
                ids = [index for _, _, text in part[start:end] for index in TOKENIZER.encode_clean(text)]
                expected.append((part[start][0], ids))
        assert found == expected
        assert meta["splits"][split] == {"n_tokens": shards.n_tokens, "n_documents": len(expected)}
    assert meta["tokenizer_digest"] == TOKENIZER.digest
    assert meta["n_vocab"] == TOKENIZER.n_vocab
    assert sum(done) == 3


def test_nothing_depends_on_who_runs_the_jobs(corpus, tmp_path):
    config = ShardConfig(max_tokens=5)
    encode_corpus(corpus, TOKENIZER, tmp_path / "here", config)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        encode_corpus(corpus, TOKENIZER, tmp_path / "pool", config, map=pool.map)
    (tmp_path / "again" / ".parts" / "train").mkdir(parents=True)  # left by a run that was killed
    (tmp_path / "again" / ".parts" / "train" / "part-00000").write_text("half")
    encode_corpus(corpus, TOKENIZER, tmp_path / "again", config)
    assert contents(tmp_path / "here") == contents(tmp_path / "pool") == contents(tmp_path / "again")
    assert sorted({name.split("/")[0] for name in contents(tmp_path / "here")}) == ["meta.json", "train", "validation"]


@pytest.mark.parametrize("max_tokens", [1, 2, 5, 7, 1000])
def test_many_writers_leave_what_one_would(corpus, tmp_path, max_tokens):
    handed = []

    def elsewhere(function, items):
        jobs = list(items)
        handed.extend(jobs)
        return [pickle.loads(pickle.dumps(function))(job) for job in reversed(jobs)][::-1]

    encode_corpus(corpus, TOKENIZER, tmp_path / "many", ShardConfig(max_tokens=max_tokens), map=elsewhere)
    for split, parts in (("train", TRAIN), ("validation", VALIDATION)):
        documents: list[tuple[str, list[list[int]]]] = []
        for name, number, text in itertools.chain.from_iterable(parts):
            if number == 0:
                documents.append((name, []))
            documents[-1][1].append(TOKENIZER.encode_clean(text).tolist())
        one = tmp_path / "one" / split
        write_shards(documents, one, n_vocab=TOKENIZER.n_vocab, max_tokens=max_tokens)
        assert contents(one) == contents(tmp_path / "many" / split)
    files = len(list((tmp_path / "many").glob("*/shard-*.arrow")))
    assert len(handed) == 3 + files  # three files of the corpus to encode, and every shard is written by a job


def test_documents_longer_than_a_shard_keep_their_order(corpus, tmp_path):
    encode_corpus(corpus, TOKENIZER, tmp_path / "whole", ShardConfig())
    encode_corpus(corpus, TOKENIZER, tmp_path / "cut", ShardConfig(max_tokens=3))
    whole, cut = Shards(tmp_path / "whole" / "train"), Shards(tmp_path / "cut" / "train")
    assert cut.n_rows > whole.n_rows == whole.n_documents == cut.n_documents
    joined = [(name, [token for row in rows for token in row]) for name, rows in cut.documents()]
    assert joined == [(name, rows[0].tolist()) for name, rows in whole.documents()]


@given(st.lists(st.lists(st.integers(0, 4), max_size=7), min_size=1, max_size=5), st.data())
@settings(max_examples=50, deadline=None)
def test_documents_are_read_as_often_as_is_asked_for(tmp_path_factory, tokens, data):
    often = {str(name): data.draw(st.integers(0, 3)) for name in range(len(tokens))}
    folder = tmp_path_factory.mktemp("shards")
    documents = [(str(name), [ids]) for name, ids in enumerate(tokens)]
    index = write_shards(documents, folder, n_vocab=5, max_tokens=6)
    skipped, again, n_tokens, n_documents = Shards(folder).repeated(often.__getitem__)
    files = [{**entry, "skip": rows} for entry, rows in zip(index["files"], skipped, strict=True)]
    write_index(folder, 5, n_documents, files, n_tokens, again)
    mixed = Shards(folder)
    assert mixed.n_tokens == n_tokens == mixed.lengths.sum() == sum(len(t) * often[n] for n, [t] in documents)
    assert mixed.n_documents == n_documents == sum(often.values())
    found = Counter((name, *np.concatenate(rows)) for name, rows in mixed.documents())
    assert found == +Counter({(name, *ids): often[name] for name, [ids] in documents})
    for token in range(5):
        places = [
            (row, at) for row in range(mixed.n_rows) for at, each in enumerate(mixed.tokens(row)) if each == token
        ]
        assert [*zip(*map(np.ndarray.tolist, mixed.places_of(token)), strict=True)] == places


def test_the_first_weight_that_a_file_matches_counts_and_its_fraction_is_drawn_by_documents(tmp_path):
    weights = {"wiki": 2.0, "*/old.txt": 0.25, "forum/*.jsonl": 1.5}
    sources = ["wiki/old.txt", "forum/old.txt", "forum/a/b.jsonl", "wiki.txt"]
    assert [weight_of(source, weights) for source in sources] == [2.0, 0.25, 1.5, 1.0]
    drawn = [copies(hashlib.sha256(bytes([n, n])).hexdigest(), 1.25) for n in range(256)]
    assert set(drawn) == {1, 2}
    assert 40 < drawn.count(2) < 90
    assert {copies(name, 3.0) for name in "abcdef"} == {3}
    check_weights(weights, sources)
    for wrong, said in (
        ({"wikis": 2.0}, "no file of the corpus matches 'wikis', expected one of .*did you mean wiki"),
        ({"wiki": 0.0}, "more than 0"),
        ({"wiki": 2.0, "wiki/o*": 3.0}, "an earlier weight holds for all its files, expected it before 'wiki'"),
    ):
        with pytest.raises(InputError, match=said):
            check_weights(wrong, sources)


def test_training_text_is_needed_and_no_validation_text_gives_empty_shards(tmp_path):
    write_corpus(tmp_path / "none", {"validation": VALIDATION})
    with pytest.raises(InputError, match=r"train: no part-\*\.arrow here"):
        encode_corpus(tmp_path / "none", TOKENIZER, tmp_path / "out", ShardConfig())
    write_corpus(tmp_path / "corpus", {"train": TRAIN})
    meta = encode_corpus(tmp_path / "corpus", TOKENIZER, tmp_path / "out", ShardConfig())
    assert meta["splits"]["validation"] == {"n_tokens": 0, "n_documents": 0}
    assert Shards(tmp_path / "out" / "validation").n_rows == 0


# --- with sentence borders ---

PIECES = WordPieceTokenizer.train(["the old king went home . he slept ! unbelievable"], 40)
SENTENCES = ShardConfig(sentences=True)


def test_behind_every_sentence_stands_the_separator(tmp_path):
    rows: list[Row] = [
        ("a", 0, "The old king went home. He slept!"),
        ("a", 1, "\n\nHOME\n\n \n\nHe went"),
        ("b", 0, "King."),
    ]
    folder = write_corpus(tmp_path / "corpus", {"train": [rows], "validation": [[("c", 0, "\n\n")]]})
    encode_corpus(folder, PIECES, tmp_path / "out", SENTENCES)
    sep = PIECES.specials.sep
    expected = [["The old king went home.", "He slept!", "HOME", "He went"], ["King."]]
    shards = Shards(tmp_path / "out" / "train")
    for row, sentences in enumerate(expected):
        assert shards.tokens(row).tolist() == [i for text in sentences for i in [*PIECES.encode(text), sep]]
    assert Shards(tmp_path / "out" / "validation").lengths.tolist() == [0]
    parts = encode_partition(folder, PIECES, tmp_path / "part", SENTENCES)
    assert (tmp_path / "part" / "train" / parts["train"]["files"][0]["name"]).read_bytes() == (
        tmp_path / "out" / "train" / "shard-00000.arrow"
    ).read_bytes()


def test_the_vocabulary_s_marks_and_tails_travel_with_such_shards(tmp_path, corpus):
    encode_corpus(corpus, PIECES, tmp_path / "out", SENTENCES)
    found, specials = PieceTable.read(tmp_path / "out"), PIECES.specials
    assert (found.pad, found.cls, found.sep, found.mask) == (specials.pad, specials.cls, specials.sep, specials.mask)
    assert np.flatnonzero(found.special).tolist() == sorted(specials.ids)
    pieces = list(PIECES.vocabulary)
    assert [pieces[at] for at in np.flatnonzero(found.tail)] == [p for p in pieces if p.startswith("##") and p != "##"]
    assert found.tail.any()
    path = tmp_path / "out" / "pieces.json"
    good = read_json(path)
    for change, said in (({"mask": 9}, "mask = 9"), ({"tail": [-1]}, "tail: expected ids"), ({"sep": "x"}, "sep")):
        write_json_atomic(path, good | change)
        with pytest.raises(InputError, match=said):
            PieceTable.read(tmp_path / "out")
    path.unlink()
    with pytest.raises(InputError, match=r"no pieces.json here, expected shards with sentence borders"):
        PieceTable.read(tmp_path / "out")
    encode_corpus(corpus, TOKENIZER, tmp_path / "words", ShardConfig())
    assert not (tmp_path / "words" / "pieces.json").exists()
    with pytest.raises(InputError, match=r"word vocabulary has no \[SEP\]"):
        encode_corpus(corpus, TOKENIZER, tmp_path / "words", SENTENCES)


# --- shards: what is written is read back, cut where it must be, and damage is noticed


documents_of_pieces = st.lists(st.lists(st.lists(st.integers(0, 99), max_size=9), max_size=4), max_size=8)


def written(folder: Path, documents: list[list[int]], *, n_vocab: int = 100, max_tokens: int = 1000) -> Shards:
    write_shards(((f"d{i}", [ids]) for i, ids in enumerate(documents)), folder, n_vocab=n_vocab, max_tokens=max_tokens)
    return Shards(folder)


@given(documents_of_pieces, st.integers(1, 20))
@settings(max_examples=60)
def test_every_document_comes_back(tmp_path_factory, documents, max_tokens):
    folder = tmp_path_factory.mktemp("shards")
    index = write_shards(
        ((f"d{i}", pieces) for i, pieces in enumerate(documents)), folder, n_vocab=100, max_tokens=max_tokens
    )
    shards = Shards(folder)
    whole: dict[str, list[int]] = {}
    for row in range(shards.n_rows):
        whole.setdefault(shards.document(row), []).extend(shards.tokens(row).tolist())
        assert len(shards.tokens(row)) == shards.lengths[row]
    expected = {f"d{i}": [token for piece in pieces for token in piece] for i, pieces in enumerate(documents)}
    assert whole == expected
    assert list(whole) == list(expected)  # in the order given
    assert all(file["n_tokens"] <= max_tokens for file in index["files"])
    starts = [(len(ids), at) for ids in expected.values() for at in range(0, max(1, len(ids)), max_tokens)]
    assert shards.lengths.tolist() == [min(max_tokens, n - at) for n, at in starts]  # one row, unless it is longer
    assert shards.n_documents == len(documents)
    assert shards.n_tokens == index["n_tokens"] == sum(map(len, expected.values()))


def test_ids_are_small_where_they_fit_and_mapped_not_copied(tmp_path):
    assert token_dtype(1 << 16) == np.uint16
    assert token_dtype((1 << 16) + 1) == np.uint32
    big = written(tmp_path / "big", [[70_000, 3]], n_vocab=70_001)
    assert big.tokens(0).tolist() == [70_000, 3]
    view = written(tmp_path / "small", [[1, 2, 3]]).tokens(0)
    assert view.dtype == np.uint16
    assert not view.flags.writeable
    assert not view.flags.owndata


def test_same_documents_give_the_same_bytes_and_stale_files_go(tmp_path):
    first = write_shards([("a", [[1, 2]]), ("b", [[3]])], tmp_path / "x", n_vocab=9, max_tokens=2)
    write_shards([("z", [[8] * 50])], tmp_path / "y", n_vocab=9, max_tokens=2)
    assert write_shards([("a", [[1], [2]]), ("b", [[3]])], tmp_path / "y", n_vocab=9, max_tokens=2) == first
    assert sorted(path.name for path in (tmp_path / "y").iterdir()) == [
        "index.json",
        "shard-00000.arrow",
        "shard-00001.arrow",
    ]


@pytest.mark.parametrize("wrong", [9, -1])
def test_an_id_outside_the_vocabulary_names_its_document(tmp_path, wrong):
    with pytest.raises(InputError, match=rf"document 'a': token id {wrong}, expected 0\.\.8"):
        write_shards([("a", [[1, wrong]])], tmp_path, n_vocab=9, max_tokens=5)


def test_a_file_cut_short_missing_or_swapped_is_noticed(tmp_path):
    written(tmp_path, [[1, 2, 3], [4, 5]], max_tokens=3)
    path, other = tmp_path / "shard-00000.arrow", tmp_path / "shard-00001.arrow"
    data = path.read_bytes()
    assert read_json(tmp_path / "index.json")["files"][0]["sha256"] == hashlib.sha256(data).hexdigest()
    path.write_bytes(data[:-20])
    with pytest.raises(InputError, match=r"shard-00000\.arrow: cannot be read as a token shard"):
        Shards(tmp_path)
    path.write_bytes(other.read_bytes())
    with pytest.raises(InputError, match=r"holds 1 rows and 2 tokens, index\.json says 1 and 3"):
        Shards(tmp_path)
    path.unlink()
    with pytest.raises(InputError, match="cannot be read"):
        Shards(tmp_path)
    with pytest.raises(InputError, match=r"no index\.json here"):
        Shards(tmp_path / "elsewhere")


# --- text that stays as it is: its rows, their ids, a raw corpus, and the way from books to shards and back


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


@settings(max_examples=300)
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

    tokenizer = ByteTokenizer.from_corpus(tmp_path / "corpus", 20, tmp_path / "counts")
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


@settings(max_examples=200)
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
