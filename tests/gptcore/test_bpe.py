"""The tokenizer against the reference encoder: any text, any merges; training, files and their errors."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
import time
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gptcore import Tokenizer
from gptcore.base.errors import InputError
from gptcore.text.bpe import WordTokenizer
from gptcore.text.clean import clean, words
from tests.expected import expected
from tests.gptcore.reference_bpe import ReferenceEncoder, tokens
from tests.realdata import real_data

NAMES = "encoder_bpe_40000.json", "vocab_40000.bpe"


@cache
def released() -> tuple[WordTokenizer, ReferenceEncoder]:
    files = [real_data("openai-gpt", name) for name in NAMES]
    tokenizer = Tokenizer.from_openai(*files)
    assert isinstance(tokenizer, WordTokenizer)
    return tokenizer, ReferenceEncoder(*files)


@cache
def trained() -> WordTokenizer:
    return WordTokenizer.train(
        ["the old king went to the old town .", "the king's daughter went there , too ."] * 9, 60
    )


def toy(merges: list[tuple[str, str]], extra: tuple[str, ...] = ()) -> WordTokenizer:
    pieces = ["<unk>", *"abcd", *(c + "</w>" for c in "abcd"), *(a + b for a, b in merges), *extra]
    return WordTokenizer({piece: i for i, piece in enumerate(dict.fromkeys(pieces))}, merges)


def reference_of(tokenizer: WordTokenizer) -> ReferenceEncoder:
    reference = ReferenceEncoder.__new__(ReferenceEncoder)
    reference.vocabulary = tokenizer.vocabulary
    reference.merges = list(tokenizer.merges)
    reference.rank = {merge: i for i, merge in enumerate(tokenizer.merges)}
    return reference


def ids_of(tokenizer: WordTokenizer, some_words: list[str]) -> list[int]:
    """Ids of words, one after the other, as the ids of a text are made of them."""
    ids: list[int] = tokenizer._ids.of(some_words).tolist()
    return ids


# --- exactness ---

AWKWARD = expected(__file__, "AWKWARD")


@pytest.mark.parametrize("text", AWKWARD, ids=range(len(AWKWARD)))
def test_awkward_texts_give_the_reference_ids(text):
    tokenizer, reference = released()
    assert tokenizer.encode(text) == reference.encode(text)


fragments = st.sampled_from([*AWKWARD, *expected(__file__, "fragments")])
texts = st.one_of(
    st.text(max_size=60),
    st.text(alphabet=st.characters(max_codepoint=0x17F), max_size=80),
    st.lists(st.one_of(fragments, st.text(max_size=8)), max_size=12).map("".join),
)


@given(texts)
@settings(max_examples=400)
def test_any_text_gives_the_reference_ids(text):
    tokenizer, reference = released()
    ids = tokenizer.encode(text)
    assert ids == reference.encode(text)
    assert tokenizer.encode_clean(clean(text)).tolist() == ids
    assert tokenizer.encode_batch([text, text]) == [ids, ids]


def test_real_books_and_tasks_give_the_reference_ids():
    tokenizer, reference = released()
    books = sorted(real_data("books").glob("*.txt"))
    chooser = random.Random(0)
    for book in chooser.sample(books, 6):
        text = book.read_text(encoding="utf-8", errors="replace")
        start = chooser.randrange(len(text))
        assert tokenizer.encode(text[start : start + 4000]) == reference.encode(text[start : start + 4000]), book
    for name in ("CoLA/train.tsv", "MRPC/train.tsv", "QQP/dev.tsv", "SST-2/dev.tsv"):
        for line in real_data(name).read_text(encoding="utf-8").splitlines()[100:140]:
            assert tokenizer.encode(line) == reference.encode(line), line


@given(texts)
@settings(max_examples=100)
def test_any_text_gives_the_reference_ids_under_a_trained_vocabulary(text):
    ids = trained().encode(text)
    assert ids == reference_of(trained()).encode(text)
    assert trained().encode_clean(clean(text)).tolist() == ids


any_merges = st.lists(
    st.tuples(st.text("abc", min_size=1, max_size=3), st.text("abc", min_size=1, max_size=3), st.booleans()).map(
        lambda parts: (parts[0], parts[1] + "</w>" * parts[2])
    ),
    max_size=25,
    unique=True,
)


@given(any_merges, st.lists(st.text("abcd \n\u2603", min_size=1, max_size=30), max_size=8))
@example([("ab", "a"), ("a", "b")], ["ababc"])  # all (a, b) are joined before (ab, a) is looked for
@settings(max_examples=500)
def test_any_merges_in_any_order_on_any_words(merges, some_words):
    """Lists that no training would give work, too: parts never made, made later, one piece made in two ways."""
    tokenizer = toy(merges, extra=("\n</w>",))
    reference = reference_of(tokenizer)
    expected = [index for word in some_words for index in reference.encode_token(word)]
    assert ids_of(tokenizer, some_words) == expected
    assert ids_of(tokenizer, some_words) == expected  # now from memory


def test_pieces_outside_the_vocabulary_are_0_each_and_merges_may_pass_through_them():
    pieces = ["<unk>", "a", "a</w>", "\u2603a</w>"]
    tokenizer = WordTokenizer({piece: i for i, piece in enumerate(pieces)}, [("\u2603", "a</w>")])
    assert ids_of(tokenizer, ["\u2603a"]) == [3]
    assert ids_of(tokenizer, ["\u2603\u2603a\u2603", "zz"]) == [0, 0, 1, 0, 0, 0]


def test_white_space_tokens():
    tokenizer, reference = released()
    newline = tokenizer.vocabulary["\n</w>"]
    assert tokenizer.encode("one\n\n\ntwo") == [*tokenizer.encode("one"), newline, *tokenizer.encode("two")]
    for word in ("\n", "\n ", " ", "\n\n", " \n", "a b", " a", "a ", "\t", "\n  ", "\u00a0"):
        assert ids_of(tokenizer, [word]) == reference.encode_token(word), repr(word)
    assert ids_of(tokenizer, ["\n "]) == [newline]
    assert ids_of(tokenizer, [" "]) == [0, 0]


@pytest.mark.parametrize("unit", ["ab", "the", "\u4e16", "a\u0301q", "haha"])
def test_a_huge_word_takes_near_linear_time(unit):
    tokenizer, reference = released()
    assert ids_of(tokenizer, [unit * 200]) == reference.encode_token(unit * 200)
    took = []
    for n in (20_000, 200_000):
        word = (unit * n)[:n]
        start = time.process_time()
        ids = ids_of(tokenizer, [word])
        took.append(time.process_time() - start)
        assert sum(len(tokenizer._pieces[i].replace("</w>", "")) if i else 1 for i in ids) == n
    assert took[1] < 40 * max(took[0], 0.01)  # ten times the length; quadratic would be a hundred times the time


def test_the_memory_of_words_is_bounded(monkeypatch):
    monkeypatch.setattr("gptcore.text.tokenizer._KEPT_WORDS", 3)
    tokenizer = toy([("a", "b")])
    some_words = ["ab", "ba", "abab", "cc", "ab", "d" * 100, "cab"]
    ids = ids_of(tokenizer, some_words)
    assert set(tokenizer._ids) == {"cc", "ab", "cab"}  # a word more than three begins anew; a long one is not kept
    assert ids == [index for word in some_words for index in ids_of(toy([("a", "b")]), [word])]


# --- decoding ---


def test_decode_reads_as_text():
    tokenizer, _ = released()
    assert tokenizer.decode(tokenizer.encode("The  old King\n\n went, alone.")) == "the old king\nwent , alone ."
    assert tokenizer.decode([]) == ""
    assert tokenizer.decode(tokenizer.encode("a \U0001f600 b")) == "a <unk> b"


@given(st.text("abcdefghijklmnopqrstuvwxyz ,.", max_size=60))
@settings(max_examples=50)
def test_decode_gives_back_the_words(text):
    tokenizer, _ = released()
    assert tokenizer.decode(tokenizer.encode(text)) == " ".join(words(text))


@pytest.mark.parametrize("wrong", [-1, 40478])
def test_decode_of_an_id_outside_the_vocabulary(wrong):
    with pytest.raises(InputError, match=rf"ids\[1\] = {wrong}: expected an id in 0\.\.40477"):
        released()[0].decode([5, wrong])


# --- training ---


def test_layout_is_the_released_one():
    tokenizer = trained()
    pieces = list(tokenizer.vocabulary)
    n_characters = len(
        {c for c in "the old king went to the old town . the king's daughter went there , too ." if c != " "}
    )
    assert pieces[0] == "<unk>"
    assert all(len(piece) == 1 for piece in pieces[1 : n_characters + 1])
    assert pieces[1] == "t"  # the most frequent
    assert pieces[n_characters + 1 : 2 * n_characters + 1] == [c + "</w>" for c in pieces[1 : n_characters + 1]]
    assert pieces[2 * n_characters + 1 : -1] == ["".join(merge) for merge in tokenizer.merges]
    assert pieces[-1] == "\n</w>"
    assert tokenizer.n_merges <= 60
    assert tokenizer.encode("the") == [tokenizer.vocabulary["the</w>"]]


def test_the_released_files_follow_the_layout_that_training_writes():
    tokenizer, _ = released()
    pieces = list(tokenizer.vocabulary)
    assert (tokenizer.n_vocab, tokenizer.n_merges) == (40478, 40000)
    assert pieces[239:477] == [c + "</w>" for c in pieces[1:239]]
    assert pieces[477:40477] == ["".join(merge) for merge in tokenizer.merges]
    assert pieces[40477] == "\n</w>"


words_without_repeats = st.lists(st.sampled_from("abcde"), min_size=1, max_size=5, unique=True).map("".join)


@given(st.lists(words_without_repeats, min_size=1, max_size=40), st.integers(0, 30))
@settings(max_examples=60)
def test_every_merge_joins_a_most_frequent_pair(some_words, n_merges):
    """Replayed with all pairs counted anew each time; training stops only when no pair is left that comes twice.

    In words without repeated letters, because how often "aaa" holds the pair (a, a) is the library's own business.
    """
    merges = WordTokenizer.train([" ".join(some_words)], n_merges).merges
    counts = Counter(some_words)
    cut = {word: [*word[:-1], word[-1] + "</w>"] for word in counts}
    for step in range(n_merges):
        pairs: Counter[tuple[str, str]] = Counter()
        for word, pieces in cut.items():
            for pair in pairwise(pieces):
                pairs[pair] += counts[word]
        if step == len(merges):
            assert max(pairs.values(), default=0) < 2
            return
        assert pairs[merges[step]] == max(pairs.values())
        for pieces in cut.values():
            i = 0
            while i + 1 < len(pieces):
                if (pieces[i], pieces[i + 1]) == merges[step]:
                    pieces[i : i + 2] = ["".join(merges[step])]
                i += 1


def test_newlines_take_no_part_in_merges():
    tokenizer = WordTokenizer.train(["a \n a \n a \n a", "\n \n"], 50)
    assert all("\n" not in piece for merge in tokenizer.merges for piece in merge)
    assert tokenizer.encode("a\na") == [tokenizer.vocabulary[piece] for piece in ("a</w>", "\n</w>", "a</w>")]


def test_fewer_merges_than_asked_are_reported(caplog):
    tokenizer = WordTokenizer.train(["ab ab ba"], 1000)
    assert tokenizer.merges == (("a", "b</w>"),)
    assert "1000 merges asked for, the corpus has only 1" in caplog.text
    assert WordTokenizer.train(["ab ab ba"], 0).n_vocab == 6


TRAIN_MANY_TIES = """
import random
from gptcore.text.bpe import WordTokenizer
r = random.Random(0)
rows = [" ".join("".join(r.choice("abcdefghij") for _ in range(r.randint(1, 7))) for _ in range(400)) for _ in range(5)]
print(WordTokenizer.train(rows, 500).digest)
"""


def test_training_is_the_same_in_every_process():
    digests = {
        subprocess.run([sys.executable, "-c", TRAIN_MANY_TIES], capture_output=True, text=True, check=True).stdout
        for _ in range(3)
    }
    assert len(digests) == 1


def test_rare_characters_and_long_words_stay_out(monkeypatch):
    monkeypatch.setattr("gptcore.text.bpe_train.MAX_CHARACTERS", 2)
    monkeypatch.setattr("gptcore.text.bpe_train.COVERAGE", 0.9)
    tokenizer = WordTokenizer.train(["ab ab ab xab xab " + "ab" * 60 + " " + "ab" * 60], 50)
    assert "x" not in tokenizer.vocabulary
    assert max(map(len, tokenizer.vocabulary)) == len("ab</w>")


def test_training_on_nothing():
    for rows in ([], [""], ["\n"]):
        with pytest.raises(InputError, match="no words to learn from"):
            WordTokenizer.train(rows, 10)
    with pytest.raises(InputError, match=r"tokenizer\.n_merges = -1"):
        WordTokenizer.train(["a"], -1)


# --- files ---


def test_save_and_load_keep_everything(tmp_path):
    tokenizer = trained()
    tokenizer.save(tmp_path / "t")
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == ["merges.txt", "vocab.json"]
    for url in (tmp_path / "t", f"file://{tmp_path}/t", f"{tmp_path}/t/"):
        again = Tokenizer.load(url)
        assert (again.vocabulary, again.merges, again.digest) == (
            tokenizer.vocabulary,
            tokenizer.merges,
            tokenizer.digest,
        )
    reference = ReferenceEncoder(tmp_path / "t" / "vocab.json", tmp_path / "t" / "merges.txt")
    text = "The king's old daughter\nwent; there?"
    assert again.encode(text) == reference.encode(text)


def test_the_released_folder_loads_and_its_digest_never_changes(tmp_path):
    tokenizer = Tokenizer.load(real_data("openai-gpt"))
    assert tokenizer.digest == released()[0].digest == RELEASED_DIGEST
    tokenizer.save(tmp_path)
    assert Tokenizer.load(tmp_path).digest == RELEASED_DIGEST


RELEASED_DIGEST = "b26daf7ad671db7262b1a3d640f7ea9e0c395c0f19efdbf4220c3fa986f33a0d"


def test_digest_tells_tokenizers_apart():
    merges = [("a", "b"), ("b", "c")]
    assert toy(merges).digest == toy(merges).digest
    swapped = toy(merges)
    assert WordTokenizer(swapped.vocabulary, merges[::-1]).digest != toy(merges).digest
    assert toy(merges, extra=("x",)).digest != toy(merges).digest


def test_pickles_small_and_equal():
    tokenizer = trained()
    before = len(pickle.dumps(tokenizer))
    tokenizer.encode("a great many words that were never seen")
    assert len(pickle.dumps(tokenizer)) == before
    assert pickle.loads(pickle.dumps(tokenizer)).digest == tokenizer.digest


def files(folder: Path, vocabulary: object, merges: str) -> Path:
    text = vocabulary if isinstance(vocabulary, str) else json.dumps(vocabulary)
    (folder / "vocab.json").write_text(text, encoding="utf-8")
    (folder / "merges.txt").write_text(merges, encoding="utf-8")
    return folder


GOOD = {"<unk>": 0, "a": 1, "b</w>": 2, "ab</w>": 3}


@pytest.mark.parametrize(("vocabulary", "merges", "message"), expected(__file__, "test_broken_files_name_the_place"))
def test_broken_files_name_the_place(tmp_path, vocabulary, merges, message):
    with pytest.raises(InputError, match=message) as caught:
        Tokenizer.load(files(tmp_path, vocabulary, merges))
    assert "\n" not in str(caught.value)


def test_files_that_are_not_there_or_not_text(tmp_path):
    with pytest.raises(InputError, match=r"no tokenizer here, expected a folder with tokenizer\.json or vocab"):
        Tokenizer.load(tmp_path)
    with pytest.raises(InputError, match=r"none\.json: cannot be read: FileNotFoundError"):
        Tokenizer.from_openai(tmp_path / "none.json", tmp_path / "none.bpe")
    files(tmp_path, GOOD, "")
    (tmp_path / "vocab.json").write_bytes(b'{"<unk>": 0, "\xff": 1}')
    with pytest.raises(InputError, match=r"vocab\.json: byte 14 is not UTF-8"):
        Tokenizer.load(tmp_path)


def test_windows_line_ends_and_a_byte_order_mark_are_read(tmp_path):
    folder = files(tmp_path, GOOD, "")
    (folder / "merges.txt").write_bytes(b"\xef\xbb\xbf#version: 0.2\r\na b</w>")
    assert Tokenizer.load(folder).merges == (("a", "b</w>"),)


def test_spacy_tokens_hold_no_spaces_but_after_a_newline():
    """What the reference's odd mapping is for; the words of gptcore.text.clean drop that space."""
    assert tokens("one\ntwo") == ["one", "\n ", "two"]
    assert words("one\ntwo") == ["one", "\n", "two"]
