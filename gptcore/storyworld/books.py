"""Whole books: a village, its people, and chapters whose state carries on from one to the next."""

from __future__ import annotations

from collections.abc import Callable, Set
from random import Random

from gptcore.storyworld import narrate, world
from gptcore.storyworld.facts import article
from gptcore.storyworld.lexicon import SEASONS, Words, region_of
from gptcore.storyworld.narrate import Teller

SCENES: tuple[tuple[Callable[[Teller], list[str]], int], ...] = (
    (narrate.happenings, 4),
    (narrate.weather, 2),
    (narrate.story, 18),
    (narrate.gossip, 16),
    (narrate.talk, 3),
    (narrate.cards, 4),
    (narrate.reviews, 4),
    (narrate.parrot, 4),
    (narrate.answers, 6),
    (narrate.riddles, 7),
    (narrate.kinds, 7),
    (narrate.meanings, 2),
    (narrate.geography, 1),
    (narrate.recollection, 2),
)
"""Scenes of a chapter and how often each is told."""


def book(rng: Random, characters: int, held_out: Set[str]) -> tuple[str, str]:
    """(title, text) of one book of at least ``characters`` characters."""
    words = Words()
    village = world.found(rng, words)
    title = f"The {rng.choice(SEASONS).capitalize()} of {village.name}"
    paragraphs = [title, introduction(village)]
    scenes, weights = zip(*SCENES, strict=True)
    length, chapter = 0, 0
    while length < characters:
        chapter += 1
        teller = Teller(rng, words.topic(rng, village.people), village, chapter, held_out)
        told = [f"Chapter {chapter}", opening(teller)]
        for scene in rng.choices(scenes, weights, k=14):
            told += [paragraph for paragraph in scene(teller) if not teller.holds(paragraph)]
        paragraphs += told
        length += sum(len(paragraph) + 2 for paragraph in told)
    paragraphs.append("The End")
    return title, "\n\n".join(paragraphs) + "\n"


def introduction(village: world.Village) -> str:
    """Who lives in the village, and who has what at the start."""
    people = " ".join(
        f"{p.name} was the {village.callings[p.name]} and lived in {village.homes[p.name]} in "
        f"{region_of(village.homes[p.name])}."
        for p in village.people
    )
    things = " ".join(f"{owner.name} had {article(thing)}." for thing, owner in village.owner.items())
    return f"This is a story of {village.name}, which lies in {region_of(village.name)}. {people} {things}"


def opening(t: Teller) -> str:
    """Where things stand when a chapter begins: what earlier chapters have brought about."""
    rng, village = t.rng, t.village
    lines = [f"The {rng.choice(SEASONS)} went on in {village.name}."]
    lines += [f"{village.owner[thing].name} had the {thing} now." for thing in rng.sample(list(village.owner), 3)]
    lines += [f"{person.name} was at the {village.place[person.name]}." for person in t.people(2)]
    return " ".join(lines)
