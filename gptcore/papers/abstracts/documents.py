"""Papers of the arXiv Archive (Geiger 2020) as documents of a language model (sections 2.1 and 2.3).

A file of the archive, one a category, is tab-separated with quotes (csv's dialect), one paper a record; abstracts may
hold line breaks. Papers that are cross-listed stand in several files: the arXiv identifier tells that they are one
(section 2.2). A document is, as text and as ids::

    <|startoftext|> title <|sep|> abstract <|endoftext|>

The three marks are ids that no text is ever cut into: the last one is GPT-2's own, the others are rows appended to its
embedding. No white space is encoded beside them (as the library that the paper used strips it there).
"""

from __future__ import annotations

import csv
import dataclasses
import datetime
import io
import json
import lzma
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
import numpy as np
from fsspec.compression import compr
from fsspec.utils import infer_compression

from gptcore.base.errors import InputError, require
from gptcore.base.files import write_bytes_atomic
from gptcore.base.filesystems import exists, file_fingerprint, file_system, is_folder
from gptcore.base.types import Advance, quiet
from gptcore.base.unpacking import bounded
from gptcore.data.shards import Tokens, token_dtype, write_shards
from gptcore.text.tokenizer import Tokenizer
from gptcore.text.vocabulary import END_OF_TEXT, PAPER_MARKS

CATEGORIES = ("cs.AI", "cs.LG", "cs.CL", "cs.CV")
"""The categories of the paper's subset of the archive (section 2)."""
ENDINGS = (".tsv", ".tsv.xz", ".tsv.gz")
_COLUMNS = ("arxiv_id", "created", "categories", "title", "abstract")
_LONGEST = 1 << 20  # characters of a field; the longest abstract has some thousands


@dataclass(frozen=True)
class Paper:
    """One paper; texts have single spaces between their words and none around them."""

    arxiv_id: str
    created: datetime.date
    """When it was submitted."""
    categories: str
    """All categories of the paper, as the archive has them: "cmp-lg,cs.CL"."""
    title: str
    abstract: str


@dataclass(frozen=True)
class Archive:
    """What some files hold, each paper once."""

    papers: list[Paper]
    """All papers in the order of their dates, those of one day in the order of their identifiers."""
    read: int
    """How many records all files hold."""
    repeated: int
    """How many of the records hold a paper that an earlier one holds."""
    empty: int
    """How many of the records have no title or no abstract."""
    other: int = 0
    """How many of the records are of other categories than the wanted ones."""


def archive_files(url: str) -> list[str]:
    """Addresses of the archive's files: of all in a folder in the order of their names, or the one that ``url`` is.

    :raises InputError: there is none.
    """
    fs, path = file_system(url)
    try:
        if not is_folder(fs, path):
            files = [path] if exists(fs, path) and path.endswith(ENDINGS) else []
        else:
            files = sorted(str(file) for file in fs.ls(path, detail=False) if str(file).endswith(ENDINGS))
    except OSError as error:
        raise InputError(f"{url}: cannot be read: {type(error).__name__}: {error}") from error
    require(files, f"{url}: no file of the arXiv Archive here, expected names ending in {', '.join(ENDINGS)}")
    return [fs.unstrip_protocol(file) for file in files]


def archive_fingerprint(files: Sequence[str]) -> list[dict[str, object]]:
    """What tells the files' content from any other, in their order.

    :raises InputError: a file that cannot be read.
    """
    try:
        return [file_fingerprint(file) for file in files]
    except OSError as error:
        raise InputError(f"{error.filename or files}: cannot be read: {error}") from error


