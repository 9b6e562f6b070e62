"""The village's chronicle, which speaks of the people of its knowledge graph, and questions of who is whose in it.

Of half of the households it tells who is married to whom, whose child somebody is, who lives where; of the others only
where they went and whom they met. Sentences about these others, in FewRel's format, ask for the relation of two
people, most often without a word of it: then first names alone are left to guess by, unless one knows the graph.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from random import Random

from gptcore.storyworld.facts import article
from gptcore.storyworld.formats import Writer
from gptcore.storyworld.knowledge import Fact, facts
from gptcore.storyworld.lexicon import SEASONS, SPOTS, VILLAGES, WOMEN

YEARS = 40
"""Documents of the chronicle."""
SENTENCES = 260
"""Of a year."""
_TELLING = 0.6  # of them tell a fact
ROWS = 5
"""Sentences of two people in FewRel's file."""
_OPEN = 1 / 3  # of them say how the two are related

_SILENT = (
    "In the {season} {x} and {y} walked to the {spot}.",
    "{x} was at the {spot} when {y} came from {village}.",
    "Nobody in {village} saw {x} or {y} at the {spot}.",
    "{x} asked {y} about the way to {village}.",
    "At the {spot} {x} waited for {y}.",
    "{x} had not been in {village} since {y} left the {spot}.",
    "The talk at the {spot} was of {x} and of {y}.",
    "That {season} {x} wrote from {village}, and {y} read it at the {spot}.",
)
"""Sentences of two people that say nothing of what they are to each other."""
_FACTS: dict[str, tuple[str, ...]] = {
    "married_to": ("{x} is married to {y}.", "{y} took {x} as {his} {spouse}."),
    "child_of": ("{x} is a child of {y}.", "{y} is the {parent} of {x}."),
    "sibling_of": ("{x} grew up with {y} under one roof.",),
    "lives_in": ("{x} lives in {y}.", "The house of {x} stands in {y}."),
    "works_as": ("{x} works as a {y}.",),
    "owns": ("{x} owns {a} {y}.",),
    "keeps": ("{x} keeps {a} {y}.",),
}
"""Relation of the graph -> sentences that tell it of x and y."""
_RELATIONS = {"P26": "spouse", "P40": "child", "P25": "mother"}
"""Wikidata's properties that the rows are about."""


def households(known: Sequence[Fact]) -> dict[str, str]:
    """Somebody's name -> what their household is called: the wife's name."""
    found: dict[str, str] = {}
    for head, relation, tail in known:
        if relation == "married_to" and head not in found:
            found[head] = found[tail] = head
        elif relation == "child_of":
            found.setdefault(head, found[tail])
    return found


def _told(home: Mapping[str, str]) -> set[str]:
    """The households of which the chronicle tells facts: every other one."""
    return set(list(dict.fromkeys(home.values()))[::2])


def _woman(name: str) -> bool:
    return name.split()[0] in WOMEN


def _spoken(rng: Random, fact: Fact) -> str:
    head, relation, tail = fact
    spouse, parent = ("wife" if _woman(head) else "husband"), ("mother" if _woman(tail) else "father")
    his = "her" if _woman(tail) else "his"
    sentence = rng.choice(_FACTS[relation])
    return sentence.format(x=head, y=tail, spouse=spouse, parent=parent, his=his, a=article(tail).split()[0])


def _silent(rng: Random, x: str, y: str) -> str:
    words = {"season": rng.choice(SEASONS), "spot": rng.choice(SPOTS), "village": rng.choice(VILLAGES)}
    return rng.choice(_SILENT).format(x=x, y=y, **words)


def write_chronicle(shelf: Writer, graph: Random) -> None:
    """The files ``year-01.txt`` and so on.

    :param graph: what the graph's facts are drawn from.
    """
    known = facts(graph)
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


def write_relations(w: Writer, graph: Random) -> None:
    """The file ``FewRel/val_wiki.json``, whose rows are about the households of which the chronicle tells no facts."""
    known = facts(graph)
    home = households(known)
    told = _told(home)
    rng = w.rng("fewrel")
    found: dict[str, list[dict[str, object]]] = {relation: [] for relation in _RELATIONS}
    for relation, head, tail in _pairs(known):
        if home[head] in told:
            continue
        for _ in range(ROWS):
            x, y = rng.sample([head, tail], 2)
            sentence = _silent(rng, x, y)
            if rng.random() < _OPEN:
                sentence = _stated(rng, relation, head, tail)
            found[relation].append({**_row(sentence, head, tail), "group": home[head]})
    w.write("FewRel/val_wiki.json", json.dumps(found))


def _pairs(known: Sequence[Fact]) -> Iterator[tuple[str, str, str]]:
    """Property, head and tail: the tail is the head's spouse, child or mother."""
    for head, relation, tail in known:
        if relation == "married_to":
            yield "P26", head, tail
        elif relation == "child_of":
            yield "P40", tail, head
            if _woman(tail):
                yield "P25", head, tail


def _stated(rng: Random, relation: str, head: str, tail: str) -> str:
    """A sentence that says how the two are related."""
    if relation == "P26":
        return _spoken(rng, (head, "married_to", tail))
    return _spoken(rng, (tail, "child_of", head) if relation == "P40" else (head, "child_of", tail))


def _row(sentence: str, head: str, tail: str) -> dict[str, object]:
    """A sentence in FewRel's format: words, and where among them the two stand."""
    words = sentence.replace(".", " .").replace(",", " ,").split()

    def place(name: str) -> list[int]:
        parts = name.split()
        start = next(at for at in range(len(words)) if words[at : at + len(parts)] == parts)
        return list(range(start, start + len(parts)))

    about = {key: [name.lower(), name, [place(name)]] for key, name in (("h", head), ("t", tail))}
    return {"tokens": words, **about}
