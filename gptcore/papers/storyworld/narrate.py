"""The scenes that chapters are made of: events and talk, riddles, lessons, games, opinions, tales.

Each function gives paragraphs. Games and lessons say out loud what a reader of much text picks up in passing: which
words mean the same, what follows from what, which sentences are well formed, which endings fit. ``fresh`` draws again
when a text would tell a held-out row of a task.

A book's village remembers who is there, who owns what, who is where, and the small events that change it, so that a
later chapter can ask about an earlier one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from gptcore.papers.storyworld import facts, stories
from gptcore.papers.storyworld.facts import Statement
from gptcore.papers.storyworld.lexicon import (
    CALLINGS,
    DAYS,
    SAID,
    VILLAGES,
    Person,
    Word,
    Words,
    capital,
    named,
    region_of,
    say,
    uncapital,
)

_T = TypeVar("_T")
SCENES: Mapping[str, Sequence[str]] = SAID["scenes"]


@dataclass
class Village:
    """The state of the story: changes from event to event, chapter to chapter."""

    name: str
    people: list[Person]
    callings: dict[str, str]
    homes: dict[str, str]
    owner: dict[Word, Person]
    """Thing -> who has it now."""
    place: dict[str, Word]
    """Somebody's name -> the spot where that person is now."""
    history: list[tuple[int, Word, str, str]] = field(default_factory=list)
    """Each gift so far, the oldest first: chapter, thing, former owner, new owner."""


@dataclass(frozen=True)
class Teller:
    """Everything a scene may draw on."""

    rng: Random
    words: Words
    village: Village
    chapter: int
    held_out: Set[str]
    """Texts of held-out rows, by :func:`key`."""

    def fresh(self, make: Callable[[], _T], texts: Callable[[_T], Sequence[str]]) -> _T:
        """A draw whose texts are no held-out row."""
        while key(*texts(drawn := make())) in self.held_out:
            pass
        return drawn

    def holds(self, paragraph: str) -> bool:
        """Whether a sentence of the paragraph, or two in a row, are a held-out row."""
        sentences = re.split(r"(?<=[.?])[\s\"]+", paragraph)
        return any(
            key(*two) in self.held_out or key(two[0]) in self.held_out for two in itertools.pairwise([*sentences, ""])
        )

    def game(self, text: str, answers: Sequence[tuple[str, str]]) -> str:
        """A paragraph: a text is read out, others are held against it, each with its verdict."""
        answers = [answer for answer in answers if key(text, answer[0]) not in self.held_out]
        if self.rng.random() < 0.3:
            a, b = self.people(2)
            return f'"{text}" said {a} to {b}. ' + " ".join(f'"{x}" "{verdict}"' for x, verdict in answers)
        return " ".join([text, *(f"{x} {verdict}" for x, verdict in answers)])

    def people(self, n: int) -> list[Person]:
        return self.rng.sample(self.village.people, n)


def key(*texts: str) -> str:
    """What identifies a row: the letters of its texts, without case, spaces and marks."""
    return "\t".join("".join(filter(str.isalpha, text.lower())) for text in texts)


def new_village(rng: Random, words: Words) -> Village:
    """A new village with eight people and twelve things."""
    people = rng.sample(words.people, 8)
    return Village(
        name=rng.choice(VILLAGES),
        people=people,
        callings={p.name: calling for p, calling in zip(people, rng.sample(CALLINGS, len(CALLINGS)), strict=True)},
        homes={p.name: rng.choice(VILLAGES) for p in people},
        owner={thing: rng.choice(people) for thing in rng.sample(words.made(), 12)},
        place={p.name: rng.choice(words.spots) for p in people},
    )


