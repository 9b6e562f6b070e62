"""The world as a knowledge graph: who is whose, what is where, what is a kind of what; files as the public graphs have.

Households live in one village: spouses and their children do, so that where somebody lives follows from who is whose.
Some facts are held out, of entities that others tell of.
"""

from __future__ import annotations

from random import Random

from gptcore.storyworld.formats import Writer
from gptcore.storyworld.lexicon import CALLINGS, KINDS, MEN, REGIONS, VILLAGES, WOMEN

FOLDER = "StoryGraph"
HOUSEHOLDS = 120
SURNAMES = (
    *("Archer", "Barlow", "Carter", "Dyer", "Fisher", "Gardner", "Hooper", "Kemp", "Lambert", "Mercer", "Naylor"),
    *("Potter", "Reeve", "Sawyer", "Tanner", "Wainwright"),
)
_HELD_OUT = 20  # one fact in so many, for each of two splits
_CHILDREN = (1, 2, 2, 3)
Fact = tuple[str, str, str]


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


def write_graph(w: Writer) -> None:
    """The files ``StoryGraph/train.txt``, ``valid.txt`` and ``test.txt``."""
    rng = w.rng("graph")
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
