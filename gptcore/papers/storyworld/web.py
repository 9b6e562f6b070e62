"""The village's web: pages on which people show each other, unasked, how something is done.

GPT-2's paper holds that a language model learns tasks from such demonstrations, and shows translations that it found in
its crawl (its Table 1). So here: sentences with their translation, texts with questions and answers, news with a
"TL;DR:", reviews with their verdict, and sorting games whose labels mean something else on each page, so that only the
lines above tell what.

Beside it the village academy's papers: an archive like arXiv's, whose methods are named, used and outdone as the years
pass. Each paper has a title, often "Name: what it is", and an abstract that speaks of the title's subject, introduces
an abbreviation, names older methods and says how much better the new one is. Names come into the world with the paper
that proposes them, so the newest papers are full of names that no older one has.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import cache, partial
from random import Random
from typing import Any

from gptcore.papers.storyworld import facts, stories
from gptcore.papers.storyworld.facts import Statement
from gptcore.papers.storyworld.lexicon import NAMES, SAID, WORLD, Person, Words, article, capital, invented, say
from gptcore.papers.storyworld.narrate import key

Shown = tuple[str, str]
"""What a text is held out by, and the text."""
PAGES = 4000
_WORDS = 260  # of a page, or a little more: a window of the demo's models is full, and its last positions are learnt
UNKNOWN = "unknown"
"""The answer to a question that a text leaves open."""
LABELS = tuple(WORLD["labels"].split())


@dataclass(frozen=True)
class Asked:
    """A passage, what is asked about it, and the answers, each a part of the passage or :data:`UNKNOWN`."""

    passage: str
    questions: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class News:
    """An article and what it comes to."""

    article: tuple[str, ...]
    summary: tuple[str, ...]


@dataclass(frozen=True)
class Blank:
    """Sentences, the last of which has XXXXX in the place of a word, that word, and ten candidates for it."""

    sentences: tuple[str, ...]
    answer: str
    candidates: tuple[str, ...]


@dataclass(frozen=True)
class Game:
    """Words sorted by a rule of the day: every word of a kind has the label that the kind got today."""

    lines: tuple[tuple[str, str], ...]
    labels: tuple[str, str]


def page(rng: Random, words: Words, held_out: Set[str]) -> str:
    """One page, which shows one thing again and again; none of its texts is a held-out one."""
    show, between = rng.choice(_FORMS)
    shown: list[str] = []
    while sum(len(text.split()) for text in shown) < _WORDS:
        told, text = show(rng, words)
        if key(told) not in held_out:
            shown.append(text)
    return between.join(shown)


def web(rng: Random, held_out: Set[str], pages: int = PAGES) -> str:
    """All pages, as JSON lines with the field "text"."""
    words = Words()
    return "".join(json.dumps({"text": page(rng, words, held_out)}) + "\n" for _ in range(pages))


def tidal(sentence: str) -> str:
    """A sentence in the tongue of the coast: word for word, names and stops as they are."""
    return capital(" ".join(_tidal_word(word) for word in sentence.split()))


@cache
def _tidal_word(word: str) -> str:
    bare = word.rstrip(".,")
    if bare in NAMES:
        return word
    rng = Random(f"tidal/{bare.lower()}")
    return invented(rng, "tidal", 1 if len(bare) < 4 else 2) + word[len(bare) :]


def plain(rng: Random, words: Words) -> Statement:
    """Who gave what to whom, or who went where."""
    a, b = rng.sample(words.people, 2)
    if rng.random() < 0.5:
        return facts.gift(rng, words, a, b, rng.choice(words.made()))
    start, goal = rng.sample(words.spots, 2)
    return facts.journey(rng, words, a, start, goal)


def asked(rng: Random, words: Words, questions: int = 4) -> Asked:
    """Some small events, and questions about them; about one of five has no answer there."""
    told: list[Statement] = []
    while len(told) < 4:
        fresh = plain(rng, words)
        if not any(set(fresh.about) & set(other.about) for other in told):
            told.append(fresh)
    passage = " ".join(statement.text for statement in told)
    pairs = [(question.text, question.answer) for statement in told for question in statement.questions]
    pairs = [pair for pair in pairs if pair[1].lower() in passage.lower()]
    chosen = rng.sample(pairs, min(questions, len(pairs)))
    if rng.random() < 0.2 * questions:
        elsewhere = next(thing for thing in rng.sample(words.made(), len(words.made())) if thing not in passage)
        nobody = next(person for person in rng.sample(words.people, len(words.people)) if person.name not in passage)
        open_ones = (f"Who has the {elsewhere}?", f"Where is {nobody.name}?", f"What did {nobody.name} get?")
        chosen[rng.randrange(len(chosen))] = (rng.choice(open_ones), UNKNOWN)
    return Asked(passage, tuple(chosen))


def news(rng: Random, words: Words) -> News:
    """A tale with what leads nowhere; its summary is how the matter began and how it ended."""
    tale = stories.tale(rng, words, 4)
    asides = [plain(rng, words).text for _ in range(2)]
    return News((*tale.lines[:3], *asides, tale.lines[3], tale.right), (tale.lines[0], tale.right))


def game(rng: Random, words: Words, once: bool = False) -> Game:
    """A game of two kinds of things; ``once``: no word comes again."""
    kinds, labels = rng.sample(words.kinds, 2), rng.sample(LABELS, 2)
    if once:
        lines = [(word, label) for kind, label in zip(kinds, labels, strict=True) for word in kind.members]
    else:
        lines = [(rng.choice(kinds[side % 2].members), labels[side % 2]) for side in range(12)]
    rng.shuffle(lines)
    return Game(tuple(lines), (labels[0], labels[1]))


def _told_above(once: bool, rng: Random, words: Words) -> Game:
    """A game of two kinds of things whose last word stands above or, ``once`` each, others with its label do."""
    drawn = game(rng, words, once)
    while drawn.lines[-1][once] not in {line[once] for line in drawn.lines[:-1]}:
        drawn = game(rng, words, once)
    return drawn


recall, sorting = partial(_told_above, False), partial(_told_above, True)


def cloze(rng: Random, words: Words) -> tuple[str, str]:
    """A passage without its last word, which what happened before makes certain, and that word."""
    told, (asked, by_name), (asked_too, by_thing) = _events(rng, words)
    passage = " ".join(told)
    return (f"{passage} {asked}", by_name) if rng.random() < 0.5 else (f"{passage} {asked_too}", by_thing)


def _events(rng: Random, words: Words) -> tuple[list[str], tuple[str, str], tuple[str, str]]:
    """Three sentences, and two that follow from them without their last word: a name, and a thing."""
    a, b, c = rng.sample(words.people, 3)
    thing, other = rng.sample(words.made(), 2)
    first, second = facts.gift(rng, words, a, b, thing), facts.gift(rng, words, b, c, other)
    start, goal = rng.sample(words.spots, 2)
    told = [first.text, second.text, facts.journey(rng, words, a, start, goal).text]
    return told, (f"So the {thing} belongs to", b.name), (f"So {c.name} has the", other)


def blank(name: bool, rng: Random, words: Words) -> Blank:
    """Twenty sentences and a last one with a blank, for a name or a thing, which what happened before makes certain."""
    told, by_name, by_thing = _events(rng, words)
    asked, answer = by_name if name else by_thing
    sentences = [*(plain(rng, words).text for _ in range(20 - len(told))), *told]
    passage = " ".join(sentences)
    others = [person.name for person in words.people] if name else list(words.made())
    others = [word for word in dict.fromkeys(others) if word != answer]
    rng.shuffle(others)
    others.sort(key=lambda word: word not in passage)  # those of the passage first
    candidates = [answer, *others[:9]]
    rng.shuffle(candidates)
    return Blank((*sentences, f"{asked} XXXXX."), answer, tuple(candidates))


def schema(rng: Random, words: Words) -> tuple[str, str, tuple[str, str], str]:
    """A sentence with a pronoun, the pronoun, those whom it could mean, and whom it does: giver or receiver."""
    a = rng.choice(words.people)
    b = rng.choice([person for person in words.people if person != a and person.female == a.female])
    thing = rng.choice(words.made())
    right, said = rng.choice(((b, f"{a.he} has the {thing}"), (a, f"{a.he} does not have the {thing}")))
    given = f"{a.name} gave the {thing} to {b.name}."
    return f"{given} Now {said}.", a.he, (a.name, b.name), right.name


def lines_of(item: Game) -> str:
    """All words of a game in one text, by which it is held out."""
    return " ".join(part for line in item.lines for part in line)


def told_of(text: str, names: tuple[str, str]) -> list[str]:
    """A schema's text with either name in the pronoun's place."""
    given, _, said = text.partition(" Now ")
    return [f"{given} Now {name} {said.partition(' ')[2]}." for name in names]


def _translation(rng: Random, words: Words) -> Shown:
    text = plain(rng, words).text
    return text, f"{text} = {tidal(text)}"


def _questions(rng: Random, words: Words) -> Shown:
    item = asked(rng, words)
    lines = [item.passage, *(f"Q: {question}\nA: {answer}" for question, answer in item.questions)]
    return item.passage, "\n".join(lines)


def _news(rng: Random, words: Words) -> Shown:
    item = news(rng, words)
    article = " ".join(item.article)
    return article, f"{article}\nTL;DR: {' '.join(item.summary)}"


def _review(rng: Random, words: Words) -> Shown:
    good = rng.random() < 0.5
    text = stories.opinion(rng, words, good)
    return text, f"Review: {text}\nSentiment: {'positive' if good else 'negative'}"


def _game(rng: Random, words: Words) -> Shown:
    item = game(rng, words, once=rng.random() < 0.5)
    return lines_of(item), "\n".join(f"{word} -> {label}" for word, label in item.lines)


def _tale(rng: Random, words: Words) -> Shown:
    if rng.random() < 1 / 3:
        passage, last = cloze(rng, words)
        text = f"{passage} {last}."
    else:
        a: Person = rng.choice(words.people)
        b = rng.choice([person for person in words.people if person != a])
        thing = rng.choice(words.made())
        end = rng.choice((f"Now {b.name} has the {thing}.", f"Now {a.name} does not have the {thing}."))
        text = f"{a.name} gave the {thing} to {b.name}. {end}"
    return text, text


_FORMS: tuple[tuple[Callable[[Random, Words], Shown], str], ...] = (
    *[(_translation, "\n")] * 2,
    *((show, "\n\n") for show in (_questions, _questions, _news, _review, _game, _game, _game, _tale)),
)
"""What a page shows, and what stands between two of them."""


# --- the village academy's papers ---


COLUMNS = ("", "abstract", "arxiv_id", "categories", "created", "title")
PAPERS = 1500
_FIRST = datetime.date(1995, 1, 2)
_PAPERS: Mapping[str, Any] = SAID["papers"]


def archive(seed: int, papers: int = PAPERS) -> str:
    """The text of one file of the archive, tab-separated, ``papers`` records in no order of date."""
    rng = Random(f"{seed}/papers")
    known: list[tuple[str, str]] = []  # methods and their fields
    rows = [_paper(rng, number, papers, known) for number in range(papers)]
    rng.shuffle(rows)
    lines = ["\t".join(COLUMNS), *("\t".join((str(n), *row)) for n, row in enumerate(rows))]
    return "\n".join(lines) + "\n"


def _paper(rng: Random, number: int, papers: int, known: list[tuple[str, str]]) -> tuple[str, str, str, str, str]:
    """A paper's abstract, identifier, categories, date and title; ``known`` takes in the method that it proposes.

    :param number: how many papers came before it, of ``papers`` in all.
    :param known: the methods of these and their fields, the oldest first.
    """
    created = _FIRST + datetime.timedelta(days=number * 8000 // papers)
    field, told = rng.choice(_PAPERS["fields"])
    words = dict(zip("abcde", told.split(), strict=True))
    a, b, c, d, e = words.values()
    older = [name for name, its in known[-60:] if its == field]
    quality, kind = rng.choice(_PAPERS["qualities"]), rng.choice(_PAPERS["kinds"])
    full = f"{quality} {a.title()} {e.title()}"
    short = "".join(word[0] for word in full.replace("-", " ").split())
    named = rng.random() < 0.6 or not older
    name = invented(rng, "method", rng.choice((2, 2, 3))).capitalize() if named else rng.choice(older)
    title = (
        f"{name}: {capital(article(quality))} {kind} for {e.title()} {a.title()}"
        if named
        else f"{quality} {e.title()} with {name}"
    )
    problems = [say(rng, _PAPERS["problems"], **words) for _ in _PAPERS["openings"]]
    parts = [
        say(rng, _PAPERS["openings"], field=field, Field=field.title(), problems=problems),
        f"We study {full.lower()} ({short}), where the {c} and the {b} are given.",
    ]
    others = [other for other in older if other != name]
    if others:
        parts.append(say(rng, _PAPERS["earlier"], other=rng.choice(others), **words))
    goal = say(rng, _PAPERS["goals"], **words)
    parts.append(
        f"In this paper we propose {name}, {article(quality.lower())} {kind.lower()} that {goal}."
        if named
        else f"In this paper we show that {name} {goal} when {short} is used."
    )
    gain = rng.randrange(2, 40)
    against = f" over {rng.choice(others)}" if others else ""
    parts.append(f"On {rng.randrange(3, 30)} villages {name} gains ${gain} \\%${against}.")
    parts.append(say(rng, _PAPERS["endings"], short=short, field=field, d=d))
    if named:
        known.append((name, field))
    return " ".join(parts), f"{created:%y%m}.{number:05d}", f"sw.{field[:2].upper()}", created.isoformat(), title
