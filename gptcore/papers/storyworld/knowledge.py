"""The world as a knowledge graph: who is whose, what is where, what is a kind of what; files as the public graphs have.

Households live in one village: spouses and their children do, so that where somebody lives follows from who is whose.
Some facts are held out, of entities that others tell of.

Questions in CommonsenseQA's format ask what two or three of the facts together say of somebody. Dev questions are about
other people than train questions, so that who has only the text can do no more than guess.

The village's chronicle speaks of the graph's people. Of half of the households it tells who is married to whom, whose
child somebody is, who lives where; of the others only where they went and whom they met. Sentences about these others,
in FewRel's format, ask for the relation of two people, most often without a word of it: then first names alone are left
to guess by, unless one knows the graph.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from random import Random

from gptcore.papers.storyworld.formats import Writer
from gptcore.papers.storyworld.lexicon import (
    CALLINGS,
    KINDS,
    MEN,
    REGIONS,
    SAID,
    SEASONS,
    SPOTS,
    VILLAGES,
    WOMEN,
    WORLD,
    Word,
    say,
)

FOLDER = "StoryGraph"
GRAPH = "graph"
"""Name of the generator that the facts are drawn from."""
HOUSEHOLDS = 240
SURNAMES = tuple(WORLD["surnames"].split())
_HELD_OUT = 20  # one fact in so many, for each of two splits
_CHILDREN = (1, 2, 2, 3)
Fact = tuple[str, str, str]

QUESTIONS: Mapping[tuple[str, ...], str] = {row["path"]: row["text"] for row in SAID["graph"]["questions"]}
"""The relations that lead from somebody to an answer, one after the other -> the question."""
N_CHOICES = 5
_DEV = 10  # of so many people three are asked about in dev alone
_DEV_OF_THEM = 3

YEARS = 40
"""How many documents the chronicle has."""
SENTENCES = 260
"""How many sentences the chronicle of a year has."""
_TELLING = 0.6  # the share of these that tell a fact
ROWS = 5
"""How many sentences FewRel's file has of two people."""
_OPEN = 1 / 3  # the share of these that say how the two are related

_FACTS: Mapping[str, Sequence[str]] = SAID["chronicle"]["facts"]
"""Relation of the graph -> sentences that tell it of x and y."""
_RELATIONS = ("P26", "P40", "P25")
"""Wikidata's properties that the rows are about: spouse, child, mother."""


def facts(rng: Random) -> list[Fact]:
    """Every fact of a world, in a fixed order: head, relation, tail."""
    told: list[Fact] = []
    for region, villages in REGIONS.items():
        told += [(village, "lies_in", region.removeprefix("the ")) for village in villages]
    for kind in KINDS:
        told.append((kind.name, "is_a", kind.above))
        told += [(member, "is_a", kind.name) for member in kind.members]
    things = [member for kind in KINDS if kind.made for member in kind.members]
    animals = [member for kind in KINDS if kind.above == "animal" for member in kind.members]
    names = [(first, surname) for surname in SURNAMES for first in zip(WOMEN, MEN, strict=True)]
    rng.shuffle(names)
    used: set[str] = set()

    def named(first: str, surname: str) -> str:
        """The name, if nobody has it yet; an empty one if somebody has."""
        name = f"{first} {surname}"
        if name in used:
            return ""
        used.add(name)
        return name

    for (woman, man), surname in names[:HOUSEHOLDS]:
        wife, husband = named(woman, surname), named(man, surname)
        if not wife or not husband:
            continue
        household = [wife, husband]
        told += [(wife, "married_to", husband), (husband, "married_to", wife)]
        drawn = [named(rng.choice(WOMEN + MEN), surname) for _ in range(rng.choice(_CHILDREN))]
        children = [name for name in drawn if name]
        for child in children:
            told += [(child, "child_of", wife), (child, "child_of", husband)]
        told += [(one, "sibling_of", other) for one in children for other in children if one != other]
        village = rng.choice(VILLAGES)
        told += [(person, "lives_in", village) for person in household + children]
        told += [(person, "works_as", rng.choice(CALLINGS)) for person in household]
        told.append((rng.choice(household), "owns", rng.choice(things)))
        told.append((rng.choice(household + children), "keeps", rng.choice(animals)))
    return told


