"""Clauses that bear each other out, contradict each other, or have nothing to do with each other.

Here lies the meaning of the generated tasks: two clauses of one side of one matter (:mod:`topics`) go together, of its
two sides contradict, of two matters are unrelated. The books tell clauses that go together one after another.
"""

from __future__ import annotations

from random import Random

from gptcore.storyworld.lexicon import DAYS, VILLAGES, Person, Words
from gptcore.storyworld.topics import Topic

NLI = ("entailment", "contradiction", "neutral")


def fill(clause: str, person: Person) -> str:
    """A clause about ``person``."""
    return clause.format(a=person.name, he=person.he, his=person.his, him=person.him)


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


def pair(rng: Random, words: Words, relation: str, person: Person, again: Person) -> tuple[str, str]:
    """Two clauses in ``relation``, the first about ``person``, the second about ``again`` (often the same)."""
    topic, well = some(rng, words)
    said = rng.choice(topic.side(well))
    return fill(said, person), fill(beside(rng, words, topic, well, said, relation), again)


WELL = (
    "it went well for {a}",
    "{a} was lucky that day",
    "{a} had reason to be glad",
    "things turned out well for {a}",
    "it was a good day for {a}",
    "{a} could be content",
)
BADLY = (
    "it went badly for {a}",
    "{a} was unlucky that day",
    "{a} had reason to be sad",
    "things turned out badly for {a}",
    "it was a bad day for {a}",
    "{a} could not be content",
)


def upshot(rng: Random, well: bool) -> str:
    """A clause that sums up how it went."""
    return rng.choice(WELL if well else BADLY)


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


def different(rng: Random) -> str:
    """A relation that is not "entailment"; the contrary more often than what has nothing to do with it."""
    return rng.choice(("contradiction", "contradiction", "neutral"))


def report(rng: Random, clause: str) -> str:
    """A clause as a newspaper would tell it."""
    village, day = rng.choice(VILLAGES), rng.choice(DAYS)
    return rng.choice(
        [
            f"On {day}, {clause}.",
            f"It was told in {village} that {clause}.",
            f"In {village}, {clause} on {day}.",
            f"It is reported that {clause}.",
        ]
    )


def ask(rng: Random, clause: str) -> str:
    """A question about whether ``clause`` is so."""
    return rng.choice(
        [
            f"Is it true that {clause}?",
            f"Did you hear that {clause}?",
            f"Who says that {clause}?",
            f"How do you know that {clause}?",
        ]
    )


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