def event(rng: Random, words: Words, village: Village, chapter: int) -> Statement:
    """Something small happens: the village changes and the statement tells it."""
    kind = rng.choice(("gift", "gift", "journey", "journey", "deed", "deed", "feeling", "quality", "kindred"))
    thing = rng.choice(list(village.owner))
    owner = village.owner[thing]
    if kind == "gift":
        receiver = rng.choice([p for p in village.people if p != owner])
        village.owner[thing] = receiver
        village.history.append((chapter, thing, owner.name, receiver.name))
        return facts.gift(rng, words, owner, receiver, thing)
    if kind == "deed":
        return facts.deed(rng, words, owner, thing)
    if kind == "quality":
        return facts.quality(rng, words, owner, thing)
    person = rng.choice(village.people)
    if kind == "journey":
        start = village.place[person.name]
        goal = rng.choice([spot for spot in words.spots if spot != start])
        village.place[person.name] = goal
        return facts.journey(rng, words, person, start, goal)
    return facts.feeling(rng, words, person) if kind == "feeling" else facts.kindred(rng, words, person)


def happenings(t: Teller) -> Iterator[str]:
    """Some events, one after the other, and talk about them."""
    rng = t.rng
    events = [event(rng, t.words, t.village, t.chapter) for _ in range(rng.randint(3, 5))]
    links: Sequence[str] = SCENES["links"]
    told = []
    for e in events:
        told.append(rng.choice(links) + e.text if e.text.split()[0] in e.about else e.text)
        if rng.random() < 0.3:
            told.append(f"So {uncapital(rng.choice(e.entailed))}")
    yield " ".join(told)
    a, b = t.people(2)
    last = {name: i for i, e in enumerate(events) for name in e.about}
    current = [e for i, e in enumerate(events) if all(last[name] == i for name in e.about)]
    for e in rng.sample(current, min(len(current), 3)):
        q = rng.choice(e.questions)
        asked = say(rng, SCENES["asked"], text=q.text, a=a)
        yield f'{asked} "{capital(q.answer)}," said {b}.'


def talk(t: Teller) -> Iterator[str]:
    """Somebody says something; the others say it again in their own words, or say the contrary and are put right."""
    rng = t.rng
    for _ in range(rng.randint(2, 4)):
        s = facts.statement(rng, t.words)
        follow = [h for h in rng.sample(s.entailed, len(s.entailed)) if key(s.text, h) not in t.held_out]
        against = [h for h in s.contradicted if key(s.text, h) not in t.held_out]
        if not follow or not against:
            continue
        slots = {"first": uncapital(follow[0]), "last": uncapital(follow[-1]), "all": " ".join(follow)}
        slots |= zip("ab", map(str, t.people(2)), strict=True)
        yield say(rng, SCENES["talk"], text=s.text, bare=s.text[:-1], against=rng.choice(against), **slots)


def story(t: Teller) -> Iterator[str]:
    """Tales by the fire: how something began, how it went on, how everyone felt in the end."""
    rng = t.rng
    for _ in range(rng.randint(2, 4)):
        person = rng.choice(t.words.people)
        if rng.random() < 0.3:
            who, female = rng.choice((("man", False), ("woman", True), ("boy", False), ("girl", True)))
            person = Person(f"the {who}", female)
        topic, well = stories.some(rng, t.words)
        told = rng.sample(topic.side(well), rng.randint(3, 5))
        lines = [stories.sentence(clause, person) for clause in (rng.choice(topic.starts), *told)]
        if rng.random() < 0.5:
            lines.append(capital(stories.mood(rng, t.words, person, well)))
        if rng.random() < 0.7:
            lines.append(stories.sentence(stories.upshot(rng, well), person))
        yield " ".join(lines)


def gossip(t: Teller) -> Iterator[str]:
    """Gossip: one matter, passed on from mouth to mouth."""
    rng = t.rng
    for _ in range(rng.randint(2, 3)):
        person, a, b = rng.sample(t.words.people, 3)
        topic, well = stories.some(rng, t.words)
        one, two, three = (stories.fill(clause, person) for clause in rng.sample(topic.side(well), 3))
        against = stories.fill(rng.choice(topic.side(not well)), person)
        slots = {"asked": stories.ask(rng, one), "asked_too": stories.ask(rng, two)}
        reports = [stories.report(rng, clause) for clause in (one, two, three)]
        slots |= {"One": capital(one), "Two": capital(two), "Three": capital(three)}
        slots |= {"one": one, "two": two, "three": three, "against": against}
        upshot = stories.fill(stories.upshot(rng, well), person)
        yield say(rng, SCENES["gossip"], a=a, b=b, upshot=upshot, reports=reports, **slots)


