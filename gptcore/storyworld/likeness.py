"""Pairs of sentences that say the same, nearly the same, or something else: reports, questions, graded scenes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from gptcore.storyworld.facts import article, cast
from gptcore.storyworld.lexicon import DAYS, VILLAGES, Group, VerbGroup, Words


@dataclass(frozen=True)
class Scene:
    """Who did what with which thing, where and when; the groups say which words would mean the same."""

    who: str
    deed: VerbGroup
    verb: int
    quality: Group
    word: int
    thing: str
    spot: str
    village: str
    day: str


def scene(rng: Random, words: Words) -> Scene:
    """A random scene."""
    deed, quality = rng.choice(words.deeds), rng.choice(words.qualities)
    return Scene(
        cast(rng, words, 1)[0].name,
        deed,
        rng.randrange(len(deed.verbs)),
        quality,
        rng.randrange(len(quality.words)),
        rng.choice(words.made()),
        rng.choice(words.spots),
        rng.choice(VILLAGES),
        rng.choice(DAYS),
    )


def reworded(rng: Random, s: Scene) -> Scene:
    """The same scene in other words of the same meaning."""
    verb = (s.verb + rng.randrange(1, len(s.deed.verbs))) % len(s.deed.verbs)
    word = (s.word + rng.randrange(1, len(s.quality.words))) % len(s.quality.words)
    return dataclasses.replace(s, verb=verb, word=word)


def changed(rng: Random, words: Words, s: Scene, slot: str) -> Scene:
    """The scene with one slot changed in its meaning."""
    if slot == "who":
        return dataclasses.replace(s, who=rng.choice([p.name for p in words.people if p.name != s.who]))
    if slot == "deed":
        others = [g for g in words.deeds if g.name != s.deed.name]
        group = words.deed(s.deed.opposite) if rng.random() < 0.5 else rng.choice(others)
        return dataclasses.replace(s, deed=group, verb=rng.randrange(len(group.verbs)))
    if slot == "quality":
        quality = words.quality(s.quality.opposite)
        return dataclasses.replace(s, quality=quality, word=rng.randrange(len(quality.words)))
    if slot == "thing":
        return dataclasses.replace(s, thing=rng.choice([t for t in words.made() if t != s.thing]))
    if slot == "spot":
        return dataclasses.replace(s, spot=rng.choice([x for x in words.spots if x != s.spot]))
    return dataclasses.replace(s, day=rng.choice([x for x in DAYS if x != s.day]))


SLOTS = ("who", "deed", "thing", "quality", "spot")
WEIGHTS = {"who": 1.0, "deed": 1.3, "thing": 1.3, "quality": 0.8, "spot": 0.6}
"""Points that a changed slot costs; all together 5."""


def plain(rng: Random, s: Scene) -> str:
    """A scene as one plain sentence."""
    verb, word = s.deed.verbs[s.verb], s.quality.words[s.word]
    return rng.choice(
        [
            f"{s.who} {verb.past} {article(word)} {s.thing} at the {s.spot}.",
            f"At the {s.spot} {s.who} {verb.past} {article(word)} {s.thing}.",
        ]
    )


def graded(rng: Random, words: Words, n: int) -> tuple[str, list[tuple[str, float]]]:
    """A scene and ``n`` others with a likeness from 0 to 5 (STS-B): 5 less the points of the slots that differ."""
    first = scene(rng, words)
    others = []
    for _ in range(n):
        second = reworded(rng, first) if rng.random() < 0.7 else first
        score = 5.0
        for slot in rng.sample(SLOTS, rng.choice((0, 1, 1, 2, 3, 4, 5))):
            second = changed(rng, words, second, slot)
            score -= WEIGHTS[slot]
        others.append((plain(rng, second), round(max(score, 0.0), 1)))
    return plain(rng, first), others


def reworked(rng: Random, words: Words) -> tuple[str, list[str]]:
    """A plain sentence and the same in other words."""
    first = scene(rng, words)
    return plain(rng, first), [plain(rng, reworded(rng, first))]


def report(rng: Random, s: Scene) -> str:
    """A scene as a newspaper would tell it."""
    verb, word = s.deed.verbs[s.verb], s.quality.words[s.word]
    return rng.choice(
        [
            f"{s.who} of {s.village} {verb.past} {article(word)} {s.thing} on {s.day}.",
            f"On {s.day}, {s.who} of {s.village} {verb.past} {article(word)} {s.thing}.",
            f"{article(word).capitalize()} {s.thing} was {verb.participle} by {s.who} of {s.village} on {s.day}.",
            f"It was on {s.day} that {s.who}, who lives in {s.village}, {verb.past} {article(word)} {s.thing}.",
        ]
    )


def paraphrases(rng: Random, words: Words, sames: Sequence[bool]) -> tuple[str, list[str]]:
    """A newspaper sentence and others that do or do not report the same (MRPC)."""
    first = scene(rng, words)
    others = []
    for same in sames:
        second = reworded(rng, first)
        if not same:
            for slot in rng.sample(("who", "deed", "thing", "quality", "day"), rng.choice((1, 1, 2, 3))):
                second = changed(rng, words, second, slot)
        others.append(report(rng, second))
    return report(rng, first), others


def ask(rng: Random, s: Scene, form: int) -> str:
    """A question of one of four senses (``form``) about a scene, in one of its wordings."""
    verb, word = s.deed.verbs[s.verb], s.quality.words[s.word]
    item = f"{article(word)} {s.thing}"
    wordings = (
        (f"Where can I {verb.base} {item}?", f"In which place can one {verb.base} {item}?"),
        (f"Why did {s.who} {verb.base} {item}?", f"For what reason did {s.who} {verb.base} {item}?"),
        (f"How do I {verb.base} {item}?", f"What is the best way to {verb.base} {item}?"),
        (f"Who {verb.past} {item} in {s.village}?", f"Which person in {s.village} {verb.past} {item}?"),
    )
    return rng.choice(wordings[form])


def questions(rng: Random, words: Words, sames: Sequence[bool]) -> tuple[str, list[str]]:
    """A question and others that do or do not ask the same (QQP)."""
    first = scene(rng, words)
    form = rng.randrange(4)
    others = []
    for same in sames:
        second, other = reworded(rng, first), form
        if not same:
            kind = rng.choice(("form", "deed", "thing", "quality", "thing"))
            if kind == "form":
                other = (form + rng.randrange(1, 4)) % 4
            else:
                second = changed(rng, words, second, kind)
        others.append(ask(rng, second, other))
    return ask(rng, first, form), others
