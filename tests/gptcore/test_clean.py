"""Raw text to words: against a slow, plain twin made of the three original steps on the whole text."""

from __future__ import annotations

import itertools
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator

import ftfy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.text import clean as clean_module
from gptcore.text import spacy_words
from gptcore.text.clean import Repairs, clean, clean_stream, repair, split_clean, words
from gptcore.text.spacy_words import LineSplitter, Pieces, standardise
from tests.expected import expected
from tests.gptcore.reference_bpe import spacy_english, tokens
from tests.gptcore.reference_bpe import standardise as slow_standardise
from tests.realdata import real_data

# --- the slow twin ---------------------------------------------------------------------------------------------------


STRAIGHT = str.maketrans("\u02bc‘’‚‛“”„‟", "'''''" + '""""')


def slow_repair(text: str, segment: int = 1_000_000) -> str:
    return re.sub(r"[^\S\n]", " ", ftfy.fix_text(text, max_decode_length=segment))


def repaired(pieces: Iterable[str], repairs: Repairs | None = None) -> str:
    """The repaired text with straight quotes: the repair may leave curly ones, which are made straight afterwards."""
    return "".join(repair(pieces, repairs or Repairs())).translate(STRAIGHT).replace("\t", " ").replace("\x0c", " ")


def slow_words(text: str) -> list[str]:
    return ["\n" if token.isspace() else token for token in tokens(text)]


# --- texts that are likely to go wrong -------------------------------------------------------------------------------

PIECES = [
    *"abDOPXx0138.'\"-~!;?+,)(/*[]}{|_\\:=<>&#@%^$`",
    *["''", "''twas", "goin'", "goin", "'em", "'s", "'Cause", "Mr", "Mr.", "Ph.D.", "a.m.", "o.O", "8-D", ":D", ">.<"],
    *["<3", "don't", "cannot", "I'm", "and/or", "http://a.b/c?d=e", "x@y.com", "U.S.", "10km", "$5", "°C.", "<.<"],
    *["foo:D", "b=8D", "plains", "barrier", " letters ", "Twenty"],
    *["&amp;", "&lt;", "&#10;", "&#13;", "&#x0D;", "&NewLine;", "&#x1F600;", "&NTILDE;", "<b>", "&notanentity;"],
    *"“”‘’‚„ʼ—–―…´\u00a0éﬁŉΣİß漢字😀€£«»®�ùœ\u0085\u0092",
    *["ＡＢ", "e\u0301", "Ã©", "â€œ", "â€", "Ã\u00a0 la", "Â "],
    *" \t\n\r\x0b\x0c\x1c\x1f\u1680\u2003\u2028\u2029\u202f\u3000",
    *["  ", "\r\n", "\x00", "\x07", "\x1b[31m", "\x7f", "\ufeff", "\u200b", "\u200d", "\u206a", "\ufffc", "\U000e0067"],
    *"\ud83d\ude00",
]
texts = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=25).map("".join),
    st.lists(st.sampled_from(PIECES), max_size=25).map(" ".join),
    st.text(max_size=40),
)


def cut(text: str, places: list[int]) -> Iterator[str]:
    for start, end in itertools.pairwise([0, *sorted(place % (len(text) + 1) for place in places), len(text)]):
        yield text[start:end]


# --- exact words -----------------------------------------------------------------------------------------------------


@settings(max_examples=1500)
@given(texts)
def test_words_are_those_of_the_three_steps_on_the_whole_text(text: str) -> None:
    assert words(text) == slow_words(text)


@settings(max_examples=500)
@given(texts)
def test_cleaned_text_splits_back_into_the_words(text: str) -> None:
    assert split_clean(clean(text)) == words(text)
    assert all(word == "\n" or not re.search(r"\s", word) for word in words(text))
    assert "" not in words(text)


@settings(max_examples=500)
@given(texts)
def test_standardise_equals_the_literal_rules(text: str) -> None:
    assert standardise(text) == slow_standardise(text)


@settings(max_examples=500)
@given(texts, st.lists(st.integers(0, 10_000), max_size=6))
def test_words_do_not_depend_on_how_the_text_is_cut(text: str, places: list[int]) -> None:
    assert " ".join(clean_stream(cut(text, places))) == clean(text)
    assert repaired(cut(text, places)) == slow_repair(text)


