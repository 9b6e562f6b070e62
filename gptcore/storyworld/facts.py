"""Statements about the world with what follows from them, what they rule out, what they leave open, what they answer.

A :class:`Statement` is the one source of every inference in this package: people argue about statements in the books,
and the inference and reading tasks are written from other statements of the same makers. Negations occur as often
among what follows as among what is ruled out, so that a hypothesis alone does not give its label away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from gptcore.storyworld.lexicon import (
    DAYS,
    GIFTS,
    MEN,
    MOVES,
    REGIONS,
    VILLAGES,
    WOMEN,
    Person,
    Words,
    region_of,
)

_T = TypeVar("_T")


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
    entailed: tuple[str, ...]
    contradicted: tuple[str, ...]
    neutral: tuple[str, ...]
    questions: tuple[Question, ...]
    about: tuple[str, ...]
    """Names and things it speaks of."""


def uncapital(sentence: str) -> str:
    """The sentence as it goes on after other words: small at its start unless that is a name."""
    return sentence if sentence.split()[0].rstrip(",") in NAMES else sentence[:1].lower() + sentence[1:]


def article(noun: str) -> str:
    """The noun with its indefinite article."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def capital(sentence: str) -> str:
    """The sentence with a capital at its start."""
    return sentence[:1].upper() + sentence[1:]


def cast(rng: Random, words: Words, n: int) -> list[Person]:
    """``n`` different people."""
    return rng.sample(words.people, n)


def two(rng: Random, group: tuple[_T, ...]) -> tuple[_T, _T]:
    """Two different words (or verbs) of a group: the first is said, the second means the same."""
    first, second = rng.sample(group, 2)
    return first, second


def gift(rng: Random, words: Words, a: Person, b: Person, thing: str) -> Statement:
    """``a`` gives ``thing`` to ``b``."""
    verb = rng.choice(GIFTS)
    other = rng.choice([x for x in words.made() if x != thing])
    text = rng.choice(
        [
            f"{a.name} {verb.past} the {thing} to {b.name}.",
            f"{b.name} got the {thing} from {a.name}.",
            f"{b.name} was given the {thing} by {a.name}.",
            f"The {thing} went from {a.name} to {b.name}.",
        ]
    )
    return Statement(
        text,
        (f"{b.name} has the {thing}.", f"{a.name} does not have the {thing}.", f"The {thing} belongs to {b.name}."),
        (f"{a.name} has the {thing}.", f"{b.name} does not have the {thing}.", f"The {thing} belongs to {a.name}."),
        (f"{b.name} has the {other}.", f"{a.name} does not have the {other}.", f"The {other} belongs to {b.name}."),
        (
            Question(f"Who has the {thing}?", b.name, (a.name, *_others(rng, words, a, b)[:2])),
            Question(f"Who gave away the {thing}?", a.name, (b.name, *_others(rng, words, a, b)[:2])),
            Question(f"What did {b.name} get?", f"the {thing}", _other_things(rng, words, thing)),
        ),
        (a.name, b.name, thing),
    )


def journey(rng: Random, words: Words, a: Person, start: str, goal: str) -> Statement:
    """``a`` goes from one spot to another."""
    verb = rng.choice(MOVES)
    c = rng.choice([person for person in words.people if person != a])
    other, third = rng.sample([spot for spot in words.spots if spot not in (start, goal)], 2)
    text = rng.choice(
        [
            f"{a.name} {verb.past} from the {start} to the {goal}.",
            f"{a.name} left the {start} and {verb.past} to the {goal}.",
            f"{a.name} came to the {goal} from the {start}.",
        ]
    )
    return Statement(
        text,
        (f"{a.name} is at the {goal}.", f"{a.name} is not at the {start}.", f"{a.name} left the {start}."),
        (f"{a.name} is at the {start}.", f"{a.name} is not at the {goal}.", f"{a.name} left the {goal}."),
        (f"{c.name} is at the {goal}.", f"{c.name} is not at the {start}.", f"{c.name} left the {start}."),
        (
            Question(f"Where is {a.name}?", f"at the {goal}", tuple(f"at the {x}" for x in (start, other, third))),
            Question(f"Who is at the {goal}?", a.name, _others(rng, words, a)),
            Question(
                f"Which place did {a.name} leave?", f"the {start}", tuple(f"the {x}" for x in (goal, other, third))
            ),
        ),
        (a.name, goal),
    )


