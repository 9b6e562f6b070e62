"""One call writes the whole world: `books/*.txt`, `datasets/<Folder>/...`, `chronicle/*.txt`, `arxiv/sw.tsv` and
`web/pages.jsonl`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from pathlib import Path
from random import Random

from gptcore.base.errors import InputError
from gptcore.base.filesystems import mark_synthetic
from gptcore.base.types import Progress, quiet
from gptcore.papers.storyworld import narrate
from gptcore.papers.storyworld.beyond import beyond, prompted
from gptcore.papers.storyworld.formats import Writer, datasets
from gptcore.papers.storyworld.knowledge import write_chronicle, write_graph, write_relations
from gptcore.papers.storyworld.lexicon import MEN, SEASONS, WOMEN, WORLD, Words, region_of
from gptcore.papers.storyworld.narrate import Teller
from gptcore.papers.storyworld.web import PAGES, archive, web

BOOKS = 36
CHARACTERS = 85_000
SCENES: tuple[tuple[Callable[[Teller], Iterable[str]], int], ...] = tuple(
    (getattr(narrate, name), times) for name, times in WORLD["scenes"].items()
)
"""Scenes of a chapter and how often each is told."""


def generate(
    out: Path,
    seed: int,
    books: int = BOOKS,
    characters: int = CHARACTERS,
    pages: int = PAGES,
    progress: Progress = quiet,
) -> dict[str, int]:
    """Write a synthetic world; the same arguments give the same bytes on any machine.

    :param out: folder that receives these; it must be empty or absent.
    :param seed: names every random draw.
    :param characters: lower bound of a book's length.
    :param pages: how many pages the web has.
    :param progress: called with (books written, books in all).
    :returns: counts of books, characters and dataset files.
    :raises InputError: if ``out`` already holds something, or a number is below 1.
    """
    if books < 1 or characters < 1 or pages < 1:
        raise InputError(f"books = {books}, characters = {characters}, pages = {pages}; expected each at least 1")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is not an empty folder; a world is only written into a new or empty one")
    tables = Writer(out / "datasets", seed)
    datasets(tables)
    shelf = Writer(out / "books", seed)
    total = 0
    for number in range(1, books + 1):
        rng = shelf.rng(f"book/{number}")
        title, text = book(rng, characters, tables.held_out)
        author = rng.choice(WOMEN + MEN)
        name = title.replace("The ", "").replace(" ", "")
        shelf.write(f"{author}_{name}_{1800 + number}.txt", text)
        total += len(text)
        progress(number, books)
    Writer(out / "arxiv", seed).write("sw.tsv", archive(seed))
    prompted(tables)  # after the books: what it holds out is held out of the web alone
    beyond(tables)
    write_graph(tables)
    write_relations(tables)
    write_chronicle(Writer(out / "chronicle", seed))
    shown = Writer(out / "web", seed)
    shown.write("pages.jsonl", web(shown.rng("web"), tables.held_out, pages))
    for folder in ("books", "datasets", "chronicle", "arxiv", "web"):
        mark_synthetic(out / folder, seed)
    return {"books": books, "characters": total, "dataset_files": len(tables.files)}


def book(rng: Random, characters: int, held_out: Set[str]) -> tuple[str, str]:
    """(title, text) of one book of at least ``characters`` characters."""
    words = Words()
    village = narrate.new_village(rng, words)
    title = f"The {rng.choice(SEASONS).capitalize()} of {village.name}"
    paragraphs = [title, introduction(village)]
    scenes, weights = zip(*SCENES, strict=True)
    length, chapter = 0, 0
    while length < characters:
        chapter += 1
        teller = Teller(rng, words.topic(rng, village.people), village, chapter, held_out)
        told = [f"Chapter {chapter}", opening(teller)]
        for scene in rng.choices(scenes, weights, k=14):
            told += [paragraph for paragraph in scene(teller) if not teller.holds(paragraph)]
        paragraphs += told
        length += sum(len(paragraph) + 2 for paragraph in told)
    paragraphs.append("The End")
    return title, "\n\n".join(paragraphs) + "\n"


def introduction(village: narrate.Village) -> str:
    """Who lives in the village, and who has what at the start."""
    people = " ".join(
        f"{p} was the {village.callings[p.name]} and lived in {village.homes[p.name]} in "
        f"{region_of(village.homes[p.name])}."
        for p in village.people
    )
    things = " ".join(f"{owner} had {thing.a}." for thing, owner in village.owner.items())
    return f"This is a story of {village.name}, which lies in {region_of(village.name)}. {people} {things}"


def opening(t: Teller) -> str:
    """Where things stand when a chapter begins: what earlier chapters have brought about."""
    rng, village = t.rng, t.village
    lines = [f"The {rng.choice(SEASONS)} went on in {village.name}."]
    lines += [f"{village.owner[thing]} had the {thing} now." for thing in rng.sample(list(village.owner), 3)]
    lines += [f"{person} was at the {village.place[person.name]}." for person in t.people(2)]
    return " ".join(lines)
