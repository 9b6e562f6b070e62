"""Pieces of a text and the characters they stand for: the ids of the whole, in order, odd words as a whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from gptcore.text.alignment import Aligner
from gptcore.text.bpe import WordTokenizer
from gptcore.text.sentence_piece import SentencePieceTokenizer
from gptcore.text.tokenizer import Tokenizer
from gptcore.text.wordpiece import WordPieceTokenizer

TEXTS = ["The king's 12 horses rode, slowly, to Café Ωmega (in 1902-3). Why? The old king doesn't know."] * 4
LIKELY = "aehtkingTHEKs019 \n\t.,!?'()-éÉß\u0301ﬁ中"
KINDS: list[type[WordPieceTokenizer] | type[SentencePieceTokenizer]] = [WordPieceTokenizer, SentencePieceTokenizer]


@pytest.fixture(scope="module", params=KINDS, ids=["WordPiece", "SentencePiece"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    learnt: Tokenizer = request.param.train(TEXTS, 60)
    return learnt


@given(st.text(st.sampled_from(LIKELY), max_size=60))
def test_ids_are_the_texts_and_places_go_forwards(tokenizer: Tokenizer, text: str) -> None:
    found = Aligner(tokenizer).align(text)
    assert found.ids.tolist() == tokenizer.encode_clean(text).tolist()
    assert len(found.ids) == len(found.starts) == len(found.ends)
    assert (found.starts <= found.ends).all()
    assert (found.starts[1:] >= found.starts[:-1]).all()
    assert (found.ends[1:] >= found.ends[:-1]).all()
    for start, end in zip(found.starts, found.ends, strict=True):
        assert 0 <= start <= end <= len(text)
        assert not any(character.isspace() for character in text[start:end])


@given(st.text(st.sampled_from("kingTHEs.'(1-"), min_size=1, max_size=20).filter(lambda word: "''" not in word))
def test_a_word_whose_pieces_spell_it_is_cut_to_the_character(tokenizer: Tokenizer, word: str) -> None:
    found = Aligner(tokenizer).align(f"to {word} ")
    places = list(zip(found.starts, found.ends, strict=True))
    text = f"to {word} "
    inside = [(start, end) for start, end in places if start >= 3]
    if tokenizer.specials and tokenizer.specials.unk in found.ids:
        assert set(inside) <= {(3, 3 + len(word))}
    else:
        assert "".join(text[start:end] for start, end in inside) == word


def test_accents_and_ligatures_stay_with_what_they_are_on() -> None:
    pieces = WordPieceTokenizer.train(["the cafe is old, the file too"] * 3, 20)
    text = "Cafe\u0301, the \ufb01le"
    found = Aligner(pieces).align(text)
    shown = [text[start:end] for start, end in zip(found.starts, found.ends, strict=True)]
    assert any(each.endswith("e\u0301") for each in shown)


def test_a_word_that_is_spelled_otherwise_is_one_place(tokenizer: Tokenizer) -> None:
    """``''`` is a quotation mark to SentencePiece, and no piece spells an unknown letter."""
    word = "''" if isinstance(tokenizer, SentencePieceTokenizer) else "k\u05e9"
    found = Aligner(tokenizer).align(f"to {word}")
    assert {(int(start), int(end)) for start, end in zip(found.starts, found.ends, strict=True) if start >= 3} == {
        (3, 5)
    }


def test_words_that_come_again_are_cut_once() -> None:
    pieces = WordPieceTokenizer.train(TEXTS, 20)
    aligner = Aligner(pieces)
    first, second = aligner.align("king king"), aligner.align("king")
    n = len(second.ids)
    assert first.ids.tolist() == second.ids.tolist() * 2
    assert first.starts[n:].tolist() == [start + 5 for start in second.starts]


def test_kinds_whose_pieces_cross_white_space_are_refused() -> None:
    words = WordTokenizer.train(TEXTS, 20)
    with pytest.raises(InputError, match=r"tokenizer: found a word one, expected WordPiece or SentencePiece"):
        Aligner(words).align("the king")
