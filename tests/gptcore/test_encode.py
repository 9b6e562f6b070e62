"""From a cleaned corpus to token shards, the same whatever runs the jobs; and the local copy of remote shards."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from gptcore.base.errors import InputError
from gptcore.base.files import read_json, sha256_file, write_json_atomic
from gptcore.config import ShardConfig
from gptcore.data.encode import encode_corpus, encode_partition
from gptcore.data.piece_table import PieceTable, _tails
from gptcore.data.shards import Shards
from gptcore.text.bpe import WordTokenizer
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


def test_documents_longer_than_a_shard_keep_their_order(corpus, tmp_path):
    encode_corpus(corpus, TOKENIZER, tmp_path / "whole", ShardConfig())
    encode_corpus(corpus, TOKENIZER, tmp_path / "cut", ShardConfig(max_tokens=3))
    whole, cut = Shards(tmp_path / "whole" / "train"), Shards(tmp_path / "cut" / "train")
    assert cut.n_rows > whole.n_rows == whole.n_documents == cut.n_documents
    joined = [(name, [token for row in rows for token in row]) for name, rows in cut.documents()]
    assert joined == [(name, rows[0].tolist()) for name, rows in whole.documents()]


def test_no_training_text(tmp_path):
    write_corpus(tmp_path / "corpus", {"validation": VALIDATION})
    with pytest.raises(InputError, match=r"train: no part-\*\.arrow here"):
        encode_corpus(tmp_path / "corpus", TOKENIZER, tmp_path / "out", ShardConfig())


def test_no_validation_text_gives_empty_shards(tmp_path):
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
    assert np.flatnonzero(found.special).tolist() == sorted(specials)
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


def test_pieces_of_signs_alone_are_words_where_a_mark_begins_words():
    assert _tails(["<unk>", "[CLS]", "\u2581the", "ing", ",", "\u2581", "s"]).tolist() == [
        *(True, True, False, True, False, False, True)
    ]
