"""The words of the generated world: people, places, things, moods, deeds, opinions.

Words of one group mean the same and are used interchangeably all over the books; each group names its opposite. A
task's train rows are written with a *part* of the words (:meth:`Words.narrow`) and its dev rows with all of them, so
that some dev rows hang on words whose meaning only the books tell. The words are those of ``world.toml``, in its order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, TypeVar

from gptcore.base.tables import read_table


class Word(str):
    """A word with the forms that sentences ask for: ``{thing.a}`` is "a lamp", ``{thing.Many}`` is "Lamps"."""

    __slots__ = ()

    @property
    def a(self) -> str:
        """The noun with its indefinite article."""
        return article(self)

    @property
    def A(self) -> str:
        """The noun with its indefinite article, at the start of a sentence."""
        return capital(article(self))

    @property
    def many(self) -> str:
        """The plural."""
        if self.endswith("y") and self[-2] not in "aeiou":
            return self[:-1] + "ies"
        if self == "goose":
            return "geese"
        return self + ("es" if self.endswith(("s", "sh", "ch", "x")) else "s")

    @property
    def Many(self) -> str:
        """The plural at the start of a sentence."""
        return capital(self.many)


def article(noun: str) -> str:
    """The noun with its indefinite article."""
    return f"{'an' if noun[0] in 'aeiouAEIOU' else 'a'} {noun}"


def capital(sentence: str) -> str:
    """The sentence with a capital at its start."""
    return sentence[:1].upper() + sentence[1:]


def uncapital(sentence: str) -> str:
    """The sentence as it goes on after other words: small at its start unless that is a name."""
    return sentence if sentence.split()[0].rstrip(",") in NAMES else sentence[:1].lower() + sentence[1:]


@dataclass(frozen=True, eq=False)  # whoever is somebody else is another object
class Person:
    """Someone with a name, and the pronouns that go with it: ``{a}`` is the name, ``{a.he}`` "he" or "she"."""

    name: str
    female: bool

    def __str__(self) -> str:
        return self.name

    @property
    def he(self) -> str:
        return "she" if self.female else "he"

    @property
    def him(self) -> str:
        return "her" if self.female else "him"

    @property
    def his(self) -> str:
        return "her" if self.female else "his"

    @property
    def himself(self) -> str:
        return "herself" if self.female else "himself"


@dataclass(frozen=True)
class Verb:
    """One verb in its five forms."""

    base: str
    third: str
    past: str
    participle: str
    ing: str

    def __str__(self) -> str:
        return self.base


W = TypeVar("W", Word, Verb)


@dataclass(frozen=True)
class Group(Generic[W]):
    """Words, or verbs, of one meaning; ``opposite`` names the group of the contrary meaning."""

    name: str
    words: tuple[W, ...]
    opposite: str


@dataclass(frozen=True)
class Kind:
    """A kind of things: its members, the wider class above it, and what all of its members do."""

    name: Word
    members: tuple[Word, ...]
    above: Word
    habits: tuple[tuple[str, str], ...]
    """(plural, singular) verb phrases that are true of each member and of no other kind."""
    made: bool
    """Made by hand: can be bought, broken, mended, owned."""


@dataclass(frozen=True)
class Topic:
    """One matter: how it starts, how it goes well, how it goes badly."""

    name: str
    """A noun phrase that says what the story is about."""
    starts: tuple[str, ...]
    good: tuple[str, ...]
    bad: tuple[str, ...]

    def side(self, well: bool) -> tuple[str, ...]:
        return self.good if well else self.bad


def say(rng: Random, sentences: Sequence[str], **slots: object) -> str:
    """One of some sentences, filled in.

    :param sentences: some of :data:`SAID`.
    """
    return rng.choice(sentences).format(**slots)


def _words(text: str) -> tuple[Word, ...]:
    return tuple(map(Word, text.split()))


def _verb(entry: str) -> Verb:
    """``base:past[:participle[:ing]]``, regular where left out."""
    base, *given = entry.split(":")
    past = given[0] if given else (base + "d" if base.endswith("e") else base + "ed")
    participle = given[1] if len(given) > 1 else past
    ing = given[2] if len(given) > 2 else (base[:-1] if base.endswith("e") else base) + "ing"
    third = base + "es" if base.endswith(("s", "sh", "ch", "x", "o")) else base + "s"
    if base.endswith("y") and base[-2] not in "aeou":
        third = base[:-1] + "ies"
    return Verb(base, third, past, participle, ing)


def _verbs(text: str) -> tuple[Verb, ...]:
    return tuple(map(_verb, text.split()))


def _groups(rows: Iterable[tuple[str, str]], read: Callable[[str], tuple[W, ...]]) -> tuple[Group[W], ...]:
    """Rows of words of one meaning and words of the contrary meaning; the second may be empty."""
    groups = []
    for left, right in ((read(one), read(other)) for one, other in rows):
        groups.append(Group(str(left[0]), left, str(right[0]) if right else ""))
        if right:
            groups.append(Group(str(right[0]), right, str(left[0])))
    return tuple(groups)


def _kind(row: Mapping[str, Any]) -> Kind:
    habits = tuple((habit, _singular(habit)) for habit in row["habits"])
    return Kind(Word(row["name"]), _words(row["members"]), Word(row["above"]), habits, row.get("made", False))


def _singular(habit: str) -> str:
    """Third person singular of a verb phrase: "have wings" -> "has wings"."""
    verb, _, rest = habit.partition(" ")
    irregular = {"are": "is", "have": "has", "can": "can"}
    third = irregular.get(verb) or _verb(verb).third
    return f"{third} {rest}".strip()


SAID: Mapping[str, Any] = read_table(__file__, "sentences.toml")
"""What people of the world say and are told, by what it is; :func:`say` draws one."""
WORLD: Mapping[str, Any] = read_table(__file__, "world.toml")
"""What the world has, as the table says it; the names below are its words."""
WOMEN, MEN, CALLINGS, SPOTS, DAYS, SEASONS, WORKS = (
    _words(WORLD[name]) for name in ("women", "men", "callings", "spots", "days", "seasons", "works")
)
PEOPLE = tuple(Person(n, f) for pair in zip(WOMEN, MEN, strict=True) for n, f in zip(pair, (True, False), strict=True))
NAMES = frozenset(WOMEN + MEN)
"""The names of people, which begin with a capital wherever they stand."""
REGIONS: Mapping[str, tuple[str, ...]] = {region: _words(villages) for region, villages in WORLD["regions"]}
VILLAGES = tuple(village for villages in REGIONS.values() for village in villages)
KINDS = tuple(map(_kind, WORLD["kinds"]))
MOODS, QUALITIES = (_groups(WORLD[name], _words) for name in ("moods", "qualities"))
DEEDS, ACTS = (_groups(WORLD[name], _verbs) for name in ("deeds", "acts"))
GIFTS, MOVES, LIKING, LOATHING = (_verbs(WORLD[name]) for name in ("gifts", "moves", "liking", "loathing"))
PRAISE, BLAME = _words(WORLD["praise"]), _words(WORLD["blame"])
TOPICS = tuple(Topic(**topic) for topic in WORLD["topics"])


@dataclass(frozen=True)
class Words:
    """The part of the lexicon that one text may use."""

    kinds: tuple[Kind, ...] = KINDS
    moods: tuple[Group[Word], ...] = MOODS
    qualities: tuple[Group[Word], ...] = QUALITIES
    deeds: tuple[Group[Verb], ...] = DEEDS
    acts: tuple[Group[Verb], ...] = ACTS
    praise: tuple[Word, ...] = PRAISE
    blame: tuple[Word, ...] = BLAME
    liking: tuple[Verb, ...] = LIKING
    loathing: tuple[Verb, ...] = LOATHING
    spots: tuple[Word, ...] = SPOTS
    people: tuple[Person, ...] = PEOPLE
    topics: tuple[Topic, ...] = TOPICS

    def narrow(self, rng: Random) -> Words:
        """Keep about half of the words of every group (at least two), and half of what can happen."""
        kept: dict[str, Any] = {"kinds": _halved(rng, self.kinds, "members")}
        for name in ("moods", "qualities", "deeds", "acts"):
            kept[name] = _halved(rng, getattr(self, name), "words")
        for name in ("praise", "blame", "liking", "loathing", "spots"):
            kept[name] = _half(rng, getattr(self, name))
        return dataclasses.replace(self, **kept, topics=_halved(rng, self.topics, "good", "bad"))

    def without(self, narrowed: Words) -> Words:
        """Leave out the clauses and the kinds' members that ``narrowed`` has: what its reader has never met."""
        kinds = _left_over(self.kinds, narrowed.kinds, "members")
        return dataclasses.replace(self, kinds=kinds, topics=_left_over(self.topics, narrowed.topics, "good", "bad"))

    def topic(self, rng: Random, people: Sequence[Person]) -> Words:
        """What one chapter is about: some of ``people``, a few places, things, moods, qualities and deeds.

        A chapter that keeps to its people and words, as chapters do, is what teaches a reader to look back.
        """
        made = rng.sample([kind for kind in self.kinds if kind.made], 3)
        grown = rng.sample([kind for kind in self.kinds if not kind.made], 2)
        moods = ["happy", rng.choice(("calm", "brave", "rested", "rich", "healthy", "kind", "clever"))]
        qualities = rng.sample([group.name for group in self.qualities[::2]], 2)
        deeds = rng.sample([group.name for group in self.deeds[::2]], 2)
        return dataclasses.replace(
            self,
            people=tuple(rng.sample(people, 6)),
            kinds=_halved(rng, (*made, *grown), "members"),
            moods=_with_opposites(self.moods, moods),
            qualities=_with_opposites(self.qualities, qualities),
            deeds=_with_opposites(self.deeds, deeds),
            praise=_half(rng, self.praise),
            blame=_half(rng, self.blame),
            spots=tuple(rng.sample(self.spots, 6)),
        )

    def made(self) -> tuple[Word, ...]:
        """Things that people own."""
        return tuple(thing for kind in self.kinds if kind.made for thing in kind.members)

    def grown(self) -> tuple[Word, ...]:
        """Animals and plants."""
        return tuple(thing for kind in self.kinds if not kind.made for thing in kind.members)


