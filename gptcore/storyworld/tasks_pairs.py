"""Rows of the tasks on two texts: SNLI, MNLI, RTE, QNLI, SciTail; MRPC, QQP, STS-B."""

from __future__ import annotations

from random import Random

from gptcore.storyworld import facts, likeness, nature
from gptcore.storyworld.facts import capital, uncapital
from gptcore.storyworld.lexicon import PEOPLE, Person, Words
from gptcore.storyworld.narrate import unrelated

Row = tuple[str, str]


def snli(rng: Random, words: Words, label: str) -> Row:
    """A picture's caption and a claim about whoever is in it."""
    who, female = rng.choice((("man", False), ("woman", True), ("boy", False), ("girl", True)))
    (premise,), claim = likeness.judged(rng, words, label)
    premise, claim = (
        likeness.fill(premise, Person(f"a {who}", female)),
        likeness.fill(claim, Person(f"the {who}", female)),
    )
    return capital(premise) + ".", capital(claim) + "."


def mnli(rng: Random, words: Words, label: str, genre: str) -> Row:
    """A sentence of a genre and a claim."""
    person = rng.choice(words.people)
    (premise,), claim = likeness.judged(rng, words, label)
    return dress(rng, capital(likeness.fill(premise, person)) + ".", genre), capital(likeness.fill(claim, person)) + "."


MATCHED = ("tale", "talk", "record")
MISMATCHED = ("letter", "notice")


def dress(rng: Random, text: str, genre: str) -> str:
    """The sentence as a genre would put it."""
    a, b = (person.name for person in rng.sample(PEOPLE, 2))
    if genre == "talk":
        return rng.choice([f'"{text}"', f"Well, {uncapital(text)}", f"I think that {uncapital(text)}"])
    if genre == "record":
        return rng.choice([f"It is recorded that {uncapital(text)}", f"As the book says: {text}"])
    if genre == "letter":
        return rng.choice([f"Dear {a} - {text} Yours, {b}", f"My dear {a}, you must know that {uncapital(text)}"])
    if genre == "notice":
        return rng.choice([f"NOTICE: {text}", f"To all it may concern: {text} By order."])
    return text


def rte(rng: Random, words: Words, label: str) -> Row:
    """Two turns of one matter among other news, and a claim that they bear out, or not."""
    person, other = rng.sample(words.people, 2)
    relation = "entailment" if label == "entailment" else likeness.different(rng)
    told, claim = likeness.judged(rng, words, relation, 2)
    aside = rng.choice(likeness.some(rng, words)[0].starts)
    lines = [likeness.fill(aside, other), *(likeness.fill(clause, person) for clause in told)]
    return " ".join(capital(line) + "." for line in lines), capital(likeness.fill(claim, person)) + "."


def qnli(rng: Random, words: Words, label: str) -> Row:
    """A question, and a sentence that answers it or not."""
    s = facts.statement(rng, words)
    question = rng.choice(s.questions).text
    return question, s.text if label == "entailment" else unrelated(rng, words, s).text


def scitail(rng: Random, words: Words, label: str) -> Row:
    """A school book fact and a claim."""
    return nature.science(rng, words, label == "entails")


def mrpc(rng: Random, words: Words, label: str) -> Row:
    """Two newspaper sentences."""
    person = rng.choice(words.people)
    first, second = (likeness.fill(c, person) for c in likeness.two_reports(rng, words, label == "1"))
    return tokenised(rng, likeness.report(rng, first)), tokenised(rng, likeness.report(rng, second))


def qqp(rng: Random, words: Words, label: str) -> Row:
    """Two questions."""
    person = rng.choice(words.people)
    first, second = (likeness.fill(c, person) for c in likeness.two_reports(rng, words, label == "1"))
    return likeness.ask(rng, first), likeness.ask(rng, second)


def stsb(rng: Random, words: Words) -> tuple[str, str, str]:
    """Two sentences and how alike they are, "0.000" to "5.000"."""
    first, second, score = likeness.graded(rng, words)
    return capital(first), capital(second), f"{score:.3f}"


def tokenised(rng: Random, text: str) -> str:
    """The text as MRPC writes it: punctuation set off, a stray quotation mark now and then."""
    spaced = text.replace(",", " ,").replace(".", " .").replace("?", " ?")
    return f'" {spaced}' if rng.random() < 0.15 else spaced
