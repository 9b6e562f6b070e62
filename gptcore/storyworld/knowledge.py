"""The world as a knowledge graph: who is whose, what is where, what is a kind of what; files as the public graphs have.

Households live in one village: spouses and their children do, so that where somebody lives follows from who is whose.
Some facts are held out, of entities that others tell of.

Questions in CommonsenseQA's format ask what two or three of the facts together say of somebody. Dev questions are about
other people than train questions, so that who has only the text can do no more than guess.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from random import Random

from gptcore.storyworld.formats import Writer
from gptcore.storyworld.lexicon import CALLINGS, KINDS, MEN, REGIONS, VILLAGES, WOMEN

FOLDER = "StoryGraph"
GRAPH = "graph"
"""Name of the generator that the facts are drawn from."""
HOUSEHOLDS = 240
SURNAMES = (
    *("Archer", "Barlow", "Carter", "Dyer", "Fisher", "Gardner", "Hooper", "Kemp", "Lambert", "Mercer", "Naylor"),
    *("Potter", "Reeve", "Sawyer", "Tanner", "Wainwright"),
)
_HELD_OUT = 20  # one fact in so many, for each of two splits
_CHILDREN = (1, 2, 2, 3)
Fact = tuple[str, str, str]

QUESTIONS: Mapping[tuple[str, ...], str] = {
    ("married_to", "works_as"): "What does the spouse of {} work as?",
    ("child_of", "works_as"): "What may a parent of {} work as?",
    ("owns", "is_a"): "What kind of thing does {} own?",
    ("married_to", "owns", "is_a"): "What kind of thing does the spouse of {} own?",
    ("child_of", "owns", "is_a"): "What kind of thing may a parent of {} own?",
    ("sibling_of", "child_of", "works_as"): "What may a parent of the sibling of {} work as?",
}
"""Relations that lead from somebody to the answer -> the question."""
N_CHOICES = 5
_DEV = 10  # of so many people three are asked about in dev alone
_DEV_OF_THEM = 3


def facts(rng: Random) -> list[Fact]:
    """Every fact of a world, in a fixed order: head, relation, tail."""
    found: list[Fact] = []
    for region, villages in REGIONS.items():
        found += [(village, "lies_in", region.removeprefix("the ")) for village in villages]
    for kind in KINDS:
        found.append((kind.name, "is_a", kind.above))
        found += [(member, "is_a", kind.name) for member in kind.members]
    things = [member for kind in KINDS if kind.made for member in kind.members]
    animals = [member for kind in KINDS if kind.above == "animal" for member in kind.members]
    names = [(first, surname) for surname in SURNAMES for first in zip(WOMEN, MEN, strict=True)]
    rng.shuffle(names)
    used: set[str] = set()

    def named(first: str, surname: str) -> str:
        """A name that nobody has yet; empty: somebody has it."""
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
        found += [(wife, "married_to", husband), (husband, "married_to", wife)]
        drawn = [named(rng.choice(WOMEN + MEN), surname) for _ in range(rng.choice(_CHILDREN))]
        children = [name for name in drawn if name]
        for child in children:
            found += [(child, "child_of", wife), (child, "child_of", husband)]
        found += [(one, "sibling_of", other) for one in children for other in children if one != other]
        village = rng.choice(VILLAGES)
        found += [(person, "lives_in", village) for person in household + children]
        found += [(person, "works_as", rng.choice(CALLINGS)) for person in household]
        found.append((rng.choice(household), "owns", rng.choice(things)))
        found.append((rng.choice(household + children), "keeps", rng.choice(animals)))
    return found


Links = Mapping[tuple[str, str], Sequence[str]]
"""Head and relation -> tails."""


def links(known: Sequence[Fact]) -> Links:
    """What each entity's relations lead to, in the order of the facts."""
    found: dict[tuple[str, str], list[str]] = {}
    for head, relation, tail in known:
        found.setdefault((head, relation), []).append(tail)
    return found


def reached(known: Links, start: str, path: Sequence[str]) -> list[str]:
    """Where relations lead from an entity, one after the other: each end once."""
    places = [start]
    for relation in path:
        places = list(dict.fromkeys(tail for head in places for tail in known.get((head, relation), ())))
    return places


def _questions(rng: Random, known: Sequence[Fact]) -> dict[str, list[str]]:
    """Split -> lines of CommonsenseQA's files."""
    people = sorted({head for head, relation, _ in known if relation == "lives_in"})
    rng.shuffle(people)
    rows: dict[str, list[str]] = {"train": [], "dev": []}
    ends = {path: sorted({tail for _, relation, tail in known if relation == path[-1]}) for path in QUESTIONS}
    ends = {path: _kinds_owned(known) if path[-1] == "is_a" else names for path, names in ends.items()}
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


def _kinds_owned(known: Sequence[Fact]) -> list[str]:
    """The kinds of things that somebody owns."""
    owned = {tail for _, relation, tail in known if relation == "owns"}
    return sorted({tail for head, relation, tail in known if relation == "is_a" and head in owned})


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
