"""Stage `storyworld`: the generated, synthetic books and datasets of the demo and the tests."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import task

from tasks.stages.stage import STAGE_OPTIONS, build, recipe_of
from tasks.store.artifact import Artifact
from tasks.store.store import Store

SEED = 42
"""Of the world that stands in for books, datasets and a graph that nobody gives."""


@task(name="storyworld", task_run_name="storyworld seed {seed}", **STAGE_OPTIONS)
def generate_world(store: Store, seed: int = SEED) -> Artifact:
    """Generate the world of ``seed`` in public file formats: `books/`, `datasets/<Folder>/...`, and others."""
    from gptcore.storyworld.write import generate

    recipe = recipe_of("storyworld", {"seed": seed}, {})

    def produce(out: Path) -> dict[str, Any]:
        for leftover in out.iterdir():  # of a killed run: the world is written in seconds, so from the start
            shutil.rmtree(leftover)
        return generate(out, seed)

    return build(store, recipe, produce, "storyworld", _made).artifact


def _made(counts: Mapping[str, Any]) -> str:
    return f"synthetic: {counts['books']} books, {counts['dataset_files']} files of datasets"
