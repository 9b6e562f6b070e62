"""Statements about the world with what follows from them, what they rule out, what they leave open, what they answer.

A :class:`Statement` is the one source of every inference in this package: people argue about statements in the books,
and the inference and reading tasks are written from other statements of the same makers. Negations occur as often
among what follows as among what is ruled out, so that a hypothesis alone does not give its label away.

Beside them stands what all things of a kind do: the school book facts behind SciTail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

from gptcore.storyworld.lexicon import (
    DAYS,
    GIFTS,
    MOVES,
    REGIONS,
    SAID,
    VILLAGES,
    Group,
    Person,
    Verb,
    Word,
    Words,
    named,
    region_of,
    say,
)


@dataclass(frozen=True)
class Question:
    """A question that a statement answers, with wrong answers of the same kind."""

    text: str
    answer: str
    wrong: tuple[str, ...]


@dataclass(frozen=True)
class Statement:
    """One sentence and its logical surroundings; all sentences end with a full stop."""

    text: str
    questions: tuple[Question, ...]
    about: tuple[str, ...]
    """Names and things it speaks of."""
    around: Callable[[str], tuple[str, ...]]
    """What stands in a relation to it: "entailed", "contradicted" or "neutral"."""

    @cached_property
    def entailed(self) -> tuple[str, ...]:
        """What follows from it."""
        return self.around("entailed")

    @cached_property
    def contradicted(self) -> tuple[str, ...]:
        """What it rules out."""
        return self.around("contradicted")

    @cached_property
    def neutral(self) -> tuple[str, ...]:
        """What it leaves open."""
        return self.around("neutral")


def cast(rng: Random, words: Words, n: int) -> list[Person]:
    """``n`` different people."""
    return rng.sample(words.people, n)


@dataclass(frozen=True)
class _Maker:
    """Makes a statement of a kind that ``sentences.toml`` has."""

    rng: Random
    words: Words
    kind: str

    def text(self, **slots: object) -> str:
        """The statement itself."""
        return say(self.rng, SAID["statements"][self.kind]["text"], **slots)

    def statement(self, text: str, about: tuple[str, ...], known: Sequence[Person], **slots: Any) -> Statement:
        """Everything around the statement.

        :param known: people who are no wrong answers.
        :param slots: what the sentences are filled with; ``thing`` and ``spot`` are no wrong answers either.
        """
        said = SAID["statements"][self.kind]

        def filled(sentences: Sequence[str]) -> tuple[str, ...]:
            return tuple(sentence.format(**slots) for sentence in sentences)

        questions = []
        for question in said["questions"]:
            asked, answer, *wrong = filled((question["text"], question["answer"], *question.get("wrong", ())))
            if "others" in question:
                wrong += self._others(question["others"], known, slots)[: 3 - len(wrong)]
            questions.append(Question(asked, answer, tuple(wrong)))
        return Statement(text, tuple(questions), about, lambda relation: filled(said[relation]))

    def _others(self, what: str, known: Sequence[Person], slots: Mapping[str, Any]) -> tuple[str, ...]:
        """Three people, things or spots that the statement does not speak of."""
        if what == "people":
            return tuple(map(str, self.rng.sample([p for p in self.words.people if p not in known], 3)))
        if what == "things":
            return tuple(f"the {other}" for other in self.rng.sample(_but(self.words.made(), slots["thing"]), 3))
        return tuple(f"at the {other}" for other in self.rng.sample(_but(self.words.spots, slots["spot"]), 3))


def _but(items: Sequence[Word], *known: str) -> list[Word]:
    return [item for item in items if item not in known]


def _other(rng: Random, words: Words, a: Person) -> Person:
    return rng.choice([person for person in words.people if person != a])


def gift(rng: Random, words: Words, a: Person, b: Person, thing: Word) -> Statement:
    """``a`` gives ``thing`` to ``b``."""
    maker = _Maker(rng, words, "gift")
    slots = {"a": a, "b": b, "thing": thing, "verb": rng.choice(GIFTS), "other": rng.choice(_but(words.made(), thing))}
    return maker.statement(maker.text(**slots), (a.name, b.name, thing), (a, b), **slots)


def journey(rng: Random, words: Words, a: Person, start: Word, goal: Word) -> Statement:
    """``a`` goes from one spot to another."""
    maker = _Maker(rng, words, "journey")
    slots: dict[str, object] = {"a": a, "start": start, "goal": goal, "verb": rng.choice(MOVES)}
    slots["c"] = _other(rng, words, a)
    slots["other"], slots["third"] = rng.sample(_but(words.spots, start, goal), 2)
    return maker.statement(maker.text(**slots), (a.name, goal), (a,), **slots)


def _senses(rng: Random, groups: Sequence[Group[Word]]) -> dict[str, Word]:
    """A word of a group, another that means the same, one of the contrary meaning, and two of other groups."""
    group = rng.choice(groups)
    opposite = named(groups, group.opposite)
    said, same = rng.sample(group.words, 2)
    found = {"said": said, "same": same, "against": rng.choice(opposite.words)}
    rest = [g for g in groups if g.name not in (group.name, opposite.name)]
    unrelated, unrelated_too = (rng.choice(g.words) for g in rng.sample(rest, 2))
    return {**found, "unrelated": unrelated, "unrelated_too": unrelated_too}


def feeling(rng: Random, words: Words, a: Person) -> Statement:
    """``a`` is in some mood, or of some nature."""
    maker = _Maker(rng, words, "feeling")
    slots: dict[str, Any] = {"a": a, **_senses(rng, words.moods)}
    slots |= {"c": _other(rng, words, a), "day": rng.choice(DAYS)}
    return maker.statement(maker.text(**slots), (a.name,), (a, slots["c"]), **slots)


def quality(rng: Random, words: Words, a: Person, thing: Word) -> Statement:
    """``a``'s ``thing`` has some quality."""
    maker = _Maker(rng, words, "quality")
    slots: dict[str, object] = {"a": a, "thing": thing, **_senses(rng, words.qualities)}
    return maker.statement(maker.text(**slots), (a.name, thing), (a,), **slots)


