"""Rows of labelled tasks and of Winograd schemas as items, made when they are asked for, and what identifies rows.

A schema becomes two readings of a text, and the rest of it, which the right one makes likelier: the "partial" scoring
of Trinh and Le (2018), which GPT-2's paper uses (its section 3.4): the probability of what stands behind the pronoun,
given the text with either referent in the pronoun's place.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, overload

from gptcore.nlu.forms import form_of
from gptcore.nlu.readers import Example, iterate
from gptcore.nlu.readers.winograd import Pronoun, read_dprd, read_wsc273
from gptcore.nlu.registry import PromptTemplate, TaskSpec
from gptcore.prompting.items import NO_CONTENT, Graded, Item, MultipleChoice, Rows, WinogradSchema


class ItemsOfExamples(Sequence[Item]):
    """The rows of a dataset as items, each made when it is taken: of 549,367 training rows a few are shown.

    :param examples: the rows.
    :param make: an item of a row.
    :param recipe: what decides, beside the row, which item it becomes.
    """

    def __init__(self, examples: Sequence[Example], make: Callable[[Example], Item], recipe: Sequence[Any]) -> None:
        self.examples, self.recipe = examples, recipe
        self._make = make

    def __len__(self) -> int:
        return len(self.examples)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        if isinstance(index, slice):
            return [self._make(example) for example in self.examples[index]]
        return self._make(self.examples[index])


def digest(rows: Rows) -> str:
    """SHA-256 of rows: files that say the same have the same, and so have their prompts."""
    hashed = hashlib.sha256()
    for record in _records(rows):
        hashed.update(json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
    return hashed.hexdigest()


def _records(rows: Rows) -> Iterator[list[Any]]:
    """What decides every prompt of a task, piece by piece."""
    yield [rows.separator, rows.excluded_neighbours]
    for part in (rows.asked, rows.pool):
        yield [len(part)]
        if isinstance(part, ItemsOfExamples):
            yield list(part.recipe)
            yield from ([row.fields, row.choices, row.label, row.subset] for row in part.examples)
        else:
            yield from ([type(item).__name__, *vars(item).values()] for item in part)


def dataset_rows(spec: TaskSpec, datasets_url: str) -> Rows:
    """Dev rows of a task of the leaderboard, or of a user's own, to ask; train rows as examples.

    Each becomes a prompt by the template in its entry of the registry or in its own file.

    :raises InputError: a missing file or a broken row.
    """
    template = spec.prompt or plain_template(spec)
    recipe = [template.context, template.question, list(template.answers)]
    asked, pool = (
        ItemsOfExamples(
            [row for row in iterate(spec, datasets_url, split) if row.label is not None],
            functools.partial(dataset_item, spec),
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


def dataset_item(spec: TaskSpec, row: Example) -> MultipleChoice | Graded:
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


def dprd(datasets_url: str) -> Rows:
    """The definite pronoun resolution set: test rows, train rows as examples.

    :raises InputError: a missing file or a broken row.
    """
    return Rows(
        _schemas(read_dprd(datasets_url, "test")), _schemas(read_dprd(datasets_url, "train")), "the train split"
    )


def wsc273(datasets_url: str) -> Rows:
    """The Winograd Schema Challenge, where a schema's twin, which stands beside it, is no example for it.

    :raises InputError: a missing file or a broken row.
    """
    return Rows(_schemas(read_wsc273(datasets_url)), excluded_neighbours=1)


def _schemas(schemas: Iterable[Pronoun]) -> list[WinogradSchema]:
    return [WinogradSchema((schema.resolved(0), schema.resolved(1)), schema.after, schema.label) for schema in schemas]
