"""Sentences to judge: well formed or not (CoLA), and opinions that are good or bad on the whole (SST-2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random

from gptcore.storyworld.lexicon import GIFTS, SAID, WORKS, Word, Words, article, capital, one_of

Twins = tuple[str, str]
"""(well formed, not well formed)"""


_SLOTS: Mapping[str, Callable[[Random, Words], object]] = {
    "a": lambda rng, words: rng.choice(words.people),
    "thing": lambda rng, words: rng.choice(words.made()),
    "spot": lambda rng, words: rng.choice(words.spots),
    "word": lambda rng, words: one_of(rng, words.qualities),
    "mood": lambda rng, words: one_of(rng, words.moods),
    "mood_too": lambda rng, words: one_of(rng, words.moods),
    "verb": lambda rng, words: one_of(rng, words.deeds),
    "act": lambda rng, words: one_of(rng, words.acts),
}
"""What a sentence may ask for -> how it is drawn."""


def _drawn(rng: Random, words: Words, *, rule: str, slots: str, **known: object) -> Twins:
    """Twins of one rule, filled in with what is known and with slots, drawn in their order."""
    known |= {name: _SLOTS[name](rng, words) for name in slots.split()}
    good, bad = rng.choice(SAID["twins"][rule])
    return good.format(**known), bad.format(**known)


def _number(rng: Random, words: Words) -> Twins:
    kind = rng.choice(words.kinds)
    thing = rng.choice(kind.members)
    many, one = rng.choice(kind.habits)
    good, bad = SAID["twins"]["number"][0 if rng.random() < 0.5 else 1]
    return good.format(thing=thing, many=many, one=one), bad.format(thing=thing, many=many, one=one)


def _article(rng: Random, words: Words) -> Twins:
    a, thing, verb = (_SLOTS[name](rng, words) for name in ("a", "thing", "verb"))
    noun = Word(rng.choice((thing, f"{one_of(rng, words.qualities)} {thing}")))
    wrong = "a" if noun[0] in "aeiou" else "an"
    return _drawn(rng, words, rule="article", slots="", a=a, thing=thing, verb=verb, noun=noun, wrong=wrong)


def _pronoun(rng: Random, words: Words) -> Twins:
    a, b = rng.sample(words.people, 2)
    other = "himself" if a.female else "herself"
    return _drawn(rng, words, rule="pronoun", slots="verb thing mood mood_too", a=a, b=b, other=other)


def _gift(rng: Random, words: Words) -> Twins:
    a, b = rng.sample(words.people, 2)
    return _drawn(rng, words, rule="gift", slots="thing", a=a, b=b, verb=rng.choice(GIFTS))


RULES: tuple[Callable[[Random, Words], Twins], ...] = (
    _number,
    partial(_drawn, rule="copula", slots="a thing word"),
    partial(_drawn, rule="tense", slots="a thing verb"),
    partial(_drawn, rule="frame", slots="a thing spot verb act"),
    partial(_drawn, rule="order", slots="a thing verb word"),
    _article,
    _pronoun,
    _gift,
)


def sentence(rng: Random, words: Words, well_formed: bool) -> str:
    """A sentence that is well formed, or one that a rule of grammar forbids."""
    good, bad = rng.choice(RULES)(rng, words)
    text = capital(good if well_formed else bad)
    return text + ("?" if text.startswith("Who ") else ".")


class _Judging(dict[str, Callable[[], str]]):
    """Words of an opinion, each drawn where it stands."""

    def __getitem__(self, name: str) -> str:  # type: ignore[override]
        return super().__getitem__(name)()


def opinion(rng: Random, words: Words, good: bool) -> str:
    """A judgement, without a capital or a full stop, that is on the whole ``good`` or bad.

    Turned phrases ("not a dull play", "sweet at first, but in the end tedious") keep it from being a matter of
    single words only.
    """
    fine, not_fine = (words.praise, words.blame) if good else (words.blame, words.praise)
    liked, not_liked = (words.liking, words.loathing) if good else (words.loathing, words.liking)
    work = rng.choice(WORKS)
    said: str = rng.choice(SAID["opinions"]["said"])
    return said.format_map(
        _Judging(
            work=lambda: work,
            fine=lambda: rng.choice(fine),
            not_fine=lambda: rng.choice(not_fine),
            a_fine=lambda: article(rng.choice(fine)),
            a_not_fine=lambda: article(rng.choice(not_fine)),
            liked=lambda: rng.choice(liked).past,
            not_liked=lambda: rng.choice(not_liked).past,
        )
    )
