"""Rows of the tasks on two texts: SNLI, MNLI, RTE, QNLI, SciTail; MRPC, QQP, STS-B."""

from __future__ import annotations

from random import Random

from gptcore.storyworld import facts, likeness, nature
from gptcore.storyworld.facts import Statement, uncapital
from gptcore.storyworld.lexicon import PEOPLE, Words
from gptcore.storyworld.narrate import unrelated

Row = tuple[str, str]


def snli(rng: Random, words: Words, label: str) -> Row:
    """A picture's caption and a claim."""
    s = facts.picture(rng, words)
    return s.text, claim(rng, s, label)


def mnli(rng: Random, words: Words, label: str, genre: str) -> Row:
    """A sentence of a genre and a claim."""
    s = rng.choice(facts.MAKERS[:-1])(rng, words)
    return dress(rng, s.text, genre), claim(rng, s, label)


def claim(rng: Random, s: Statement, label: str) -> str:
    """A hypothesis that stands to the statement as ``label`` says."""
    return rng.choice({"entailment": s.entailed, "neutral": s.neutral, "contradiction": s.contradicted}[label])


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
    """Two or three sentences and a claim that follows from them, or not."""
    s, *others = (facts.statement(rng, words) for _ in range(rng.randint(2, 3)))
    told = [s, *(o for o in others if not set(o.about) & set(s.about))]
    rng.shuffle(told)
    relation = "entailment" if label == "entailment" else rng.choice(("neutral", "contradiction"))
    return " ".join(x.text for x in told), claim(rng, s, relation)


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
    first, (second,) = likeness.paraphrases(rng, words, [label == "1"])
    return tokenised(rng, first), tokenised(rng, second)


def qqp(rng: Random, words: Words, label: str) -> Row:
    """Two questions."""
    first, (second,) = likeness.questions(rng, words, [label == "1"])
    return first, second


def stsb(rng: Random, words: Words) -> tuple[str, str, str]:
    """Two sentences and how alike they are, "0.000" to "5.000"."""
    first, ((second, score),) = likeness.graded(rng, words, 1)
    return first, second, f"{score:.3f}"


def tokenised(rng: Random, text: str) -> str:
    """The text as MRPC writes it: punctuation set off, a stray quotation mark now and then."""
    spaced = text.replace(",", " ,").replace(".", " .").replace("?", " ?")
    return f'" {spaced}' if rng.random() < 0.15 else spaced
