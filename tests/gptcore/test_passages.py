"""SQuAD's and CoNLL's files, official numbers beside plain twins, thresholds, standard errors, baselines of words."""

from __future__ import annotations

import json
import math
import string
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from gptcore.nlu import floors, load_task, task_spec
from gptcore.nlu.floors import answer_by_words, commonest_answer, outside_alone, tags_by_phrases
from gptcore.nlu.metrics import stderrs_of_file
from gptcore.nlu.place_metrics import (
    best_threshold,
    entities,
    entity_scores,
    exact_match,
    normalised_answer,
    span_scores,
    token_f1,
)
from gptcore.nlu.readers import Annotation, Example, fitted
from gptcore.nlu.readers.tagged import tagged_example
from gptcore.nlu.registry import recorded_task, task_settings
from tests.expected import expected
from tests.realdata import real_data

KINDS = ("LOC", "MISC", "ORG", "PER")
texts = st.text(st.sampled_from("abc é. "), min_size=1, max_size=30).filter(str.strip)


def squad(folder: Path, paragraphs: list[dict[str, Any]], name: str = "train-v1.1.json", title: str = "") -> str:
    (folder / "SQuAD").mkdir(parents=True, exist_ok=True)
    data = {"version": "x", "data": [{"title": title, "paragraphs": paragraphs}]}
    (folder / "SQuAD" / name).write_text(json.dumps(data), encoding="utf-8")
    return str(folder)


def question(number: int, passage: str, start: int, end: int, **changes: Any) -> dict[str, Any]:
    answer = {"text": passage[start:end], "answer_start": start}
    return {"id": f"q{number}", "question": "who?", "answers": [answer], **changes}


def read(folder: str, task: str = "squad", split: str = "train") -> list[Example]:
    return load_task(task, folder, split)