Links = Mapping[tuple[str, str], Sequence[str]]
"""Head and relation -> tails."""


def links(known: Sequence[Fact]) -> Links:
    """What each entity's relations lead to, in the order of the facts."""
    tails: dict[tuple[str, str], list[str]] = {}
    for head, relation, tail in known:
        tails.setdefault((head, relation), []).append(tail)
    return tails


def reached(known: Links, start: str, path: Sequence[str]) -> list[str]:
    """Where relations lead from an entity, one after the other: each end once."""
    places = [start]
    for relation in path:
        places = list(dict.fromkeys(tail for head in places for tail in known.get((head, relation), ())))
    return places


def _questions(rng: Random, known: Sequence[Fact]) -> dict[str, list[str]]:
    people = sorted({head for head, relation, _ in known if relation == "lives_in"})
    rng.shuffle(people)
    rows: dict[str, list[str]] = {"train": [], "dev": []}
    ends = {path: sorted({tail for _, relation, tail in known if relation == path[-1]}) for path in QUESTIONS}
    owned = {tail for _, relation, tail in known if relation == "owns"}
    kinds = sorted({tail for head, relation, tail in known if relation == "is_a" and head in owned})
    ends = {path: kinds if path[-1] == "is_a" else names for path, names in ends.items()}
    leads = links(known)
    for number, person in enumerate(people):
        split = "dev" if number % _DEV < _DEV_OF_THEM else "train"
        for path, question in QUESTIONS.items():
            right = reached(leads, person, path)
            wrong = [name for name in ends[path] if name not in right]
            if not right or len(wrong) < N_CHOICES - 1:
                continue
            choices = [rng.choice(right), *rng.sample(wrong, N_CHOICES - 1)]
            order = rng.sample(range(N_CHOICES), N_CHOICES)
            row = {
                "answerKey": "ABCDE"[order.index(0)],
                "id": f"storyworld-{split}-{len(rows[split])}",
                "question": {
                    "question_concept": person,
                    "choices": [{"label": "ABCDE"[at], "text": choices[place]} for at, place in enumerate(order)],
                    "stem": question.format(person),
                },
            }
            rows[split].append(json.dumps(row))
    return rows


