"""The village academy's papers: an archive like arXiv's, whose methods are named, used and outdone as the years pass.

Each paper has a title, often "Name: what it is", and an abstract that speaks of the title's subject, introduces an
abbreviation, names older methods and says how much better the new one is. Names come into the world with the paper
that proposes them, so the newest papers are full of names that no older one has.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from gptcore.storyworld.lexicon import SAID, WORLD, say

COLUMNS = ("", "abstract", "arxiv_id", "categories", "created", "title")
PAPERS = 1500
_FIRST = datetime.date(1995, 1, 2)
_PAPERS: Mapping[str, Any] = SAID["papers"]


@dataclass(frozen=True)
class _Method:
    name: str
    field: str


def archive(seed: int, papers: int = PAPERS) -> str:
    """The text of one file of the archive, tab-separated, ``papers`` records in no order of date."""
    rng = Random(f"{seed}/papers")
    known: list[_Method] = []
    rows = [_paper(rng, number, papers, known) for number in range(papers)]
    rng.shuffle(rows)
    lines = ["\t".join(COLUMNS), *("\t".join((str(n), *row)) for n, row in enumerate(rows))]
    return "\n".join(lines) + "\n"


def _paper(rng: Random, number: int, papers: int, known: list[_Method]) -> tuple[str, str, str, str, str]:
    """abstract, arxiv_id, categories, created, title."""
    created = _FIRST + datetime.timedelta(days=number * 8000 // papers)
    field, told = rng.choice(_PAPERS["fields"])
    words = dict(zip("abcde", told.split(), strict=True))
    a, b, c, d, e = words.values()
    older = [method for method in known[-60:] if method.field == field]
    quality, kind = rng.choice(_PAPERS["qualities"]), rng.choice(_PAPERS["kinds"])
    full = f"{quality} {a.title()} {e.title()}"
    short = "".join(word[0] for word in full.replace("-", " ").split())
    named = rng.random() < 0.6 or not older
    name = _name(rng) if named else rng.choice(older).name
    title = (
        f"{name}: {_a(quality).replace('a', 'A', 1)} {kind} for {e.title()} {a.title()}"
        if named
        else f"{quality} {e.title()} with {name}"
    )
    problems = [say(rng, _PAPERS["problems"], **words) for _ in _PAPERS["openings"]]
    parts = [
        say(rng, _PAPERS["openings"], field=field, Field=field.title(), problems=problems),
        f"We study {full.lower()} ({short}), where the {c} and the {b} are given.",
    ]
    others = [method.name for method in older if method.name != name]
    if others:
        parts.append(say(rng, _PAPERS["earlier"], other=rng.choice(others), **words))
    goal = say(rng, _PAPERS["goals"], **words)
    parts.append(
        f"In this paper we propose {name}, {_a(quality.lower())} {kind.lower()} that {goal}."
        if named
        else f"In this paper we show that {name} {goal} when {short} is used."
    )
    gain = rng.randrange(2, 40)
    against = f" over {rng.choice(others)}" if others else ""
    parts.append(f"On {rng.randrange(3, 30)} villages {name} gains ${gain} \\%${against}.")
    parts.append(say(rng, _PAPERS["endings"], short=short, field=field, d=d))
    if named:
        known.append(_Method(name, field))
    return " ".join(parts), f"{created:%y%m}.{number:05d}", f"sw.{field[:2].upper()}", created.isoformat(), title


def _a(word: str) -> str:
    return f"{'an' if word[0] in 'aeiouAEIOU' else 'a'} {word}"


def _name(rng: Random) -> str:
    onsets, vowels = WORLD["method_onsets"], WORLD["method_vowels"]
    syllables: list[str] = [rng.choice(onsets) + rng.choice(vowels) for _ in range(rng.choice((2, 2, 3)))]
    return "".join([*syllables, rng.choice(WORLD["method_codas"])]).capitalize()
