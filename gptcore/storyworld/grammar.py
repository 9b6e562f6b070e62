"""Sentences that are well formed, each with a twin that is not (CoLA): agreement, order, verb frames, articles ..."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from gptcore.storyworld.facts import article, capital
from gptcore.storyworld.lexicon import GIFTS, Verb, Words

Twins = tuple[str, str]
"""(well formed, not well formed)"""


def plural(noun: str) -> str:
    """The plural of a thing of the world."""
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    if noun == "goose":
        return "geese"
    return noun + ("es" if noun.endswith(("s", "sh", "ch", "x")) else "s")


def _adjective(rng: Random, words: Words) -> str:
    return rng.choice(rng.choice(words.qualities).words)


def _mood(rng: Random, words: Words) -> str:
    return rng.choice(rng.choice(words.moods).words)


def _deed(rng: Random, words: Words) -> Verb:
    return rng.choice(rng.choice(words.deeds).verbs)


def _act(rng: Random, words: Words) -> Verb:
    return rng.choice(rng.choice(words.acts).verbs)


def _number(rng: Random, words: Words) -> Twins:
    kind = rng.choice(words.kinds)
    thing = rng.choice(kind.members)
    many, one = rng.choice(kind.habits)
    if rng.random() < 0.5:
        return f"the {plural(thing)} {many}", f"the {plural(thing)} {one}"
    return f"the {thing} {one}", f"the {thing} {many}"


def _copula(rng: Random, words: Words) -> Twins:
    person, thing = rng.choice(words.people).name, rng.choice(words.made())
    word = _adjective(rng, words)
    return rng.choice(
        [
            (f"the {plural(thing)} of {person} are {word}", f"the {plural(thing)} of {person} is {word}"),
            (f"the {plural(thing)} were {word}", f"the {plural(thing)} was {word}"),
            (f"the {thing} was {word}", f"the {thing} were {word}"),
            (f"there are {word} {plural(thing)} here", f"there is {word} {plural(thing)} here"),
        ]
    )


def _tense(rng: Random, words: Words) -> Twins:
    person, thing, verb = rng.choice(words.people).name, rng.choice(words.made()), _deed(rng, words)
    return rng.choice(
        [
            (f"{person} did not {verb.base} the {thing}", f"{person} did not {verb.past} the {thing}"),
            (f"{person} will {verb.base} the {thing}", f"{person} will {verb.past} the {thing}"),
            (f"{person} has {verb.participle} the {thing}", f"{person} has {verb.base} the {thing}"),
            (f"{person} is {verb.ing} the {thing}", f"{person} is {verb.base} the {thing}"),
            (f"{person} wants to {verb.base} the {thing}", f"{person} wants to {verb.past} the {thing}"),
        ]
    )


def _frame(rng: Random, words: Words) -> Twins:
    person, thing, spot = rng.choice(words.people).name, rng.choice(words.made()), rng.choice(words.spots)
    verb, act = _deed(rng, words), _act(rng, words)
    return rng.choice(
        [
            (f"{person} {act.past} at the {spot}", f"{person} {act.past} the {spot}"),
            (f"{person} {verb.past} the {thing} at the {spot}", f"{person} {verb.past} at the {spot}"),
            (f"{person} {act.past} all day", f"{person} {act.past} the {thing} all day"),
        ]
    )


def _order(rng: Random, words: Words) -> Twins:
    person, thing, verb, word = (
        rng.choice(words.people).name,
        rng.choice(words.made()),
        _deed(rng, words),
        _adjective(rng, words),
    )
    good = f"{person} {verb.past} the {word} {thing}"
    return good, rng.choice(
        [
            f"{person} {verb.past} the {thing} {word}",
            f"{person} {verb.past} {word} the {thing}",
            f"{person} the {word} {thing} {verb.past}",
            f"{verb.past} {person} the {word} {thing}",
        ]
    )


def _article(rng: Random, words: Words) -> Twins:
    person, thing, verb = rng.choice(words.people).name, rng.choice(words.made()), _deed(rng, words)
    noun = rng.choice((thing, f"{_adjective(rng, words)} {thing}"))
    wrong = ("a " if noun[0] in "aeiou" else "an ") + noun
    return rng.choice(
        [
            (f"{person} {verb.past} {article(noun)}", f"{person} {verb.past} {wrong}"),
            (f"{person} {verb.past} two {plural(thing)}", f"{person} {verb.past} two {thing}"),
            (f"{person} {verb.past} {article(noun)}", f"{person} {verb.past} {noun}"),
        ]
    )


def _pronoun(rng: Random, words: Words) -> Twins:
    a, b = rng.sample(words.people, 2)
    own, other = ("herself", "himself") if a.female else ("himself", "herself")
    verb, thing = _deed(rng, words), rng.choice(words.made())
    return rng.choice(
        [
            (f"{a.name} told {own} to be {_mood(rng, words)}", f"{a.name} told {other} to be {_mood(rng, words)}"),
            (f"{a.he} {verb.past} the {thing} of {b.name}", f"{'her' if a.female else 'him'} {verb.past} the {thing}"),
            (f"{a.name} spoke to {b.him} at night", f"{a.name} spoke to {b.he} at night"),
        ]
    )


def _gift(rng: Random, words: Words) -> Twins:
    a, b = rng.sample(words.people, 2)
    verb, thing = rng.choice(GIFTS), rng.choice(words.made())
    return rng.choice(
        [
            (f"{a.name} {verb.past} the {thing} to {b.name}", f"{a.name} {verb.past} the {thing} {b.name}"),
            (f"{a.name} {verb.past} {b.name} the {thing}", f"{a.name} {verb.past} to {b.name} the {thing} to"),
            (f"who has {verb.participle} the {thing} to {b.name}", f"who have {verb.participle} the {thing} {b.name}"),
        ]
    )


RULES: tuple[Callable[[Random, Words], Twins], ...] = (
    _number,
    _copula,
    _tense,
    _frame,
    _order,
    _article,
    _pronoun,
    _gift,
)


def sentence(rng: Random, words: Words, well_formed: bool) -> str:
    """A sentence that is well formed, or one that a rule of grammar forbids."""
    good, bad = rng.choice(RULES)(rng, words)
    text = capital(good if well_formed else bad)
    return text + ("?" if text.startswith("Who ") else ".")