def cards(t: Teller) -> Iterator[str]:
    """The game of yes, no and perhaps."""
    rng = t.rng
    if rng.random() < 0.5:
        s = facts.statement(rng, t.words)
        claims = [(h, "Yes.") for h in s.entailed] + [(h, "No.") for h in s.contradicted]
        claims += [(h, "Perhaps.") for h in s.neutral]
        yield t.game(s.text, rng.sample(claims, rng.randint(3, 5)))
        return
    person = rng.choice(t.words.people)
    topic, well = stories.some(rng, t.words)
    said = rng.choice(topic.side(well))
    verdicts = {"entailment": "Yes.", "contradiction": "No.", "neutral": "Perhaps."}
    claims = []
    for _ in range(rng.randint(3, 5)):
        relation = rng.choice(stories.NLI)
        clause = stories.beside(rng, t.words, topic, well, said, relation)
        claims.append((stories.sentence(clause, person), verdicts[relation]))
    yield t.game(stories.sentence(said, person), claims)


def reviews(t: Teller) -> Iterator[str]:
    """What the village thought of last night's play."""
    rng = t.rng
    said = []
    for _ in range(rng.randint(4, 6)):
        good = rng.random() < 0.5
        text = t.fresh(lambda: stories.opinion(rng, t.words, good), lambda o: (o,))  # noqa: B023
        after = say(rng, SAID["opinions"]["good" if good else "bad"], a=t.people(1)[0])
        said.append(f"{capital(text.replace(' ,', ','))}. {after}")
    yield " ".join(said)


def parrot(t: Teller) -> Iterator[str]:
    """The parrot speaks well and badly, and is told so."""
    rng = t.rng
    said = []
    for _ in range(rng.randint(4, 7)):
        well = rng.random() < 0.5
        text = t.fresh(lambda: stories.utterance(rng, t.words, well), lambda o: (o,))  # noqa: B023
        said.append(f"{text} {'Well said.' if well else 'Badly said.'}")
    yield f"{t.people(1)[0]} had a parrot that talked all day. " + " ".join(said)


def answers(t: Teller) -> Iterator[str]:
    """Questions, and sentences that do or do not answer them."""
    rng = t.rng
    for _ in range(rng.randint(2, 3)):
        s = facts.statement(rng, t.words)
        q = rng.choice(s.questions)
        if key(q.text, s.text) in t.held_out:
            continue
        if rng.random() < 0.3:
            tries = [(s.text, "Answered."), (unrelated(rng, t.words, s), "Unanswered.")]
            yield t.game(q.text, rng.sample(tries, 2))
        else:
            a, b = t.people(2)
            yield say(rng, SCENES["answers"], asked=q.text, text=s.text, answer=q.answer, a=a, b=b)


def unrelated(rng: Random, words: Words, s: Statement) -> str:
    """A statement about the same person or thing that answers none of the questions of ``s``."""
    for _ in range(200):
        other = facts.statement(rng, words)
        if type_of(other) != type_of(s):
            return other.text.replace(other.about[0], s.about[0])
    raise AssertionError("the makers give more than one kind of statement")


def type_of(s: Statement) -> str:
    """The kind of question that a statement answers first."""
    return " ".join(s.questions[0].text.split()[:2]) + str(len(s.questions)) + str(len(s.about))


def riddles(t: Teller) -> Iterator[str]:
    """A passage is read, and the children guess until they are right."""
    rng = t.rng
    for _ in range(rng.randint(1, 2)):
        shape = rng.random()
        if shape < 0.3:
            parts = [facts.statement(rng, t.words) for _ in range(2)]
            q = rng.choice(rng.choice(parts).questions)
            article, question, options = " ".join(s.text for s in parts), q.text, (q.answer, *q.wrong)
        else:
            p = stories.about(rng, t.words) if shape < 0.6 else stories.what_else(rng, t.words)
            article, question, options = p.article, p.question, p.options
        guess = f"{question} {capital(rng.choice(options[1:]))}. Wrong. " if rng.random() < 0.2 else ""
        yield f"{article} {guess}{question} {capital(options[0])}."


