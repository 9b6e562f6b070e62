"""Answers from prompts: every task's rows put to pre-trained models behind 0, 1, k examples; nothing is fine-tuned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow
from prefect.utilities.annotations import quote

from flows.forms.run_names import from_form
from flows.papers.prompting.forms import FewShotParameters, FewShotRequest, tasks_with_room
from flows.servers import signals
from flows.trainings.chain import books_to_shards, named_by_size, pinned, trained_model
from gptcore.base.filesystems import is_synthetic
from gptcore.config.sizes import PROMPT_SETTINGS, SIZES, sized_preset
from gptcore.papers.prompting.rows import select
from gptcore.papers.prompting.tasks import available_prompt_tasks, read_rows
from gptcore.text.sources import RawCorpus
from tasks.papers.prompting.report import Cells, by_shots, by_size
from tasks.papers.prompting.stages import answer_prompts
from tasks.report.analysis import Analysis, publish_all
from tasks.stages.corpus import generate_world
from tasks.store.artifact import Artifact
from tasks.store.store import Store


@flow(name="few-shot", flow_run_name=from_form, persist_result=False)
def few_shot(parameters: FewShotParameters) -> list[Analysis]:
    """Zero-shot as GPT-2's paper evaluates, few-shot as GPT-3's: scores over examples, and over sizes of model.

    :raises InputError: missing or broken input, before anything is computed from it.
    """
    signals.listen()
    request = parameters.request
    store = request.store
    datasets_url = parameters.datasets or str(_world(store) / "datasets")
    given = request.models
    room = min([store.manifest(model)["config"]["model"]["n_ctx"] for model in given] or [request.room])
    tasks = tasks_with_room(parameters.tasks, datasets_url, room)
    shots, max_rows = sorted(set(parameters.shots)), parameters.max_rows or None
    # All rows are read here, once, and before anything is trained; of them those are kept that are asked or shown.
    selections = {task.name: select(read_rows(task, datasets_url), max(shots), max_rows) for task in tasks}
    models = {named_by_size(store, model): model for model in given} or _sizes(request, parameters)
    cells: Cells = {}
    for task in tasks:
        unseen: Any = quote(selections[task.name])  # by Prefect, which would look through every row of it
        found = answer_prompts(store, list(models.values()), task, unseen, shots, max_rows)
        for label, model in models.items():
            cells |= {(task.name, k, label): found[model.digest, k] for k in shots}
    synthetic = is_synthetic(datasets_url)
    there = () if parameters.tasks else available_prompt_tasks(datasets_url)
    no_room = [name for name in there if name not in selections]
    analyses = [by_shots(store, tasks, cells, models, synthetic, no_room)]
    if len(models) > 1:
        analyses.append(by_size(store, tasks, cells, models, synthetic))
    return publish_all(analyses, parameters.out)


def _sizes(request: FewShotRequest, parameters: FewShotParameters) -> dict[str, Artifact]:
    store = request.store
    raw = RawCorpus.at(parameters.corpus or str(_world(store) / "web"))
    models = {}
    for size in SIZES[parameters.preset]:
        preset = sized_preset(parameters.preset, size, PROMPT_SETTINGS[parameters.preset], parameters.overrides)
        tokenizer = pinned(store, request.tokenizer, preset)
        books = books_to_shards(store, raw, preset, parameters.dask, tokenizer)
        models[size.name] = trained_model(books.pretraining(preset, parameters.nproc))
    return models


def _world(store: Store) -> Path:
    return store.local(generate_world(store))