def _unrelated(rng: Random, deeds: Sequence[Group[Verb]], group: Group[Verb]) -> dict[str, Verb]:
    """Two verbs that mean neither what those of ``group`` mean nor the contrary."""
    rest = [g for g in deeds if g.name not in (group.name, group.opposite)]
    one, other = (rng.choice(g.words) for g in rng.sample(rest, 2))
    return {"unrelated": one, "unrelated_too": other}


def deed(rng: Random, words: Words, a: Person, thing: Word) -> Statement:
    """``a`` does something with a made ``thing``."""
    maker = _Maker(rng, words, "deed")
    group = rng.choice(words.deeds)
    slots: dict[str, object] = {"a": a, "thing": thing}
    slots["said"], slots["same"] = rng.sample(group.words, 2)
    slots["against"], slots["against_too"] = rng.sample(named(words.deeds, group.opposite).words, 2)
    slots |= _unrelated(rng, words.deeds, group)
    slots |= {"spot": rng.choice(words.spots), "day": rng.choice(DAYS)}
    return maker.statement(maker.text(**slots), (a.name, thing), (a,), **slots)


def kindred(rng: Random, words: Words, a: Person) -> Statement:
    """``a`` sees a thing of some kind."""
    maker = _Maker(rng, words, "kindred")
    kind, other, third, fourth = rng.sample(words.kinds, 4)
    thing, spot = rng.choice(kind.members), rng.choice(words.spots)
    slots = {"a": a, "kind": kind.name, "other": other.name, "third": third.name, "fourth": fourth.name}
    slots |= {"c": _other(rng, words, a)}
    text = maker.text(a=a, thing=thing, spot=spot)
    does, do = ("drew", "draw") if "drew" in text else ("saw", "see")
    return maker.statement(text, (a.name, thing), (a,), does=does, do=do, **slots)


