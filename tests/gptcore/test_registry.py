"""The registry: pinned orders, published sizes and scores, how small an entry stays; and forms of rows: each is one
file, whose parts are there, and nobody else asks which form a row is of."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gptcore.base.errors import InputError
from gptcore.nlu import COLUMNS, REGISTRY, registry, task_spec
from gptcore.nlu.examples import Annotation, Example, Record
from gptcore.nlu.forms import DROPS_MISSING, FORMS, form_named, form_of
from gptcore.nlu.registry import BEYOND
from tests.expected import expected


def test_names_and_columns() -> None:
    assert " ".join(REGISTRY) == "mnli snli scitail qnli rte storycloze race cola sst2 mrpc stsb qqp"
    columns = "mnli_m mnli_mm snli scitail qnli rte storycloze race_m race_h race cola sst2 mrpc stsb qqp"
    assert " ".join(COLUMNS) == columns


def test_an_entry_takes_at_most_25_lines() -> None:
    source = Path(registry.__file__).with_name("tasks.toml").read_text(encoding="utf-8")
    entries = re.findall(r"^\[\[\w+\]\]\n.+?(?=\n\n|\Z)", source, flags=re.M | re.S)
    assert len(entries) == 12 + len(registry.BEYOND)
    assert max(entry.count("\n") for entry in entries) <= 25


def test_label_orders_are_pinned() -> None:
    """A checkpoint's output layer means nothing under another order: changing one must be a decision."""
    labels = {name: list(spec.labels) for name, spec in REGISTRY.items()}
    assert labels == expected(__file__, "test_label_orders_are_pinned")
    widths = {name: form_of(spec).n_outputs(spec) for name, spec in REGISTRY.items()}
    others = {"storycloze": 1, "race": 1, "stsb": 6}
    assert widths == {name: len(names) for name, names in labels.items()} | others


def test_headlines_are_those_of_the_tables_and_small_sets_run_with_several_seeds() -> None:
    others = {"cola": "matthews", "mrpc": "f1", "qqp": "f1", "stsb": "pearson"}
    assert {name: spec.headline for name, spec in REGISTRY.items()} == dict.fromkeys(REGISTRY, "accuracy") | others
    assert {name for name, spec in REGISTRY.items() if spec.seeds == 5} == {"rte", "mrpc", "cola", "stsb", "storycloze"}
    assert {spec.seeds for spec in REGISTRY.values()} == {1, 5}


def test_unknown_task() -> None:
    assert task_spec("rte") is REGISTRY["rte"]
    with pytest.raises(InputError, match=r"found 'SST-2', did you mean sst2\? expected one of mnli"):
        task_spec("SST-2")


# --- forms


ROOT = Path(__file__).resolve().parents[2]
_NAMES = "single|labels|pair|choices|span|tags"
COMPARED = re.compile(
    rf"""\.form\b[^"\n]*(==|!=|\bin\b)|(==|!=|\bin)\s*[(\[{{]?["']({_NAMES})["']|["']({_NAMES})["']\s*(==|!=)"""
    r"""|\[[\w.]*\bform\]|\.get\([\w.]*\bform\b"""
)
"""A line that compares a form with another, or with names of forms, or looks one up among names."""


def test_row_forms_are_compared_in_their_room_alone() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for package in ("gptcore", "tasks", "flows")
        for path in sorted((ROOT / package).rglob("*.py"))
        if "nlu/forms/" not in str(path)
        for line in path.read_text(encoding="utf-8").splitlines()
        if COMPARED.search(line.partition("#")[0]) and not line.lstrip().startswith(("from ", '"""', ":"))
    ]
    assert len(found) <= 5, "\n".join(found)


def test_every_form_has_its_parts() -> None:
    assert list(FORMS) == ["single", "labels", "pair", "choices", "span", "tags"]
    for form in FORMS.values():
        parts = ("loss", "soft_loss", "rows", "asked_rows", "predictions", "stderrs", "own_row")
        assert all(callable(form.part(name)) for name in parts)
        assert callable(form.part("position_targets")) if form.places else not form.position_targets
        of_texts = ["overlap"] if form.name in ("pair", "choices") else []
        assert list(form.fitted_floors()) == ["best constant", "bag of words", *of_texts]
        counts = (form.field_names, form.n_fields, form.most_labels, form.outputs)
        kinds = (form.graded, bool(form.symmetric_names), form.several, form.choices, form.places, form.over_positions)
        said = [*counts, *kinds, form.pipeline, form.transformers, form.transformers_layer]
        assert json.loads(json.dumps(said)) == expected(__file__, "test_every_form_has_its_parts")[form.name]


def test_a_form_that_is_none_is_named() -> None:
    with pytest.raises(InputError, match="form = 'triple', expected one of single, labels, pair, choices, span, tags"):
        form_named("triple")


@pytest.mark.parametrize("spec", [*REGISTRY.values(), *BEYOND.values()], ids=lambda spec: spec.name)
def test_an_answer_is_spelled_and_read_back(spec) -> None:
    form = form_of(spec)
    if form.places:
        return
    for value in (0.0, 1.0):
        assert form.number_of(spec, form.spelled(spec, value)) == value
    assert form.number_of(spec, "none of them") is None
    logits = np.linspace(-1, 1, len(spec.choices) or form.n_outputs(spec), dtype=np.float32)
    answer = form.described(spec, logits)
    assert list(form.cells(answer)) == list(form.signature(spec))
    assert set(spec.metrics) <= set(form.metrics(spec)[0])
    if not spec.score_range:
        row = Record("f", "1", {spec.label: form.spelled(spec, 1.0)})
        assert form.label_of(spec, row) == 1.0


def test_what_forms_say_of_answers_in_figures() -> None:
    sst2, stsb, several = (task_spec(task) for task in ("sst2", "stsb", "openentity"))
    row, thirds = Example(("a", "b c"), (), 2.5, "", "x:1"), np.log(np.float32([1, 2]))
    assert form_of(sst2).described(sst2, thirds) == {
        "label": "positive",
        "probabilities": {"negative": 0.333333, "positive": 0.666667},
    }
    assert form_of(stsb).described(stsb, np.float32([*thirds, *[-99] * 4])) == {"score": 0.6667}
    assert form_of(several).described(several, np.zeros(9, np.float32))["labels"] == []  # no likelier than not
    found = [
        (form_of(stsb).labels_in(stsb, each), form_of(stsb).counted(stsb, each))
        for each in (row, replace(row, label=2.0))
    ]
    assert found == [(["2 to 3"], ["2 to 3"]), (["2"], ["2 to 3"])]
    assert form_of(stsb).counted(stsb, replace(row, label=None)) == ["none"]
    assert (form_of(stsb).n_words(row), form_of(stsb).shown(stsb, row)) == (3, "2.5")
    marked = replace(row, label=0.0, annotations=(Annotation(0, 1, "B-PER"), Annotation(2, 3, "O")))
    squad, conll = task_spec("squad"), task_spec("conll2003")
    assert (form_of(squad).shown(squad, marked), form_of(squad).shown(squad, row)) == ("b | c", "none")
    assert (form_of(conll).shown(conll, marked), form_of(conll).n_words(marked)) == ("b B-PER | c O", 2)
    assert (form_of(conll).labels_in(conll, marked), form_of(conll).counted(conll, marked)) == (["B-PER", "O"], ["PER"])
    for label, words in (("x", "expected one of 0, 1"), ("", f"expected one of 0, 1 ({DROPS_MISSING})")):
        with pytest.raises(InputError, match=f"{re.escape(words)}$"):
            form_of(sst2).label_of(sst2, Record("f", "1", {sst2.label: label}))
