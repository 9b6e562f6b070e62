"""GPT-2's byte-level encoding against a slow twin: ids, the way back, learning, broken files."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from gptcore.text.bpe import WordTokenizer
from gptcore.text.byte_bpe import BYTE_CHARACTERS, ByteTokenizer
from gptcore.text.tokenizer import Tokenizer
from gptcore.text.vocabulary import END_OF_TEXT
from tests.gptcore.reference_byte_bpe import ReferenceEncoder
from tests.realdata import real_data

TEXTS = ["The old king doesn't know the new king's 12 horses.\n\nIt'll rain...\t  he said,  'why?'"] * 4
LIKELY = "aeh tTkK'sldrevm0129 \n\t.,!?\u00e9\u4e2d\u00a0\u2003\u0301\u00b2\x1c\x85\U0001f600"


ASSIGNED = st.characters(codec="utf-8", exclude_categories=("Cn", "Cs"))  # the library's Unicode is newer than Python's


@pytest.fixture(scope="module")
def learnt() -> ByteTokenizer:
    return ByteTokenizer.train(TEXTS, 60)


@pytest.fixture(scope="module")
def twin(learnt: ByteTokenizer, tmp_path_factory: pytest.TempPathFactory) -> ReferenceEncoder:
    folder = tmp_path_factory.mktemp("learnt")
    learnt.save(folder)
    return ReferenceEncoder(folder / "vocab.json", folder / "merges.txt")


texts = st.one_of(st.text(st.sampled_from(LIKELY), max_size=60), st.text(ASSIGNED, max_size=40))


@settings(max_examples=400)
@given(text=texts)
def test_ids_are_the_slow_twins_and_lead_back_to_the_text(
    learnt: ByteTokenizer, twin: ReferenceEncoder, text: str
) -> None:
    ids = learnt.encode(text)
    assert ids == twin.encode(text)
    assert learnt.decode(ids) == text
    assert learnt.decode_bytes(ids) == text.encode()


@given(data=st.binary(max_size=60))
def test_any_bytes_are_ids_and_any_ids_are_bytes(learnt: ByteTokenizer, data: bytes) -> None:
    """Text that was read with replacement characters, and ids that a model may draw."""
    text = data.decode("utf-8", errors="replace")
    assert learnt.decode(learnt.encode(text)) == text
    ids = [learnt.vocabulary[BYTE_CHARACTERS[byte]] for byte in data]
    assert learnt.decode_bytes(ids) == data
    assert learnt.decode(ids) == text


def test_the_released_vocabulary_gives_the_released_ids() -> None:
    released, plain = _released()
    assert (released.n_vocab, released.n_merges, released.end_of_text) == (50_257, 50_000, 50_256)
    assert [released.vocabulary[character] for character in BYTE_CHARACTERS.values()] == list(range(256))
    assert released.encode("Hello world") == [15496, 995]
    for book in sorted(real_data("books").glob("*.txt"))[::12]:
        text = book.read_bytes()[:60_000].decode("utf-8", errors="replace")
        ids = released.encode(text)
        assert ids == plain.encode(text)
        assert released.decode(ids) == text


@settings(max_examples=200)
@given(text=texts)
def test_the_released_vocabulary_takes_any_text(text: str) -> None:
    released, plain = _released()
    assert released.encode(text) == plain.encode(text)
    assert released.decode(released.encode(text)) == text


@cache
def _released() -> tuple[ByteTokenizer, ReferenceEncoder]:
    folder = real_data("gpt2")
    tokenizer = Tokenizer.load(folder)
    assert isinstance(tokenizer, ByteTokenizer)
    return tokenizer, ReferenceEncoder(folder / "encoder.json", folder / "vocab.bpe")


def test_the_end_of_a_text_is_no_text(learnt: ByteTokenizer) -> None:
    ids = learnt.encode(f"a{END_OF_TEXT}b")
    assert learnt.end_of_text == learnt.n_vocab - 1
    assert learnt.end_of_text not in ids
    assert learnt.decode([learnt.end_of_text]) == END_OF_TEXT


def test_learning_joins_the_most_frequent_pair_first_and_stops_where_nothing_repeats() -> None:
    learnt = ByteTokenizer.train(["abab abab"], 1)
    assert learnt.merges == (("a", "b"),)
    assert learnt.n_vocab == 256 + 1 + 1
    assert ByteTokenizer.train(["abc"], 10).merges == ()
    with pytest.raises(InputError, match="n_merges = -1"):
        ByteTokenizer.train(["abc"], -1)


def test_a_folders_kind_is_known_by_its_pieces(learnt: ByteTokenizer, tmp_path: Path) -> None:
    learnt.save(tmp_path / "bytes")
    words = WordTokenizer.train(["a b c"], 1)
    words.save(tmp_path / "words")
    for folder, saved in (("bytes", learnt), ("words", words)):
        found = Tokenizer.load(tmp_path / folder)
        assert (type(found), found.digest) == (type(saved), saved.digest)
    (tmp_path / "bytes" / "vocab.json").write_text('{"a": 0}', encoding="utf-8")
    with pytest.raises(InputError, match=r"vocab\.json: no entry <unk> \(word\) or <\|endoftext\|> \(byte-level\)"):
        Tokenizer.load(tmp_path / "bytes")


def test_broken_files_are_named(learnt: ByteTokenizer, tmp_path: Path) -> None:
    def load(vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> None:
        (tmp_path / "encoder.json").write_text(json.dumps(vocabulary), encoding="utf-8")
        lines = ["#version: 0.2", *(" ".join(merge) for merge in merges), ""]
        (tmp_path / "vocab.bpe").write_text("\n".join(lines), encoding="utf-8")
        ByteTokenizer.load(tmp_path)

    with pytest.raises(InputError, match="no tokenizer here"):
        ByteTokenizer.load(tmp_path)
    whole, merges = dict(learnt.vocabulary), list(learnt.merges)
    load(whole, merges)
    byte = {piece: index - (index > 0) for piece, index in whole.items() if index}
    with pytest.raises(InputError, match=r"encoder\.json: no entry '!', expected all 256 bytes"):
        load(byte, merges)
    renamed = {piece.replace(END_OF_TEXT, "\u4e2d"): index for piece, index in whole.items()}
    with pytest.raises(InputError, match=r"no entry <unk> .word. or <.endoftext.>"):
        load(renamed, merges)
    with pytest.raises(InputError, match=r"entry '\u4e2d': expected characters that stand for bytes"):
        load(whole | {"\u4e2d": len(whole)}, merges)
    with pytest.raises(InputError, match=r"vocab\.bpe: a merge joins what only a later one makes"):
        load(whole, merges[::-1])
    with pytest.raises(
        InputError, match=r"vocab\.bpe: line 51: 'q' \+ 'q' gives 'qq', which .*encoder\.json does not hold"
    ):
        load(whole, [*merges, ("q", "q")])
