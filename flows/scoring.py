"""Looking at models that are there: scores of a fine-tuned one, zero-shot scores of a pre-trained one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prefect import flow
from prefect.artifacts import create_table_artifact

from flows.finetune import chosen_tasks, datasets_folder
from flows.references import fine_tuned_model, pretrained_model
from gptcore.evaluation.zero_shot import available_zero_shot
from gptcore.nlu.encoded import encoded_splits
from tasks.stages.dataset import encode_dataset
from tasks.stages.evaluation import score_model
from tasks.stages.zero_shot import score_zero_shot
from tasks.store.lineage import tokenizer_of
from tasks.store.store import Store


@flow(name="evaluate", persist_result=False)
def evaluate(store_url: str, task: str, model: str, datasets: str = "") -> dict[str, dict[str, Any]]:
    """Score a fine-tuned model on every labelled split but train.

    :param model: digest (or its beginning) of a `finetune` artifact, its URL, latest or best (of those for the task).
    :return: split -> metric -> value (fractions).
    :raises InputError: the model was fine-tuned on another task.
    """
    store = Store(store_url)
    artifact = fine_tuned_model(store, model, task)
    datasets_url = datasets_folder(store, datasets)
    chosen_tasks([task], datasets_url)
    dataset = encode_dataset(store.url, datasets_url, task, tokenizer_of(store, artifact))
    splits = [split for split in encoded_splits(store.local(dataset)) if split != "train"]
    return {split: score_model(store.url, artifact, dataset, split) for split in splits}


@flow(name="zero-shot", persist_result=False)
def zero_shot(
    store_url: str, checkpoint: str, datasets: str = "", tasks: Sequence[str] = (), max_rows: int | None = None
) -> dict[str, dict[str, Any]]:
    """Section 5's heuristics on a pre-trained model, beside the score of a random guess.

    :param tasks: of cola, sst2, race, dprd; empty: those whose data is there.
    :param max_rows: at most so many rows a task.
    """
    store = Store(store_url)
    artifact = pretrained_model(store, checkpoint)
    datasets_url = datasets_folder(store, datasets)
    chosen = list(tasks) or available_zero_shot(datasets_url)
    results = score_zero_shot(store.url, artifact, datasets_url, chosen, max_rows)
    table = [{"task": task, **{name: str(value) for name, value in scores.items()}} for task, scores in results.items()]
    create_table_artifact(table=table, key="zero-shot", description=f"Zero-shot scores of {artifact.short}")
    return results