def read_archive(files: Sequence[str], progress: Advance = quiet, categories: Sequence[str] = ()) -> Archive:
    """The papers of files, each once and in order of date.

    Of several records of one paper the first counts, in the order of ``files``.

    :param progress: called with 1 for each file read.
    :param categories: only papers that are in one of these, first or not; none: :data:`CATEGORIES`, where any paper is
        in one of those, and else every paper.
    :raises InputError: a file that cannot be read or is no such table, a record that does not have its fields, a date
        that is none, or no paper at all; names file and line.
    """
    papers: dict[str, Paper] = {}
    read = empty = records = 0
    for file in files:
        for paper in _records(file):
            read += 1
            if not (paper.title and paper.abstract):
                empty += 1
            else:
                records += 1
                papers.setdefault(paper.arxiv_id, paper)
        progress(1)
    require(papers, f"{', '.join(files)}: found no paper with a title and an abstract")
    wanted = set(categories or CATEGORIES)
    chosen = [paper for paper in papers.values() if wanted & set(categories_of(paper))]
    if categories and not chosen:
        there = ", ".join(sorted({name for paper in papers.values() for name in categories_of(paper)})[:20])
        raise InputError(f"{', '.join(files)}: found no paper in {', '.join(categories)}, but in {there or 'none'}")
    chosen = chosen or list(papers.values())
    ordered = sorted(chosen, key=lambda paper: (paper.created, paper.arxiv_id))
    return Archive(ordered, read, records - len(papers), empty, len(papers) - len(chosen))


def categories_of(paper: Paper) -> list[str]:
    """The categories of a paper, its own field first."""
    return paper.categories.replace(",", " ").split()


def field_of(paper: Paper) -> str:
    """The field of a paper: the first of its categories."""
    return next(iter(categories_of(paper)), "")


def _records(file: str) -> Iterator[Paper]:
    csv.field_size_limit(_LONGEST)
    try:
        with fsspec.open(file, "rb") as packed:
            unpack = compr[infer_compression(file)]
            raw = bounded(unpack(packed, mode="rb"), packed, file) if unpack else packed
            rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8-sig", newline=""), delimiter="\t", strict=True)
            header = next(rows, [])
            missing = [name for name in _COLUMNS if name not in header]
            require(not missing, f"{file}: line 1: no column {', '.join(missing)}, expected {', '.join(_COLUMNS)}")
            places = [header.index(name) for name in _COLUMNS]
            for row in rows:
                if not row:  # a blank line holds no record
                    continue
                where = f"{file}: line {rows.line_num}"
                if len(row) != len(header):
                    raise InputError(f"{where}: found {len(row)} fields, expected {len(header)}")
                yield _paper([row[place] for place in places], where)
    except csv.Error as error:
        raise InputError(f"{file}: line {rows.line_num}: {error}; expected tab-separated fields with quotes") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: byte {error.start} of a block is not UTF-8: {error.reason}") from None
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise InputError(f"{file}: cannot be read: {type(error).__name__}: {error}") from error


def _paper(fields: list[str], where: str) -> Paper:
    arxiv_id, created, categories, title, abstract = (" ".join(field.split()) for field in fields)
    if not arxiv_id:
        raise InputError(f"{where}: arxiv_id is empty, expected an identifier such as 1706.03762")
    try:
        date = datetime.date.fromisoformat(created)
    except ValueError:
        raise InputError(f"{where}: created: found {created!r:.40}, expected a date such as 2017-06-12") from None
    return Paper(arxiv_id, date, categories, title, abstract)


# --- papers as documents ---


START_OF_TEXT, SEPARATOR = PAPER_MARKS
N_MARKS = len(PAPER_MARKS)
"""Rows that the embedding gains."""
SPLITS = ("train", "valid", "test")
_HELD_OUT = 20  # parts of which validation and test are one each: 9 : 0.5 : 0.5
_MAX_TOKENS = 16_000_000  # of a file of shards


class Marks(NamedTuple):
    """Ids of the three marks."""

    start: int
    separator: int
    end: int


def marks(tokenizer: Tokenizer) -> Marks:
    """The marks behind a tokenizer's vocabulary.

    :raises InputError: one without an end of text.
    """
    if tokenizer.end_of_text is None:
        raise InputError(f"tokenizer: a {tokenizer.kind} one, expected a byte-level one (it has {END_OF_TEXT})")
    return Marks(tokenizer.n_vocab, tokenizer.n_vocab + 1, tokenizer.end_of_text)


