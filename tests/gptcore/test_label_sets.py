"""Rows with any number of labels: their numbers, loss, metric and floors, Open Entity's files, a user's own, a job."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from gptcore.base.errors import InputError
from gptcore.machine import process
from gptcore.nlu import load_task
from gptcore.nlu.floors import bag_of_words, best_constant
from gptcore.nlu.forms import form_of
from gptcore.nlu.forms.labels import MOST_LABELS, as_number, as_numbers, from_number, from_numbers
from gptcore.nlu.inputs import encoded_labels
from gptcore.nlu.metrics import micro_f1, score, score_stderrs, stderrs_of_file
from gptcore.nlu.own_task import read_own_task
from gptcore.nlu.readers import Example, iterate
from gptcore.nlu.registry import task_spec
from gptcore.objectives.losses import label_loss, soft_label_loss
from gptcore.training import finetune
from tests.gptcore.test_own_task import put, read
from tests.gptcore.tiny_tasks import encoded, pretrained

SPEC = task_spec("openentity")
ROW: dict[str, Any] = {
    "annot_id": "x",
    "left_context_token": ["Then", "the"],
    "mention_span": "old king",
    "right_context_token": ["slept", "."],
    "y_str": ["king", "person", "entity"],
}
sets = st.sets(st.integers(0, MOST_LABELS - 1))


@given(st.lists(sets, max_size=5))
def test_a_set_is_one_number_and_back(rows: list[set[int]]) -> None:
    numbers = np.asarray([as_number(row) for row in rows], dtype=np.float64)
    assert [from_number(number) for number in numbers] == [sorted(row) for row in rows]
    members = from_numbers(numbers, MOST_LABELS)
    assert [set(np.flatnonzero(row).tolist()) for row in members] == rows
    assert np.array_equal(as_numbers(members), numbers)


@given(st.lists(st.tuples(st.sets(st.integers(0, 8)), st.sets(st.integers(0, 8))), min_size=1, max_size=30))
def test_micro_f1_is_scikit_learns(rows: list[tuple[set[int], set[int]]]) -> None:
    predicted, expected = (np.asarray([as_number(row[side]) for row in rows]) for side in (0, 1))
    theirs = f1_score(from_numbers(expected, 9), from_numbers(predicted, 9), average="micro", zero_division=0)
    assert micro_f1(predicted, expected) == pytest.approx(theirs)
    found = score(SPEC, predicted, expected)
    assert found["score"] == found["micro_f1"]
    assert found["accuracy"] == np.mean([mine == its for mine, its in rows])


def test_loss_and_predictions_label_by_label() -> None:
    draws = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 9, generator=draws)
    labels = encoded_labels(SPEC, [as_number({0, 8}), as_number([]), as_number({3}), as_number(range(9))])
    assert labels is not None
    assert labels.sum(dim=1).tolist() == [2, 0, 1, 9]
    chance = logits.sigmoid()
    plain = -(labels * chance.log() + (1 - labels) * (1 - chance).log()).mean()
    torch.testing.assert_close(label_loss(logits, labels), plain)
    teacher = torch.randn(4, 9, generator=draws)
    torch.testing.assert_close(soft_label_loss(logits, teacher, labels), label_loss(logits, teacher.sigmoid()))
    assert [from_number(number) for number in form_of(SPEC).predict(SPEC, logits.numpy())] == [
        [k for k in range(9) if row[k] > 0] for row in logits.tolist()
    ]
    answer = form_of(SPEC).described(SPEC, logits[0].numpy())
    assert answer["labels"] == [name for name, share in answer["probabilities"].items() if share > 0.5]
    assert answer["probabilities"]["time"] == pytest.approx(float(chance[0, 8]), abs=1e-5)


def written(folder: Path, rows: list[dict[str, Any]]) -> str:
    (folder / "OpenEntity/crowd").mkdir(parents=True, exist_ok=True)
    for split in ("train", "dev"):
        (folder / f"OpenEntity/crowd/{split}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)


def test_open_entitys_mention_is_marked_and_its_general_types_count(tmp_path: Path) -> None:
    url = written(tmp_path, [ROW, {**ROW, "left_context_token": [], "y_str": ["monarch"]}])
    first, second = load_task("openentity", url, "train")
    assert first.fields == ("Then the mention old king mention slept .",)
    assert first.label is not None
    assert [SPEC.labels[label] for label in from_number(first.label)] == ["entity", "person"]
    assert (second.fields, second.label) == (("mention old king mention slept .",), 0.0)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("y_str", "person", r"train\.json, line 2, column 'y_str': found 'person', expected a list of texts"),
        ("mention_span", " ", "column 'mention_span': found ' ', expected text that is not empty"),
        ("left_context_token", "Then", "column 'left_context_token': found 'Then', expected a list of words"),
        ("right_context_token", [3], r"column 'right_context_token': found \[3\], expected a list of words"),
    ],
)
def test_a_broken_row_names_its_place(tmp_path: Path, field: str, value: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        load_task("openentity", written(tmp_path, [ROW, {**ROW, field: value}]), "train")


# --- a user's own ----------------------------------------------------------------------------------------------------

OWN = [{"text": f"a letter {n}", "topics": [["tax"], ["tax", "pay"], []][n % 3]} for n in range(30)]
FIELDS = {"form": "labels", "fields": ["text"], "label": "topics"}


@pytest.mark.parametrize("ending", ["jsonl", "parquet", "csv", "tsv"])
def test_own_rows_with_any_number_of_labels(tmp_path: Path, ending: str) -> None:
    rows = OWN if ending in ("jsonl", "parquet") else [{**row, "topics": "; ".join(row["topics"])} for row in OWN]
    given = {**FIELDS, "format": ending, "train": f"train.{ending}", "dev": f"dev.{ending}"}
    task = read_own_task(put(tmp_path, given, rows))
    assert task.spec.labels == ("pay", "tax")
    assert task.spec.metrics == ("micro_f1", "accuracy")
    assert [row.label for row in read(task, "dev")] == [2.0, 3.0, 0.0] * 3


def test_labels_of_a_list_are_read_without_blanks_around_them(tmp_path: Path) -> None:
    rows = [{**row, "topics": [f" {topic} " for topic in row["topics"]]} for row in OWN]
    assert read_own_task(put(tmp_path, FIELDS, rows)).spec.labels == ("pay", "tax")
    (tmp_path / "null").mkdir()
    url = put(tmp_path / "null", FIELDS, [{**OWN[0], "topics": None}])
    with pytest.raises(InputError, match="found None, expected a list of labels, or text with semicolons"):
        read_own_task(url)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"labels": ["tax", "law"]}, r"column 'topics': found 'pay', expected some of tax, law"),
        ({"metrics": ["f1"]}, r"metrics = \['f1'\], expected some of micro_f1, accuracy"),
        ({"score_range": [0, 5]}, "score_range = .*no labels and no choices"),
        ({"fields": ["text", "topics"]}, "expected a list of one column"),
        (
            {"labels": [str(n) for n in range(MOST_LABELS + 1)]},
            f"found {MOST_LABELS + 1} .*expected 2 to {MOST_LABELS}",
        ),
        ({"dropped_labels": ["tax"]}, "dropped_labels = .*no label drops a row"),
        ({"prompt": {"question": "{0}?"}}, "prompt = .*a prompt has one answer"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    url = put(tmp_path, {**FIELDS, **changes}, OWN)
    with pytest.raises(InputError, match=words):
        list(iterate(read_own_task(url).spec, "", "train"))


# --- floors, standard errors, a job ----------------------------------------------------------------------------------


def test_words_tell_each_label_by_itself() -> None:
    words = {"king": 6, "river": 7}
    rows = [
        Example((" ".join([*names, "and", "so", "on"]),), (), as_number(words[name] for name in names), "", f"x:{n}")
        for n in range(60)
        for names in [[name for at, name in enumerate(words) if n >> at & 1]]
    ]
    assert bag_of_words(SPEC, rows[:40], rows[40:])["score"] == 1.0
    floor = best_constant(SPEC, [*rows[:40], *[rows[3]] * 20], rows[40:])
    assert floor["score"] == pytest.approx(2 / 3)  # both, of which half are there
    assert 0 < floor["score_stderr"] < 0.2


def test_the_best_constant_may_be_a_set_that_no_row_has() -> None:
    def best(n_labels: int, *sets: float) -> float:
        rows = [Example(("x",), (), each, "", "x:0") for each in sets]
        return best_constant(replace(SPEC, labels=SPEC.labels[:n_labels]), rows, rows)["score"]

    assert best(5, 3.0, 5.0, 9.0, 17.0) == pytest.approx(2 / 3)  # the one that all have
    assert best(2, 1.0, 2.0) == pytest.approx(2 / 3)  # all labels


def test_a_job_learns_them_and_its_file_says_them(tmp_path: Path) -> None:
    pretrained(tmp_path / "model")
    dataset = encoded(tmp_path, "openentity", n_train=160, n_dev=40)
    counts = json.loads((dataset / "meta.json").read_text())["splits"]["dev"]["labels"]
    assert counts.keys() == {"person", "place"}
    given = {
        "task": "openentity",
        "finetune": {"lr": 2e-2, "batch_size": 16, "epochs": 12, "lm_coef": 0.0, "precision": "float32"},
        "model": str(tmp_path / "model"),
        "dataset": str(dataset),
        "workspace": str(tmp_path / "work"),
        "threads": 1,
    }
    finetune.run(given, process.StopRequest())
    result = json.loads((tmp_path / "work/result.json").read_text())
    assert result["dev/score"] == result["dev/micro_f1"] > 0.9
    file = tmp_path / "work/predictions/dev.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    sizes = {len(row["label"]) for row in rows}
    assert sizes == {0, 1, 2}
    predicted, expected = (
        np.asarray([as_number(map(SPEC.labels.index, row[side])) for row in rows]) for side in ("prediction", "label")
    )
    assert score(SPEC, predicted, expected)["score"] == pytest.approx(result["dev/score"])
    assert stderrs_of_file(SPEC, file) == score_stderrs(SPEC, predicted, expected)
    file.write_text(json.dumps({**rows[0], "prediction": "person"}) + "\n")
    with pytest.raises(InputError, match="line 1: prediction: found 'person', expected a list of some of entity"):
        stderrs_of_file(SPEC, file)
