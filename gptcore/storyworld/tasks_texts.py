"""Rows of the tasks on one text (SST-2, CoLA) and on choices (Story Cloze, RACE)."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from gptcore.storyworld import facts, grammar, opinions, stories
from gptcore.storyworld.facts import Question
from gptcore.storyworld.lexicon import PEOPLE, Words


def sst2(rng: Random, words: Words, label: str) -> tuple[str]:
    """A judgement in lower case, tokenised."""
    text = opinions.opinion(rng, words, label == "1").replace(",", " ,").replace("  ", " ")
    return (text + rng.choice(("", " .")),)


def cola(rng: Random, words: Words, label: str) -> tuple[str]:
    """A sentence, well formed or not."""
    return (grammar.sentence(rng, words, label == "1"),)


def storycloze(rng: Random, words: Words, label: str) -> tuple[str, str, str, str, str, str]:
    """Four sentences and two endings, of which the first or the second fits."""
    tale = stories.tale(rng, words)
    endings = (tale.right, tale.wrong) if label == "1" else (tale.wrong, tale.right)
    return *tale.lines, *endings


@dataclass(frozen=True)
class Passage:
    """A passage with its questions."""

    article: str
    questions: tuple[str, ...]
    options: tuple[tuple[str, ...], ...]
    answers: tuple[str, ...]


def middle(rng: Random, words: Words, letters: tuple[str, ...]) -> Passage:
    """Sentences about different people; each question asks for something that one sentence says."""
    told: list[facts.Statement] = []
    while len(told) < 3:
        s = facts.statement(rng, words)
        if not any(set(s.about) & set(other.about) for other in told):
            told.append(s)
    asked = [rng.choice(s.questions) for s in rng.sample(told, len(letters))]
    return _passage(rng, " ".join(s.text for s in told), asked, letters, [s.about[0] for s in told])


def high(rng: Random, words: Words, letters: tuple[str, ...]) -> Passage:
    """Things and people that move about; the question asks where it all began or ended."""
    text, question = stories.chain(rng, words)
    return _passage(rng, text, [question], letters[:1], [])


def _passage(rng: Random, text: str, asked: list[Question], letters: tuple[str, ...], names: list[str]) -> Passage:
    """Lay out the options so that the right one stands at its letter; wrong names come from the passage first."""
    people = {person.name for person in PEOPLE}
    laid = []
    for question, letter in zip(asked, letters, strict=True):
        wrong = list(question.wrong)
        if question.answer in people:
            near = [n for n in names if n in people and n != question.answer]
            wrong = list(dict.fromkeys(near + wrong))[:3]
        rng.shuffle(wrong)
        wrong.insert("ABCD".index(letter), question.answer)
        laid.append(tuple(wrong))
    return Passage(text, tuple(q.text for q in asked), tuple(laid), letters)
