"""Sentences about what they mention: one of two entities and their relation, one of a mention and what kind it is.

FewRel's files: sentences by the relation of two entities that they mention (Han et al. 2018).

    {"P26": [{"tokens": [...], "h": [name, entity, [[places], ...]], "t": [name, entity, [[places], ...]]}, ...], ...}

The first mention of the head and that of the tail are marked in the text by a word before and behind each, which every
vocabulary can spell ("ERNIE", Zhang et al. 2019, section 3.5 has tokens of its own).

Open Entity's files: sentences with one mention, and what kinds of thing it is (Choi et al. 2018), one JSON a line.

    {"left_context_token": [...], "mention_span": "...", "right_context_token": [...], "y_str": ["person", ...]}

Of the labels, which its annotators wrote down freely, those count that the task has: the nine general types ("ERNIE",
Zhang et al. 2019, section 4.3). The mention is marked in the text by a word before and behind it, which every
vocabulary can spell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gptcore.base.errors import InputError
from gptcore.nlu.examples import Example, Record, show
from gptcore.nlu.forms.labels import as_number
from gptcore.nlu.readers.text_files import json_object, read_jsonl
from gptcore.nlu.registry import FEWREL_RELATIONS, TaskSpec

HEAD, TAIL = "head", "tail"


def read_fewrel(spec: TaskSpec, url: str, datasets_url: str, subset: str = "") -> Iterator[Example]:
    """The sentences of one file, relation by relation.

    Rows of one "group", where they have one (FewRel's have none), stay together where train and dev are cut.

    :param datasets_url: what rows are named relative to.
    :raises InputError: no such file, not this structure, an unknown relation, a mention that is no stretch of the
        sentence; names relation, row and field.
    """
    for relation, rows in json_object(url, "rows by their relation").items():
        if relation not in FEWREL_RELATIONS:
            known = ", ".join(FEWREL_RELATIONS)
            raise InputError(f"{url}: found the relation {relation!r:.60}, expected one of {known}")
        if not isinstance(rows, list):
            raise InputError(f"{url}, relation {relation}: found {show(rows)}, expected a list of rows")
        for number, columns in enumerate(rows, start=1):
            if not isinstance(columns, dict):
                raise InputError(f"{url}, relation {relation}, row {number}: found {show(columns)}, expected an object")
            row = Record(url, f"{relation}, row {number}", columns, unit="relation")
            group = columns.get("group", "")
            if not isinstance(group, str):
                raise row.error("group", show(group), "text")
            yield Example(
                fields=(marked_relation(row),),
                choices=(),
                label=float(spec.labels.index(FEWREL_RELATIONS[relation])),
                subset=subset,
                row=row.name(datasets_url, f"{relation} {number}"),
                group=group,
            )


def marked_relation(row: Record) -> str:
    """The sentence with its two mentions marked.

    :raises InputError: no words, or a mention that is no stretch of them; names row and field.
    """
    words = row.listed("tokens", "a list of words", str)
    if not words:
        raise row.error("tokens", show(words), "a list of words")
    before: dict[int, list[str]] = {}
    behind: dict[int, list[str]] = {}
    for column, mark in (("h", HEAD), ("t", TAIL)):
        first, last = _place(row, column, len(words))
        before.setdefault(first, []).append(mark)
        behind.setdefault(last, []).insert(0, mark)
    parts = [part for at, word in enumerate(words) for part in (*before.get(at, ()), word, *behind.get(at, ()))]
    text = " ".join(" ".join(parts).split())
    return replace(row, columns={"tokens": text}).text("tokens")


def _place(row: Record, column: str, n_words: int) -> tuple[int, int]:
    entity = row.value(column)
    wanted = "[name, entity, [[places of its words], ...]]"
    if not isinstance(entity, list) or len(entity) != 3 or not isinstance(entity[2], list) or not entity[2]:
        raise row.error(column, show(entity), wanted)
    places = entity[2][0]
    if not isinstance(places, list) or not places or not all(type(place) is int for place in places):
        raise row.error(column, show(places), wanted)
    first, last = places[0], places[-1]
    if places != list(range(first, last + 1)) or not 0 <= first <= last < n_words:
        wanted = f"places of words that follow each other among the {n_words} of the sentence"
        raise row.error(column, f"the places {show(places)}", wanted)
    return first, last


MENTION = "mention"


def read_open_entity(spec: TaskSpec, url: str, datasets_url: str, subset: str = "") -> Iterator[Example]:
    """The sentences of one file.

    :param datasets_url: what rows are named relative to.
    :raises InputError: no such file, not this structure; names line and field.
    """
    for row in read_jsonl(url, spec):
        labels = row.listed(spec.label, "a list of texts", str)
        yield Example(
            fields=(marked_mention(row),),
            choices=(),
            label=as_number(spec.labels.index(label) for label in labels if label in spec.labels),
            subset=subset,
            row=row.name(datasets_url),
        )


def marked_mention(row: Record) -> str:
    """The sentence with its mention marked.

    :raises InputError: a context that is no list of words, or no mention.
    """
    left, right = (row.listed(f"{side}_context_token", "a list of words", str) for side in ("left", "right"))
    text = " ".join([*left, MENTION, row.text("mention_span"), MENTION, *right])
    return replace(row, columns={"mention_span": " ".join(text.split())}).text("mention_span")
