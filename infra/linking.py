"""How well the mentions of a graph's entities are found by their names, beside the links that Wikipedia's authors set.

    python -m infra.linking FB15k-237 wiki-entities bert

Folders: a graph with entity2wikidata.json; ERNIE's sample of its text, whose files wiki_token and wiki_entity have an
article a line (the number of sentences; of each the number of its pieces, then those, or the Wikidata id that each
piece's link points to); and the vocabulary of the pieces.

Of the links to entities of the graph it counts those whose first piece a found mention begins with: of the same entity,
of another, or of none. An article links a name once or not at all, so that of found mentions without a link nobody says
whether they are right.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from gptcore.errors import InputError
from gptcore.files import read_object
from gptcore.knowledge.gazetteer import Gazetteer
from gptcore.knowledge.graph import KnowledgeGraph, read_graph
from gptcore.text.tokenizer import Tokenizer

TOKENS, LINKS = "wiki_token", "wiki_entity"
UNLINKED = "#UNK#"


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", type=Path)
    parser.add_argument("linked", type=Path)
    parser.add_argument("vocabulary", type=Path)
    given = parser.parse_args()
    graph = read_graph(str(given.graph))
    gazetteer = Gazetteer.of(graph, Tokenizer.load(str(given.vocabulary)))
    numbers = wikidata_numbers(graph, given.graph)
    counts = Counter[str]()
    for tokens, links in sentences(given.linked):
        counts.update(compare(gazetteer, numbers, tokens, links))
    linked, right, wrong = (counts[name] for name in ("links", "right", "wrong"))
    share = right / max(1, linked), wrong / max(1, linked)
    print(f"{counts['pieces']:,} pieces, {counts['mentions']:,} links, {linked:,} of them to the graph's entities")
    print(f"of these found as the same entity: {right:,} ({share[0]:.1%}), as another: {wrong:,} ({share[1]:.1%})")
    print(f"right where a found mention begins at such a link: {right / max(1, right + wrong):.1%}")
    elsewhere = counts["found"] - right - wrong
    print(f"{counts['found']:,} found in all, {elsewhere:,} of them elsewhere, of which nobody says")


def wikidata_numbers(graph: KnowledgeGraph, folder: Path) -> dict[str, int]:
    """Wikidata's id -> the number of the graph's entity.

    :raises InputError: no such file.
    """
    about = read_object(folder / "entity2wikidata.json", "what Wikidata calls the entities")
    return {about[name]["wikidata_id"]: number for number, name in enumerate(graph.entities) if name in about}


def sentences(folder: Path) -> Iterator[tuple[list[int], Sequence[str]]]:
    """The pieces of each sentence, and what each one's link points to.

    :raises InputError: files that do not belong together; names file and line.
    """
    tokens, links = ((folder / name).read_text(encoding="utf-8").splitlines() for name in (TOKENS, LINKS))
    if len(tokens) != len(links):
        raise InputError(f"{folder}: {len(tokens)} lines in {TOKENS}, {len(links)} in {LINKS}; expected as many")
    for number, (mine, its) in enumerate(zip(tokens, links, strict=True), start=1):
        pieces, targets = (list(_parts(line.split("\t"))) for line in (mine, its))
        if list(map(len, pieces)) != list(map(len, targets)):
            raise InputError(f"{folder / LINKS}, line {number}: found other sentences than {TOKENS}, expected the same")
        yield from ((list(map(int, some)), target) for some, target in zip(pieces, targets, strict=True))


def _parts(fields: Sequence[str]) -> Iterator[Sequence[str]]:
    at = 1
    while at < len(fields):
        size = int(fields[at])
        yield fields[at + 1 : at + 1 + size]
        at += 1 + size


def compare(gazetteer: Gazetteer, numbers: dict[str, int], tokens: list[int], links: Sequence[str]) -> Counter[str]:
    """Counts of one sentence: "pieces", "mentions" linked, "links" to the graph, found "right" or "wrong", "found"."""
    counts = Counter(pieces=len(tokens))
    if not tokens:
        return counts
    found = gazetteer.find(np.asarray(tokens, dtype=np.int64)[None])[0]
    counts["found"] = int(np.count_nonzero(found))
    for at, (before, link) in enumerate(pairwise([UNLINKED, *links])):
        if link in (UNLINKED, before):
            continue
        counts["mentions"] += 1
        if link in numbers:
            counts["links"] += 1
            if found[at]:
                counts["right" if found[at] - 1 == numbers[link] else "wrong"] += 1
    return counts


if __name__ == "__main__":
    main()
