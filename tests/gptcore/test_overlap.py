"""How much of a test set stands in the training text, against a plain twin that keeps every 8-gram as words."""

from __future__ import annotations

import json
import random
import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from gptcore.evaluation import overlap as module
from gptcore.evaluation.overlap import (
    Overlap,
    build_set,
    find_in_corpus,
    find_in_texts,
    ngram_hashes,
    normalised,
    overlap,
    wanted_hashes,
)
from gptcore.papers.prompting.tasks import PROMPT_TASKS, PROMPTED, evaluation_texts, fingerprint
from gptcore.text.parts import Parts
from tests.realdata import real_data

texts = st.lists(st.sampled_from(["a", "b", "B,", "c d", "-", "don't"]), max_size=24).map(" ".join)


def plain_words(text: str) -> list[str]:
    """Letter by letter."""
    return "".join(letter if letter.isalnum() else " " for letter in text.lower()).split()


def grams(text: str) -> list[tuple[str, ...]]:
    words = plain_words(text)
    return [tuple(words[place : place + 8]) for place in range(len(words) - 7)]


def plain_overlap(rows: list[list[str]], documents: list[str]) -> Overlap:
    there = {gram for document in documents for gram in grams(document)}
    different = dict.fromkeys(text for row in rows for text in row)
    all_grams = [gram for text in different for gram in grams(text)]
    rows_found = sum(any(gram in there for text in row for gram in grams(text)) for row in rows)
    return Overlap(len(all_grams), sum(gram in there for gram in all_grams), len(rows), rows_found)


@settings(max_examples=150)
@given(
    st.lists(st.lists(st.lists(texts, max_size=2), max_size=4), min_size=1, max_size=3),
    st.lists(st.lists(texts, max_size=4), max_size=4),
    st.sampled_from([1, 9, 1 << 16]),
)
def test_what_is_found_is_what_a_plain_twin_finds(
    sets: list[list[list[str]]], documents: list[list[str]], buffer: int
) -> None:
    built = [build_set(str(number), rows) for number, rows in enumerate(sets)]
    wanted = wanted_hashes(built)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BUFFER", buffer)
        found = find_in_texts(wanted, documents)
    whole = [" ".join(pieces) for pieces in documents]
    assert [overlap(each, wanted, found) for each in built] == [plain_overlap(rows, whole) for rows in sets]


@pytest.mark.parametrize("buffer", [1, 8, 9, 1 << 16])
def test_an_8_gram_over_the_border_of_pieces_is_found(buffer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BUFFER", buffer)
    words = [f"w{number}" for number in range(30)]
    test = build_set("made", [[" ".join(words)]])
    wanted = wanted_hashes([test])
    assert overlap(test, wanted, find_in_texts(wanted, [words])) == Overlap(23, 23, 1, 1)
    assert overlap(test, wanted, find_in_texts(wanted, [[word] for word in words])).found == 0


def test_words_are_lower_cased_and_alphanumeric_with_single_spaces() -> None:
    """GPT-2's paper, section 4."""
    assert normalised("The  CAT_sat,\non (2) mats\u2014\u00c9t\u00e9!") == "the cat sat on 2 mats \u00e9t\u00e9"
    assert normalised("e\u0301te\u0301 \u0939\u093f\u0928\u094d\u0926\u0940") == "\u00e9t\u00e9 \u0939\u0928\u0926"
    assert normalised("\u1112\u1161\u11ab \u1103\u1161") == "\ud55c \ub2e4"  # Hangul as macOS spells it
    assert normalised("\uff76\uff85 \u1b13\u1b44") == "\uff76 \uff85 \u1b13"
    assert normalised("\u4ed6\u6765\u4e86\u3002ok") == "\u4ed6 \u6765 \u4e86 ok"
    assert normalised("") == normalised(" ... ") == ""


def test_a_tokenised_text_has_the_words_of_running_text() -> None:
    running = "\"I don't know,\" she can't and cannot say, it's John's; they're gonna."
    tokenised = "\" i do n't know , \" she ca n't and can not say , it 's john 's ; they 're gon na ."
    assert normalised(tokenised) == normalised(running)


@given(st.lists(st.text(alphabet="ab", min_size=1, max_size=3), max_size=40))
def test_equal_hashes_are_equal_8_grams(words: list[str]) -> None:
    hashes = ngram_hashes(words).tolist()
    plain = [tuple(words[place : place + 8]) for place in range(len(words) - 7)]
    assert len(hashes) == len(plain)
    assert len(set(hashes)) == len(set(plain)) == len(set(zip(hashes, plain, strict=True)))


def test_orders_of_the_same_words_have_hashes_of_their_own() -> None:
    words = [f"w{number}" for number in range(8)]
    rng = random.Random(0)
    orders = {tuple(rng.sample(words, 8)) for _ in range(20_000)}
    assert len({int(ngram_hashes(order)[0]) for order in orders}) == len(orders)


def corpus(folder: Path, documents: list[list[str]], per_part: int = 2) -> list[Path]:
    """Parts of a cleaned corpus."""
    for first in range(0, len(documents), per_part):
        parts = Parts(folder, f"part-{first // per_part:05d}.arrow")
        for number, rows in enumerate(documents[first : first + per_part], start=first):
            parts.write("train", f"{number:064x}", f"{number}.txt", rows)
        parts.close()
    return sorted((folder / "train").glob("part-*.arrow"))


def test_a_corpus_of_several_parts_is_the_sum_of_them(tmp_path: Path) -> None:
    rng = random.Random(1)
    documents = [[" ".join(rng.choices("abc", k=40)) for _ in range(3)] for _ in range(5)]
    rows = [[" ".join(rng.choices("abc", k=20))] for _ in range(30)]
    test, parts = build_set("made", rows), corpus(tmp_path, documents)
    assert len(parts) == 3
    wanted = wanted_hashes([test])
    seen: list[tuple[int, int]] = []
    found = find_in_corpus(wanted, parts, tmp_path, progress=lambda done, of: seen.append((done, of)))
    expected = plain_overlap(rows, [" ".join(document) for document in documents])
    assert 0 < expected.found < expected.ngrams
    assert overlap(test, wanted, found) == expected
    assert (Overlap(8, 2, 1, 1).share, Overlap(0, 0, 1, 0).share) == (0.25, 0.0)
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert not list(tmp_path.glob("*.npy"))


def test_memory_does_not_grow_with_the_corpus() -> None:
    wanted = wanted_hashes([build_set("made", [["a b c d e f g h i"]])])

    def peak(pieces: int) -> int:
        tracemalloc.start()
        try:
            found = find_in_texts(wanted, [("x y z " * 20_000 for _ in range(pieces))])
            assert not found.any()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1)  # what is imported, and remembered of words
    assert peak(40) < 1.5 * peak(4)


