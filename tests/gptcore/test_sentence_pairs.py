"""Sequences of two segments: what follows what, from where, how long, and the same whoever asks for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, chisquare

from gptcore.base.errors import InputError
from gptcore.base.files import read_json, write_json_atomic
from gptcore.config.training import PAIRS
from gptcore.data.sampler import IGNORE_INDEX
from gptcore.data.sentence_pairs import SentenceBatch, SentencePairs, SentenceTable
from gptcore.data.shards import Shards
from gptcore.text.spacy_words import split_sentences
from tests.expected import expected as table_of
from tests.gptcore.sentence_shards import CLS, FIRST, PAD, SEP, Documents, sentence_shards, table

documents_of = st.lists(st.lists(st.integers(0, 30), max_size=6), min_size=1, max_size=5)


def pairs_of(
    folder: Path, documents: Documents, pairs: str, length: int = 32, seed: int = 7, **changes: int
) -> SentencePairs:
    shards, _ = sentence_shards(folder, documents, **changes)
    return SentencePairs(shards, table(shards.n_vocab), length, pairs, seed)


def cut(batch: SentenceBatch) -> list[tuple[list[int], list[int], int]]:
    """Segments and label of each sequence, after a look at marks, segments and padding."""
    found = []
    for tokens, segments, mask, label in zip(batch.tokens, batch.segments, batch.mask, batch.labels, strict=True):
        n = int(mask.sum())
        assert (mask[:n] == 1).all()
        assert (tokens[n:] == PAD).all()
        assert not segments[n:].any()
        ids = tokens[:n].tolist()
        assert ids[0] == CLS
        assert ids[-1] == SEP
        border = ids.index(SEP)
        assert segments[:n].tolist() == [0] * (border + 1) + [1] * (n - border - 1)
        second = ids[border + 1 : -1] if border < n - 1 else []
        assert SEP not in second
        found.append((ids[1:border], second, int(label)))
    return found


def document(ids: list[list[list[int]]], token: int) -> int:
    return next(number for number, its in enumerate(ids) if any(token in sentence for sentence in its))


@pytest.mark.parametrize("pairs", PAIRS)
@given(documents_of, st.integers(8, 40), st.integers(0, 2**32), st.sampled_from([5, 50, 10**6]))
@settings(max_examples=60)
def test_segments_are_runs_of_consecutive_words(
    tmp_path_factory: pytest.TempPathFactory, pairs: str, documents: Documents, length: int, seed: int, max_tokens: int
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    shards, ids = sentence_shards(folder, documents, max_tokens)
    try:
        sampler = SentencePairs(shards, table(shards.n_vocab), length, pairs, seed)
    except InputError:
        rows = [[n for n in lengths if n] for lengths in documents]
        assert not any(rows) or pairs == "sop"
        return
    for first, second, label in cut(sampler.batch(np.arange(30))):
        assert first
        assert len(first) + len(second) + 2 + bool(second) <= length
        for segment in filter(None, (first, second)):
            assert segment == list(range(segment[0], segment[0] + len(segment)))
        if label == IGNORE_INDEX:
            assert pairs != "nsp"
        elif pairs == "sop":
            assert (first[0] > second[0]) == bool(label)
            assert document(ids, first[0]) == document(ids, second[0])
        elif label == 0:
            assert first[0] < second[0]
            assert document(ids, first[0]) == document(ids, second[0])
        elif sum(any(its) for its in documents) > 1:
            assert document(ids, first[0]) != document(ids, second[0])
        if pairs == "none" and second:
            assert second[0] == first[-1] + 1 or len(first) == length - 4


BOOKS = [[5, 9, 7, 3, 8, 6, 4, 11, 5, 6], [6, 6, 7, 9, 4, 5, 8, 8], [4, 12, 5, 7, 9, 3, 6, 5, 5, 6, 7]]


def test_a_sample_depends_on_nothing_but_seed_and_number(tmp_path: Path) -> None:
    one, other = pairs_of(tmp_path, BOOKS, "nsp"), pairs_of(tmp_path, BOOKS, "nsp", seed=8)
    numbers = np.arange(1000, 1050)
    whole = one.batch(numbers)
    backwards = [one.batch(numbers[[at]]).tokens[0].tolist() for at in reversed(range(50))]
    assert whole.tokens.tolist() == backwards[::-1]
    assert (
        whole.labels.tolist() == np.concatenate([one.batch(numbers[:7]).labels, one.batch(numbers[7:]).labels]).tolist()
    )
    assert whole.tokens.tolist() != other.batch(numbers).tokens.tolist()
    assert [one.document(int(n)) for n in numbers[:9]] == [
        f"d{document(sentence_shards(tmp_path, BOOKS)[1], int(row[1]))}" for row in whole.tokens[:9]
    ]


def test_half_of_the_second_segments_come_from_elsewhere(tmp_path: Path) -> None:
    found = cut(pairs_of(tmp_path, BOOKS, "nsp").batch(np.arange(3000)))
    random = sum(label for _, _, label in found)
    # A run of one sentence, of a short target, has no next one: one in a hundred here.
    assert binomtest(random, 3000, 0.505).pvalue > 1e-3
    followed = [(a, b) for a, b, label in found if not label]
    assert all(b[0] > a[-1] for a, b in followed)
    full = [a + b for a, b, label in found if len(a) + len(b) > 24]
    assert 0.8 < len(full) / 3000 < 0.95


def test_a_run_of_one_sentence_takes_a_random_next_one_and_has_no_order(tmp_path: Path) -> None:
    alone = [[9], [7], [8]]
    assert all(label == 1 for _, _, label in cut(pairs_of(tmp_path / "a", alone, "nsp").batch(np.arange(50))))
    with pytest.raises(InputError, match="no document with 2 sentences or more"):
        pairs_of(tmp_path / "b", alone, "sop")
    found = cut(pairs_of(tmp_path / "c", [*alone, [4, 5]], "sop").batch(np.arange(200)))
    assert {label for _, _, label in found} == {IGNORE_INDEX, 0, 1}
    assert all((label == IGNORE_INDEX) == (not second) for _, second, label in found)


def test_the_order_is_swapped_with_even_chances_and_nothing_is_lost(tmp_path: Path) -> None:
    found = cut(pairs_of(tmp_path, BOOKS, "sop", length=64).batch(np.arange(2000)))
    labels = [label for _, _, label in found]
    assert set(labels) == {0, 1}
    assert binomtest(sum(labels), 2000, 0.5).pvalue > 1e-3
    for first, second, label in found:
        before, after = (second, first) if label else (first, second)
        assert 1 <= after[0] - before[-1] <= 10  # tokens that truncation took between the two


def test_one_segment_in_ten_is_alone_and_the_others_are_cut_near_the_middle(tmp_path: Path) -> None:
    found = cut(pairs_of(tmp_path, [[3] * 400], "none", length=64).batch(np.arange(2000)))
    alone = [first for first, second, _ in found if not second]
    assert binomtest(len(alone), 2000, 0.1).pvalue > 1e-3
    lengths = [len(first) for first, second, _ in found if len(first) + len(second) > 58 and second]
    assert len(lengths) > 1600
    assert all(27 <= n <= 33 for n in lengths)


def test_every_sentence_is_drawn_and_long_ones_in_all_their_parts(tmp_path: Path) -> None:
    for pairs in PAIRS:
        # Of two sentences as long as a sequence each loses a half, so that their ends are hardly ever seen in order.
        documents = [[3, 4], [5], [6, 2], [14] * 3] if pairs == "sop" else [[3, 200, 4], [5], [6, 2], [40] * 3]
        sampler = pairs_of(tmp_path / pairs, documents, pairs)
        seen = {token for row in sampler.batch(np.arange(4000)).tokens for token in row.tolist()}
        assert set(range(FIRST, FIRST + sum(map(sum, documents)))) <= seen


def test_one_in_ten_sequences_is_short(tmp_path: Path) -> None:
    """A short sequence has a random target length from 2 on (original code), which one sentence may pass."""
    batch = pairs_of(tmp_path, [[1] * 3000], "sop", length=128).batch(np.arange(3000))
    lengths = batch.mask.sum(1)
    assert binomtest(int((lengths < 128).sum()), 3000, 0.1 * 123 / 124).pvalue > 1e-3
    short = lengths[lengths < 128] - 3
    assert short.min() >= 2
    assert chisquare(np.histogram(short, bins=4, range=(2, 124))[0]).pvalue > 1e-3


@pytest.mark.parametrize(("a", "b"), [(29, 5), (5, 29), (20, 20), (29, 29), (10, 25), (14, 14)])
def test_the_longer_segment_loses_at_either_end(tmp_path: Path, a: int, b: int) -> None:
    sampler = pairs_of(tmp_path, [[a, b]], "sop")
    expected = [a, b]
    while sum(expected) > 29:
        expected[0 if expected[0] > expected[1] else 1] -= 1  # plainly, token by token
    fronts = []
    for first, second, label in cut(sampler.batch(np.arange(400))):
        if label:
            continue
        assert [len(first), len(second)] == expected
        fronts.append(first[0] - FIRST + second[0] - FIRST - a)
    lost = a + b - sum(expected)
    assert np.mean(fronts) == pytest.approx(lost / 2, abs=4 * np.sqrt(lost / 4 / len(fronts)) + 1e-9)


def test_held_out_text_is_read_in_order_and_alike_for_every_seed(tmp_path: Path) -> None:
    samplers = [pairs_of(tmp_path, BOOKS, "none", seed=seed) for seed in (1, 2)]
    found = [[(n.tolist(), batch.tokens.tolist()) for n, batch in sampler.in_order(4)] for sampler in samplers]
    assert found[0] == found[1]
    numbers = [number for its, _ in found[0] for number in its]
    assert numbers == list(range(len(numbers)))
    firsts = [row[1] for _, batch in found[0] for row in batch]
    assert firsts == sorted(firsts)
    some = [batch.tokens[row].tolist() for _, batch in samplers[0].in_order(4, 70) for row in range(len(batch.tokens))]
    assert len(some) == 2
    everything = [row for _, batch in found[0] for row in batch]
    assert some == [everything[0], everything[len(everything) // 2]]


def test_the_draws_are_pinned(tmp_path: Path) -> None:
    """A resumed run, maybe under another numpy, must see the same sequences: these never change."""
    sampler = pairs_of(tmp_path, [[7] * 30, [5] * 40], "nsp", seed=42)
    batch = sampler.batch(np.array([0, 1, 10**12]))
    assert [(row[1], label) for row, label in zip(batch.tokens.tolist(), batch.labels.tolist(), strict=True)] == [
        (4, 1),
        (53, 0),
        (244, 1),
    ]


def test_places_of_a_token_are_those_that_a_look_at_each_row_finds(tmp_path: Path) -> None:
    documents = [[3, 4], [], [2], [], [0, 5], [1, 1, 1]]
    shards, _ = sentence_shards(tmp_path, documents, 7)
    index = read_json(tmp_path / "index.json")
    next(file for file in index["files"] if file["n_rows"] > 2)["skip"] = [1]
    write_json_atomic(tmp_path / "index.json", index)
    composed = Shards(tmp_path)
    assert composed.n_rows == shards.n_rows - 1
    for its in (shards, composed):
        rows, places = its.places_of(SEP)
        plainly = [(row, at) for row in range(its.n_rows) for at in np.flatnonzero(its.tokens(row) == SEP).tolist()]
        assert list(zip(rows.tolist(), places.tolist(), strict=True)) == plainly
        assert len(SentenceTable(its, SEP, 100).lengths) > 5
    assert composed.document_numbers.tolist() == sorted(composed.document_numbers.tolist())


def test_settings_out_of_range(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="sequences of 7 tokens"):
        pairs_of(tmp_path, BOOKS, "nsp", length=7)
    with pytest.raises(InputError, match="no document with 1 sentences or more"):
        pairs_of(tmp_path, [[], [0]], "nsp")


# --- where sentences end: at stops, not at abbreviations, at blank lines, and never with nothing in them


CASES = table_of(__file__, "CASES")


@pytest.mark.parametrize(("text", "expected"), CASES.items())
def test_sentences(text: str, expected: list[str]) -> None:
    assert list(split_sentences(text)) == expected


def test_what_spacy_knows_as_a_sentence_s_end_is_one_in_any_script() -> None:
    from spacy.pipeline import Sentencizer

    ends = [mark for mark in Sentencizer.default_punct_chars if mark <= "\uffff"]
    assert len(ends) > 60
    for end in (*ends, "\u037e", "\u0df4", "\u17d4", "\u0f0d"):
        first = f"\u0915\u0916 \u0917\u0918{end}"
        assert list(split_sentences(f"{first} {first}")) == [first, first], f"U+{ord(end):04X}"


@pytest.mark.parametrize(
    "word",
    [
        "\u10d0\u10d1",
        "\u0d05\u0d02",
        "\u049b\u0431\u049b",
        "\u0e01\u0e34",
        "\u13a0\u13a1",
        "\u0784\u07a6",
        "\U0001e922\U0001e923",
    ],
)
@pytest.mark.parametrize("stop", [".", "...", ".\u201d", "!", "?"])
def test_a_full_stop_ends_a_sentence_behind_letters_that_spacy_does_not_know(word: str, stop: str) -> None:
    """Georgian, Malayalam, Kazakh, Thai, Cherokee, Dhivehi and Fulani; an initial has one letter."""
    first = f"{word[0]}. {word} {word}.{word}{stop}"
    assert list(split_sentences(f"{first} {first}")) == [first, first]


def test_no_character_but_white_space_is_lost() -> None:
    text = "Who's there? Nobody... “Well,” she said; 3.5 miles (or so!) to go.\n\n— A. B. Smith\n" * 50
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())
    text = "यह एक है।दूसरा! 「はい。」と言った？！ (እሺ።) ３．５ [نعم؟] ...\n\n。\n" * 50
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


def test_spacy_comes_when_the_first_text_does_and_without_torch() -> None:
    code = (
        "import sys; from gptcore.text.spacy_words import split_sentences; assert 'spacy' not in sys.modules;"
        "list(split_sentences('A b. C d.')); assert 'spacy' in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