@settings(max_examples=40)
@given(st.data())
def test_what_a_squad_file_holds_comes_back(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("squad")
    paragraphs, expected = [], []
    for number in range(data.draw(st.integers(1, 3))):
        passage = data.draw(texts)
        places = st.tuples(st.integers(0, len(passage) - 1), st.integers(1, len(passage)))
        start, end = data.draw(
            places.filter(lambda place, of=passage: place[0] < place[1] and of[slice(*place)].strip())
        )
        paragraphs.append({"context": passage, "qas": [question(number, passage, start, end)]})
        expected.append((passage, passage[start:end], f"q{number}"))
    for name in ("train-v1.1.json", "dev-v1.1.json"):
        squad(folder, paragraphs, name)
    found = read(str(folder))
    assert [
        (row.fields[1], row.fields[1][a.start : a.end], row.id) for row in found for a in row.annotations
    ] == expected
    assert {row.label for row in found} == {0.0}
    assert found[0].row == "SQuAD/train-v1.1.json:article 1, passage 1, question 1"


PASSAGE = "Anna went to Rome."
GOOD = question(1, PASSAGE, 0, 4)


@pytest.mark.parametrize(("paragraph", "message"), expected(__file__, "test_a_broken_question_is_told_by_its_place"))
def test_a_broken_question_is_told_by_its_place(tmp_path: Path, paragraph: dict[str, Any], message: str) -> None:
    folder = squad(tmp_path, [paragraph])
    squad(tmp_path, [paragraph], "dev-v1.1.json")
    with pytest.raises(InputError, match=message) as caught:
        read(folder)
    assert "train-v1.1.json" in str(caught.value)


def test_a_file_that_is_no_json_is_told_with_its_line(tmp_path: Path) -> None:
    folder = squad(tmp_path, [])
    for name in ("train-v1.1.json", "dev-v1.1.json"):
        (tmp_path / "SQuAD" / name).write_text('{"data": [\n]', encoding="utf-8")
    with pytest.raises(InputError, match=r"train-v1.1.json, line 2, column 2: found .*, expected a comma, or the end"):
        read(folder)


def test_questions_without_an_answer_are_version_twos(tmp_path: Path) -> None:
    none = {**GOOD, "id": "q2", "answers": [], "is_impossible": True}
    for name in ("train-v2.0.json", "dev-v2.0.json"):
        squad(tmp_path, [{"context": PASSAGE, "qas": [GOOD, none]}], name)
    assert [(row.label, len(row.annotations)) for row in read(str(tmp_path), "squad2")] == [(1.0, 1), (0.0, 0)]


def test_one_file_makes_train_and_dev_and_says_so(tmp_path: Path) -> None:
    """All questions of a passage are on one side, and the recorded task reads the same."""
    paragraphs = [
        {"context": f"{PASSAGE} {n}", "qas": [question(10 * n + k, PASSAGE, 0, 4) for k in range(3)]} for n in range(12)
    ]
    folder = squad(tmp_path, paragraphs, "dev-v2.0.json")
    train, dev = (read(folder, "squad2", split) for split in ("train", "dev"))
    assert len(train) + len(dev) == 36
    assert len(dev) == 9
    assert not {row.fields[1] for row in train} & {row.fields[1] for row in dev}
    spec = fitted(task_spec("squad2"), folder)
    assert spec.note == "train-v2.0.json is not there, so train and dev rows are cut from dev-v2.0.json"
    again = recorded_task(task_settings(spec))
    assert (again.splits, again.holdout) == (spec.splits, spec.holdout)
    squad(tmp_path, paragraphs, "train-v2.0.json")
    assert fitted(task_spec("squad2"), folder) is task_spec("squad2")


# --- CoNLL


def conll(folder: Path, text: str) -> str:
    (folder / "CoNLL2003").mkdir(parents=True, exist_ok=True)
    for name in ("eng.train", "eng.testa"):
        (folder / "CoNLL2003" / name).write_text(text, encoding="utf-8")
    return str(folder)


spans = st.lists(st.tuples(st.sampled_from(("O", *KINDS)), st.integers(1, 3)), min_size=1, max_size=8)


def tagged(parts: list[tuple[str, int]], scheme: str) -> list[str]:
    """The tags of parts of a sentence: IOB2 begins each entity with B, IOB1 only one behind another of its kind."""
    tags: list[str] = []
    before = ""
    for kind, length in parts:
        if kind == "O":
            tags += ["O"] * length
        else:
            first = "B" if scheme == "IOB2" or before == kind else "I"
            tags += [f"{first}-{kind}", *[f"I-{kind}"] * (length - 1)]
        before = kind
    return tags


@settings(max_examples=60)
@given(st.lists(spans, min_size=1, max_size=4), st.sampled_from(["IOB1", "IOB2"]))
def test_both_schemes_come_out_in_iob2(
    tmp_path_factory: pytest.TempPathFactory, sentences: list[list[tuple[str, int]]], scheme: str
) -> None:
    blocks = ["\n".join(f"w{n} X O {tag}" for n, tag in enumerate(tagged(parts, scheme))) for parts in sentences]
    folder = conll(tmp_path_factory.mktemp("conll"), "-DOCSTART- -X- O O\n\n" + "\n\n".join(blocks) + "\n")
    found = load_task("conll2003", folder, "train")
    assert [[word.name for word in row.annotations] for row in found] == [tagged(p, "IOB2") for p in sentences]
    for row in found:
        words = [row.fields[0][word.start : word.end] for word in row.annotations]
        assert words == row.fields[0].split() == [f"w{n}" for n in range(len(words))]


@pytest.mark.parametrize(("text", "message"), expected(__file__, "test_a_broken_sentence_is_told_by_its_line"))
def test_a_broken_sentence_is_told_by_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_task("conll2003", conll(tmp_path, text), "train")


def test_the_public_files_have_the_published_numbers() -> None:
    datasets = real_data("CoNLL2003").parent
    train, dev = (load_task("conll2003", str(datasets), split) for split in ("train", "dev"))
    assert (len(train), len(dev)) == (14_041, 3250)  # the shared task's Table 2
    assert sum(len(entities([word.name for word in row.annotations])) for row in dev) == 5942
    assert len(load_task("squad2", str(datasets), "dev")) + len(load_task("squad2", str(datasets), "train")) == 6078
    assert len(load_task("swag", str(datasets), "train")) == 400


words = st.lists(st.sampled_from(["the", "a", "An", "king", "King", "king's", "rome", "é", "!", "12", ""]), max_size=6)
answers = words.map(" ".join)


def plain_normal(text: str) -> list[str]:
    """The words that are compared, letter by letter: no marks, then no articles."""
    bare = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return [word for word in bare.split() if word not in ("a", "an", "the")]


def plain_f1(prediction: str, gold: str, may_lack: bool) -> float:
    ours, left = plain_normal(prediction), plain_normal(gold)
    if may_lack and (not ours or not left):
        return float(ours == left)
    n_ours, n_gold, shared = len(ours), len(left), 0
    for word in ours:
        if word in left:
            left.remove(word)
            shared += 1
    if not shared:
        return 0.0
    precision, recall = shared / n_ours, shared / n_gold
    return 2 * precision * recall / (precision + recall)


@given(answers, st.lists(answers, min_size=1, max_size=3), st.booleans())
def test_answers_count_as_in_the_official_scripts(prediction: str, golds: list[str], may_lack: bool) -> None:
    kept = [gold for gold in golds if plain_normal(gold) or not may_lack] or [""]
    assert normalised_answer(prediction) == " ".join(plain_normal(prediction))
    exact = max(plain_normal(prediction) == plain_normal(gold) for gold in kept)
    assert exact_match(prediction, golds, may_lack) == exact
    f1 = max(plain_f1(prediction, gold, may_lack) for gold in kept)
    assert token_f1(prediction, golds, may_lack) == pytest.approx(f1)


def test_traps_of_answers() -> None:
    assert exact_match("", [], True) == token_f1("", ["the"], True) == 1.0
    assert exact_match("Rome", [], True) == token_f1("", ["Rome"], True) == 0.0
    assert (exact_match("The", ["A", "cat"], False), token_f1("The", ["A", "cat"], False)) == (1.0, 0.0), "version 1.1"
    assert (exact_match("The", ["A", "cat"], True), token_f1("The", ["A", "cat"], True)) == (0.0, 0.0), "version 2.0"
    assert exact_match("The King's.", ["kings"], False) == 1.0
    assert token_f1("king king", ["king"], False) == pytest.approx(2 / 3)
    assert exact_match("king", [], False) == token_f1("king", [], False) == 0.0
    found = span_scores(["Rome", "", "x"], [["Rome"], [], []], True)
    assert found == {"span_f1": 2 / 3, "exact_match": 2 / 3, "has_answer_f1": 1.0, "no_answer_accuracy": 0.5}
    assert span_scores(["Rome"], [["Rome", "a city"]], False) == {"span_f1": 1.0, "exact_match": 1.0}
    with pytest.raises(ValueError, match="no questions"):
        span_scores([], [], True)


rows = st.lists(
    st.tuples(
        st.sampled_from([-2.0, -1.0, 0.0, 0.5, 3.0]), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 1.0])
    ),
    min_size=1,
    max_size=12,
)


