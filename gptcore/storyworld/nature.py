"""What kinds of things there are and what all of a kind do: the school book facts behind SciTail."""

from __future__ import annotations

from random import Random

from gptcore.storyworld.facts import article, capital
from gptcore.storyworld.grammar import plural
from gptcore.storyworld.lexicon import Words


def science(rng: Random, words: Words, entails: bool) -> tuple[str, str]:
    """(premise, hypothesis): a fact about a kind, and a claim about a thing that is or is not of that kind."""
    if rng.random() < 0.8:
        return alive(rng, words, entails)
    kind, other = rng.sample(words.kinds, 2)
    thing = rng.choice(kind.members if entails else other.members)
    many, single = rng.choice(kind.habits)
    spot = rng.choice(words.spots)
    seen = rng.choice(kind.members)
    named = kind if entails else other
    shapes = [
        (f"All {plural(kind.name)} {many}.", f"{capital(article(thing))} {single}."),
        (f"Every {kind.name} {single}.", f"{capital(plural(thing))} {many}."),
        (f"It is known that {plural(kind.name)} {many}.", f"{capital(article(thing))} {single}."),
        (f"{capital(article(seen))} was left at the {spot}.", f"There was {article(named.name)} at the {spot}."),
        (f"{capital(plural(seen))} can be seen at the {spot}.", f"{capital(plural(named.name))} are at the {spot}."),
    ]
    return rng.choice(shapes)


ALIVE = (
    "There was something alive at the {spot}.",
    "A living thing was at the {spot}.",
    "What was at the {spot} had grown by itself.",
    "Nobody had made what was at the {spot}.",
)
MADE = ("There was something made by hand at the {spot}.", "Somebody had made what was at the {spot}.")


def alive(rng: Random, words: Words, entails: bool) -> tuple[str, str]:
    """A thing is somewhere, and the claim that something alive is there: true of animals and plants only."""
    thing = rng.choice(words.grown() if entails else words.made())
    spot = rng.choice(words.spots)
    seen = rng.choice(
        [
            f"{capital(article(thing))} was left at the {spot}.",
            f"Somebody saw {article(thing)} at the {spot}.",
            f"There was {article(thing)} at the {spot}.",
        ]
    )
    return seen, rng.choice(ALIVE).format(spot=spot)
