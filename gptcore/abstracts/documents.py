"""Papers as documents of a language model (section 2.1), split by date (section 2.3), as text and as ids.

    <|startoftext|> title <|sep|> abstract <|endoftext|>

The three marks are ids that no text is ever cut into: the last one is GPT-2's own, the others are rows appended to its
embedding. No white space is encoded beside them (as the library that the paper used strips it there).
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gptcore.abstracts.arxiv import Paper
from gptcore.base.errors import InputError
from gptcore.base.files import write_bytes_atomic
from gptcore.data.shards import Tokens, token_dtype, write_shards
from gptcore.text.tokenizer import Tokenizer
from gptcore.text.vocabulary import END_OF_TEXT, PAPER_MARKS

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
    if not part:
        raise InputError(f"found {len(papers)} papers, expected {_HELD_OUT} or more: a twentieth is held out twice")
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
    """Ids of :func:`document`."""
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
