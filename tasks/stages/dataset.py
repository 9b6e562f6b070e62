"""Stage `dataset`: one task's rows, validated and encoded once, before any training starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.nlu.encoded import dataset_fingerprint, encode_task
from gptcore.nlu.registry import TaskSpec, task_settings
from gptcore.text.tokenizer import Tokenizer
from tasks.stages.stage import STAGE_OPTIONS, build
from tasks.store.artifact import Artifact, Recipe
from tasks.store.store import Store

VERSION = 1


@task(name="dataset", task_run_name="dataset {spec.name}", **STAGE_OPTIONS)
def encode_dataset(store: Store, datasets_url: str, spec: TaskSpec, tokenizer: Artifact) -> Artifact:
    """Read, check and encode every split of a task.

    :raises InputError: names file, line, column, what was found and what was expected.
    """
    inputs: dict[str, Artifact | str] = {"files": dataset_fingerprint(spec, datasets_url), "tokenizer": tokenizer}
    recipe = Recipe("dataset", VERSION, task_settings(spec), inputs)

    def produce(out: Path) -> dict[str, Any]:
        return encode_task(spec, datasets_url, Tokenizer.load(str(store.local(tokenizer))), out)

    return build(store, recipe, produce, "datasets", _made, spec.name).artifact


def _made(counts: Mapping[str, Any]) -> dict[str, int]:
    return {"rows": sum(split["rows"] for split in counts["splits"].values())}
