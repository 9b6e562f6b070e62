"""Looking at models that are there: scores of a fine-tuned one, zero-shot scores of a pre-trained one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fsspec
from prefect import flow
from prefect.artifacts import create_table_artifact
from tqdm import tqdm

from flows.finetune import chosen_tasks, datasets_folder
from gptcore.errors import InputError
from gptcore.evaluation.predict import evaluate as evaluate_split
from gptcore.evaluation.zero_shot import ZERO_SHOT_TASKS
from gptcore.evaluation.zero_shot import zero_shot as score_zero_shot
from gptcore.nlu.encoded import encoded_splits
from gptcore.nlu.readers import available
from gptcore.text.bpe import Tokenizer
from tasks.dataset import encode_dataset
from tasks.lineage import tokenizer_of
from tasks.store import Store


@flow(name="evaluate", persist_result=False)
def evaluate(store_url: str, task: str, model: str, datasets: str = "") -> dict[str, dict[str, Any]]:
    """Score a fine-tuned model on every labelled split but train.

    :param model: digest (or its beginning) of a `finetune` artifact, its URL, or latest.
    :return: split -> metric -> value (fractions).
    :raises InputError: the model was fine-tuned on another task.
    """
    store = Store(store_url)
    artifact = store.resolve(model, "finetune")
    trained_on = store.manifest(artifact)["config"]["task"]
    if trained_on != task:
        raise InputError(f"--model {model}: a model for {trained_on}, expected one for {task}")
    datasets_url = datasets_folder(store, datasets)
    chosen_tasks([task], datasets_url)
    encoded = store.local(encode_dataset(store.url, datasets_url, task, tokenizer_of(store, artifact)))
    folder = store.local(artifact) / "model"
    splits = [split for split in encoded_splits(encoded) if split != "train"]
    return {split: evaluate_split(folder, encoded, split) for split in splits}


@flow(name="zero-shot", persist_result=False)
def zero_shot(
    store_url: str, checkpoint: str, datasets: str = "", tasks: Sequence[str] = (), max_rows: int | None = None
) -> dict[str, dict[str, Any]]:
    """Section 5's heuristics on a pre-trained model, beside the score of a random guess.

    :param tasks: of cola, sst2, race, dprd; empty: those whose data is there.
    :param max_rows: at most so many rows a task.
    """
    store = Store(store_url)
    artifact = store.resolve(checkpoint, "pretrain")
    datasets_url = datasets_folder(store, datasets)
    chosen = list(tasks) or _zero_shot_tasks(datasets_url)
    if not chosen:
        raise InputError(f"{datasets_url}: no data for any of {', '.join(ZERO_SHOT_TASKS)}")
    tokenizer = Tokenizer.load(str(store.local(tokenizer_of(store, artifact))))
    with tqdm(unit="sequence", desc="zero-shot", disable=None) as bar:

        def progress(task: str, done: int, total: int) -> None:
            bar.set_postfix_str(task, refresh=False)
            bar.total, bar.n = total, done
            bar.refresh()

        results = score_zero_shot(store.local(artifact) / "model", tokenizer, datasets_url, chosen, max_rows, progress)
    table = [{"task": task, **{name: str(value) for name, value in scores.items()}} for task, scores in results.items()]
    create_table_artifact(table=table, key="zero-shot", description=f"Zero-shot scores of {artifact.short}")
    return results


def _zero_shot_tasks(datasets_url: str) -> list[str]:
    """Those of section 5's tasks whose folder is there."""
    fs, root = fsspec.core.url_to_fs(datasets_url)
    there = [*available(datasets_url), *(["dprd"] if fs.isdir(f"{root.rstrip('/')}/DPRD") else [])]
    return [task for task in ZERO_SHOT_TASKS if task in there]
