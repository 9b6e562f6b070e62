"""What names mean in single documents, where somebody has said so: a file of links, between tabs.

    98-0.txt    Lucie       lucie_manette
    98-0.txt    the Vengeance   the_vengeance

The document is a corpus file's path below the corpus' root, the name what stands in its text, the entity one of the
graph's; one that the graph does not have says that the name is none of its entities there. A name means one entity
throughout a document (Gale, Church and Yarowsky 1992, "One Sense Per Discourse"), as in ERNIE's release, which has
marked every stretch of an article that reads like one of its links.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gptcore.base.errors import InputError
from gptcore.base.filesystems import file_system
from gptcore.nlu.readers.text_files import lines

COLUMNS = ("document", "name", "entity")
Links = Mapping[str, Mapping[str, str]]
"""Document -> name -> entity."""


def read_links(url: str) -> dict[str, dict[str, str]]:
    """Read a file of links, anywhere fsspec reaches.

    :returns: document -> name -> entity.
    :raises InputError: no such file, no row, a row of other columns or without one of them, a name of two entities in
        one document. Names file, line and column.
    """
    system, path = file_system(url)
    if not system.isfile(path):
        raise InputError(f"{url}: found no file there, expected rows of {', '.join(COLUMNS)}")
    found: dict[str, dict[str, str]] = {}
    for number, line in lines(url):
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.rstrip("\r\n").split("\t")]
        if len(cells) != len(COLUMNS):
            raise InputError(
                f"{url}, line {number}: found {len(cells)} columns between tabs, expected {', '.join(COLUMNS)}"
            )
        for column, cell in zip(COLUMNS, cells, strict=True):
            if not cell:
                raise InputError(f"{url}, line {number}, {column}: found nothing, expected a name")
        document, name, entity = cells
        before = found.setdefault(document, {}).setdefault(name, entity)
        if before != entity:
            raise InputError(
                f"{url}, line {number}, entity: found {entity!r:.60} for {name!r:.60} of {document}, which an earlier "
                f"line has for {before!r:.60}; expected one entity a name of a document"
            )
    if not found:
        raise InputError(f"{url}: found no link, expected rows of {', '.join(COLUMNS)}")
    return found


def write_links(links: Links, path: Path) -> None:
    """Write a file of links that :func:`read_links` reads."""
    rows = ["\t".join((document, *link)) for document, own in links.items() for link in own.items()]
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
