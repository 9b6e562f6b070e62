"""ALBERT's encoding against a slow twin and the library itself: ids, rows, learning, folders, broken files."""

from __future__ import annotations

import io
import pickle
import random
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from gptcore.text import sentence_piece
from gptcore.text.sentence_piece import MARKS, SPECIALS, SentencePieceTokenizer
from gptcore.text.tokenizer import Specials, Tokenizer
from tests.expected import expected
from tests.realdata import real_data

TEXTS = [
    "The old king doesn't know, in 2014, the new king's 12, 13, 14, horses. ``It'll rain,'' he said. Café 中国"
] * 4
SYLLABLES = ("ka", "rin", "tho", "le", "mus", "ven", "do", "sil")
DRAWS = random.Random(5)
MANY = [
    " ".join("".join(DRAWS.choices(SYLLABLES, k=DRAWS.randint(1, 4))) for _ in range(60)) for _ in range(60)
] + TEXTS
LIKELY = "aehtkingTHEK's019,, \n\t.!?(-)`'é½²٣Ⅳßﬁ中か한ש\u0301\u00a0\u3000–£€"
ODD = "\x01\x0b\x1c\x85\xad\u200b\u200d\u2028\ufeff\ufffd\ue000\u0378\U0001f600▁¨İΣ²"
texts = st.one_of(
    st.text(st.sampled_from(LIKELY), max_size=60),
    st.text(st.sampled_from(LIKELY + ODD), max_size=60),
    st.text(st.characters(codec="utf-8"), max_size=40),
    st.lists(st.sampled_from([*SPECIALS, "2014,", "the king", " ", "12,13,", "²,", "``", "''"]), max_size=8).map(
        "".join
    ),
)
KINDS = [(False, False), (False, True), (True, False), (True, True)]


@pytest.fixture(scope="module")
def learnt() -> SentencePieceTokenizer:
    return SentencePieceTokenizer.train(MANY, 60)


@pytest.fixture(scope="module")
def model() -> bytes:
    """One with pieces that end in a digit and a comma, as releases have them."""
    return _trained(user_defined_symbols=["▁2014,", "3,", "1½,", "²,", "(", "king,"])


def _trained(**changes: Any) -> bytes:
    out = io.BytesIO()
    asked = {"vocab_size": 90, "hard_vocab_limit": False, "minloglevel": 2, "num_threads": 1, "pad_id": 0, "unk_id": 1}
    asked |= {"bos_id": -1, "eos_id": -1, "pad_piece": "<pad>", "control_symbols": list(SPECIALS[2:])}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TEXTS), model_writer=out, **(asked | changes))
    return out.getvalue()


def twin(library: Any, text: str, cased: bool, keep_accents: bool) -> list[int]:
    """ALBERT's way to read a text, from its description; nothing is remembered or worked out before."""
    text = " ".join(text.strip().split()).replace("``", '"').replace("''", '"')
    if not keep_accents:
        text = "".join(each for each in unicodedata.normalize("NFKD", text) if unicodedata.combining(each) == 0)
    if not cased:
        text = text.lower()
    pieces = []
    for piece in library.encode_as_pieces(text):
        if len(piece) < 2 or piece[-1] != "," or not piece[-2].isdigit():
            pieces.append(piece)
            continue
        number = library.encode_as_pieces(piece[:-1].replace("▁", ""))
        if piece[0] != "▁" and number[0][0] == "▁":
            number = number[1:] if number[0] == "▁" else [number[0][1:], *number[1:]]
        pieces += [*number, ","]
    return [library.unk_id() if piece in SPECIALS else library.piece_to_id(piece) for piece in pieces]


@settings(max_examples=400)
@given(text=texts)
def test_ids_are_the_slow_twins(model: bytes, text: str) -> None:
    for cased, keep_accents in KINDS:
        tokenizer, library = _made(model, cased, keep_accents)
        ids = tokenizer.encode(text)
        assert ids == twin(library, text, cased, keep_accents) == tokenizer.encode_next(text)
        assert not {*ids} & {*tokenizer.specials.ids} - {tokenizer.specials.unk}, "a text that gives a special piece"


@cache
def _made(model: bytes, cased: bool, keep_accents: bool) -> tuple[SentencePieceTokenizer, Any]:
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    return SentencePieceTokenizer(model, cased=cased, keep_accents=keep_accents), library


def test_a_number_gives_its_comma_away(model: bytes) -> None:
    tokenizer, _ = _made(model, False, True)
    names = list(tokenizer.vocabulary)
    for text, pieces in (("2014,", "▁ 2 <unk> 1 4 ,"), ("new13,²,", "▁ n e w 1 <unk> , 2 ,"), ("king,", "▁ king,")):
        assert [names[index] for index in tokenizer.encode(text)] == pieces.split(" ")


def test_without_a_comma_of_its_own_unknown_text_may_end_in_one() -> None:
    tokenizer = SentencePieceTokenizer.train(["the kings king the kings of the king 12 12 21"] * 3, 8)
    assert "," not in tokenizer.vocabulary
    library = sentencepiece.SentencePieceProcessor(model_proto=tokenizer._model)
    for text in ("the 9,9,", "king 12, 9,", "\u0663,", "[CLS],", "(9,"):
        assert tokenizer.encode(text) == twin(library, text, False, False)


def test_the_released_model_gives_the_librarys_ids() -> None:
    released, library = _released()
    assert (released.n_vocab, released.cased, released.keep_accents) == (30_000, True, False)
    assert released.specials == Specials(pad=0, unk=1, cls=2, sep=3, mask=4)
    for book in sorted(real_data("books").glob("*.txt"))[::12]:
        text = book.read_bytes()[:60_000].decode("utf-8", errors="replace")
        for part in (text, *text.split("\n\n")):
            assert released.encode(part) == twin(library, part, True, False)


