"""The children's book test (Hill et al. 2016): which of ten words is left out of a sentence that twenty others precede.

A file of the public distribution holds blocks of 21 numbered lines and an empty one. Line 21 is the sentence with XXXXX
in the place of the word, then between tabs the word, an empty field, and the ten candidates with "|" between them:

    21 So Ann has the XXXXX .<tab>kite<tab><tab>ball|boat|kite|...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gptcore.base.errors import InputError
from gptcore.nlu.readers import lines, show
from gptcore.prompting.items import MultipleChoice, Rows
from gptcore.prompting.reading import detokenised, file_of

Kind = Literal["CN", "NE"]
"""What is left out: a common noun or a named entity."""
FOLDER = "CBT"
SENTENCES = 20
"""Sentences before the one with the blank."""
CANDIDATES = 10
BLANK = "XXXXX"
_BRACKETS = {"-LRB- ": "(", " -RRB-": ")", "-LSB- ": "[", " -RSB-": "]", "-LCB- ": "{", " -RCB-": "}"}


def childrens_book(datasets_url: str, kind: Kind) -> Rows:
    """The validation questions of one kind, on which GPT-2 reports, as a book of the test set is in its training text.

    A candidate is worth the probability of itself and the rest of its sentence (GPT-2's paper, section 3.2). Where the
    validation file is missing, the test file is asked.

    :raises InputError: no such file, or a block that is not of the public shape; names the line.
    """
    url = file_of(datasets_url, FOLDER, (f"cbtest_{kind}_valid*.txt", f"cbtest_{kind}_test*.txt"))
    block: list[tuple[int, str]] = []
    items = []
    for number, line in lines(url):
        if line.strip():
            block.append((number, line.strip("\r\n")))
        if len(block) == SENTENCES + 1:
            items.append(_item(url, block))
            block = []
        elif not line.strip() and block:
            raise InputError(
                f"{url}, line {number}: found {len(block)} lines before the empty one, expected {SENTENCES + 1}"
            )
    if block:
        last = f"{url}, line {block[-1][0]}: found the end of the file after {len(block)} lines"
        raise InputError(f"{last} of a block, expected {SENTENCES + 1}")
    return Rows(items)


def _item(url: str, block: Sequence[tuple[int, str]]) -> MultipleChoice:
    """The question of one block of (line number, line)."""
    sentences = []
    for expected, (number, line) in enumerate(block, start=1):
        said, _, text = line.partition(" ")
        if said != str(expected) or not text.strip():
            raise InputError(f"{url}, line {number}: found {show(line)}, expected sentence {expected} of a block")
        sentences.append(text)
    last, *fields = sentences[-1].split("\t")
    candidates = tuple(text.strip() for text in fields[-1].split("|")) if fields else ()
    answer = fields[0].strip() if fields else ""
    if len(candidates) != CANDIDATES or candidates.count(answer) != 1 or not all(candidates) or BLANK not in last:
        raise InputError(
            f"{url}, line {block[-1][0]}: found {show(sentences[-1])}, expected a sentence with {BLANK}, the word that "
            f"it stands for and {CANDIDATES} candidates"
        )
    text = " ".join(map(running_text, [*sentences[:-1], last]))
    before, _, rest = text.partition(BLANK)
    before, _, opening = before.rpartition(" ")  # a mark that opens before the blank comes with the candidate
    answers = tuple(f"{opening}{candidate}{rest.replace(BLANK, candidate)}" for candidate in candidates)
    return MultipleChoice(before, answers, candidates.index(answer))


def running_text(sentence: str) -> str:
    """A sentence without the traces of the Penn Treebank's tokenization (GPT-2's paper, section 3.2)."""
    for bracket, mark in _BRACKETS.items():
        sentence = sentence.replace(bracket, mark)
    return " ".join(detokenised(sentence).split())
