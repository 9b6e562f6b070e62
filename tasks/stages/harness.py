"""The stage `harness`: EleutherAI's lm-evaluation-harness on a checkpoint, an artifact a task and a group.

So what was scored before a kill is not scored again, and a group of tasks that were scored by themselves costs nothing.
A module of its own, as its imports need the extra `lm-eval`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.evaluation.harness import HarnessModel, harness_fingerprint, harness_scores, harness_tasks
from tasks.stages.stage import STAGE_OPTIONS, build, recipe_of
from tasks.store.artifact import Artifact, Recipe
from tasks.store.counts import WeightsCounts
from tasks.store.lineage import load_tokenizer
from tasks.store.store import Store
from tasks.tracking.logs import Meter


@task(name="harness", task_run_name="harness {checkpoint.short}", **STAGE_OPTIONS)
def score_harness(
    store: Store,
    checkpoint: Artifact,
    names: Sequence[str],
    include: str = "",
    num_fewshot: int | None = None,
    limit: int | None = None,
) -> dict[str, dict[str, Any]]:
    """The harness' results of a pre-trained model: task or group -> :func:`gptcore.evaluation.harness.harness_scores`.

    :param names: of tasks and groups; a group's tasks are scored, too.
    :param include: folder with task files of the user's own; empty: none.
    :param limit: so many rows of each task; None: all.
    :raises InputError: an unknown name, rows that cannot be had, or a task that the model cannot answer.
    """
    tasks, groups = harness_tasks(names, include, num_fewshot)
    meter, tokenizer = Meter("harness", "sequences"), WeightsCounts.of(store, checkpoint).tokenizer_digest
    of_all = {"num_fewshot": num_fewshot, "limit": limit, "lm_eval": version("lm_eval")}
    found: dict[str, dict[str, Any]] = {}
    made: dict[str, Artifact] = {}

    @cache
    def model() -> HarnessModel:
        return HarnessModel(store.local(checkpoint, "model"), load_tokenizer(store, checkpoint))

    def scored(name: str, _: Path) -> dict[str, Any]:
        model().progress = partial(meter, name)
        return harness_scores(model(), tasks[name], limit)

    def joined(name: str, _: Path) -> dict[str, Any]:
        results = groups[name].aggregate({part: found[part]["results"] for part in tasks})
        return {"results": results, "versions": groups[name].version}

    def kept(name: str, produce: Callable[[str, Path], dict[str, Any]], recipe: Recipe) -> None:
        built = build(store, recipe, partial(produce, name), "harness", _rows, name)
        found[name], made[name] = dict(built.counts), built.artifact

    for name, each in tasks.items():
        inputs: dict[str, Artifact | str] = {"checkpoint": checkpoint, "tokenizer": tokenizer}
        inputs["task"] = harness_fingerprint(each)
        kept(name, scored, recipe_of("harness", {"task": name, **of_all}, inputs))
    for name, group in groups.items():
        settings = {"group": name, "aggregates": list(map(str, group.aggregate_metric_list or ())), **of_all}
        parts = {each.task_name: made[each.task_name] for each in group.get_all_tasks()}
        kept(name, joined, recipe_of("harness", settings, {"checkpoint": checkpoint, **parts}))
    return found


def _rows(counts: Mapping[str, Any]) -> dict[str, int]:
    return {"rows": counts["results"].get("sample_len", 0)}  # a group that counts nothing together has none
