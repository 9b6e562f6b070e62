"""Rows of the tasks: on two texts (SNLI, MNLI, RTE, QNLI, SciTail; MRPC, QQP, STS-B), one text, and choices."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from gptcore.storyworld import facts, grammar, stories
from gptcore.storyworld.lexicon import PEOPLE, SAID, Person, Words, capital, say, uncapital
from gptcore.storyworld.narrate import unrelated

Pair = tuple[str, str]


def snli(rng: Random, words: Words, label: str) -> Pair:
    """A picture's caption and a claim about whoever is in it."""
    who, female = rng.choice((("man", False), ("woman", True), ("boy", False), ("girl", True)))
    (premise,), claim = stories.judged(rng, words, label)
    return stories.sentence(premise, Person(f"a {who}", female)), stories.sentence(claim, Person(f"the {who}", female))


def mnli(rng: Random, words: Words, label: str, genres: Sequence[str]) -> tuple[str, str, str]:
    """A sentence of a genre, a claim, and the genre."""
    genre, person = rng.choice(genres), rng.choice(words.people)
    (premise,), claim = stories.judged(rng, words, label)
    return dress(rng, stories.sentence(premise, person), genre), stories.sentence(claim, person), genre


def dress(rng: Random, text: str, genre: str) -> str:
    """The sentence as a genre would put it."""
    a, b = rng.sample(PEOPLE, 2)
    if genre not in SAID["genres"]:
        return text
    return say(rng, SAID["genres"][genre], text=text, small=uncapital(text), a=a, b=b)


def rte(rng: Random, words: Words, label: str) -> Pair:
    """Two turns of one matter among other news, and a claim that they bear out, or not."""
    person, other = rng.sample(words.people, 2)
    relation = "entailment" if label == "entailment" else stories.different(rng)
    told, claim = stories.judged(rng, words, relation, 2)
    aside = rng.choice(stories.some(rng, words)[0].starts)
    lines = [stories.sentence(aside, other), *(stories.sentence(clause, person) for clause in told)]
    return " ".join(lines), stories.sentence(claim, person)


def qnli(rng: Random, words: Words, label: str) -> Pair:
    """A question, and a sentence that answers it or not."""
    s = facts.statement(rng, words)
    question = rng.choice(s.questions).text
    return question, s.text if label == "entailment" else unrelated(rng, words, s).text


def scitail(rng: Random, words: Words, label: str) -> Pair:
    """A school book fact and a claim."""
    return facts.science(rng, words, label == "entails")


def mrpc(rng: Random, words: Words, label: str) -> Pair:
    """Two newspaper sentences."""
    person = rng.choice(words.people)
    first, second = (stories.fill(c, person) for c in stories.two_reports(rng, words, label == "1"))
    return tokenised(rng, stories.report(rng, first)), tokenised(rng, stories.report(rng, second))


def qqp(rng: Random, words: Words, label: str) -> Pair:
    """Two questions."""
    person = rng.choice(words.people)
    first, second = (stories.fill(c, person) for c in stories.two_reports(rng, words, label == "1"))
    return stories.ask(rng, first), stories.ask(rng, second)


def stsb(rng: Random, words: Words, label: str) -> tuple[str, str, str]:
    """Two sentences and how alike they are, "0.000" to "5.000"; the label, which is drawn with them, is empty."""
    first, second, score = stories.graded(rng, words)
    return capital(first), capital(second), f"{score:.3f}"


def tokenised(rng: Random, text: str) -> str:
    """The text as MRPC writes it: punctuation set off, a stray quotation mark now and then."""
    spaced = text.replace(",", " ,").replace(".", " .").replace("?", " ?")
    return f'" {spaced}' if rng.random() < 0.15 else spaced


def sst2(rng: Random, words: Words, label: str) -> tuple[str]:
    """A judgement in lower case, tokenised."""
    text = grammar.opinion(rng, words, label == "1").replace(",", " ,").replace("  ", " ")
    return (text + rng.choice(("", " .")),)


def cola(rng: Random, words: Words, label: str) -> tuple[str]:
    """A sentence, well formed or not."""
    return (grammar.sentence(rng, words, label == "1"),)


def storycloze(rng: Random, words: Words, label: str) -> tuple[str, str, str, str, str, str]:
    """Four sentences and two endings, of which the first or the second fits."""
    tale = stories.tale(rng, words)
    endings = (tale.right, tale.wrong) if label == "1" else (tale.wrong, tale.right)
    one, two, three, four = tale.lines
    return one, two, three, four, *endings


def passage(rng: Random, words: Words, part: str, letter: str) -> tuple[str, str, tuple[str, ...]]:
    """(article, question, options) of RACE's ``part``, middle or high; the right option stands at ``letter``."""
    p = stories.about(rng, words) if part == "middle" else stories.what_else(rng, words)
    right, *options = p.options
    rng.shuffle(options)
    options.insert("ABCD".index(letter), right)
    return p.article, p.question, tuple(options)