def home(rng: Random, words: Words, a: Person) -> Statement:
    """``a`` lives in a village, and so in the region that it lies in."""
    maker = _Maker(rng, words, "home")
    village = rng.choice(VILLAGES)
    region = region_of(village)
    rest = [other for other in REGIONS if other != region]
    slots = {"a": a, "village": village, "region": region, "rest": rest, "wrong": rng.choice(rest)}
    slots |= {"c": _other(rng, words, a)}
    return maker.statement(maker.text(**slots), (a.name, village), (a,), **slots)


def picture(rng: Random, words: Words) -> Statement:
    """Somebody in a picture does something with a made thing (the captions of SNLI)."""
    maker = _Maker(rng, words, "picture")
    group, grade = rng.choice(words.deeds), rng.choice(words.qualities)
    slots: dict[str, object] = {}
    slots["said"], slots["same"] = rng.sample(group.words, 2)
    slots["against"] = rng.choice(named(words.deeds, group.opposite).words)
    slots["adjective"], slots["likewise"] = rng.sample(grade.words, 2)
    slots["contrary"] = rng.choice(named(words.qualities, grade.opposite).words)
    kind = rng.choice([k for k in words.kinds if k.made])
    thing, spot = rng.choice(kind.members), rng.choice(words.spots)
    who = rng.choice(("man", "woman", "boy", "girl"))
    slots |= {"kind": kind.name, "thing": thing, "spot": spot, "who": who, **_unrelated(rng, words.deeds, group)}
    others = [g for g in words.qualities if g.name not in (grade.name, grade.opposite)]
    slots["beside"] = rng.choice(rng.choice(others).words)
    return maker.statement(maker.text(**slots), (who, thing), (), **slots)


def _gift(rng: Random, words: Words) -> Statement:
    a, b = cast(rng, words, 2)
    return gift(rng, words, a, b, rng.choice(words.made()))


def _journey(rng: Random, words: Words) -> Statement:
    start, goal = rng.sample(words.spots, 2)
    return journey(rng, words, cast(rng, words, 1)[0], start, goal)


def _one(maker: Callable[[Random, Words, Person], Statement]) -> Callable[[Random, Words], Statement]:
    return lambda rng, words: maker(rng, words, cast(rng, words, 1)[0])


MAKERS: tuple[Callable[[Random, Words], Statement], ...] = (
    _gift,
    _journey,
    _one(feeling),
    _one(lambda rng, words, a: quality(rng, words, a, rng.choice(words.made()))),
    _one(lambda rng, words, a: deed(rng, words, a, rng.choice(words.made()))),
    _one(kindred),
    _one(home),
    picture,
)


def statement(rng: Random, words: Words) -> Statement:
    """A random statement about random people and things."""
    return rng.choice(MAKERS)(rng, words)


def science(rng: Random, words: Words, entails: bool) -> tuple[str, str]:
    """(premise, hypothesis): a fact about a kind, and a claim about a thing that is or is not of that kind."""
    nature = SAID["nature"]
    if rng.random() < 0.8:  # a thing is somewhere, and something alive is said to be there: an animal, or a plant
        thing, spot = rng.choice(words.grown() if entails else words.made()), rng.choice(words.spots)
        return say(rng, nature["seen"], thing=thing, spot=spot), say(rng, nature["alive"], spot=spot)
    kind, other = rng.sample(words.kinds, 2)
    thing = rng.choice(kind.members if entails else other.members)
    many, single = rng.choice(kind.habits)
    slots = {"kind": kind, "thing": thing, "many": many, "single": single, "named": (kind if entails else other).name}
    slots |= {"spot": rng.choice(words.spots), "seen": rng.choice(kind.members)}
    premise, claim = rng.choice(nature["science"])
    return premise.format(**slots), claim.format(**slots)
