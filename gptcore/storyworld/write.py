"""One call writes the whole world: `books/*.txt`, `datasets/<Folder>/...`, `chronicle/*.txt`, `arxiv/sw.tsv` and
`web/pages.jsonl`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gptcore.base.errors import InputError
from gptcore.base.synthetic import mark_synthetic
from gptcore.storyworld.beyond import beyond
from gptcore.storyworld.books import book
from gptcore.storyworld.chronicle import write_chronicle, write_relations
from gptcore.storyworld.formats import Writer, datasets
from gptcore.storyworld.knowledge import GRAPH, write_graph
from gptcore.storyworld.lexicon import MEN, WOMEN
from gptcore.storyworld.papers import archive
from gptcore.storyworld.prompted import prompted
from gptcore.storyworld.web import PAGES, web

BOOKS = 36
CHARACTERS = 85_000


def generate(
    out: Path,
    seed: int,
    books: int = BOOKS,
    characters: int = CHARACTERS,
    pages: int = PAGES,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, int]:
    """Write a synthetic world; the same arguments give the same bytes on any machine.

    :param out: folder that receives these; it must be empty or absent.
    :param seed: names every random draw.
    :param characters: lower bound of a book's length.
    :param pages: of the web.
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
        if progress:
            progress(number, books)
    Writer(out / "arxiv", seed).write("sw.tsv", archive(seed))
    prompted(tables)  # after the books: what it holds out is held out of the web alone
    beyond(tables)
    write_graph(tables)
    write_relations(tables, tables.rng(GRAPH))
    write_chronicle(Writer(out / "chronicle", seed), tables.rng(GRAPH))
    shown = Writer(out / "web", seed)
    shown.write("pages.jsonl", web(shown.rng("web"), tables.held_out, pages))
    for folder in ("books", "datasets", "chronicle", "arxiv", "web"):
        mark_synthetic(out / folder, seed)
    return {"books": books, "characters": total, "dataset_files": len(tables.files)}
