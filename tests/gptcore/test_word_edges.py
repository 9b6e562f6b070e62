"""Where words begin and end, by the pieces of each kind of vocabulary; a fitted layer tells words of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gptcore import Tokenizer
from gptcore.models.ngrams import NGrams
from gptcore.nlu.examples import Example
from gptcore.nlu.forms import FORMS
from gptcore.text.bpe import WordTokenizer
from gptcore.text.byte_bpe import ByteTokenizer
from gptcore.text.sentence_piece import SentencePieceTokenizer
from gptcore.text.word_edges import other_scripts, set_apart, word_edges
from gptcore.text.wordpiece import WordPieceTokenizer


def test_words_of_a_text_in_any_script() -> None:
    for text, n_words, others in (
        ("Zoë's old naïve Ænima, Việt 1984\u2014", 6, 0),
        ("Привет, old мир", 3, 2),
        ("हिन्दी में", 2, 2),
        ("他来了。 two", 4, 1),
        ("はい、カメラ", 5, 1),
    ):
        assert (len(set_apart(text).split()), other_scripts(text)) == (n_words, others)
        assert FORMS["single"].n_words(Example((text,), (), None, "", "")) == n_words
        assert "".join(set_apart(text).split()) == "".join(text.split())


TEXT = "undoable deeds are not undone by the undoing and doers do not rest"


@pytest.mark.parametrize(
    ("kind", "pieces", "edges"),
    [
        ("word", ["<unk>", "u", "n</w>", "do</w>"], [0, 0, 2, 2]),
        ("byte-level", ["\u0120do", "ing", ",", "\u0120", "\u00c3", ""], [1, 0, 1, 1, 0, 1]),
        ("WordPiece", ["[CLS]", "do", "##ing", "##", ","], [3, 1, 0, 1, 1]),
        ("SentencePiece", ["[CLS]", "\u2581the", "ing", ",", "\u2581", "s"], [3, 1, 0, 1, 1, 0]),
    ],
)
def test_a_piece_tells_by_its_marks_if_a_word_begins_or_ends(kind: str, pieces: list[str], edges: list[int]) -> None:
    special = [0] if pieces[0] == "[CLS]" else []
    assert word_edges(kind, pieces, special).tolist() == edges


@pytest.mark.parametrize("kind", [WordTokenizer, ByteTokenizer, WordPieceTokenizer, SentencePieceTokenizer])
def test_ids_are_cut_where_the_texts_words_are(kind: type[Tokenizer]) -> None:
    tokenizer = kind.train([TEXT] * 3, 20)
    ids = tokenizer.encode(TEXT)
    edges = [int(edge) for edge in tokenizer.word_edges]
    words, starts = TEXT.split(), [0]
    starts += [at for at in range(1, len(ids)) if edges[ids[at - 1]] >= 2 or edges[ids[at]] % 2]
    assert len(ids) > len(words)
    parts = [ids[start:end] for start, end in zip(starts, [*starts[1:], len(ids)], strict=True)]
    assert [tokenizer.decode(part).strip() for part in parts] == words


def test_equal_words_have_one_code_wherever_they_stand() -> None:
    tokenizer = WordTokenizer.train([TEXT] * 3, 20)
    edges = torch.tensor([int(edge) for edge in tokenizer.word_edges], dtype=torch.uint8)
    ids = torch.tensor([[tokenizer.encode(TEXT)]])
    grams = NGrams(1, 1, edges).grams(ids, torch.tensor([[ids.shape[2] - 1]]))
    words = grams.rows[0, 1][grams.counted[0, 1]]
    assert len(words) == len(set(TEXT.split())), "each word once"
    assert len(np.unique(words)) == len(words)