def feeling(rng: Random, words: Words, a: Person) -> Statement:
    """``a`` is in some mood, or of some nature."""
    group = rng.choice(words.moods)
    opposite = words.mood(group.opposite)
    rest = [g for g in words.moods if g.name not in (group.name, opposite.name)]
    said, same = two(rng, group.words)
    against = rng.choice(opposite.words)
    unrelated, unrelated_too = (rng.choice(g.words) for g in rng.sample(rest, 2))
    c = rng.choice([person for person in words.people if person != a])
    day = rng.choice(DAYS)
    text = rng.choice(
        [
            f"{a.name} was {said}.",
            f"On {day} {a.name} was very {said}.",
            f"{a.name} was {said} and so was {c.name}.",
            f"Everyone saw that {a.name} was {said}.",
        ]
    )
    return Statement(
        text,
        (f"{a.name} was {same}.", f"{a.name} was not {against}.", f"{a.name} seemed {same}."),
        (f"{a.name} was {against}.", f"{a.name} was not {same}.", f"{a.name} seemed {against}."),
        (f"{a.name} was {unrelated}.", f"{a.name} was not {unrelated_too}.", f"{a.name} seemed {unrelated}."),
        (
            Question(f"How was {a.name}?", same, (against, unrelated, unrelated_too)),
            Question(f"Who was {same}?", a.name, _others(rng, words, a, c)),
        ),
        (a.name,),
    )


def quality(rng: Random, words: Words, a: Person, thing: str) -> Statement:
    """``a``'s ``thing`` has some quality."""
    group = rng.choice(words.qualities)
    opposite = words.quality(group.opposite)
    rest = [g for g in words.qualities if g.name not in (group.name, opposite.name)]
    said, same = two(rng, group.words)
    against = rng.choice(opposite.words)
    unrelated, unrelated_too = (rng.choice(g.words) for g in rng.sample(rest, 2))
    text = rng.choice(
        [
            f"{a.name} has {article(said)} {thing}.",
            f"The {thing} of {a.name} is {said}.",
            f"{a.name} owns {article(said)} {thing}.",
        ]
    )
    return Statement(
        text,
        (f"The {thing} is {same}.", f"The {thing} is not {against}.", f"{a.name} has {article(same)} {thing}."),
        (f"The {thing} is {against}.", f"The {thing} is not {same}.", f"{a.name} has {article(against)} {thing}."),
        (
            f"The {thing} is {unrelated}.",
            f"The {thing} is not {unrelated_too}.",
            f"{a.name} has {article(unrelated)} {thing}.",
        ),
        (
            Question(f"What is the {thing} like?", same, (against, unrelated, unrelated_too)),
            Question(f"Who has {article(same)} {thing}?", a.name, _others(rng, words, a)),
            Question(f"What is {same}?", f"the {thing}", _other_things(rng, words, thing)),
        ),
        (a.name, thing),
    )


