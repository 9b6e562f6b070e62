"""One book's village: who is there, who owns what, who is where; and the small events that change it.

Events are remembered, so that a later chapter can ask about an earlier one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from gptcore.storyworld import facts
from gptcore.storyworld.facts import Statement
from gptcore.storyworld.lexicon import CALLINGS, VILLAGES, Person, Words


@dataclass
class Village:
    """The state of the story: changes from event to event, chapter to chapter."""

    name: str
    people: list[Person]
    callings: dict[str, str]
    homes: dict[str, str]
    owner: dict[str, Person]
    """thing -> who has it now"""
    place: dict[str, str]
    """name -> spot where that person is now"""
    history: list[tuple[int, str, str, str]] = field(default_factory=list)
    """(chapter, thing, former owner, new owner), oldest first"""


def found(rng: Random, words: Words) -> Village:
    """A new village with eight people and twelve things."""
    people = facts.cast(rng, words, 8)
    return Village(
        name=rng.choice(VILLAGES),
        people=people,
        callings={p.name: calling for p, calling in zip(people, rng.sample(CALLINGS, len(CALLINGS)), strict=True)},
        homes={p.name: rng.choice(VILLAGES) for p in people},
        owner={thing: rng.choice(people) for thing in rng.sample(words.made(), 12)},
        place={p.name: rng.choice(words.spots) for p in people},
    )


def event(rng: Random, words: Words, village: Village, chapter: int) -> Statement:
    """Something small happens: the village changes and the statement tells it."""
    kind = rng.choice(("gift", "gift", "journey", "journey", "deed", "deed", "feeling", "quality", "kindred"))
    thing = rng.choice(list(village.owner))
    owner = village.owner[thing]
    if kind == "gift":
        receiver = rng.choice([p for p in village.people if p != owner])
        village.owner[thing] = receiver
        village.history.append((chapter, thing, owner.name, receiver.name))
        return facts.gift(rng, words, owner, receiver, thing)
    if kind == "deed":
        return facts.deed(rng, words, owner, thing)
    if kind == "quality":
        return facts.quality(rng, words, owner, thing)
    person = rng.choice(village.people)
    if kind == "journey":
        start = village.place[person.name]
        goal = rng.choice([spot for spot in words.spots if spot != start])
        village.place[person.name] = goal
        return facts.journey(rng, words, person, start, goal)
    return facts.feeling(rng, words, person) if kind == "feeling" else facts.kindred(rng, words, person)