_T = TypeVar("_T")
_Part = TypeVar("_Part", bound="Kind | Group[Word] | Group[Verb] | Topic")


def _half(rng: Random, items: tuple[_T, ...]) -> tuple[_T, ...]:
    chosen = sorted(rng.sample(range(len(items)), max(2, len(items) // 2)))
    return tuple(items[i] for i in chosen)


def _halved(rng: Random, parts: Iterable[_Part], *fields: str) -> tuple[_Part, ...]:
    halved = []
    for part in parts:
        halves: dict[str, Any] = {field: _half(rng, getattr(part, field)) for field in fields}
        halved.append(dataclasses.replace(part, **halves))
    return tuple(halved)


def _left_over(parts: Iterable[_Part], met: Iterable[_Part], *fields: str) -> tuple[_Part, ...]:
    """Each part with what its fields hold and those of its counterpart in ``met`` do not."""
    left = []
    for part, known in zip(parts, met, strict=True):
        rest: dict[str, Any] = {
            field: tuple(item for item in getattr(part, field) if item not in getattr(known, field)) for field in fields
        }
        left.append(dataclasses.replace(part, **rest))
    return tuple(left)


def _with_opposites(groups: Iterable[Group[W]], names: Sequence[str]) -> tuple[Group[W], ...]:
    return tuple(group for group in groups if group.name in names or group.opposite in names)


def named(groups: Iterable[Group[W]], name: str) -> Group[W]:
    """The group of this name."""
    return next(group for group in groups if group.name == name)


def one_of(rng: Random, groups: Sequence[Group[W]]) -> W:
    """A word of some group."""
    return rng.choice(rng.choice(groups).words)


def invented(rng: Random, kind: str, syllables: int) -> str:
    """A word that there is not, of a kind of which the world has the parts."""
    onsets, vowels, codas = (WORLD[f"{kind}_{part}"] for part in ("onsets", "vowels", "codas"))
    drawn: list[str] = [rng.choice(onsets) + rng.choice(vowels) for _ in range(syllables)]
    return "".join([*drawn, rng.choice(codas)])


def region_of(village: str) -> str:
    """The region that a village lies in."""
    return next(region for region, villages in REGIONS.items() if village in villages)
