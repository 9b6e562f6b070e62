"""Clauses that bear each other out, contradict each other, or have nothing to do with each other; stories made of them.

Here lies the meaning of the generated tasks: two clauses of one side of one matter go together, of its two sides
contradict, of two matters are unrelated. A story of one matter, which goes well or badly, is told in the books, ended
in Story Cloze, asked about in RACE. Sentences to judge stand beside them: well formed or not (CoLA), and opinions that
are good or bad on the whole (SST-2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from gptcore.papers.storyworld.lexicon import (
    DAYS,
    GIFTS,
    SAID,
    VILLAGES,
    WORKS,
    Person,
    Topic,
    Word,
    Words,
    article,
    capital,
    named,
    one_of,
    say,
)

NLI = ("entailment", "contradiction", "neutral")


def fill(clause: str, person: Person) -> str:
    """A clause about ``person``."""
    return clause.format(a=person)


def some(rng: Random, words: Words) -> tuple[Topic, bool]:
    """A matter, and whether it goes well."""
    return rng.choice(words.topics), rng.random() < 0.5


def beside(rng: Random, words: Words, topic: Topic, well: bool, said: str, relation: str) -> str:
    """A clause that stands in ``relation`` to ``said``, which is one of ``topic`` going ``well`` or not."""
    if relation == "neutral":
        other = rng.choice([t for t in words.topics if t.name != topic.name])
        return rng.choice(other.side(rng.random() < 0.5))
    side = topic.side(well if relation == "entailment" else not well)
    return rng.choice([clause for clause in side if clause != said])


def upshot(rng: Random, well: bool) -> str:
    """A clause that sums up how it went."""
    clauses: Sequence[str] = SAID["clauses"]["well" if well else "badly"]
    return rng.choice(clauses)


def judged(rng: Random, words: Words, relation: str, n: int = 1) -> tuple[tuple[str, ...], str]:
    """``n`` clauses of one matter, and a claim that it went well which stands in ``relation`` to them.

    What goes well bears the claim out, what goes badly contradicts it, and a mere start leaves it open.
    """
    topic, _ = some(rng, words)
    if relation == "neutral":
        return tuple(rng.sample(topic.starts, n)), upshot(rng, True)
    side = topic.side(relation == "entailment")
    return tuple(rng.sample(side, n)), upshot(rng, True)


def two_reports(rng: Random, words: Words, alike: bool) -> tuple[str, str]:
    """Two clauses of one matter: both tell of success, or one of success and the other of failure; in either order."""
    topic, _ = some(rng, words)
    first, other = rng.sample(topic.good, 2)
    pair = [first, other if alike else rng.choice(topic.bad)]
    rng.shuffle(pair)
    return pair[0], pair[1]


def report(rng: Random, clause: str) -> str:
    """A clause as a newspaper would tell it."""
    village, day = rng.choice(VILLAGES), rng.choice(DAYS)
    return say(rng, SAID["clauses"]["reports"], clause=clause, village=village, day=day)


def ask(rng: Random, clause: str) -> str:
    """A question about whether ``clause`` is so."""
    return say(rng, SAID["clauses"]["questions"], clause=clause)


POINTS = {"entailment": 5.0, "neutral": 2.6, "contradiction": 0.6}
OTHER_PERSON = 0.4
"""Likeness of two clauses (STS-B): both of success, a mere start, success and failure; less about two people."""


def graded(rng: Random, words: Words) -> tuple[str, str, float]:
    """Two sentences and how alike they are, from 0 to 5 (STS-B)."""
    a, b = rng.sample(words.people, 2)
    relation = rng.choice(NLI)
    again = a if rng.random() < 0.6 else b
    if relation == "neutral":
        topic, _ = some(rng, words)
        first, second = rng.choice(topic.starts), rng.choice(topic.good)
    else:
        first, second = two_reports(rng, words, relation == "entailment")
    first, second = fill(first, a), fill(second, again)
    return f"{first}.", f"{second}.", POINTS[relation] - (OTHER_PERSON if again is b else 0.0)


@dataclass(frozen=True)
class Tale:
    """Sentences, an ending that follows, and one that does not."""

    lines: tuple[str, ...]
    right: str
    wrong: str


def sentence(clause: str, person: Person) -> str:
    """A clause about ``person`` as a sentence."""
    return capital(fill(clause, person)) + "."


def mood(rng: Random, words: Words, person: Person, well: bool) -> str:
    """How ``person`` felt in the end."""
    word = rng.choice(named(words.moods, "happy" if well else "sad").words)
    return say(rng, SAID["clauses"]["moods"], a=person, word=word)


def tale(rng: Random, words: Words, n: int = 4) -> Tale:
    """A tale of ``n`` sentences and two endings of the same form, one for each way that it could have gone."""
    person = rng.choice(words.people)
    topic, well = rng.choice(words.topics), rng.random() < 0.8
    told = rng.sample(topic.side(well), min(n - 1, len(topic.side(well)) - 1))
    begun = rng.sample(topic.starts, n - len(told))
    lines = tuple(sentence(clause, person) for clause in (*begun, *told))
    if rng.random() < 0.4:
        return Tale(lines, mood(rng, words, person, well), mood(rng, words, person, not well))
    right = rng.choice([clause for clause in topic.side(well) if clause not in told])
    return Tale(lines, sentence(right, person), sentence(rng.choice(topic.side(not well)), person))


@dataclass(frozen=True)
class Passage:
    """A passage with one question and four options."""

    article: str
    question: str
    options: tuple[str, ...]
    """The right one first."""


def about(rng: Random, words: Words) -> Passage:
    """What is the story about? Its matter is never named outright, except by how it starts (RACE, middle)."""
    person = rng.choice(words.people)
    topic, well = some(rng, words)
    told = rng.sample(topic.side(well), 3)
    others = rng.sample([t.name for t in words.topics if t.name != topic.name], 3)
    question = say(rng, SAID["clauses"]["about"], a=person)
    return Passage(" ".join(sentence(c, person) for c in told), question, (topic.name, *others))


def what_else(rng: Random, words: Words) -> Passage:
    """What good came of it? One option tells of success, the others of failure (RACE, high)."""
    person = rng.choice(words.people)
    topic, _ = some(rng, words)
    right, *told = rng.sample(topic.good, min(3, len(topic.good)))
    wrong = [rng.choice(topic.bad)]
    while len(wrong) < 3:
        clause = rng.choice(rng.choice(words.topics).bad)
        wrong += [clause] if clause not in wrong else []
    lines = " ".join(sentence(clause, person) for clause in (rng.choice(topic.starts), *told))
    options = tuple(fill(clause, person) for clause in (right, *wrong))
    return Passage(lines, "What else went well?", options)


# --- sentences to judge ---


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


def utterance(rng: Random, words: Words, well_formed: bool) -> str:
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
