"""Rows of labelled tasks and of Winograd schemas as items, made when they are asked for; and prompts of items, as ids.

A schema becomes two readings of a text, and the rest of it, which the right one makes likelier: the "partial" scoring
of Trinh and Le (2018), which GPT-2's paper uses (its section 3.4): the probability of what stands behind the pronoun,
given the text with either referent in the pronoun's place.

Examples are drawn and put before a question, as many of them as the model's positions hold. Those of a row are drawn
anew from a seed and the row's number (GPT-3's paper, section 2.4), one by one, so that those of fewer shots are among
those of more. The first one drawn stands nearest to the question. Where not all of them fit, the farthest ones are left
out.
"""

from __future__ import annotations

import functools
import hashlib
import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, overload

from gptcore.base.seeds import choose_rows, derive_seed
from gptcore.nlu.forms import form_of
from gptcore.nlu.readers import Example, iterate
from gptcore.nlu.readers.winograd import Pronoun, read_dprd, read_wsc273
from gptcore.nlu.registry import PromptTemplate, TaskSpec
from gptcore.papers.prompting.items import NO_CONTENT, SEED, Graded, Item, MultipleChoice, Rows, WinogradSchema
from gptcore.text.byte_bpe import CLOSING
from gptcore.text.tokenizer import Tokenizer


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


# --- prompts as ids ---


@dataclass(frozen=True)
class AskedRow:
    """A row that is asked, and the examples that were drawn for it."""

    number: int
    """The row's number among all rows of the file."""
    item: Item
    examples: tuple[Item, ...]
    """The nearest one first."""


@dataclass(frozen=True)
class Selection:
    """What is asked of a task, without the rows that are neither asked nor shown."""

    rows: tuple[AskedRow, ...]
    separator: str
    examples_from: str
    """Where the examples come from, in words."""
    digest: str
    """SHA-256 of all rows of the task, whether they are asked or not."""


@dataclass(frozen=True)
class EncodedPrompt:
    """A row's question behind its examples, as ids."""

    ids: list[int]
    shots: int
    """Examples that found room."""


def select(rows: Rows, shots: int, max_rows: int | None = None) -> Selection:
    """Choose the rows to ask, and up to ``shots`` examples for each; only these are made into items.

    :param max_rows: the most rows that are taken, drawn by a seed; None takes all.
    """
    chosen = [int(number) for number in choose_rows(len(rows.asked), max_rows, SEED)]
    asked = (AskedRow(number, rows.asked[number], tuple(draw_examples(rows, number, shots, SEED))) for number in chosen)
    return Selection(tuple(asked), rows.separator, rows.examples_from, digest(rows))


def draw_examples(rows: Rows, row: int, shots: int, seed: int) -> list[Item]:
    """Examples for a row, the nearest first; never the row itself or its neighbours, fewer where there are no more."""
    pool = rows.pool or rows.asked
    apart = rows.excluded_neighbours
    never = range(0) if rows.pool else range(max(0, row - apart), min(len(pool), row + apart + 1))
    wanted = min(shots, len(pool) - len(never))
    rng, drawn = Random(derive_seed(seed, "examples", row)), dict[int, Item]()
    while len(drawn) < wanted:
        number = rng.randrange(len(pool))
        if number not in never and number not in drawn:
            drawn[number] = pool[number]
    return list(drawn.values())


def prompts(
    tokenizer: Tokenizer, item: Item, examples: Sequence[Item], shots: int, room: int, separator: str = Rows.separator
) -> list[EncodedPrompt]:
    """One prompt for each question of an item, with the same number of examples before all.

    :param examples: drawn ones, the nearest first; unused where the item has earlier turns of its own.
    :param room: ids that a prompt may have.
    :param separator: stands between two examples.
    """
    text = _PromptText(tokenizer, item.context, item, examples, shots, separator)
    kept = min(text.fitting(question, room) for question in item.questions)
    return [EncodedPrompt(text.ids(question, kept, room), kept) for question in item.questions]


def prompt_without_content(
    tokenizer: Tokenizer,
    item: MultipleChoice | Graded,
    examples: Sequence[Item],
    kept: int,
    room: int,
    separator: str = Rows.separator,
) -> list[int]:
    """Ids of the prompt behind ``kept`` examples whose question says nothing: how likely its answers are anyway."""
    context = NO_CONTENT if item.context else ""
    return _PromptText(tokenizer, context, item, examples, kept, separator).ids(item.no_content, kept, room)


class _PromptText:
    """The text of a prompt with any number of examples."""

    def __init__(
        self, tokenizer: Tokenizer, context: str, item: Item, examples: Sequence[Item], shots: int, separator: str
    ) -> None:
        self._tokenizer, self._context = tokenizer, context
        self._is_conversation = item.earlier is not None
        if item.earlier is None:
            parts = [f"{example.context}{_joined(*example.shown)}" for example in examples[:shots]]
            self._separator = separator
        else:
            parts = [_joined(*turn) for turn in reversed(item.earlier)][:shots]
            self._separator = ""
        self._parts = parts

    def ids(self, question: str, kept: int, room: int) -> list[int]:
        """Ids of the prompt with the ``kept`` nearest examples; what is still too long loses the end of its context."""
        before = "".join(f"{part}{self._separator}" for part in reversed(self._parts[:kept]))
        context = self._context
        if self._is_conversation:
            before, behind = context, f"{before}{question}".removeprefix("" if context else "\n")
        else:
            before, behind = f"{before}{context}", question
        ids = self._tokenizer.encode(f"{before}{behind}")
        if len(ids) <= room or not context:
            return ids[-room:]
        asked = self._tokenizer.encode(behind)[-room:]
        return [*self._tokenizer.encode(before)[: room - len(asked)], *asked]

    def fitting(self, question: str, room: int) -> int:
        """The most examples with which the prompt fits; 0 where it does not even without any."""
        sizes = range(1, len(self._parts) + 1)
        return bisect_left(sizes, True, key=lambda kept: len(self.ids(question, kept, 1 << 30)) > room)


def _joined(question: str, answer: str) -> str:
    """An example's text, spelt as an answer is that goes on a question."""
    return f"{question}{'' if answer[:1] in CLOSING else ' '}{answer}"