def deed(rng: Random, words: Words, a: Person, thing: str) -> Statement:
    """``a`` does something with a made ``thing``."""
    group = rng.choice(words.deeds)
    opposite = words.deed(group.opposite)
    rest = [g for g in words.deeds if g.name not in (group.name, opposite.name)]
    said, same = two(rng, group.verbs)
    against, against_too = two(rng, opposite.verbs)
    unrelated, unrelated_too = (rng.choice(g.verbs) for g in rng.sample(rest, 2))
    spot, day = rng.choice(words.spots), rng.choice(DAYS)
    text = rng.choice(
        [
            f"{a.name} {said.past} the {thing}.",
            f"{a.name} {said.past} the {thing} at the {spot}.",
            f"On {day} {a.name} {said.past} the {thing}.",
            f"The {thing} was {said.participle} by {a.name}.",
        ]
    )
    return Statement(
        text,
        (
            f"{a.name} {same.past} the {thing}.",
            f"{a.name} did not {against.base} the {thing}.",
            f"The {thing} was {same.participle}.",
        ),
        (
            f"{a.name} {against.past} the {thing}.",
            f"{a.name} did not {same.base} the {thing}.",
            f"The {thing} was {against_too.participle}.",
        ),
        (
            f"{a.name} {unrelated.past} the {thing}.",
            f"{a.name} did not {unrelated_too.base} the {thing}.",
            f"The {thing} was {unrelated.participle}.",
        ),
        (
            Question(f"Who {same.past} the {thing}?", a.name, _others(rng, words, a)),
            Question(f"What did {a.name} {same.base}?", f"the {thing}", _other_things(rng, words, thing)),
            Question(
                f"What happened to the {thing}?",
                f"it was {same.participle}",
                tuple(f"it was {verb.participle}" for verb in (against, unrelated, unrelated_too)),
            ),
        ),
        (a.name, thing),
    )


def kindred(rng: Random, words: Words, a: Person) -> Statement:
    """``a`` sees a thing of some kind."""
    kind, other, third, fourth = rng.sample(words.kinds, 4)
    thing = rng.choice(kind.members)
    spot = rng.choice(words.spots)
    c = rng.choice([person for person in words.people if person != a])
    text = rng.choice(
        [
            f"{a.name} saw only {article(thing)} at the {spot}.",
            f"All that {a.name} saw was {article(thing)}.",
            f"{a.name} drew {article(thing)} and nothing else.",
        ]
    )
    does = "drew" if "drew" in text else "saw"
    base = "draw" if does == "drew" else "see"
    return Statement(
        text,
        (f"{a.name} {does} {article(kind.name)}.", f"{a.name} did not {base} {article(other.name)}."),
        (f"{a.name} {does} {article(other.name)}.", f"{a.name} did not {base} {article(kind.name)}."),
        (f"{c.name} {does} {article(kind.name)}.", f"{c.name} did not {base} {article(third.name)}."),
        (
            Question(f"Who {does} {article(kind.name)}?", a.name, _others(rng, words, a)),
            Question(
                f"What did {a.name} {base}?",
                article(kind.name),
                tuple(article(k.name) for k in (other, third, fourth)),
            ),
        ),
        (a.name, thing),
    )


def home(rng: Random, words: Words, a: Person) -> Statement:
    """``a`` lives in a village, and so in the region that it lies in."""
    village = rng.choice(VILLAGES)
    region = region_of(village)
    wrong = rng.choice([r for r in REGIONS if r != region])
    c = rng.choice([person for person in words.people if person != a])
    text = rng.choice([f"{a.name} lives in {village}.", f"The home of {a.name} is in {village}."])
    return Statement(
        text,
        (f"{a.name} lives in {region}.", f"{a.name} does not live in {wrong}."),
        (f"{a.name} lives in {wrong}.", f"{a.name} does not live in {region}."),
        (f"{c.name} lives in {region}.", f"{c.name} does not live in {wrong}."),
        (
            Question(f"Where does {a.name} live?", f"in {region}", tuple(f"in {r}" for r in REGIONS if r != region)),
            Question(f"Who lives in {village}?", a.name, _others(rng, words, a)),
        ),
        (a.name, village),
    )


