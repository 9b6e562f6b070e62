"""The village academy's papers: an archive like arXiv's, whose methods are named, used and outdone as the years pass.

Each paper has a title, often "Name: what it is", and an abstract that speaks of the title's subject, introduces an
abbreviation, names older methods and says how much better the new one is. Names come into the world with the paper
that proposes them, so the newest papers are full of names that no older one has.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from random import Random
from typing import Any

from gptcore.storyworld.lexicon import SAID, article, capital, invented, say

COLUMNS = ("", "abstract", "arxiv_id", "categories", "created", "title")
PAPERS = 1500
_FIRST = datetime.date(1995, 1, 2)
_PAPERS: Mapping[str, Any] = SAID["papers"]


def archive(seed: int, papers: int = PAPERS) -> str:
    """The text of one file of the archive, tab-separated, ``papers`` records in no order of date."""
    rng = Random(f"{seed}/papers")
    known: list[tuple[str, str]] = []  # methods and their fields
    rows = [_paper(rng, number, papers, known) for number in range(papers)]
    rng.shuffle(rows)
    lines = ["\t".join(COLUMNS), *("\t".join((str(n), *row)) for n, row in enumerate(rows))]
    return "\n".join(lines) + "\n"


def _paper(rng: Random, number: int, papers: int, known: list[tuple[str, str]]) -> tuple[str, str, str, str, str]:
    """abstract, arxiv_id, categories, created, title."""
    created = _FIRST + datetime.timedelta(days=number * 8000 // papers)
    field, told = rng.choice(_PAPERS["fields"])
    words = dict(zip("abcde", told.split(), strict=True))
    a, b, c, d, e = words.values()
    older = [name for name, its in known[-60:] if its == field]
    quality, kind = rng.choice(_PAPERS["qualities"]), rng.choice(_PAPERS["kinds"])
    full = f"{quality} {a.title()} {e.title()}"
    short = "".join(word[0] for word in full.replace("-", " ").split())
    named = rng.random() < 0.6 or not older
    name = invented(rng, "method", rng.choice((2, 2, 3))).capitalize() if named else rng.choice(older)
    title = (
        f"{name}: {capital(article(quality))} {kind} for {e.title()} {a.title()}"
        if named
        else f"{quality} {e.title()} with {name}"
    )
    problems = [say(rng, _PAPERS["problems"], **words) for _ in _PAPERS["openings"]]
    parts = [
        say(rng, _PAPERS["openings"], field=field, Field=field.title(), problems=problems),
        f"We study {full.lower()} ({short}), where the {c} and the {b} are given.",
    ]
    others = [other for other in older if other != name]
    if others:
        parts.append(say(rng, _PAPERS["earlier"], other=rng.choice(others), **words))
    goal = say(rng, _PAPERS["goals"], **words)
    parts.append(
        f"In this paper we propose {name}, {article(quality.lower())} {kind.lower()} that {goal}."
        if named
        else f"In this paper we show that {name} {goal} when {short} is used."
    )
    gain = rng.randrange(2, 40)
    against = f" over {rng.choice(others)}" if others else ""
    parts.append(f"On {rng.randrange(3, 30)} villages {name} gains ${gain} \\%${against}.")
    parts.append(say(rng, _PAPERS["endings"], short=short, field=field, d=d))
    if named:
        known.append((name, field))
    return " ".join(parts), f"{created:%y%m}.{number:05d}", f"sw.{field[:2].upper()}", created.isoformat(), title
