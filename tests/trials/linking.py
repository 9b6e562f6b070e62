"""How well the mentions of a graph's entities are found by their names, beside the links that Wikipedia's authors set.

    python -m tests.trials.linking FB15k-237 wiki-entities bert [--out linked]

Folders: a graph with entity2wikidata.json; ERNIE's sample of its text, whose files wiki_token and wiki_entity have an
article a line (the number of sentences; of each the number of its pieces, then those, or the Wikidata id that each
piece's link points to); and the vocabulary of the pieces.

With --out the articles become books and their links a file of links:

    gptmill pipeline --family ernie --graph FB15k-237 --corpus linked/books --links linked/links.tsv ...

Of the links to entities of the graph it counts those whose first piece a found mention begins with: of the same entity,
of another, or of none. An article links a name once or not at all, so that of found mentions without a link nobody says
whether they are right.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np

from gptcore.base.errors import InputError
from gptcore.base.files import read_object
from gptcore.data.masking import PieceTable
from gptcore.papers.graphs.entities import Gazetteer
from gptcore.papers.graphs.graph import KnowledgeGraph, read_graph
from gptcore.text.tokenizer import Tokenizer

TOKENS, LINKS = "wiki_token", "wiki_entity"
UNLINKED = "#UNK#"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", type=Path)
    parser.add_argument("linked", type=Path)
    parser.add_argument("vocabulary", type=Path)
    parser.add_argument("--out", type=Path, help="a new folder for the articles as books, and their links")
    given = parser.parse_args(arguments)
    graph = read_graph(str(given.graph))
    tokenizer = Tokenizer.load(str(given.vocabulary))
    gazetteer, table = Gazetteer.of(graph, tokenizer), PieceTable.of(tokenizer)
    numbers = wikidata_numbers(graph, given.graph)
    names = {wikidata: graph.entities[number] for wikidata, number in numbers.items()}
    counts, told = Counter[str](), Counter[str]()
    found: dict[str, dict[str, str]] = {}
    for number, article in enumerate(articles(given.linked), start=1):
        links = found[f"article-{number:03d}.txt"] = links_of(article, tokenizer, names)
        own = Gazetteer.linked(links, graph, tokenizer, table)
        for sentence in article:
            counts.update(compare(gazetteer, numbers, *sentence))
            told.update(compare(gazetteer, numbers, *sentence, own))
        if given.out:
            text = "\n\n".join(tokenizer.decode(tokens) for tokens, _ in article)
            (given.out / "books").mkdir(parents=True, exist_ok=True)
            (given.out / "books" / f"article-{number:03d}.txt").write_text(text + "\n", encoding="utf-8")
    if given.out:
        rows = ["\t".join((document, *link)) for document, own in found.items() for link in own.items()]
        (given.out / "links.tsv").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    linked, right, wrong = (counts[name] for name in ("links", "right", "wrong"))
    share = right / max(1, linked), wrong / max(1, linked)
    print(f"{counts['pieces']:,} pieces, {counts['mentions']:,} links, {linked:,} of them to the graph's entities")
    print(f"of these found as the same entity: {right:,} ({share[0]:.1%}), as another: {wrong:,} ({share[1]:.1%})")
    print(f"right where a found mention begins at such a link: {right / max(1, right + wrong):.1%}")
    print(
        f"the same, told the links of each article: {told['right']:,} ({told['right'] / max(1, linked):.1%}), "
        f"as another: {told['wrong']:,}"
    )
    elsewhere = counts["found"] - right - wrong
    print(f"{counts['found']:,} found in all, {elsewhere:,} of them elsewhere, of which nobody says")


def wikidata_numbers(graph: KnowledgeGraph, folder: Path) -> dict[str, int]:
    """Wikidata's id -> the number of the graph's entity.

    :raises InputError: no such file.
    """
    about = read_object(folder / "entity2wikidata.json", "what Wikidata calls the entities")
    return {about[name]["wikidata_id"]: number for number, name in enumerate(graph.entities) if name in about}


Sentence = tuple[list[int], Sequence[str]]
"""Pieces, and what each one's link points to."""


def articles(folder: Path) -> Iterator[list[Sentence]]:
    """The sentences of each article.

    :raises InputError: files that do not belong together; names file and line.
    """
    tokens, links = ((folder / name).read_text(encoding="utf-8").splitlines() for name in (TOKENS, LINKS))
    if len(tokens) != len(links):
        raise InputError(f"{folder}: {len(tokens)} lines in {TOKENS}, {len(links)} in {LINKS}; expected as many")
    for number, (mine, its) in enumerate(zip(tokens, links, strict=True), start=1):
        pieces, targets = (list(_parts(line.split("\t"))) for line in (mine, its))
        if list(map(len, pieces)) != list(map(len, targets)):
            raise InputError(f"{folder / LINKS}, line {number}: found other sentences than {TOKENS}, expected the same")
        yield [(list(map(int, some)), target) for some, target in zip(pieces, targets, strict=True)]


def links_of(article: Sequence[Sentence], tokenizer: Tokenizer, names: Mapping[str, str]) -> dict[str, str]:
    """What the names that an article links mean in it: of several entities the one that most of its links point to.

    :param names: Wikidata's id -> the graph's entity; others keep theirs.
    """
    seen: dict[str, Counter[str]] = {}
    for tokens, links in article:
        at = 0
        for link, stretch in groupby(links):
            stop = at + len(list(stretch))
            if link != UNLINKED:
                name = " ".join(tokenizer.decode(tokens[at:stop]).split())
                seen.setdefault(name, Counter())[names.get(link, link)] += 1
            at = stop
    return {name: entities.most_common(1)[0][0] for name, entities in seen.items() if name}


def _parts(fields: Sequence[str]) -> Iterator[Sequence[str]]:
    at = 1
    while at < len(fields):
        size = int(fields[at])
        yield fields[at + 1 : at + 1 + size]
        at += 1 + size


def compare(
    gazetteer: Gazetteer,
    numbers: Mapping[str, int],
    tokens: list[int],
    links: Sequence[str],
    own: Gazetteer | None = None,
) -> Counter[str]:
    """Counts of one sentence: "pieces", "mentions" linked, "links" to the graph, found "right" or "wrong", "found".

    :param own: the names that its article links.
    """
    counts = Counter(pieces=len(tokens))
    if not tokens:
        return counts
    entities = gazetteer.find(np.asarray(tokens, dtype=np.int64)[None], own)[0]
    counts["found"] = int(np.count_nonzero(entities))
    for at, (before, link) in enumerate(pairwise([UNLINKED, *links])):
        if link in (UNLINKED, before):
            continue
        counts["mentions"] += 1
        if link in numbers:
            counts["links"] += 1
            if entities[at]:
                counts["right" if entities[at] - 1 == numbers[link] else "wrong"] += 1
    return counts


if __name__ == "__main__":
    main()
