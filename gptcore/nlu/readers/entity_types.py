"""Open Entity's files: sentences with one mention, and what kinds of thing it is (Choi et al. 2018), one JSON a line.

    {"left_context_token": [...], "mention_span": "...", "right_context_token": [...], "y_str": ["person", ...]}

Of the labels, which its annotators wrote down freely, those count that the task has: the nine general types ("ERNIE",
Zhang et al. 2019, section 4.3). The mention is marked in the text by a word before and behind it, which every
vocabulary can spell.
"""

from __future__ import annotations

from collections.abc import Iterator

from gptcore.nlu.examples import Example, Record, show
from gptcore.nlu.forms.labels import as_number
from gptcore.nlu.readers.text_files import read_jsonl
from gptcore.nlu.registry import TaskSpec

MENTION = "mention"


def read_open_entity(spec: TaskSpec, url: str, datasets_url: str, subset: str = "") -> Iterator[Example]:
    """The sentences of one file.

    :param datasets_url: what rows are named relative to.
    :raises InputError: no such file, not this structure; names line and field.
    """
    for row in read_jsonl(url, spec):
        labels = row.value(spec.label)
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise row.error(spec.label, show(labels), "a list of texts")
        yield Example(
            fields=(marked_mention(row),),
            choices=(),
            label=as_number(spec.labels.index(label) for label in labels if label in spec.labels),
            subset=subset,
            row=f"{row.file.removeprefix(datasets_url.rstrip('/') + '/')}:{row.line}",
        )


def marked_mention(row: Record) -> str:
    """The sentence with its mention marked.

    :raises InputError: a context that is no list of words, or no mention.
    """
    left, right = (_words(row, f"{side}_context_token") for side in ("left", "right"))
    mention = row.text("mention_span").split()
    text = " ".join([*left, MENTION, *mention, MENTION, *right])
    return Record(row.file, row.line, {"mention_span": text}, row.unit).text("mention_span")


def _words(row: Record, column: str) -> list[str]:
    words = row.value(column)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise row.error(column, show(words), "a list of words")
    return [part for word in words for part in word.split()]