@settings(max_examples=300)
@given(texts, st.lists(st.integers(0, 10_000), max_size=6))
def test_short_segments_and_long_lines_are_exact_too(text: str, places: list[int]) -> None:
    """Cuts change nothing, with ftfy's segments, long lines and the memory budget shrunk to the size of these texts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clean_module, "SEGMENT", 7)
        assert repaired(cut(text, places)) == repaired([text]) == slow_repair(text, 7)
        patch.undo()
        patch.setattr(clean_module, "LINE", 16)
        assert " ".join(clean_stream(cut(text, places))) == clean(text) == " ".join(slow_words(text))
        patch.setattr(clean_module, "SEGMENT", 9)  # now a line may have to be cut inside a word
        assert " ".join(clean_stream(cut(text, places))) == clean(text)


@settings(max_examples=500)
@given(texts)
def test_short_texts_as_columns_too(text: str) -> None:
    """What takes the way of long texts elsewhere: numbers of distinct pieces in place of a list."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spacy_words, "LONG", 1)
        assert " ".join(clean_stream([text])) == " ".join(slow_words(text))
        column = Pieces.of_clean(clean(text))
        assert list(column.counted().items()) == list(Counter(words(text)).items())
        assert column.joined(column.distinct) == clean(text)
        assert column.gathered(
            [np.array([len(piece), 7], np.int32).tobytes() for piece in column.distinct]
        ).tolist() == [number for word in words(text) for number in (len(word), 7)]


def test_many_lines_that_spacy_reads_whole() -> None:
    """Each with pieces of its own: the time grows with their number, not with its square."""
    text = "".join(f"plain words ''w{number} and''\n" for number in range(300))
    assert words(text) == slow_words(text)


def test_every_character_is_repaired_and_cut_as_python_has_it() -> None:
    """In long texts bytes are looked up: white space, signs, and what ftfy might change, wherever they stand."""
    signs = r'\-~!";?+,)(/*\[\]}{|_“”„‟—–―'
    pieces = re.compile(rf"\n+|[{signs}]+|[^\s{signs}]+")
    for start in (*range(0, 0x3800, 0x800), 0xD800, 0xF800, 0x1F000):  # no white space or sign is elsewhere
        text = "".join(f"a{character}b{character}\n" for character in map(chr, range(start, start + 0x800)))
        assert repaired([text]) == slow_repair(text)
        assert Pieces.of(slow_repair(text)).counted() == Counter(pieces.findall(slow_repair(text)))


@settings(max_examples=12)  # building spaCy's tokenizer anew takes 0.2 s
@given(st.lists(texts, max_size=8))
def test_forgetting_changes_nothing(lines: list[str]) -> None:
    small, large = LineSplitter(budget=2000), clean_module.splitter()
    for line in (" ".join(ftfy.fix_text(line).split()) for line in lines):
        assert small.words(line) == large.words(line)


def test_spacys_special_cases_are_searched_across_white_space() -> None:
    """The reason for the whole-line path: the words of a string may depend on its neighbour."""
    assert words("''twas") == ["''", "twas"]
    assert words("goin ''twas") == slow_words("goin ''twas") == ["goin", "'", "'", "twas"]
    assert words("goin\n''twas") == slow_words("goin\n''twas") == ["goin", "\n", "''", "twas"]


def test_letters_with_signs_around_them_are_what_spacy_says() -> None:
    """`_plain`: every combination of its signs around every special case's letters, and around others."""
    letters = {part for rule in spacy_english().tokenizer.rules for part in re.findall("[A-Za-zÀ-ÿ]+", rule)}
    letters |= {"word", "Word", "WORD", "wordS", "s", "S", "é", "Ünd", "naïve", "I"}
    lines = [
        f"{quote}{word}{possessive}{stop}{colon}{end}"
        for word in sorted(letters)
        for quote, possessive, stop, colon, end in itertools.product(
            ("", "'"), ("", "'s"), ("", "."), ("", ":"), ("", "'")
        )
    ]
    fresh = LineSplitter()
    assert [fresh.words(line) for line in lines] == [" ".join(slow_words(line)) for line in lines]


def test_every_special_case_alone_and_beside_letters() -> None:
    for rule in spacy_english().tokenizer.rules:
        for text in (rule, f"x{rule}", f"{rule}y", f"goin {rule}x", f"x{rule} s .", f"'{rule}."):
            assert words(text) == slow_words(text)


def test_no_special_case_reaches_across_a_plain_word() -> None:
    """`_PLAIN_WORD`: no special case of the installed spaCy has six letters behind another token."""
    behind = re.compile(r"(?<=[^A-Za-z])[A-Za-z]{6,}")
    assert not [rule for rule in spacy_english().tokenizer.rules if behind.search(rule)]


@pytest.mark.parametrize(("text", "expected"), expected(__file__, "test_words_of_known_texts"))
def test_words_of_known_texts(text: str, expected: list[str]) -> None:
    assert words(text) == expected == slow_words(text)


def test_huge_tokens_and_long_lines() -> None:
    token = "ab9" * 40_000
    assert words(f"x {token}, y") == ["x", token, ",", "y"]
    line = "some plain words and Mr. Smith's ''twas goin ''twas " * 4000  # 200 kB without a newline
    assert words(line) == slow_words(line)


def test_blank_runs_take_linear_time() -> None:
    assert words("a" + " " * 300_000 + "b" + " \n" * 150_000 + "c") == ["a", "b", "\n", "c"]


# --- ftfy ------------------------------------------------------------------------------------------------------------


