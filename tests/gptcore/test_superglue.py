"""BoolQ, MultiRC and WSC in SuperGLUE's files: the rows that come of them, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gptcore.base.errors import InputError
from gptcore.nlu import load_task
from gptcore.nlu.origins import ORIGINS
from gptcore.nlu.registry import task_spec

ROWS: dict[str, list[dict[str, Any]]] = {
    "boolq": [
        {"question": "is a cat an animal", "passage": "Cats -- A cat is an animal.", "idx": 0, "label": True},
        {"question": "do cats bark", "passage": "Cats -- They mew.", "idx": 1, "label": False},
    ],
    "multirc": [
        {
            "passage": {
                "text": "Anna went to the mill. Bert slept.",
                "questions": [
                    {"question": "Who went?", "answers": [{"text": "Anna", "label": 1}, {"text": "Bert", "label": 0}]},
                    {"question": "Who slept?", "answers": [{"text": "Bert", "label": 1}]},
                ],
            }
        },
        {
            "passage": {
                "text": "It rained.",
                "questions": [{"question": "Did it?", "answers": [{"text": "No", "label": 0}]}],
            }
        },
    ],
    "wsc": [
        {
            "text": "Mark told Pete lies about himself.",
            "target": {"span1_index": 0, "span1_text": "Mark", "span2_index": 5, "span2_text": "himself"},
            "label": True,
        }
    ],
}


def write(folder: Path, task: str, rows: list[dict[str, Any]], file: str = "val.jsonl") -> None:
    (folder / task_spec(task).folder).mkdir(exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / task_spec(task).folder / file).write_text(lines, encoding="utf-8")


def rows_of(folder: Path, task: str) -> list[tuple[tuple[str, ...], float | None, str, str]]:
    return [(row.fields, row.label, row.row, row.group) for row in load_task(task, str(folder), "dev")]


def test_rows_of_each_task(tmp_path: Path) -> None:
    for task, rows in ROWS.items():
        write(tmp_path, task, rows)
    assert rows_of(tmp_path, "boolq") == [
        (("Cats -- A cat is an animal.", "is a cat an animal"), 1.0, "BoolQ/val.jsonl:1", ""),
        (("Cats -- They mew.", "do cats bark"), 0.0, "BoolQ/val.jsonl:2", ""),
    ]
    text, name = "Anna went to the mill. Bert slept.", "MultiRC/val.jsonl"
    assert rows_of(tmp_path, "multirc") == [
        ((text, "Who went? Anna"), 1.0, f"{name}:1, question 1, answer 1", "line 1"),
        ((text, "Who went? Bert"), 0.0, f"{name}:1, question 1, answer 2", "line 1"),
        ((text, "Who slept? Bert"), 1.0, f"{name}:1, question 2, answer 1", "line 1"),
        (("It rained.", "Did it? No"), 0.0, f"{name}:2, question 1, answer 1", "line 2"),
    ]
    assert rows_of(tmp_path, "wsc") == [
        (("Mark told Pete lies about himself.", "himself Mark"), 1.0, "WSC/val.jsonl:1", "")
    ]


def test_none_is_in_the_papers_average_and_each_is_fetched_from_its_address() -> None:
    specs = [task_spec(task) for task in ROWS]
    assert [(spec.table, spec.published_rows("train"), spec.published_rows("dev")) for spec in specs] == [
        (0, 9427, 3270),
        (0, 27_243, 4848),
        (0, 554, 104),
    ]
    addresses = [file.url.rpartition("/v2/")[2] for task in ROWS for file in ORIGINS[task].downloads]
    assert addresses == ["BoolQ.zip", "MultiRC.zip", "WSC.zip"]


@pytest.mark.parametrize(
    ("task", "row", "expected"),
    [
        (
            "boolq",
            {"question": "q", "passage": "p", "label": "true"},
            "'label': found 'true', expected one of false, true",
        ),
        ("boolq", {"question": "q", "label": True}, "'passage': found only the columns question, label"),
        (
            "multirc",
            {"passage": {"text": "t", "questions": ["q"]}},
            "'questions': found 'q', expected a list of objects",
        ),
        (
            "multirc",
            {"passage": {"text": "t", "questions": [{"question": "q", "answers": [{"text": "a", "label": 2}]}]}},
            "line 1, question 1, answer 1, column 'label': found 2, expected one of 0, 1",
        ),
        (
            "multirc",
            {"passage": {"text": "t", "questions": [{"question": " ", "answers": [{"text": "a", "label": 1}]}]}},
            "line 1, question 1, column 'question': found ' ', expected text that is not empty",
        ),
        (
            "wsc",
            {"text": "t", "target": {"span1_text": "t"}, "label": True},
            "column 'span2_text': found only the columns",
        ),
    ],
)
def test_a_broken_row_is_named(task: str, row: dict[str, Any], expected: str, tmp_path: Path) -> None:
    write(tmp_path, task, [row])
    with pytest.raises(InputError) as error:
        rows_of(tmp_path, task)
    assert expected in str(error.value)
