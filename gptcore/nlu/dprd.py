"""Definite pronoun resolution (Rahman and Ng, 2012): one of section 5's zero-shot tasks, none of the twelve."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import fsspec

from gptcore.errors import InputError


@dataclass(frozen=True)
class Pronoun:
    """A Winograd schema: the text around the pronoun, the two referents and the index of the right one."""

    before: str
    after: str
    referents: tuple[str, str]
    label: int


def read_dprd(datasets_url: str, split: str) -> Iterator[Pronoun]:
    """Read ``DPRD/<split>.c.txt``: sentence, pronoun, "a,b", the right one, then blank lines.

    The pronoun to resolve is its first whole-word occurrence after both referents (the set does not say which).

    :raises InputError: naming file and line, if the file is missing or a block is not of that shape.
    """
    path = f"{datasets_url.rstrip('/')}/DPRD/{split}.c.txt"
    try:
        with fsspec.open(path, "rt", encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file]
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; expected the definite pronoun resolution set") from None
    at = 0
    while at < len(lines):
        if not lines[at]:
            at += 1
            continue
        sentence, pronoun, names, answer = [*lines[at : at + 4], "", "", ""][:4]
        referents = tuple(name.strip() for name in names.split(","))
        if len(referents) != 2 or referents.count(answer) != 1:
            raise InputError(
                f"{path}:{at + 3}: found {names!r} and the answer {answer!r}, expected 'a,b' and one of the two"
            )
        end = max(0, *(sentence.find(name) + len(name) for name in referents))
        places = list(re.finditer(rf"\b{re.escape(pronoun)}\b", sentence))
        if not places or not pronoun:
            raise InputError(f"{path}:{at + 2}: found {pronoun!r}, expected a pronoun of the sentence above")
        place = next((place for place in places if place.start() >= end), places[0])
        before, after = sentence[: place.start()], sentence[place.end() :]
        yield Pronoun(before.strip(), after.strip(), (referents[0], referents[1]), referents.index(answer))
        at += 4