def split_by_date(papers: Sequence[Paper]) -> dict[str, Sequence[Paper]]:
    """The oldest 90 % to train on, the rest half and half: validation, then test, the newest.

    :param papers: in order of date.
    :raises InputError: too few for a paper in each.
    """
    part = len(papers) // _HELD_OUT
    require(part, f"found {len(papers)} papers, expected {_HELD_OUT} or more: a twentieth is held out twice")
    train = len(papers) - 2 * part
    return {"train": papers[:train], "valid": papers[train : train + part], "test": papers[train + part :]}


def document(paper: Paper) -> str:
    """A paper in one line, as in the paper's Figure 1."""
    return f"{START_OF_TEXT} {paper.title} {SEPARATOR} {paper.abstract} {END_OF_TEXT}"


def write_papers(splits: Mapping[str, Sequence[Paper]], folder: Path) -> None:
    """Write ``train.jsonl``, ``valid.jsonl`` and ``test.jsonl`` into a local folder; :func:`read_papers` reads them."""
    for name, papers in splits.items():
        rows = ({**dataclasses.asdict(paper), "created": paper.created.isoformat()} for paper in papers)
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        write_bytes_atomic(folder / f"{name}.jsonl", text.encode())


def read_papers(folder: Path, split: str) -> list[Paper]:
    """The papers of one split, in order of date."""
    with (folder / f"{split}.jsonl").open(encoding="utf-8") as file:
        rows = map(json.loads, file)
        return [Paper(**{**row, "created": datetime.date.fromisoformat(row["created"])}) for row in rows]


def write_texts(splits: Mapping[str, Sequence[Paper]], folder: Path) -> None:
    """Write ``train.txt``, ``valid.txt`` and ``test.txt``, a paper a line, into a local folder."""
    for name, papers in splits.items():
        write_bytes_atomic(folder / f"{name}.txt", "".join(f"{document(paper)}\n" for paper in papers).encode())


def prompt_ids(tokenizer: Tokenizer, title: str) -> list[int]:
    """What an abstract is written after."""
    start, separator, _ = marks(tokenizer)
    return [start, *tokenizer.encode(title), separator]


def document_ids(tokenizer: Tokenizer, paper: Paper) -> list[int]:
    """A paper as ids: those of the text that :func:`document` gives."""
    return [*prompt_ids(tokenizer, paper.title), *tokenizer.encode(paper.abstract), marks(tokenizer).end]


def encode_papers(splits: Mapping[str, Iterable[Paper]], tokenizer: Tokenizer, out: Path) -> dict[str, int]:
    """Write the shards ``out/train``, ``out/valid`` and ``out/test``, a row a paper under its arXiv identifier.

    :returns: tokens of each split, marks included.
    """
    dtype = token_dtype(tokenizer.n_vocab + N_MARKS)

    def rows(papers: Iterable[Paper]) -> Iterator[tuple[str, list[Tokens]]]:
        for paper in papers:
            yield paper.arxiv_id, [np.asarray(document_ids(tokenizer, paper), dtype)]

    n_vocab = tokenizer.n_vocab + N_MARKS
    return {
        name: write_shards(rows(papers), out / name, n_vocab=n_vocab, max_tokens=_MAX_TOKENS)["n_tokens"]
        for name, papers in splits.items()
    }


def distribution(splits: Mapping[str, Sequence[Paper]], n_tokens: Mapping[str, int]) -> list[dict[str, Any]]:
    """The paper's Table 1, and the dates at the borders: a record a split, then the total."""
    total = sum(map(len, splits.values()))
    rows = [
        {
            "split": name,
            "count": len(papers),
            "percentage": 100 * len(papers) / total,
            "bpe_tokens": n_tokens[name],
            "from": papers[0].created.isoformat(),
            "to": papers[-1].created.isoformat(),
        }
        for name, papers in splits.items()
    ]
    whole = {"split": "total", "count": total, "percentage": 100.0, "bpe_tokens": sum(n_tokens.values())}
    return [*rows, {**whole, "from": rows[0]["from"], "to": rows[-1]["to"]}]
