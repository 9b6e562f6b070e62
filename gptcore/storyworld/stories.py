"""Stories of one matter that goes well or badly: told in the books, ended in Story Cloze, asked about in RACE."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from gptcore.storyworld.facts import capital
from gptcore.storyworld.lexicon import Person, Words
from gptcore.storyworld.likeness import fill, some


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
    word = rng.choice(words.mood("happy" if well else "sad").words)
    return rng.choice([f"{person.name} was {word}.", f"That night {person.name} felt {word}."])


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
    question = rng.choice(("What is this story about?", f"What is told here about {person.name}?"))
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
