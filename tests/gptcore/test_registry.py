"""The registry: pinned orders, published sizes and scores, and how small an entry stays."""

from __future__ import annotations

import inspect
import re

import pytest

from gptcore.errors import InputError
from gptcore.nlu import COLUMNS, REGISTRY, registry, task_spec
from gptcore.nlu.published import OURS, PUBLISHED
from tests.realdata import real_data


def test_names_and_columns() -> None:
    assert " ".join(REGISTRY) == "mnli snli scitail qnli rte storycloze race cola sst2 mrpc stsb qqp"
    expected = "mnli_m mnli_mm snli scitail qnli rte storycloze race_m race_h race cola sst2 mrpc stsb qqp"
    assert " ".join(COLUMNS) == expected


def test_an_entry_takes_at_most_25_lines() -> None:
    entries = re.findall(r"^    TaskSpec\(\n.*?^    \),\n", inspect.getsource(registry), flags=re.M | re.S)
    assert len(entries) == 12
    assert max(entry.count("\n") for entry in entries) <= 25


def test_label_orders_are_pinned() -> None:
    """A checkpoint's output layer means nothing under another order: changing one must be a decision."""
    three = ("entailment", "neutral", "contradiction")
    assert {name: spec.labels for name, spec in REGISTRY.items()} == {
        "mnli": three,
        "snli": three,
        "scitail": ("neutral", "entails"),
        "qnli": ("not_entailment", "entailment"),
        "rte": ("not_entailment", "entailment"),
        "storycloze": ("1", "2"),
        "race": ("A", "B", "C", "D"),
        "cola": ("0", "1"),
        "sst2": ("0", "1"),
        "mrpc": ("0", "1"),
        "qqp": ("0", "1"),
        "stsb": (),
    }
    assert {name: spec.n_outputs for name, spec in REGISTRY.items() if spec.n_outputs != len(spec.labels)} == {
        "storycloze": 1,
        "race": 1,
        "stsb": 6,
    }


def test_headlines_are_those_of_the_tables() -> None:
    others = {"cola": "matthews", "mrpc": "f1", "qqp": "f1", "stsb": "pearson"}
    assert {name: spec.headline for name, spec in REGISTRY.items()} == dict.fromkeys(REGISTRY, "accuracy") | others


def test_the_papers_own_rows() -> None:
    ours = {row.table: row.percent for row in PUBLISHED if row.method == OURS}
    assert ours == {
        2: {"mnli_m": 82.1, "mnli_mm": 81.4, "snli": 89.9, "scitail": 88.3, "qnli": 88.1, "rte": 56.0},
        3: {"storycloze": 86.5, "race_m": 62.9, "race_h": 57.4, "race": 59.0},
        4: {"cola": 45.4, "sst2": 91.3, "mrpc": 82.3, "stsb": 82.0, "qqp": 70.3},
    }
    assert {column for percent in ours.values() for column in percent} == set(COLUMNS)


def test_published_rows_stand_in_the_paper() -> None:
    (paper,) = (real_data("..") / "seeds").glob("001*")
    lines = [re.sub(r"<.*?>|\[\d+\]", "", line) for line in paper.read_text(encoding="utf-8").splitlines()]
    for row in PUBLISHED:
        scores = [f"{score:.1f}" for score in row.percent.values()]
        lines_with_method = [re.sub(r" +", " ", line) for line in lines if row.method.split(" (")[0] in line]
        assert any(all(score in line for score in scores) for line in lines_with_method), row
        assert set(row.percent) <= set(COLUMNS)
        assert row.split == "test"


def test_unknown_task() -> None:
    assert task_spec("rte") is REGISTRY["rte"]
    with pytest.raises(InputError, match=r"found 'SST-2', expected one of .* \(did you mean sst2\?\)"):
        task_spec("SST-2")
