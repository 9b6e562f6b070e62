"""SuperGLUE's files of three tasks (Wang et al. 2019), one JSON object a line; each answer is a row of two texts.

    BoolQ    {"question": ..., "passage": ..., "label": true}
    MultiRC  {"passage": {"text": ..., "questions": [{"question": ..., "answers": [{"text": ..., "label": 0}, ...]}]}}
    WSC      {"text": ..., "target": {"span1_text": ..., "span2_text": ...}, "label": false}

MultiRC asks of every answer whether it is right, and WSC whether a pronoun, span 2, means a noun, span 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from gptcore.nlu.examples import Example, Record, example_of, show
from gptcore.nlu.readers.text_files import read_jsonl
from gptcore.nlu.registry import TaskSpec


def read_superglue(spec: TaskSpec, url: str, datasets_url: str, subset: str = "") -> Iterator[Example]:
    """The answers of one file, in its order; those of one passage of MultiRC are of one group.

    :param datasets_url: what rows are named relative to.
    :raises InputError: no such file, not this structure, or a label that the task does not have; names line and field.
    """
    for line in read_jsonl(url, spec):
        for row in _answers(line):
            label = json.dumps(row.value(spec.label))
            if label not in spec.labels:
                raise row.error(spec.label, show(row.value(spec.label)), f"one of {', '.join(spec.labels)}")
            example = example_of(spec, row, datasets_url, float(spec.labels.index(label)), subset)
            yield replace(example, group="" if row.line == line.line else f"line {line.line}")


def _answers(line: Record) -> Iterator[Record]:
    """What a line asks, its fields side by side, and its label."""
    if isinstance(target := line.columns.get("target"), dict):
        yield replace(line, columns={**line.columns, **target})
    elif not isinstance(passage := line.value("passage"), dict):
        yield line
    else:
        of_passage = line.inner(passage, "passage")
        for q, asked in enumerate(of_passage.listed("questions"), start=1):
            question = replace(of_passage.inner(asked, "questions"), line=f"{line.line}, question {q}")
            for a, answer in enumerate(question.listed("answers"), start=1):
                given = question.inner(answer, "answers")
                texts = {"passage": of_passage.text("text"), "question": question.text("question")}
                columns = {**texts, "answer": given.text("text"), "label": given.value("label")}
                yield replace(given, columns=columns, line=f"{line.line}, question {q}, answer {a}")
