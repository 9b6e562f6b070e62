"""A pipeline that ends in seconds: a generated world cut to a few rows, and a model of width 16."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flows.forms.parameters import PipelineParameters
from gptcore.papers.storyworld.write import generate
from tasks.report.leaderboard import Leaderboard
from tests.expected import expected
from tests.gptcore.tiny_blimp import write_blimp

TASKS = ["rte", "sst2", "storycloze"]  # a pair, a single sentence, choices
OVERRIDES: dict[str, Any] = expected(__file__, "OVERRIDES")


LANGUAGE = {name: OVERRIDES[name] for name in ("corpus", "tokenizer", "model", "pretrain")}
"""The settings among ``OVERRIDES`` that a language model is made of."""


def small_world(folder: Path) -> tuple[str, str]:
    """Books and datasets under ``folder``: their two addresses."""
    generate(folder, seed=7, books=8, characters=6_000, pages=80)
    return str(folder / "books"), str(folder / "datasets")


def run_pipeline(world: tuple[str, str], store: str, **fields: Any) -> Leaderboard:
    """The pipeline on a world, one seed a task and no network from scratch, but for what the fields of its form say."""
    from flows.pipeline import pipeline

    books, datasets = world
    places = {"corpus": books, "datasets": datasets, "store": store, "jobs": 1, "seeds": 1}
    form = PipelineParameters(preset="demo", **{**places, "overrides": {**OVERRIDES, "scratch": False}, **fields})
    form.check()
    board = pipeline(form)
    assert isinstance(board, Leaderboard)
    return board


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a table that an analysis has written."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@contextmanager
def changed(path: Path, text: str) -> Iterator[None]:
    """A file holds something else meanwhile."""
    before = path.read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(before, encoding="utf-8")


def with_blimp(world: tuple[str, str], folder: Path) -> tuple[str, str]:
    """A world with BLiMP's minimal pairs beside its datasets, which are linked: nothing is computed again for them."""
    folder.mkdir()
    for path in Path(world[1]).iterdir():
        (folder / path.name).symlink_to(path)
    write_blimp(str(folder), pairs=2)
    return world[0], str(folder)
