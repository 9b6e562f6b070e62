"""CoNLL's files: a word a line with its tag in the last column, an empty line behind each sentence.

Columns are set apart by tabs where the file's first word has one, else by spaces; a word may hold other white space.

The shared task of 2003 (Tjong Kim Sang and De Meulder) tags in IOB1, where an entity begins with I, and with B only
behind another of its kind; others tag in IOB2, where each begins with B. Which of the two a file follows is told by its
first entity. In IOB2 an I that begins one is broken; a B of IOB1 begins one wherever it stands, as the published train
file has one behind O. Tags come out in IOB2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gptcore.base.errors import InputError
from gptcore.nlu.examples import Annotation, Example, Record, show
from gptcore.nlu.readers.text_files import lines
from gptcore.nlu.registry import TaskSpec

_DOCUMENT = "-DOCSTART-"


class _Word(NamedTuple):
    line: int
    text: str
    tag: str


def read_conll(spec: TaskSpec, url: str, datasets_url: str, subset: str = "") -> Iterator[Example]:
    """The sentences of one file: the words with a space between two, each an annotation with its tag in IOB2.

    :param datasets_url: what rows are named relative to.
    :raises InputError: no such file, a line with another number of columns than those before, a tag that the task does
        not have or that breaks the file's scheme; names line and column.
    """
    scheme = _Scheme(url)
    for words in _sentences(spec, url):
        tags = scheme.as_iob2(words)
        name = Record(url, str(words[0].line), {}).name(datasets_url)
        yield tagged_example([word.text for word in words], tags, subset, name, label=0.0)


def tagged_example(
    words: Sequence[str], tags: Sequence[str], subset: str, row: str, label: float | None = None
) -> Example:
    """A sentence of words with a tag each."""
    places, at = [], 0
    for word, tag in zip(words, tags, strict=True):
        places.append(Annotation(at, at + len(word), tag))
        at += len(word) + 1
    return Example((" ".join(words),), (), label, subset, row, tuple(places))


def _sentences(spec: TaskSpec, url: str) -> Iterator[list[_Word]]:
    words: list[_Word] = []
    n_columns, first_line, separator = 0, 0, ""
    for number, line in lines(url):
        text = line.strip(" \t\r\n")
        if text and not separator and not text.startswith(_DOCUMENT):
            separator = "\t" if "\t" in text else " "
        cells = [cell for cell in text.split(separator or None) if cell]
        if not cells or cells[0] == _DOCUMENT:
            if words:
                yield words
            words = []
            continue
        row = Record(url, str(number), {"word": cells[0], "tag": cells[-1]})
        if not n_columns:
            n_columns, first_line = len(cells), number
            if n_columns < 2:
                raise row.error("tag", f"only {show(cells[0])}", "a word and its tag, a space between two columns")
        if len(cells) != n_columns:
            expected = f"{n_columns}, as in line {first_line}"
            raise InputError(f"{url}, line {number}, number of columns: found {len(cells)}, expected {expected}")
        if cells[-1] not in spec.labels:  # of another scheme (IOBES), or another kind of entity
            raise row.error("tag", show(cells[-1]), f"one of {', '.join(spec.labels)}")
        row.text("word")
        words.append(_Word(number, cells[0], cells[-1]))
    if words:
        yield words


class _Scheme:
    """Which scheme a file follows, once a line has shown it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._begins_with, self._line = "", 0

    def as_iob2(self, words: Sequence[_Word]) -> list[str]:
        tags, before = [], ""
        for word in words:
            prefix, _, kind = word.tag.partition("-")
            begins = prefix == "B" or (prefix == "I" and kind != before)
            if begins and not self._line:
                self._begins_with, self._line = prefix, word.line
            if begins and prefix == "I" != self._begins_with:
                found = f"{show(word.tag)} at the beginning of an entity"
                expected = f"{show(f'B-{kind}')}, as in line {self._line}"
                raise Record(self._url, str(word.line), {}).error("tag", found, expected)
            tags.append(f"B-{kind}" if begins else word.tag)
            before = kind
        return tags
