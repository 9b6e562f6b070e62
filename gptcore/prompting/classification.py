"""Tasks of the leaderboard as prompts, each by the template in its entry of the registry or in its own file."""

from __future__ import annotations

import functools

from gptcore.nlu.forms import form_of
from gptcore.nlu.readers import Example, iterate
from gptcore.nlu.registry import PromptTemplate, TaskSpec
from gptcore.prompting.items import NO_CONTENT, Graded, MultipleChoice, Rows
from gptcore.prompting.rows import ItemsOfExamples


def rows(spec: TaskSpec, datasets_url: str) -> Rows:
    """Dev rows to ask, train rows as examples.

    :raises InputError: a missing file or a broken row.
    """
    template = spec.prompt or plain_template(spec)
    recipe = [template.context, template.question, list(template.answers)]
    asked, pool = (
        ItemsOfExamples(
            [row for row in iterate(spec, datasets_url, split) if row.label is not None],
            functools.partial(item, spec),
            recipe,
        )
        for split in ("dev", "train")
    )
    return Rows(asked, pool, "the train split")


def plain_template(spec: TaskSpec) -> PromptTemplate:
    """The template of a task that has none of its own."""
    lines = "\n".join(f"{{{number}}}" for number in range(len(spec.fields)))
    if form_of(spec).choices:
        return PromptTemplate(f"{lines}\nAnswer:")
    if spec.score_range:
        low, high = map(int, spec.score_range)
        return PromptTemplate(f"{lines}\nFrom {low} to {high}:", tuple(map(str, range(low, high + 1))))
    return PromptTemplate(f"{lines}\nAnswer:", spec.labels)


def item(spec: TaskSpec, row: Example) -> MultipleChoice | Graded:
    """A labelled row by its task's template.

    :raises ValueError: a row without a label.
    """
    if row.label is None:
        raise ValueError(f"{row}: found no label, expected a labelled row")
    template, fields = spec.prompt or plain_template(spec), [" ".join(text.split()) for text in row.fields]
    question, context = template.question.format(*fields), template.context.format(*fields)
    no_content = template.question.format(*[NO_CONTENT] * len(fields))
    if spec.score_range:
        grade = row.label - spec.score_range[0]
        return Graded(question, template.answers, grade, context, no_content, row.subset)
    answers = template.answers or tuple(" ".join(choice.split()) for choice in row.choices)
    return MultipleChoice(question, answers, int(row.label), context, no_content=no_content, subset=row.subset)