def write_graph(w: Writer) -> None:
    """The files ``StoryGraph/train.txt``, ``valid.txt``, ``test.txt``, and the questions that train's facts answer."""
    rng = w.rng(GRAPH)
    known = facts(rng)
    left: dict[str, int] = {}  # how many facts of train tell of an entity
    for head, _, tail in known:
        left[head], left[tail] = left.get(head, 0) + 1, left.get(tail, 0) + 1
    splits: dict[str, list[Fact]] = {"train": [], "valid": [], "test": []}
    wanted = dict.fromkeys(("valid", "test"), len(known) // _HELD_OUT)
    for fact in rng.sample(known, len(known)):
        head, _, tail = fact
        split = next((name for name, n in wanted.items() if len(splits[name]) < n), "train")
        if min(left[head], left[tail]) < 2:  # the last fact that tells of one of the two
            split = "train"
        if split != "train":
            left[head], left[tail] = left[head] - 1, left[tail] - 1
        splits[split].append(fact)
    for name, rows in splits.items():
        w.write(f"{FOLDER}/{name}.txt", "".join("\t".join(row) + "\n" for row in rows))
    for name, lines in _questions(w.rng("graph/questions"), splits["train"]).items():
        w.write(f"CommonsenseQA/{name}_rand_split.jsonl", "".join(line + "\n" for line in lines))


def households(known: Sequence[Fact]) -> dict[str, str]:
    """Somebody's name -> what their household is called: the wife's name."""
    home: dict[str, str] = {}
    for head, relation, tail in known:
        if relation == "married_to" and head not in home:
            home[head] = home[tail] = head
        elif relation == "child_of":
            home.setdefault(head, home[tail])
    return home


def _told(home: Mapping[str, str]) -> set[str]:
    """The households of which the chronicle tells facts: every other one."""
    return set(list(dict.fromkeys(home.values()))[::2])


def _woman(name: str) -> bool:
    return name.split()[0] in WOMEN


def _spoken(rng: Random, fact: Fact) -> str:
    head, relation, tail = fact
    spouse, parent = ("wife" if _woman(head) else "husband"), ("mother" if _woman(tail) else "father")
    his = "her" if _woman(tail) else "his"
    return say(rng, _FACTS[relation], x=head, y=Word(tail), spouse=spouse, parent=parent, his=his)


def _silent(rng: Random, x: str, y: str) -> str:
    words = {"season": rng.choice(SEASONS), "spot": rng.choice(SPOTS), "village": rng.choice(VILLAGES)}
    return say(rng, SAID["chronicle"]["silent"], x=x, y=y, **words)


def write_chronicle(shelf: Writer) -> None:
    """The files ``year-01.txt`` and so on, about the graph of the same seed."""
    known = facts(shelf.rng(GRAPH))
    home = households(known)
    told_of = _told(home)
    told = [fact for fact in known if fact[1] in _FACTS and home[fact[0]] in told_of]
    people = list(home)
    kin: dict[str, list[str]] = {}
    for person, household in home.items():
        kin.setdefault(household, []).append(person)
    for year in range(1, YEARS + 1):
        rng = shelf.rng(f"chronicle/{year}")
        lines = [f"The chronicle of the year {1700 + year}"]
        for _ in range(SENTENCES):
            x, y = rng.sample(people, 2)
            if rng.random() < 0.5:  # those who know each other meet more often
                y = rng.choice([other for other in kin[home[x]] if other != x])
            lines.append(_spoken(rng, rng.choice(told)) if rng.random() < _TELLING else _silent(rng, x, y))
        paragraphs = [" ".join(lines[1:][at : at + 8]) for at in range(0, SENTENCES, 8)]
        shelf.write(f"year-{year:02d}.txt", "\n\n".join([lines[0], *paragraphs]) + "\n")


def write_relations(w: Writer) -> None:
    """The file ``FewRel/val_wiki.json``, whose rows are about the households of which the chronicle tells no facts."""
    known = facts(w.rng(GRAPH))
    home = households(known)
    told = _told(home)
    rng = w.rng("fewrel")
    rows: dict[str, list[dict[str, object]]] = {relation: [] for relation in _RELATIONS}
    for relation, head, tail, fact in _pairs(known):
        if home[head] in told:
            continue
        for _ in range(ROWS):
            x, y = rng.sample([head, tail], 2)
            sentence = _silent(rng, x, y)
            if rng.random() < _OPEN:
                sentence = _spoken(rng, fact)
            rows[relation].append({**_row(sentence, head, tail), "group": home[head]})
    w.write("FewRel/val_wiki.json", json.dumps(rows))


def _pairs(known: Sequence[Fact]) -> Iterator[tuple[str, str, str, Fact]]:
    """Property, head and tail, which is the head's spouse, child or mother; and the fact that says so."""
    for fact in known:
        head, relation, tail = fact
        if relation == "married_to":
            yield "P26", head, tail, fact
        elif relation == "child_of":
            yield "P40", tail, head, fact
            if _woman(tail):
                yield "P25", head, tail, fact


def _row(sentence: str, head: str, tail: str) -> dict[str, object]:
    """A sentence in FewRel's format: words, and where among them the two stand."""
    words = sentence.replace(".", " .").replace(",", " ,").split()

    def place(name: str) -> list[int]:
        parts = name.split()
        start = next(at for at in range(len(words)) if words[at : at + len(parts)] == parts)
        return list(range(start, start + len(parts)))

    about = {key: [name.lower(), name, [place(name)]] for key, name in (("h", head), ("t", tail))}
    return {"tokens": words, **about}