def picture(rng: Random, words: Words) -> Statement:
    """Somebody in a picture does something with a made thing (the captions of SNLI)."""
    group, grade = rng.choice(words.deeds), rng.choice(words.qualities)
    said, same = two(rng, group.verbs)
    against = rng.choice(words.deed(group.opposite).verbs)
    adjective, likewise = two(rng, grade.words)
    contrary = rng.choice(words.quality(grade.opposite).words)
    kind = rng.choice([k for k in words.kinds if k.made])
    thing, spot = rng.choice(kind.members), rng.choice(words.spots)
    who = rng.choice(("man", "woman", "boy", "girl"))
    rest = [g for g in words.deeds if g.name not in (group.name, group.opposite)]
    unrelated, unrelated_too = (rng.choice(g.verbs) for g in rng.sample(rest, 2))
    beside = rng.choice(rng.choice([g for g in words.qualities if g.name not in (grade.name, grade.opposite)]).words)
    item = f"{article(adjective)} {thing}"
    text = rng.choice(
        [
            f"A {who} is {said.ing} {item} at the {spot}.",
            f"A {who} at the {spot} is {said.ing} {item}.",
            f"At the {spot}, a {who} is {said.ing} {item}.",
        ]
    )
    return Statement(
        text,
        (
            f"A {who} is {same.ing} {article(kind.name)}.",
            f"Someone is {same.ing} {article(thing)}.",
            f"A {who} is {said.ing} {article(likewise)} {thing}.",
            f"The {who} is not {against.ing} the {thing}.",
        ),
        (
            f"A {who} is {against.ing} {article(kind.name)}.",
            f"Someone is {against.ing} {article(thing)}.",
            f"A {who} is {said.ing} {article(contrary)} {thing}.",
            f"The {who} is not {same.ing} the {thing}.",
        ),
        (
            f"A {who} is {unrelated.ing} {article(kind.name)}.",
            f"Someone is {unrelated_too.ing} {article(thing)}.",
            f"A {who} is {said.ing} {article(beside)} {thing}.",
            f"The {who} is not {unrelated.ing} the {thing}.",
        ),
        (
            Question(f"What is the {who} {same.ing}?", article(thing), _other_things(rng, words, thing)),
            Question(f"Where is the {who}?", f"at the {spot}", _other_spots(rng, words, spot)),
        ),
        (who, thing),
    )


def _other_spots(rng: Random, words: Words, spot: str) -> tuple[str, ...]:
    return tuple(f"at the {other}" for other in rng.sample([s for s in words.spots if s != spot], 3))


def _other_things(rng: Random, words: Words, thing: str) -> tuple[str, ...]:
    others = [other for other in words.made() if other != thing]
    return tuple(f"the {other}" for other in rng.sample(others, 3))


def _others(rng: Random, words: Words, *known: Person) -> tuple[str, ...]:
    return tuple(person.name for person in rng.sample([p for p in words.people if p not in known], 3))


def _gift(rng: Random, words: Words) -> Statement:
    a, b = cast(rng, words, 2)
    return gift(rng, words, a, b, rng.choice(words.made()))


def _journey(rng: Random, words: Words) -> Statement:
    start, goal = rng.sample(words.spots, 2)
    return journey(rng, words, cast(rng, words, 1)[0], start, goal)


def _quality(rng: Random, words: Words) -> Statement:
    return quality(rng, words, cast(rng, words, 1)[0], rng.choice(words.made()))


def _deed(rng: Random, words: Words) -> Statement:
    return deed(rng, words, cast(rng, words, 1)[0], rng.choice(words.made()))


def _one(maker: Callable[[Random, Words, Person], Statement]) -> Callable[[Random, Words], Statement]:
    return lambda rng, words: maker(rng, words, cast(rng, words, 1)[0])


NAMES = frozenset(WOMEN + MEN)
"""Of people, as they begin a sentence or stand in it."""

MAKERS: tuple[Callable[[Random, Words], Statement], ...] = (
    _gift,
    _journey,
    _one(feeling),
    _quality,
    _deed,
    _one(kindred),
    _one(home),
    picture,
)


def statement(rng: Random, words: Words) -> Statement:
    """A random statement about random people and things."""
    return rng.choice(MAKERS)(rng, words)
