"""Opinions of plays, songs and meals: the judged phrases of SST-2 and the reviews in the books."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from gptcore.storyworld.facts import article
from gptcore.storyworld.lexicon import WORKS, Words


def opinion(rng: Random, words: Words, good: bool) -> str:
    """A judgement, without a capital or a full stop, that is on the whole ``good`` or bad.

    Turned phrases ("not a dull play", "sweet at first, but in the end tedious") keep it from being a matter of
    single words only.
    """

    def fine(well: bool) -> str:
        return rng.choice(words.praise if well else words.blame)

    def liked(well: bool) -> str:
        return rng.choice(words.liking if well else words.loathing).past

    work = rng.choice(WORKS)
    shapes: tuple[Callable[[], str], ...] = (
        lambda: f"{article(fine(good))} {work}",
        lambda: f"{article(fine(good))} and {fine(good)} {work}",
        lambda: f"the {work} was {fine(good)} and everyone {liked(good)} it",
        lambda: f"the whole village {liked(good)} this {fine(good)} {work}",
        lambda: f"people {liked(good)} the {work} , which was {fine(good)} from first to last",
        lambda: f"the {work} was {fine(not good)} at first , but in the end it was {fine(good)}",
        lambda: f"this was never {article(fine(not good))} {work}",
        lambda: f"nobody {liked(not good)} this {work}",
        lambda: f"for all its {fine(not good)} moments , {article(fine(good))} {work}",
    )
    return rng.choice(shapes)()
