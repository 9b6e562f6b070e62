"""Shards: what is written is read back, cut where it must be, and damage is noticed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from gptcore.data.shards import Shards, token_dtype, write_shards

documents_of_pieces = st.lists(st.lists(st.lists(st.integers(0, 99), max_size=9), max_size=4), max_size=8)


def written(folder: Path, documents: list[list[int]], *, n_vocab: int = 100, max_tokens: int = 1000) -> Shards:
    write_shards(((f"d{i}", [ids]) for i, ids in enumerate(documents)), folder, n_vocab=n_vocab, max_tokens=max_tokens)
    return Shards(folder)


@given(documents_of_pieces, st.integers(1, 20))
@settings(max_examples=60, deadline=None)
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
    assert shards.n_rows == sum(max(1, -(-len(ids) // max_tokens)) for ids in expected.values())
    assert shards.n_documents == len(documents)
    assert shards.n_tokens == index["n_tokens"] == sum(map(len, expected.values()))


def test_one_document_is_one_row_unless_longer_than_a_file(tmp_path):
    shards = written(tmp_path, [[1] * 6, [2] * 6, [3] * 25, [4]], max_tokens=10)
    assert [(shards.document(row), int(shards.lengths[row])) for row in range(shards.n_rows)] == [
        ("d0", 6),
        ("d1", 6),
        ("d2", 10),
        ("d2", 10),
        ("d2", 5),
        ("d3", 1),
    ]


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


def test_a_folder_without_shards(tmp_path):
    with pytest.raises(InputError, match=r"no index\.json here"):
        Shards(tmp_path)


def test_a_file_cut_short_missing_or_swapped_is_noticed(tmp_path):
    written(tmp_path, [[1, 2, 3], [4, 5]], max_tokens=3)
    path, other = tmp_path / "shard-00000.arrow", tmp_path / "shard-00001.arrow"
    data = path.read_bytes()
    path.write_bytes(data[:-20])
    with pytest.raises(InputError, match=r"shard-00000\.arrow: cannot be read as a token shard"):
        Shards(tmp_path)
    path.write_bytes(other.read_bytes())
    with pytest.raises(InputError, match=r"holds 1 rows and 2 tokens, index\.json says 1 and 3"):
        Shards(tmp_path)
    path.unlink()
    with pytest.raises(InputError, match="cannot be read"):
        Shards(tmp_path)


def test_the_index_lists_files_with_their_digests(tmp_path):
    import hashlib

    written(tmp_path, [[1, 2, 3]])
    index = json.loads((tmp_path / "index.json").read_text())
    (file,) = index["files"]
    assert file["sha256"] == hashlib.sha256((tmp_path / file["name"]).read_bytes()).hexdigest()


def test_progress_adds_up_to_the_tokens(tmp_path):
    seen: list[int] = []
    write_shards([("a", [[1] * 7]), ("b", [[1]])], tmp_path, n_vocab=9, max_tokens=3, progress=seen.append)
    assert sum(seen) == 8
