"""Statements about the world with what follows from them, what they rule out, what they leave open, what they answer.

A :class:`Statement` is the one source of every inference in this package: people argue about statements in the books,
and the inference and reading tasks are written from other statements of the same makers. Negations occur as often
among what follows as among what is ruled out, so that a hypothesis alone does not give its label away.

Beside them stands what all things of a kind do: the school book facts behind SciTail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from gptcore.papers.storyworld.lexicon import (
    DAYS,
    GIFTS,
    MOVES,
    REGIONS,
    SAID,
    VILLAGES,
    Group,
    Person,
    W,
    Word,
    Words,
    named,
    one_of,
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
    entailed: tuple[str, ...]
    """What follows from it."""
    contradicted: tuple[str, ...]
    """What it rules out."""
    neutral: tuple[str, ...]
    """What it leaves open."""


def _made(
    rng: Random, words: Words, kind: str, about: str, known: Sequence[Person], text: str = "", /, **slots: Any
) -> Statement:
    """A statement of a kind that ``sentences.toml`` has, with everything around it.

    :param about: names of the slots that it speaks of.
    :param known: people who are no wrong answers.
    :param text: the statement itself, where it is drawn already.
    :param slots: what the sentences are filled with; ``thing`` and ``spot`` are no wrong answers either.
    """
    said = SAID["statements"][kind]
    text = text or say(rng, said["text"], **slots)

    def filled(sentences: Sequence[str]) -> tuple[str, ...]:
        return tuple(sentence.format(**slots) for sentence in sentences)

    questions = []
    for question in said["questions"]:
        asked, answer, *wrong = filled((question["text"], question["answer"], *question.get("wrong", ())))
        others: Sequence[object] = ()
        if question.get("others") == "people":
            others = rng.sample([person for person in words.people if person not in known], 3)
        elif question.get("others") == "things":
            others = [f"the {other}" for other in rng.sample(_but(words.made(), slots["thing"]), 3)]
        elif question.get("others") == "spots":
            others = [f"at the {other}" for other in rng.sample(_but(words.spots, slots["spot"]), 3)]
        questions.append(Question(asked, answer, (*wrong, *map(str, others))[:3]))
    named = tuple(str(slots[name]) for name in about.split())
    return Statement(
        text, tuple(questions), named, *map(filled, (said["entailed"], said["contradicted"], said["neutral"]))
    )


def _but(items: Sequence[Word], *known: str) -> list[Word]:
    return [item for item in items if item not in known]


def _other(rng: Random, words: Words, a: Person) -> Person:
    return rng.choice([person for person in words.people if person != a])


def gift(rng: Random, words: Words, a: Person, b: Person, thing: Word) -> Statement:
    """``a`` gives ``thing`` to ``b``."""
    verb, other = rng.choice(GIFTS), rng.choice(_but(words.made(), thing))
    return _made(rng, words, "gift", "a b thing", (a, b), a=a, b=b, thing=thing, verb=verb, other=other)


def journey(rng: Random, words: Words, a: Person, start: Word, goal: Word) -> Statement:
    """``a`` goes from one spot to another."""
    slots: dict[str, Any] = {"a": a, "start": start, "goal": goal, "verb": rng.choice(MOVES)}
    slots["c"] = _other(rng, words, a)
    slots["other"], slots["third"] = rng.sample(_but(words.spots, start, goal), 2)
    return _made(rng, words, "journey", "a goal", (a,), **slots)


def _unrelated(rng: Random, groups: Sequence[Group[W]], group: Group[W]) -> dict[str, W]:
    """Two words that mean neither what those of ``group`` mean nor the contrary."""
    rest = [other for other in groups if other.name not in (group.name, group.opposite)]
    one, other = (rng.choice(each.words) for each in rng.sample(rest, 2))
    return {"unrelated": one, "unrelated_too": other}


def _senses(rng: Random, groups: Sequence[Group[W]], against: int = 1) -> dict[str, W]:
    """A word of a group, another that means the same, one or two of the contrary meaning, and two of other groups."""
    group = rng.choice(groups)
    senses = dict(zip(("said", "same"), rng.sample(group.words, 2), strict=True))
    contrary = rng.sample(named(groups, group.opposite).words, against)
    senses |= zip(("against", "against_too"), contrary, strict=False)
    return {**senses, **_unrelated(rng, groups, group)}


def feeling(rng: Random, words: Words, a: Person) -> Statement:
    """``a`` is in some mood, or of some nature."""
    slots: dict[str, Any] = {"a": a, **_senses(rng, words.moods)}
    slots |= {"c": _other(rng, words, a), "day": rng.choice(DAYS)}
    return _made(rng, words, "feeling", "a", (a, slots["c"]), **slots)


def quality(rng: Random, words: Words, a: Person, thing: Word) -> Statement:
    """``a``'s ``thing`` has some quality."""
    return _made(rng, words, "quality", "a thing", (a,), a=a, thing=thing, **_senses(rng, words.qualities))