@given(rows)
def test_the_threshold_is_the_best_of_all(given_rows: list[tuple[float, float, float]]) -> None:
    no_answer, answered, unanswered = map(np.asarray, zip(*given_rows, strict=True))

    def worth(threshold: float) -> float:
        return float(np.mean(np.where(no_answer > threshold, unanswered, answered)))

    threshold, score = best_threshold(no_answer, answered, unanswered)
    assert score == pytest.approx(worth(threshold))
    assert score == pytest.approx(max(map(worth, [-9.0, *no_answer])))
    none = float(np.nextafter(no_answer.min(), -np.inf))
    assert threshold == min(each for each in [none, *no_answer] if worth(each) == pytest.approx(score))


# --- entities

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def plain_entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """conlleval's two questions at each word: does a chunk end before it, does one begin at it?"""
    found, start = set(), None
    before, kind_before = "O", ""
    for at, tag in enumerate([*tags, "O"]):
        now, _, kind = tag.partition("-")
        ends = before != "O" and (now in "OB" or kind != kind_before)
        begins = now != "O" and (now == "B" or before == "O" or kind != kind_before)
        if ends and start is not None:
            found.add((kind_before, start, at))
            start = None
        if begins:
            start = at
        before, kind_before = now, kind
    return found


@given(st.lists(st.sampled_from(TAGS), max_size=10))
def test_entities_are_conllevals(tags: list[str]) -> None:
    assert entities(tags) == plain_entities(tags)


