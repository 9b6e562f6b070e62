"""Rows of the tasks on one text (SST-2, CoLA) and on choices (Story Cloze, RACE)."""

from __future__ import annotations

from random import Random

from gptcore.storyworld import grammar, opinions, stories
from gptcore.storyworld.lexicon import Words


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
    one, two, three, four = tale.lines
    return one, two, three, four, *endings


def passage(rng: Random, words: Words, part: str, letter: str) -> tuple[str, str, tuple[str, ...]]:
    """(article, question, options) of RACE's ``part``, middle or high; the right option stands at ``letter``."""
    p = stories.about(rng, words) if part == "middle" else stories.what_else(rng, words)
    right, *options = p.options
    rng.shuffle(options)
    options.insert("ABCD".index(letter), right)
    return p.article, p.question, tuple(options)
