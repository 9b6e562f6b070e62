"""Sentences to judge: well formed or not (CoLA), and opinions that are good or bad on the whole (SST-2)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from gptcore.storyworld.lexicon import (
    GIFTS,
    SAID,
    WORKS,
    Verb,
    Word,
    Words,
    article,
    capital,
)

Twins = tuple[str, str]
"""(well formed, not well formed)"""


def _name(rng: Random, words: Words) -> str:
    return rng.choice(words.people).name


def _adjective(rng: Random, words: Words) -> Word:
    return rng.choice(rng.choice(words.qualities).words)


def _mood(rng: Random, words: Words) -> Word:
    return rng.choice(rng.choice(words.moods).words)


def _deed(rng: Random, words: Words) -> Verb:
    return rng.choice(rng.choice(words.deeds).words)


def _drawn(rng: Random, rule: str, **slots: object) -> Twins:
    """Twins of one rule, filled in."""
    good, bad = rng.choice(SAID["twins"][rule])
    return good.format(**slots), bad.format(**slots)


def _number(rng: Random, words: Words) -> Twins:
    kind = rng.choice(words.kinds)
    thing = rng.choice(kind.members)
    many, one = rng.choice(kind.habits)
    good, bad = SAID["twins"]["number"][0 if rng.random() < 0.5 else 1]
    return good.format(thing=thing, many=many, one=one), bad.format(thing=thing, many=many, one=one)


def _copula(rng: Random, words: Words) -> Twins:
    a, thing = _name(rng, words), rng.choice(words.made())
    return _drawn(rng, "copula", a=a, thing=thing, word=_adjective(rng, words))


def _tense(rng: Random, words: Words) -> Twins:
    a, thing = _name(rng, words), rng.choice(words.made())
    return _drawn(rng, "tense", a=a, thing=thing, verb=_deed(rng, words))


def _frame(rng: Random, words: Words) -> Twins:
    a, thing, spot = _name(rng, words), rng.choice(words.made()), rng.choice(words.spots)
    verb, act = _deed(rng, words), rng.choice(rng.choice(words.acts).words)
    return _drawn(rng, "frame", a=a, thing=thing, spot=spot, verb=verb, act=act)


def _order(rng: Random, words: Words) -> Twins:
    a, thing, verb = _name(rng, words), rng.choice(words.made()), _deed(rng, words)
    return _drawn(rng, "order", a=a, thing=thing, verb=verb, word=_adjective(rng, words))


def _article(rng: Random, words: Words) -> Twins:
    a, thing, verb = _name(rng, words), rng.choice(words.made()), _deed(rng, words)
    noun = Word(rng.choice((thing, f"{_adjective(rng, words)} {thing}")))
    return _drawn(rng, "article", a=a, thing=thing, verb=verb, noun=noun, wrong="a" if noun[0] in "aeiou" else "an")


def _pronoun(rng: Random, words: Words) -> Twins:
    a, b = rng.sample(words.people, 2)
    verb, thing = _deed(rng, words), rng.choice(words.made())
    mood, mood_too = _mood(rng, words), _mood(rng, words)
    other = "himself" if a.female else "herself"
    return _drawn(rng, "pronoun", a=a, b=b, verb=verb, thing=thing, mood=mood, mood_too=mood_too, other=other)


def _gift(rng: Random, words: Words) -> Twins:
    a, b = rng.sample(words.people, 2)
    verb, thing = rng.choice(GIFTS), rng.choice(words.made())
    return _drawn(rng, "gift", a=a, b=b, verb=verb, thing=thing)


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