def test_numbers_of_entities() -> None:
    gold = [["B-PER", "I-PER", "O"], ["B-LOC", "B-LOC", "O"], ["O"]]
    predicted = [["B-PER", "I-PER", "O"], ["B-LOC", "I-LOC", "B-ORG"], ["I-PER"]]
    parts = {"entity_precision": 1 / 4, "entity_recall": 1 / 3, "entity_f1": 2 / 7}
    found = entity_scores(predicted, gold)
    assert found == pytest.approx({**parts, "entity_f1 LOC": 0.0, "entity_f1 PER": 2 / 3})
    assert list(found)[3:] == ["entity_f1 LOC", "entity_f1 PER"]
    assert entity_scores([["O"]], [["O"]]) == {"entity_f1": 0.0, "entity_precision": 0.0, "entity_recall": 0.0}
    assert entity_scores([["O"]], [["B-PER"]])["entity_f1"] == 0.0
    with pytest.raises(ValueError, match="1 tags for 2 words"):
        entity_scores([["O"]], [["O", "O"]])


# --- standard errors


def written(path: Path, lines: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps({"row": "r", **line}) + "\n" for line in lines), encoding="utf-8")
    return path


def test_standard_errors_of_predictions(tmp_path: Path) -> None:
    values = [0.0, 1.0, 0.5, 1.0] * 25
    spans = [{"label": ["x"], "prediction": "x", "span_f1": v, "exact_match": v} for v in values]
    found = stderrs_of_file(task_spec("squad"), written(tmp_path / "spans.jsonl", [*spans, {"label": None}]))
    assert found["score_stderr"] == pytest.approx(np.std(values) / 10)
    right, wrong = {"label": ["B-PER"], "prediction": ["B-PER"]}, {"label": ["B-PER"], "prediction": ["O"]}
    tags = written(tmp_path / "tags.jsonl", [right, wrong] * 200)
    rng = np.random.default_rng(1)
    draws = rng.binomial(400, 0.5, 4000)  # right ones of 400 entities, of which only these are predicted
    expected = np.std(2 * draws / (draws + 400))
    assert stderrs_of_file(task_spec("conll2003"), tags)["score_stderr"] == pytest.approx(expected, rel=0.1)


# --- baselines


def asked(question: str, passage: str, answer: str = "") -> Example:
    start = passage.find(answer)
    places = (Annotation(start, start + len(answer)),) if answer else ()
    return Example((question, passage), (), float(bool(answer)), "", "row", places)


