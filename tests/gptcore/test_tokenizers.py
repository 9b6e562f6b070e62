"""What tokenizers of every kind that takes any text have in common; and which characters their pieces stand for."""

from __future__ import annotations

import itertools
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from gptcore.config import CorpusConfig
from gptcore.text import corpus
from gptcore.text import parts as raw
from gptcore.text.alignment import Aligner
from gptcore.text.bpe import WordTokenizer
from gptcore.text.byte_bpe import ByteTokenizer
from gptcore.text.clean import clean
from gptcore.text.sentence_piece import SentencePieceTokenizer
from gptcore.text.sources import RawCorpus
from gptcore.text.tokenizer import Tokenizer
from gptcore.text.wordpiece import WordPieceTokenizer
from tests.gptcore.test_sentence_piece import MANY
from tests.gptcore.test_wordpiece import LIKELY, TEXTS

ODD = "\x01\x0b\x1c\x85\xad\u200b\u200d\u2028\ufeff\ufffd\ue000\u0378\U0001f600▁¨²"
WORDS = st.lists(st.text(st.sampled_from(LIKELY + ODD), max_size=5), max_size=40)


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind, with what it makes of a few texts."""

    of: type[Any]
    texts: list[str]
    said: str
    """What decoding gives back of "The KING'S  café, 12,13"."""
    corpus: str
    """What decoding gives back of a line of the corpus, with what is learnt from it."""
    sent: tuple[int, ...] = ()
    """Ids of a special piece before and behind a text."""
    shown: str = "{}"
    """How decoding shows the text with them."""
    any_order: bool = True
    """Whether texts in any order give an equal tokenizer."""


KINDS = (
    Kind(ByteTokenizer, TEXTS, "The KING'S  café, 12,13", "The OLD king's Café, 中国", any_order=False),
    Kind(
        WordPieceTokenizer,
        TEXTS,
        "the king ' s cafe , 12 , [UNK]",
        "the old king ' s cafe , 中 国",
        (2, 3),
        "[CLS] {} [SEP]",
    ),
    Kind(SentencePieceTokenizer, MANY, "the king's cafe, 12,13", "the old king's cafe, 中国", (2, 3), "[CLS] {}[SEP]"),
)
LEARNT = {kind: kind.of.train(kind.texts, 60) for kind in KINDS}
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.of.kind)


@every_kind
@settings(max_examples=300)
@given(words=WORDS, cut=st.integers(5, 30))
def test_ids_of_the_rows_are_those_of_the_text(kind: Kind, words: list[str], cut: int) -> None:
    text, learnt = " a".join(words), LEARNT[kind]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(raw, "ROW", cut)
        patched.setattr(raw, "SEGMENT", 100)
        rows = list(learnt.rows([text]))
    ids = learnt.encode_clean(text).tolist()
    assert np.concatenate([[], *map(learnt.encode_clean, rows)]).tolist() == ids
    if kind.of is SentencePieceTokenizer:  # as a whole it may cut words otherwise that two ways are equally likely for
        assert ids == [index for word in text.split() for index in learnt.encode(word)]
    else:
        assert ids == learnt.encode(text)


@every_kind
def test_a_long_text_takes_its_length_of_time(kind: Kind) -> None:
    n_other = 20_000 if kind.of is ByteTokenizer else 100_000
    text = "the old king's horses " * 50_000 + "".join(character * n_other for character in "x国.")
    for encode in (LEARNT[kind].encode, LEARNT[kind].encode_clean):
        ids = encode(text)
    if kind.of is ByteTokenizer:
        assert LEARNT[kind].decode(ids) == text


@every_kind
def test_half_a_surrogate_pair_is_no_text(kind: Kind) -> None:
    encodes = () if kind.of is WordPieceTokenizer else (LEARNT[kind].encode, LEARNT[kind].encode_clean)
    for use in (*encodes, lambda text: kind.of.train([text], 5)):
        with pytest.raises(InputError, match="character 2: half of a surrogate pair"):
            use("ab\ud800")


@pytest.mark.parametrize("kind", [*(kind.of for kind in KINDS), WordTokenizer], ids=lambda kind: kind.kind)
@pytest.mark.parametrize(("first", "letters"), [(0x4E00, 2500), (0x1780, 34), (0x3042, 60)])
@pytest.mark.parametrize("end", ["", "\n"])
def test_a_library_without_blanks_between_words_is_learnt_from(
    kind: type[Any], first: int, letters: int, end: str
) -> None:
    """Also where its letters are thousands, as those of Chinese."""
    draws = random.Random(1)
    words = ["".join(map(chr, draws.choices(range(first, first + letters), k=3))) for _ in range(letters)]
    often = [1 / (number + 20) for number in range(letters)]
    text = f"\u3002{end}".join("".join(draws.choices(words, often, k=10)) for _ in range(600))
    learnt = kind.train([clean(text) if kind is WordTokenizer else text], 50)
    ids = learnt.encode(text)
    unknown = learnt.specials.unk if learnt.specials else 0 if kind is WordTokenizer else None
    assert ids.count(unknown) < 0.002 * len(ids)
    if kind is not WordPieceTokenizer or letters < 100:  # ideographs are words of their own to that
        assert max(len(piece.strip("#\u2581")) for piece in learnt.vocabulary if piece[-1] not in "]>") > 1


@every_kind
def test_decoding_joins_pieces(kind: Kind) -> None:
    learnt = LEARNT[kind]
    ids = learnt.encode("The KING'S  café, 12,13")
    assert learnt.decode(ids) == kind.said
    assert learnt.decode([]) == ""
    assert learnt.decode([*kind.sent[:1], *ids, *kind.sent[1:]]) == kind.shown.format(kind.said)
    for cut in range(1, len(ids)):
        add = learnt.following(ids[cut - 1])
        if kind.of is not ByteTokenizer or all(learnt.decode([index]).isascii() for index in ids[cut - 1 :]):
            assert learnt.decode(ids[:cut]) + "".join(map(add, ids[cut:])) == learnt.decode(ids)
    for ids in ([-1], [0, 10_000]):
        message = rf"ids\[{len(ids) - 1}\] = {ids[-1]}: expected an id in 0..{learnt.n_vocab - 1}"
        with pytest.raises(InputError, match=message):
            learnt.decode(ids)


@every_kind
def test_learning_is_the_same_in_every_process_and_order(kind: Kind) -> None:
    given_texts = kind.texts[::-1] if kind.any_order else kind.texts
    program = f"from {kind.of.__module__} import *; print({kind.of.__name__}.train({given_texts!r}, 60).digest)"
    for _ in range(2):
        found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert found.stdout.strip() == LEARNT[kind].digest
    if kind.any_order:
        parts = ["the old king", "a new king", "the kin g", "rain rained raining"]
        assert len({kind.of.train(order, 8).digest for order in itertools.permutations(parts)}) == 1


@every_kind
def test_from_a_raw_corpus(kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "GROUP", 1)  # a file a book
    (tmp_path / "books").mkdir()
    books = []
    for number in range(4):
        text = f"Book {number}.\n\nThe OLD king's Café, 中国.\n" * (20 + number)
        (tmp_path / "books" / f"{number}.txt").write_text(text, encoding="utf-8")
        books.append(text)
    config = CorpusConfig(validation_fraction=0, raw=True, near_duplicates=1)
    corpus.build_corpus(RawCorpus.at(str(tmp_path / "books")), tmp_path / "corpus", config)
    counted: list[int] = []

    def elsewhere(function: Callable[..., Any], paths: list[Path]) -> Any:
        return map(pickle.loads(pickle.dumps(function)), paths)

    tokenizer = kind.of.from_corpus(tmp_path / "corpus", 10, tmp_path / "counts", elsewhere, counted.append)
    assert tokenizer.digest == kind.of.train(books[::-1], 10).digest
    assert sum(counted) == 4
    assert not (tmp_path / "counts").exists()
    assert getattr(tokenizer, "cased", False) is False
    assert tokenizer.decode(tokenizer.encode("The OLD king's Café, 中国")) == kind.corpus


@every_kind
def test_saved_loaded_and_sent_it_stays_the_same(kind: Kind, tmp_path: Path) -> None:
    learnt = LEARNT[kind]
    learnt.save(tmp_path)
    again = Tokenizer.load(f"file://{tmp_path}/")
    assert isinstance(again, kind.of)
    assert again.digest == learnt.digest == pickle.loads(pickle.dumps(learnt)).digest
    assert again.encode_batch(TEXTS) == learnt.encode_batch(TEXTS)
    for file in tmp_path.iterdir():  # an address will do
        with fsspec.open(f"memory://{kind.of.__name__}/{file.name}", "wb") as copy:
            copy.write(file.read_bytes())
    assert Tokenizer.load(f"memory://{kind.of.__name__}").digest == learnt.digest


# --- pieces and the characters that they stand for ---


STORIES = ["The king's 12 horses rode, slowly, to Café Ωmega (in 1902-3). Why? The old king doesn't know."] * 4
ALIGNED = "aehtkingTHEKs019 \n\t.,!?'()-éÉß\u0301ﬁ中"
WORD_BY_WORD: list[type[Tokenizer]] = [WordPieceTokenizer, SentencePieceTokenizer]


@pytest.fixture(scope="module", params=WORD_BY_WORD, ids=["WordPiece", "SentencePiece"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    learnt: Tokenizer = request.param.train(STORIES, 60)
    return learnt


@given(st.text(st.sampled_from(ALIGNED), max_size=60))
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
    pieces = WordPieceTokenizer.train(STORIES, 20)
    aligner = Aligner(pieces)
    first, second = aligner.align("king king"), aligner.align("king")
    n = len(second.ids)
    assert first.ids.tolist() == second.ids.tolist() * 2
    assert first.starts[n:].tolist() == [start + 5 for start in second.starts]


def test_kinds_whose_pieces_cross_white_space_are_refused() -> None:
    words = WordTokenizer.train(STORIES, 20)
    with pytest.raises(InputError, match=r"tokenizer: found a word one, expected WordPiece or SentencePiece"):
        Aligner(words).align("the king")