def deed(rng: Random, words: Words, a: Person, thing: Word) -> Statement:
    """``a`` does something with a made ``thing``."""
    slots: dict[str, Any] = {"a": a, "thing": thing, **_senses(rng, words.deeds, against=2)}
    slots |= {"spot": rng.choice(words.spots), "day": rng.choice(DAYS)}
    return _made(rng, words, "deed", "a thing", (a,), **slots)


def kindred(rng: Random, words: Words, a: Person) -> Statement:
    """``a`` sees a thing of some kind."""
    kinds = rng.sample(words.kinds, 4)
    slots: dict[str, Any] = {"a": a, "thing": rng.choice(kinds[0].members), "spot": rng.choice(words.spots)}
    slots |= zip(("kind", "other", "third", "fourth"), (kind.name for kind in kinds), strict=True)
    slots["c"] = _other(rng, words, a)
    text = say(rng, SAID["statements"]["kindred"]["text"], **slots)
    does, do = ("drew", "draw") if "drew" in text else ("saw", "see")
    return _made(rng, words, "kindred", "a thing", (a,), text, does=does, do=do, **slots)


def home(rng: Random, words: Words, a: Person) -> Statement:
    """``a`` lives in a village, and so in the region that it lies in."""
    village = rng.choice(VILLAGES)
    region = region_of(village)
    rest = [other for other in REGIONS if other != region]
    slots = {"a": a, "village": village, "region": region, "rest": rest, "wrong": rng.choice(rest)}
    return _made(rng, words, "home", "a village", (a,), **slots, c=_other(rng, words, a))


def picture(rng: Random, words: Words) -> Statement:
    """Somebody in a picture does something with a made thing (the captions of SNLI)."""
    group, grade = rng.choice(words.deeds), rng.choice(words.qualities)
    slots: dict[str, Any] = {}
    slots["said"], slots["same"] = rng.sample(group.words, 2)
    slots["against"] = rng.choice(named(words.deeds, group.opposite).words)
    slots["adjective"], slots["likewise"] = rng.sample(grade.words, 2)
    slots["contrary"] = rng.choice(named(words.qualities, grade.opposite).words)
    kind = rng.choice([kind for kind in words.kinds if kind.made])
    slots |= {"kind": kind.name, "thing": rng.choice(kind.members), "spot": rng.choice(words.spots)}
    slots["who"] = rng.choice(("man", "woman", "boy", "girl"))
    slots |= _unrelated(rng, words.deeds, group)
    others = [other for other in words.qualities if other.name not in (grade.name, grade.opposite)]
    return _made(rng, words, "picture", "who thing", (), **slots, beside=one_of(rng, others))


def _gift(rng: Random, words: Words) -> Statement:
    a, b = rng.sample(words.people, 2)
    return gift(rng, words, a, b, rng.choice(words.made()))


def _journey(rng: Random, words: Words) -> Statement:
    start, goal = rng.sample(words.spots, 2)
    return journey(rng, words, rng.choice(words.people), start, goal)


def _one(maker: Callable[[Random, Words, Person], Statement]) -> Callable[[Random, Words], Statement]:
    return lambda rng, words: maker(rng, words, rng.choice(words.people))


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
