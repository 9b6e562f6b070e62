"""What a floor writes down is what it was scored by, row by row, in every form, as a fine-tune's predictions are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gptcore.evaluation.comparison import compared
from gptcore.nlu.examples import Example
from gptcore.nlu.floors import Floored
from gptcore.nlu.forms import form_of
from gptcore.nlu.forms.labels import as_number
from gptcore.nlu.metrics import evidence_of_file
from gptcore.nlu.readers.tagged import tagged_example
from gptcore.nlu.registry import task_spec
from gptcore.nlu.spec import TaskSpec
from tests.gptcore.test_label_sets import SPEC
from tests.gptcore.test_passages import asked

WORDS = ("red", "blue", "cat", "dog", "runs", "sleeps", "far")


def text(n: int) -> str:
    return f"{WORDS[n % 7]} {WORDS[n % 5]} {WORDS[n % 3]}"


def rows_of(spec: TaskSpec, n: int = 24) -> list[Example]:
    form = form_of(spec)
    if spec.name == "squad2":
        passage = "Anna has the red hat. Bert sold seven boats."
        questions = [("Who sold boats?", "Bert"), ("Who has the hat?", "Anna"), ("Where is Zoe?", "")]
        rows = [asked(question, passage, *filter(None, [answer])) for question, answer in questions * (n // 3)]
    elif spec.name == "conll2003":
        rows = [
            tagged_example(["Anna", "runs", "far"], ["B-PER" if n % 3 else "O", "O", "O"], "", "", 0.0)
            for n in range(n)
        ]
    else:
        labels = [as_number({n % 2, n % 3}) if form.several else n % 2 for n in range(n)]
        if spec.score_range:
            labels = [n % 6 * 0.7 for n in range(n)]
        choices = spec.choices if form.choices else ()
        parts = spec.subsets or ("",)
        rows = [
            Example(
                tuple(text(n + at) for at, _ in enumerate(spec.fields)),
                tuple(text(n * at) for at, _ in enumerate(choices)),
                float(label),
                parts[n % len(parts)],
                "",
            )
            for n, label in enumerate(labels)
        ]
    return [replace(row, row=f"dev:{n}") for n, row in enumerate(rows)]


@pytest.mark.parametrize(
    "spec",
    [SPEC, *map(task_spec, ("sst2", "mrpc", "cola", "mnli", "race", "stsb", "squad2", "conll2003"))],
    ids=lambda spec: spec.name,
)
def test_a_floors_answers_have_its_score(spec: TaskSpec, tmp_path: Path) -> None:
    train = rows_of(spec)
    dev = train[3:15]
    files = []
    for name, floor in form_of(spec).fitted_floors().items():
        found = floor(spec, train, dev)
        assert isinstance(found, Floored)
        found.write(path := tmp_path / name / "dev.jsonl")
        rows, evidence = evidence_of_file(spec, path)
        assert [row for row, _ in rows] == [f"dev:{n}" for n in range(3, 15)]
        assert evidence.measure(evidence.values) == pytest.approx(found["score"])
        for part in spec.subsets:
            one, its = evidence_of_file(spec, path, part)
            assert its.measure(its.values) == pytest.approx(found[part])
            assert 0 < len(one) < len(rows)
        assert "subset" in json.loads(path.read_text(encoding="utf-8").splitlines()[0])
        files.append(path)
    difference = compared(spec, files[:1], files[1:2], redraws=20)
    assert difference.rows == len(dev)
