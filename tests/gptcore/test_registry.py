"""The registry: pinned orders, published sizes and scores, and how small an entry stays."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gptcore.base.errors import InputError
from gptcore.nlu import COLUMNS, REGISTRY, registry, task_spec
from gptcore.nlu.forms import form_of


def test_names_and_columns() -> None:
    assert " ".join(REGISTRY) == "mnli snli scitail qnli rte storycloze race cola sst2 mrpc stsb qqp"
    expected = "mnli_m mnli_mm snli scitail qnli rte storycloze race_m race_h race cola sst2 mrpc stsb qqp"
    assert " ".join(COLUMNS) == expected


def test_an_entry_takes_at_most_25_lines() -> None:
    source = Path(registry.__file__).with_name("tasks.toml").read_text(encoding="utf-8")
    entries = re.findall(r"^\[\[\w+\]\]\n.+?(?=\n\n|\Z)", source, flags=re.M | re.S)
    assert len(entries) == 12 + len(registry.BEYOND)
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
    assert {
        name: form_of(spec).n_outputs(spec)
        for name, spec in REGISTRY.items()
        if form_of(spec).n_outputs(spec) != len(spec.labels)
    } == {
        "storycloze": 1,
        "race": 1,
        "stsb": 6,
    }


def test_headlines_are_those_of_the_tables() -> None:
    others = {"cola": "matthews", "mrpc": "f1", "qqp": "f1", "stsb": "pearson"}
    assert {name: spec.headline for name, spec in REGISTRY.items()} == dict.fromkeys(REGISTRY, "accuracy") | others


def test_small_sets_run_with_several_seeds() -> None:
    assert {name for name, spec in REGISTRY.items() if spec.seeds == 5} == {"rte", "mrpc", "cola", "stsb", "storycloze"}
    assert {spec.seeds for spec in REGISTRY.values()} == {1, 5}


def test_unknown_task() -> None:
    assert task_spec("rte") is REGISTRY["rte"]
    with pytest.raises(InputError, match=r"found 'SST-2', expected one of .* \(did you mean sst2\?\)"):
        task_spec("SST-2")