@settings(max_examples=200)
@given(text=texts)
def test_the_released_model_takes_any_text(text: str) -> None:
    released, library = _released()
    assert released.encode(text) == twin(library, text, True, False)


@cache
def _released() -> tuple[SentencePieceTokenizer, Any]:
    tokenizer = Tokenizer.load(real_data("albert"))
    assert isinstance(tokenizer, SentencePieceTokenizer)
    return tokenizer, sentencepiece.SentencePieceProcessor(model_file=str(real_data("albert") / "30k-clean.model"))


def test_a_books_rows_have_nearly_the_ids_of_its_paragraphs() -> None:
    """Not all: the library's rounding of sums in 32 bits decides between ways to cut a word that are equally likely."""
    released, _ = _released()
    text = (real_data("books") / "98-0.txt").read_text(encoding="utf-8", errors="replace")
    paragraphs = text.split("\n\n")
    same = sum(released.encode(part) == released.encode_clean(part).tolist() for part in paragraphs)
    assert same >= 0.999 * len(paragraphs)


@pytest.mark.parametrize("text", ["", " \n\u2028\u3000", "\u200b", "\u0301"])
def test_nothing_is_no_ids(learnt: SentencePieceTokenizer, text: str) -> None:
    assert learnt.encode(text) == learnt.encode_clean(text).tolist() == []


# --- learning ---


def test_the_layout_of_a_learnt_vocabulary(learnt: SentencePieceTokenizer) -> None:
    pieces = list(learnt.vocabulary)
    assert (*pieces[:5], *pieces[5:13]) == (*SPECIALS, *MARKS)
    characters = {piece for piece in pieces if len(piece) == 1} - {*MARKS}
    assert len(pieces) == 5 + len(MARKS) + len(characters) + 60
    assert learnt.specials == Specials(pad=0, unk=1, cls=2, sep=3, mask=4)
    assert learnt.end_of_text is None
    for n_merges in (0, 10_000):
        assert SentencePieceTokenizer.train(["the king, the kings"] * 3, n_merges).n_vocab < 60
    for given_texts, n_merges, message in (
        (["a"], -1, "n_merges = -1"),
        ([" \u200b"], 1, "no words"),
        (["a" * 101], 1, "no words"),
    ):
        with pytest.raises(InputError, match=message):
            SentencePieceTokenizer.train(given_texts, n_merges)


def test_characters_that_hardly_come_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentence_piece, "COVERAGE", 0.9)
    tokenizer = SentencePieceTokenizer.train(["the king the kings"] * 20 + ["q"], 5)
    assert "q" not in tokenizer.vocabulary
    assert tokenizer.specials.unk in tokenizer.encode("q")


# --- folders ---


def test_whether_case_and_accents_are_kept_is_kept_and_told_by_the_pieces(model: bytes, tmp_path: Path) -> None:
    digests = set()
    for number, (cased, keep_accents) in enumerate(KINDS):
        tokenizer = SentencePieceTokenizer(model, cased=cased, keep_accents=keep_accents)
        tokenizer.save(tmp_path / f"{number}")
        again = Tokenizer.load(tmp_path / f"{number}")
        assert again.digest == tokenizer.digest == pickle.loads(pickle.dumps(tokenizer)).digest
        digests.add(again.digest)
    assert len(digests) == len(KINDS)
    (tmp_path / "0" / "tokenizer_config.json").unlink()
    (tmp_path / "0" / "spiece.model").rename(tmp_path / "0" / "30k-clean.model")
    assert Tokenizer.load(tmp_path / "0").digest in digests  # by its pieces


def test_transformers_reads_the_folder_and_plain_text_alike(learnt: SentencePieceTokenizer, tmp_path: Path) -> None:
    """Transformers has no rule for commas behind digits, and marks no white space before "(" and the like."""
    learnt.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    assert isinstance(theirs, transformers.AlbertTokenizer)
    for text in ("the old king", "The KING'S rain, he said", "Café  kings"):
        assert theirs.encode(text, add_special_tokens=False) == learnt.encode(text)


@pytest.mark.parametrize(("changes", "message"), expected(__file__, "test_a_model_of_another_kind_is_refused"))
def test_a_model_of_another_kind_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "a.model").write_bytes(_trained(**changes))
    with pytest.raises(InputError, match=message):
        Tokenizer.load(tmp_path)


def test_broken_folders_are_named(model: bytes, tmp_path: Path) -> None:
    file = tmp_path / "a.model"
    for data in (b"", b"no model\n", b"\xff" * 100, model[: len(model) // 2]):
        file.write_bytes(data)
        with pytest.raises(InputError, match=r"a\.model: no SentencePiece model") as refused:
            Tokenizer.load(tmp_path)
        assert "\n" not in str(refused.value)
    file.write_bytes(model)
    assert Tokenizer.load(tmp_path).n_vocab
    (tmp_path / "b.model").write_bytes(model)
    with pytest.raises(InputError, match=r"found a\.model, b\.model, expected one \*\.model"):
        Tokenizer.load(tmp_path)
    (tmp_path / "b.model").unlink()
    (tmp_path / "tokenizer_config.json").write_text('{"keep_accents": 1}', encoding="utf-8")
    with pytest.raises(InputError, match=r"tokenizer_config\.json: keep_accents: found 1, expected bool"):
        Tokenizer.load(tmp_path)
    file.unlink()
    with pytest.raises(InputError, match=r"no tokenizer here, expected a folder with .* or vocab\.txt or \*\.model$"):
        Tokenizer.load(tmp_path)
