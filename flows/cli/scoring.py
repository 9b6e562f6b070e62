"""Looking at models that are there: scores of a fine-tuned one, zero-shot scores of a pre-trained one.

Plain functions: the stages' work without a Prefect run, whose server takes longer to start than most answers. The
scores are artifacts of the store all the same, found there the next time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flows.cli.display import shown
from flows.forms.checks import chosen_tasks, datasets_folder
from flows.forms.references import fine_tuned_model, pretrained_model
from gptcore.base.errors import InputError
from gptcore.base.synthetic import is_synthetic
from gptcore.families import recorded_family
from gptcore.nlu.blimp import BLIMP
from gptcore.nlu.encoded import encoded_splits
from gptcore.nlu.own_task import is_task_file, read_own_task
from gptcore.nlu.zero_shot import WITHOUT_TRAINING, available_zero_shot, check_zero_shot
from tasks.store.lineage import own_tokenizer
from tasks.store.store import Store


def evaluate(store: Store, task: str, model: str, datasets: str = "") -> dict[str, dict[str, Any]]:
    """Score a fine-tuned model on every labelled split but train.

    :param task: one of the twelve, or the address of the file of a user's own.
    :param model: digest (or its beginning) of a `finetune` artifact, its URL, latest or best (of those for the task).
    :return: split -> metric -> value (fractions).
    :raises InputError: the model was fine-tuned on another task.
    """
    datasets_url = datasets_folder(store, datasets, [task])
    (chosen,) = chosen_tasks([task], datasets_url)
    artifact = fine_tuned_model(store, model, chosen.name)
    with shown("evaluate"):
        from tasks.stages.dataset import encode_dataset  # these bring torch along: not before the input is good
        from tasks.stages.evaluation import score_model

        dataset = encode_dataset.fn(store, datasets_url, chosen.spec, own_tokenizer(store, artifact))
        splits = [split for split in encoded_splits(store.local(dataset)) if split != "train"]
        return {split: score_model.fn(store, artifact, dataset, split) for split in splits}


def zero_shot(
    store: Store, checkpoint: str, datasets: str = "", tasks: Sequence[str] = (), max_rows: int | None = None
) -> dict[str, dict[str, Any]]:
    """Section 5's heuristics on a pre-trained model, and BLiMP, beside the score of a random guess.

    :param tasks: of cola, sst2, race, dprd, blimp; empty: those whose data is there.
    :param max_rows: at most so many rows a task, of BLiMP about so many pairs a field.
    :return: task -> scores; BLiMP's fields come as tasks of their own, ``blimp/binding`` and so on.
    :raises InputError: an unknown task, or no such model or data.
    """
    check_zero_shot(tasks, WITHOUT_TRAINING)
    artifact = pretrained_model(store, checkpoint, generates=bool(tasks) and list(tasks) != [BLIMP])
    datasets_url = datasets_folder(store, datasets)
    there = available_zero_shot(datasets_url)
    if not recorded_family(store.manifest(artifact)["config"]["model"]).generates and not tasks:
        there = [task for task in there if task == BLIMP]
    chosen = list(tasks) or there
    if not chosen:
        raise InputError(f"{datasets_url}: found nothing that {artifact.short} can be scored on; expected BLiMP/")
    with shown("zero-shot"):
        from tasks.stages.blimp import score_blimp  # these bring torch along
        from tasks.stages.zero_shot import score_zero_shot

        results: dict[str, dict[str, Any]] = {}
        if heuristics := [task for task in chosen if task != BLIMP]:
            results |= score_zero_shot.fn(store, artifact, datasets_url, heuristics, max_rows)
        if BLIMP in chosen:
            results |= _by_field(score_blimp.fn(store, artifact, datasets_url, max_rows))
        return results


def rows_scored(store: Store, datasets: str, task: str = "") -> str:
    """Which rows the two above read: no number of generated ones is to be taken for another.

    :param task: as in :func:`evaluate`.
    """
    url = datasets_folder(store, datasets, [task])
    if is_task_file(task):
        url = read_own_task(task, url).spec.root(url)
    return f"rows: {url}{', synthetic' if is_synthetic(url) else ''}"


def _by_field(scores: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    said = {"metric": "accuracy", "chance": scores["chance"]}
    whole = {"score": scores["score"], **said, "pairs": scores["pairs"], "mean of paradigms": scores["paradigms_mean"]}
    fields = {f"{BLIMP}/{field}": {"score": score, **said} for field, score in scores["fields"].items()}
    return {BLIMP: whole, **fields}
