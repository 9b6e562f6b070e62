"""SQuAD's and CoNLL's files: what is written comes back, what is broken is told by its place, one file makes two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from gptcore.nlu import load_task, task_spec
from gptcore.nlu.place_metrics import entities
from gptcore.nlu.readers import Example, fitted
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


@pytest.mark.parametrize(
    ("paragraph", "message"),
    expected(__file__, "test_a_broken_question_is_told_by_its_place"),
)
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
    with pytest.raises(InputError, match=r"train-v1.1.json, line 2, column 2: found Expecting ',' delimiter"):
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


@pytest.mark.parametrize(
    ("text", "message"),
    expected(__file__, "test_a_broken_sentence_is_told_by_its_line"),
)
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