def kinds(t: Teller) -> Iterator[str]:
    """School: what kind of thing is it, and what do all of its kind do?"""
    rng = t.rng
    sentences = []
    for kind in rng.sample(t.words.kinds, 3):
        one, two = rng.sample(kind.members, 2)
        many, single = rng.choice(kind.habits)
        spot = rng.choice(t.words.spots)
        origin = say(rng, SAID["nature"]["made" if kind.made else "alive"], spot=spot)
        sentences.append(f"{rng.choice(kind.members).A} was at the {spot}. {origin}")
        slots = {"one": one, "two": two, "kind": kind, "many": many, "single": single}
        lessons: Sequence[str] = SAID["nature"]["lessons"]
        sentences += [lesson.format(**slots) for lesson in rng.sample(lessons, 4)]
    for _ in range(3):
        entails = rng.random() < 0.8
        premise, claim = t.fresh(lambda: facts.science(rng, t.words, entails), lambda pair: pair)  # noqa: B023
        sentences.append(f"{premise} {claim}" if entails else f"{premise} {claim} Perhaps.")
    yield f"{t.people(1)[0]} taught at the school. " + " ".join(sentences)


def meanings(t: Teller) -> Iterator[str]:
    """School: words that mean the same and words that mean the contrary."""
    rng = t.rng
    sentences = []
    for group, contrary in [
        (group, named(groups, group.opposite))
        for groups in (t.words.moods, t.words.qualities)
        for group in rng.sample(groups, 2)
    ]:
        one, two = rng.sample(group.words, 2)
        sentences += [f"To be {one} is to be {two}.", f"Whoever is {two} is not {rng.choice(contrary.words)}."]
    for deeds in rng.sample(t.words.deeds, 2):
        first, second = rng.sample(deeds.words, 2)
        sentences.append(f"To {first.base} a thing is to {second.base} it.")
        sentences.append(
            f"To {second.base} it is not to {rng.choice(named(t.words.deeds, deeds.opposite).words).base} it."
        )
    yield " ".join(rng.sample(sentences, 6))


def geography(t: Teller) -> Iterator[str]:
    """Where the villages lie."""
    rng = t.rng
    sentences = []
    for village in rng.sample(VILLAGES, 3):
        slots = {"village": village, "region": region_of(village), "a": t.people(1)[0]}
        sentences.append(say(rng, SCENES["geography"], **slots))
    yield " ".join(sentences)


def recollection(t: Teller) -> Iterator[str]:
    """Questions about what happened in earlier chapters."""
    rng = t.rng
    past = [h for h in t.village.history if h[0] < t.chapter]
    if not past:
        return
    chapter, thing, giver, receiver = rng.choice(past)
    now = t.village.owner[thing]
    ago = "in the last chapter" if chapter == t.chapter - 1 else f"in chapter {chapter}"
    a, b = t.people(2)
    yield (
        f'"Do you remember who gave away the {thing} {ago}?" asked {a}. "{giver}," said {b}. '
        f'"And who got it?" "{receiver}." "And who has the {thing} now?" "{now} has the {thing}."'
    )


def weather(t: Teller) -> Iterator[str]:
    """A breath between scenes: people about the village, with dashes and dots."""
    rng = t.rng
    a, b = t.people(2)
    act, spot = rng.choice(rng.choice(t.words.acts).words), rng.choice(t.words.spots)
    first, second = rng.sample(rng.choice(t.words.moods).words, 2)
    slots = {"day": rng.choice(DAYS), "day_too": rng.choice(DAYS), "calling": t.village.callings[a.name]}
    yield say(rng, SCENES["weather"], a=a, b=b, act=act, spot=spot, first=first, second=second, **slots)