# --- the test sets of a folder ---


def test_every_prompt_task_is_counted_once() -> None:
    files = {(task.folder, name if task.folder in ("CBT", "Games") else "") for name, task in PROMPT_TASKS.items()}
    twelve = {(task.folder, "") for name, task in list(PROMPT_TASKS.items())[:12]}
    counted = {
        (PROMPT_TASKS[name].folder, name if PROMPT_TASKS[name].folder in ("CBT", "Games") else "") for name in PROMPTED
    }
    assert counted == files - twelve
    assert len(PROMPTED) == len(counted)


def test_texts_of_a_set_are_those_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "LAMBADA").mkdir()
    (tmp_path / "LAMBADA" / "lambada_test_plain_text.txt").write_text("he took the cake\n")
    (tmp_path / "SQuAD").mkdir()
    asked = {"id": "1", "question": "Who led?", "answers": [{"text": "Rollo", "answer_start": 0}]}
    paragraph = {"context": "Rollo led the Normans.", "qas": [asked]}
    (tmp_path / "SQuAD" / "dev-v1.1.json").write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    (tmp_path / "RTE").mkdir()
    for split, label in (("train", "entailment"), ("dev", "not_entailment")):
        rows = f"index\tsentence1\tsentence2\tlabel\n0\tPremise of {split}.\tHypothesis.\t{label}\n"
        (tmp_path / "RTE" / f"{split}.tsv").write_text(rows)
    found = {each.name: each for each in evaluation_texts(str(tmp_path))}
    assert {name: list(each.rows()) for name, each in found.items()} == {
        "rte dev": [("Premise of dev.", "Hypothesis.")],
        "lambada": [("he took the cake",)],
        "squad": [("Rollo led the Normans.", "Who led?", "Rollo")],
    }
    assert [name for name, each in found.items() if each.train is None] == ["lambada", "squad"]
    train = found["rte dev"].train
    assert list(train()) == [("Premise of train.", "Hypothesis.")]
    before = fingerprint(str(tmp_path))
    (tmp_path / "LAMBADA" / "lambada_test_plain_text.txt").write_text("he took the bread\n")
    assert fingerprint(str(tmp_path)) != before
    with pytest.raises(InputError, match="found no test set there"):
        evaluation_texts(str(tmp_path / "RTE"))


def test_a_real_sentence_is_found_in_the_book_that_has_it() -> None:
    folder = real_data("books")
    text = (folder / "Cbronte_Jane_1847.txt").read_text(encoding="utf-8-sig")
    words = re.findall(r"[^\W_]+", text.lower())
    start = len(words) // 2
    there, not_there = " ".join(words[start : start + 30]), " ".join(words[start + 30 : start : -1])
    test = build_set("made", [[there], [not_there], [f"{there} {not_there}"]])
    wanted = wanted_hashes([test])
    counted = overlap(test, wanted, find_in_texts(wanted, [[text]]))
    assert counted == plain_overlap([[there], [not_there], [f"{there} {not_there}"]], [text])
    assert counted.rows_found == 2
    assert np.all(np.diff(wanted.astype(object)) > 0)