def test_words_alone_find_the_sentence_and_know_when_nothing_is_shared() -> None:
    passage = "Anna has the red hat. Bert sold seven boats. The mill is old."
    train = [
        asked("Who sold boats?", passage, "seven"),
        asked("Who has the hat?", passage, "Anna"),
        asked("Where is Zoe?", "Carl sleeps. Dora sings."),
    ]
    spec = task_spec("squad2")
    assert answer_by_words(spec, train, train)["score"] == pytest.approx(2 / 3)  # Bert, not seven: of equals the first
    assert commonest_answer(spec, train, train)["score"] == pytest.approx(1 / 3)
    assert commonest_answer(task_spec("squad"), train[:2], train[:1])["score"] == 1.0
    rare = [*train[:2], *[asked("Who?", "Bert saw Anna.", "Bert")] * 2]  # which of two answers: the commoner one
    assert commonest_answer(task_spec("squad"), rare, [asked("Who?", "Anna, Bert.", "Bert")])["score"] == 1.0
    assert commonest_answer(task_spec("squad"), rare, [asked("Who?", "Carl.", "Carl")])["score"] == 0.0
    many = [asked("Who?", f"<{n}>", f"<{n}>") for n in range(1001)]  # of equals the first thousand
    assert commonest_answer(task_spec("squad"), many, many[998:])["score"] == pytest.approx(2 / 3)


def test_where_every_question_has_an_answer_one_is_given_and_counts_by_version_ones_rules() -> None:
    spec, bert = task_spec("squad"), asked("Who?", "Bert", "Bert")
    assert answer_by_words(spec, [asked("x?", "a b c d e f g", "g")], [bert])["score"] == 1.0  # none would do as well
    two = replace(bert, fields=("Who?", "A cat"), annotations=(Annotation(0, 1), Annotation(2, 5)))
    assert commonest_answer(spec, [two], [two])["exact_match"] == 1.0


@pytest.mark.parametrize(("question", "passage", "answer", "shared"), expected(__file__, "test_an_answer_by_words"))
def test_an_answer_by_words(question: str, passage: str, answer: str, shared: float) -> None:
    """The first of equal sentences, and of equal runs, is chosen; a run ends after five words, or at a mark."""
    weights = {"sold": 2.0, "rare": 5.0}
    assert floors._by_words(asked(question, passage), lambda word: weights.get(word, 1.0)) == (answer, shared)


def test_words_weigh_by_the_passages_that_have_them() -> None:
    weight = floors._word_weights({"a b a", "A c"}, floors._words_of)
    assert [weight(word) for word in "abz"] == pytest.approx([0.0, math.log(3 / 2), math.log(3)])


def test_tags_of_known_phrases_the_longest_first() -> None:
    spec = task_spec("conll2003")
    train = [
        tagged_example(["New", "York"], ["B-LOC", "I-LOC"], "", "r", 0.0),
        tagged_example(["York"], ["B-PER"], "", "r", 0.0),
        tagged_example(["Anna"], ["B-PER"], "", "r", 0.0),
        tagged_example(["Turin"], ["B-ORG"], "", "r", 0.0),
        tagged_example(["Turin", "Paris"], ["B-LOC", "B-LOC"], "", "r", 0.0),
        *[tagged_example(["Paris"], [tag], "", "r", 0.0) for tag in ("B-LOC", "B-ORG", "B-ORG", "B-ORG")],
    ]
    words = ["Anna", "saw", "New", "York", "Turin", "Paris", "York"]  # Turin: of equals the first by name
    tags = ["B-PER", "O", "B-LOC", "I-LOC", "B-LOC", "B-ORG", "B-PER"]
    dev = [tagged_example(words, tags, "", "r", 0.0)]
    assert tags_by_phrases(spec, train, dev)["score"] == 1.0
    assert outside_alone(spec, train, dev)["score"] == 0.0


def test_the_shared_tasks_baseline_has_its_published_score() -> None:
    folder = str(real_data("CoNLL2003").parent)
    found = tags_by_phrases(
        task_spec("conll2003"), *(load_task("conll2003", folder, split) for split in ("train", "dev"))
    )
    assert [round(100 * found[f"entity_{name}"], 2) for name in ("precision", "recall", "f1")] == [78.33, 65.23, 71.18]