def test_the_short_way_is_taken_only_where_ftfy_straightens_quotes_and_nothing_else() -> None:
    """Every sequence of three of the short way's characters, ASCII represented by its classes."""
    special = clean_module._QUOTES + clean_module._DASHES
    alphabet = special + "aZ0 .'\"\n\t\x0c#;_~"
    ascii_ = "".join(chr(code) for code in range(128) if not clean_module._odd(chr(code)))
    assert ftfy.fix_text(ascii_) == ascii_
    assert ftfy.fix_text(f"{ascii_}<&", unescape_html=False) == f"{ascii_}<&"
    for pair in itertools.product(alphabet, repeat=2):
        text = "".join(f"{first}{''.join(pair)}{last}" for first, last in itertools.product("aZ “”—", repeat=2))
        assert ftfy.fix_text(text) == text.translate(STRAIGHT)
        for third in special:
            assert not ftfy.is_bad("".join(pair) + third)


latin = st.characters(min_codepoint=0xA0, max_codepoint=0x17F)


@settings(max_examples=2000)
@given(st.lists(st.one_of(latin, st.sampled_from([*"aAe ,“”‘’—…\n\r", "\r\n"])), max_size=8).map("".join))
def test_accented_lines_are_repaired_as_ftfy_does(text: str) -> None:
    assert repaired([text]) == slow_repair(text)


@settings(max_examples=300)
@given(texts, st.lists(st.integers(0, 10_000), max_size=6))
def test_repairs_are_counted_alike_however_the_text_is_cut(text: str, places: list[int]) -> None:
    whole, parts = Repairs(), Repairs()
    assert repaired([text], whole) == repaired(cut(text, places), parts)
    assert whole == parts
    assert ftfy.fix_text(text) != text or whole.ftfy == 0


def test_line_ends_of_dos_take_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file of Project Gutenberg has them: ftfy itself, asked line by line, takes five times as long."""
    text = "“It’s a far, far better thing that I do,\r\nthan I have ever done; caf\xe9 —\r\n\r\nplain\r\n" * 3
    fixed = ftfy.fix_text(text)
    monkeypatch.delattr(ftfy, "fix_text")
    repairs = Repairs()
    assert (
        repaired(cut(text, [1, 43, 44, 45, 90]), repairs)
        == fixed
        == text.translate({ord("\r"): None, **dict.fromkeys(map(ord, "“”"), '"'), ord("’"): "'"})
    )
    assert repairs.ftfy == 3 * (2 + 4)


def test_repairs_are_counted() -> None:
    repairs = Repairs()
    list(clean_stream(["“It’s”\nplain\nÃ© \x07\n"], repairs))
    assert repairs == Repairs(ftfy=6)  # three quotes, two letters that became one, one bell


# --- memory and speed ------------------------------------------------------------------------------------------------


def test_memory_is_bounded() -> None:
    """12 MB in one document, full of new words, some of it without newlines, in a process of its own."""
    program = """
import random, resource
from gptcore.text.clean import clean, clean_stream
clean("warm up")
def chunks():
    draw = random.Random(0)
    fresh = iter(range(10**9))
    common = "the quick brown fox said “no” to Mr. Smith’s dog, and so forth. " * 8
    for i in range(600):
        new = " ".join(f"w{next(fresh):x}q" for _ in range(150))
        yield (common + new + (" " if i % 60 < 30 else "\\n")) * 12
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
size = sum(map(len, clean_stream(chunks())))
print(size, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    size, growth = map(int, run.stdout.split())
    assert size > 11_000_000
    assert growth < 200, f"{growth} MB more than at the start"


@pytest.mark.parametrize("threads", [False, True], ids=["alone", "beside a thread"])
def test_cleaning_leaves_torch_to_those_who_need_it(threads: bool) -> None:
    """Half of a cleaning process's start was torch, which spaCy imports where it can; who asks for it has it still."""
    program = (
        "import sys, threading; from gptcore.text.clean import words\n"
        "done = threading.Event()\n"
        f"if {threads}: threading.Thread(target=done.wait).start()\n"
        "print(words('Mr. Holmes'), 'torch' in sys.modules)\n"
        "import torch, spacy; print(torch.ones(2).sum().item(), spacy.blank('en')('Mr. Holmes')[0]); done.set()"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == [f"['mr.', 'holmes'] {threads}", "2.0 Mr."]


def test_a_real_book_cleans_exactly() -> None:
    book = real_data("books", "98-0.txt").read_text(encoding="utf-8-sig")
    expected = slow_words(book)
    assert words(book) == expected
    draw = random.Random(0)
    places = [draw.randrange(len(book)) for _ in range(50)]
    assert split_clean(" ".join(clean_stream(cut(book, places)))) == expected


def test_remembered_words_are_forgotten_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    original = spacy_words._tokenizers
    monkeypatch.setattr(spacy_words, "_tokenizers", lambda: built.append(1) or original())
    splitter = LineSplitter(budget=100_000)
    for start in range(0, 2000, 50):
        splitter.words(" ".join(f"new{number}" for number in range(start, start + 50)))
        assert len(splitter._known) < 100_000 / 220 + 50 + 2
    assert len(built) > 3
