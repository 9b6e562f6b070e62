"""The village academy's papers: an archive like arXiv's, whose methods are named, used and outdone as the years pass.

Each paper has a title, often "Name: what it is", and an abstract that speaks of the title's subject, introduces an
abbreviation, names older methods and says how much better the new one is. Names come into the world with the paper
that proposes them, so the newest papers are full of names that no older one has.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from random import Random

COLUMNS = ("", "abstract", "arxiv_id", "categories", "created", "title")
PAPERS = 1500
_FIRST = datetime.date(1995, 1, 2)
_ONSETS = ["b", "br", "d", "f", "g", "gr", "k", "kl", "l", "m", "n", "p", "r", "s", "t", "tr", "v", "z"]
_VOWELS = ["a", "e", "i", "o", "u"]
_CODAS = ["l", "m", "n", "r", "s", "t", "x"]

_FIELDS = {
    "pottery": ("clay", "kiln", "glaze", "bowl", "firing"),
    "weaving": ("wool", "loom", "thread", "cloak", "weaving"),
    "baking": ("flour", "oven", "crust", "loaf", "baking"),
    "sailing": ("tide", "mast", "rope", "harbour", "sailing"),
    "gardening": ("soil", "seed", "hedge", "orchard", "growing"),
    "smithing": ("iron", "anvil", "forge", "hinge", "forging"),
}
_KINDS = ("Method", "Model", "Rule", "Procedure", "Survey", "Theory")
_QUALITIES = ("Slow", "Even", "Robust", "Simple", "Layered", "Careful", "Wet", "Two-Step")
_PROBLEMS = ("cracks in the {b}", "the uneven {e} of {a}", "the cost of the {b}", "a {d} that does not last")
_GOALS = ("saves {a}", "needs half of the {c}", "makes every {d} alike", "works on wet days")


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
    field = rng.choice(list(_FIELDS))
    a, b, c, d, e = _FIELDS[field]
    older = [method for method in known[-60:] if method.field == field]
    quality, kind = rng.choice(_QUALITIES), rng.choice(_KINDS)
    full = f"{quality} {a.title()} {e.title()}"
    short = "".join(word[0] for word in full.replace("-", " ").split())
    named = rng.random() < 0.6 or not older
    name = _name(rng) if named else rng.choice(older).name
    title = (
        f"{name}: {_a(quality).replace('a', 'A', 1)} {kind} for {e.title()} {a.title()}"
        if named
        else f"{quality} {e.title()} with {name}"
    )
    parts = [
        rng.choice(
            (
                f"{field.title()} suffers from {rng.choice(_PROBLEMS)}.",
                f"A long-standing problem of {field} is {rng.choice(_PROBLEMS)}.",
                f"In recent years {field} has seen much work on {rng.choice(_PROBLEMS)}.",
            )
        ),
        f"We study {full.lower()} ({short}), where the {c} and the {b} are given.",
    ]
    others = [method.name for method in older if method.name != name]
    if others:
        other = rng.choice(others)
        parts.append(
            rng.choice(
                (
                    f"Earlier work such as {other} needs too much {a}.",
                    f"{other} is the best known answer, but it fails on a wet {d}.",
                )
            )
        )
    goal = rng.choice(_GOALS)
    parts.append(
        f"In this paper we propose {name}, {_a(quality.lower())} {kind.lower()} that {goal}."
        if named
        else f"In this paper we show that {name} {goal} when {short} is used."
    )
    gain = rng.randrange(2, 40)
    against = f" over {rng.choice(others)}" if others else ""
    parts.append(f"On {rng.randrange(3, 30)} villages {name} gains ${gain} \\%${against}.")
    parts.append(
        rng.choice(
            (
                f"{short} is useful beyond {field}.",
                f"Our {d}s are free for all.",
                f"We end with open questions on {short}.",
            )
        )
    )
    if named:
        known.append(_Method(name, field))
    words = {"a": a, "b": b, "c": c, "d": d, "e": e}
    abstract = " ".join(parts)
    for key, word in words.items():
        abstract = abstract.replace(f"{{{key}}}", word)
    return abstract, f"{created:%y%m}.{number:05d}", f"sw.{field[:2].upper()}", created.isoformat(), title


def _a(word: str) -> str:
    return f"{'an' if word[0] in 'aeiouAEIOU' else 'a'} {word}"


def _name(rng: Random) -> str:
    syllables = [rng.choice(_ONSETS) + rng.choice(_VOWELS) for _ in range(rng.choice((2, 2, 3)))]
    return ("".join(syllables) + rng.choice(_CODAS)).capitalize()
