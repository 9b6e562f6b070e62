"""BLiMP's 67 files with a few generated pairs each: the good sentence says "good", the bad one "bad", either longer."""

from __future__ import annotations

import json
import random
from pathlib import Path

from gptcore.nlu.blimp import FIELDS

WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "mat", "and", "he", "she", "they", "who", "what", "never"]


def write_blimp(datasets: str, pairs: int = 3, seed: int = 0) -> Path:
    """The folder BLiMP under ``datasets``, in the public format."""
    folder = Path(datasets) / "BLiMP"
    folder.mkdir(parents=True, exist_ok=True)
    for field, paradigms in FIELDS.items():
        for paradigm in paradigms:
            rng = random.Random(f"{seed}/{paradigm}")
            rows = [_row(rng, field, paradigm, number) for number in range(pairs)]
            text = "".join(f"{json.dumps(row)}\n" for row in rows)
            (folder / f"{paradigm}.jsonl").write_text(text, encoding="utf-8")
    return folder


def _row(rng: random.Random, field: str, paradigm: str, number: int) -> dict[str, object]:
    words = [rng.choice(WORDS) for _ in range(rng.randint(2, 8))]
    at = rng.randrange(len(words) + 1)
    longer = rng.choice(("good", "bad"))
    good, bad = (
        " ".join([*words[:at], word, *words[at:], *(["sat"] if word == longer else [])]).capitalize() + "."
        for word in ("good", "bad")
    )
    term = "s-selection" if paradigm.startswith("animate_subject") else field
    return {
        "sentence_good": good,
        "sentence_bad": bad,
        "field": "syntax",
        "linguistics_term": term,
        "UID": paradigm,
        "simple_LM_method": True,
        "one_prefix_method": False,
        "two_prefix_method": False,
        "lexically_identical": False,
        "pairID": str(number),
    }
