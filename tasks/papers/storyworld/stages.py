"""Stage `storyworld`: a generated world in public file formats, the books and datasets of the demo and the tests."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from prefect import task

from tasks.stages.stage import STAGE_OPTIONS, build, recipe_of
from tasks.store.artifact import Artifact
from tasks.store.store import Store
from tasks.tracking.logs import Meter


@task(name="storyworld", task_run_name="storyworld seed {seed}", **STAGE_OPTIONS)
def generate_world(store: Store, seed: int) -> Artifact:
    """Generate the world of ``seed`` in public file formats: `books/`, `datasets/<Folder>/...`, and others."""
    from gptcore.papers.storyworld.write import generate

    recipe = recipe_of("storyworld", {"seed": seed}, {})

    def produce(out: Path) -> dict[str, Any]:
        for leftover in out.iterdir():  # of a killed run: the world is written in seconds, so from the start
            shutil.rmtree(leftover)
        told = Meter("storyworld", "books")
        return generate(out, seed, progress=lambda done, books: told("write", done, books))

    made = "synthetic: {books} books, {dataset_files} files of datasets"
    return build(store, recipe, produce, "storyworld", made.format_map).artifact
