"""Winograd schemas: a pronoun and two referents. DPRD (Rahman and Ng 2012) of section 5, and GPT-2's WSC273."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

import fsspec

from gptcore.base.errors import InputError
from gptcore.base.filesystems import exists, file_system

_WSC = 273  # schemas of the challenge; its collection has grown since
_LARGEST = 1 << 22  # bytes of a collection; the public one has 150 thousand


@dataclass(frozen=True)
class Pronoun:
    """A Winograd schema: the text around the pronoun, the two referents and the index of the right one."""

    before: str
    after: str
    referents: tuple[str, str]
    label: int
    pronoun: str = ""

    def resolved(self, referent: int) -> str:
        """What stands before ``after`` where the pronoun means this one: small within a sentence, unless a name.

        A referent is written as where it stood, often at the beginning: "The sniper" is "the sniper" further on.
        """
        name = self.referents[referent]
        if self.possessive and not name.endswith(("'s", "\u2019s")):  # two answers of WSC273 have it themselves
            name += "'s"
        within = self.before and self.before[-1] not in ".!?"
        article = name.split(" ", 1)[0].lower() in _DETERMINERS
        return f"{self.before} {name[:1].lower() + name[1:] if within and article else name}".strip()

    @property
    def possessive(self) -> bool:
        """Whether the pronoun says whose something is: "her", which may be either, does before a noun."""
        said, follows = self.pronoun.lower(), self.after.split(" ", 1)[0].lower()
        return said in _POSSESSIVE or (said == "her" and follows[:1].isalpha() and follows not in _AFTER_OBJECT)


_POSSESSIVE = frozenset({"his", "their", "its", "my", "our", "your"})
_AFTER_OBJECT = frozenset(
    {"about", "after", "and", "as", "at", "because", "before", "but", "by", "for", "from", "if", "in", "into", "of"}
    | {"off", "on", "or", "out", "over", "so", "than", "that", "to", "until", "up", "when", "where", "while", "with"}
)
_DETERMINERS = frozenset({"the", "a", "an", "his", "her", "my", "your", "their", "our", "its", "this", "that"})


def read_dprd(datasets_url: str, split: str) -> Iterator[Pronoun]:
    """Read ``DPRD/<split>.c.txt``: sentence, pronoun, "a,b", the right one, then blank lines.

    The pronoun to resolve is its first whole-word occurrence after both referents (the set does not say which).

    :raises InputError: naming file and line, if the file is missing or a block is not of that shape.
    """
    path = f"{datasets_url.rstrip('/')}/DPRD/{split}.c.txt"
    try:
        yield from _text(path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; expected the definite pronoun resolution set") from None


def read_wsc273(datasets_url: str) -> list[Pronoun]:
    """Read the Winograd Schema Challenge from ``WSC273/``: ``wsc273.txt``, of DPRD's shape, or ``WSCollection.xml``.

    :raises InputError: naming file and place, if neither is there or one is not of its shape.
    """
    folder = f"{datasets_url.rstrip('/')}/WSC273"
    for name, read in (("wsc273.txt", _text), ("WSCollection.xml", _collection)):
        if exists(*file_system(f"{folder}/{name}")):
            return list(read(f"{folder}/{name}"))[:_WSC]
    raise InputError(f"{folder}: found neither wsc273.txt nor WSCollection.xml, expected one of the two")


def _text(path: str) -> Iterator[Pronoun]:
    with fsspec.open(path, "rt", encoding="utf-8", errors="replace") as file:
        yield from _blocks([line.strip() for line in file], path)


def _collection(path: str) -> Iterator[Pronoun]:
    """The schemas of the collection's XML."""
    with fsspec.open(path, "rb") as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST or b"<!ENTITY" in data:  # nothing in the public file is expanded
        raise InputError(f"{path}: found an entity, or more than {_LARGEST} bytes; expected the public collection")
    try:
        root = ElementTree.fromstring(data)  # noqa: S314  # without entities there is nothing to blow up
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        raise InputError(f"{path}: found {error}, expected XML") from None
    for number, schema in enumerate(root.iter("schema"), start=1):
        parts = [" ".join(schema.findtext(f"text/{name}", "").split()) for name in ("txt1", "pron", "txt2")]
        names = tuple(" ".join("".join(answer.itertext()).split()) for answer in schema.iterfind("answers/answer"))
        right = schema.findtext("correctAnswer", "").strip().rstrip(".")
        if len(names) != 2 or right not in ("A", "B") or not parts[1] or not all(names):
            raise InputError(f"{path}, schema {number}: expected a text, a pronoun, two answers and which is right")
        yield Pronoun(parts[0], parts[2], (names[0], names[1]), "AB".index(right), parts[1])


def _blocks(lines: Sequence[str], path: str) -> Iterator[Pronoun]:
    """Schemas of four lines each: sentence, pronoun, "a,b", the right one."""
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
        places = list(re.finditer(rf"(?<!\w){re.escape(pronoun)}(?!\w)", sentence))  # WSC273's text has [MASK]
        if not places or not pronoun:
            raise InputError(f"{path}:{at + 2}: found {pronoun!r}, expected a pronoun of the sentence above")
        place = next((place for place in places if place.start() >= end), places[0])
        before, after = sentence[: place.start()], sentence[place.end() :]
        yield Pronoun(before.strip(), after.strip(), (referents[0], referents[1]), referents.index(answer), pronoun)
        at += 4
