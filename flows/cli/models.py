"""Models that are there, looked at and put to use: their scores, GLUE's zip from them, one behind HTTP.

Plain functions: the stages' work without a Prefect run, whose server takes longer to start than most answers. The
scores are artifacts of the store all the same, found there the next time.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from flows.cli.display import shown
from flows.forms.checks import check_addresses, chosen_tasks, datasets_folder
from flows.forms.references import any_model, fine_tuned_model, named_task, pretrained_model
from flows.servers.environment import listener
from flows.servers.signals import Ended
from gptcore.base.errors import InputError, require
from gptcore.base.files import read_json
from gptcore.base.filesystems import is_synthetic
from gptcore.evaluation.submission import files_of, glue_submission
from gptcore.families import recorded_family
from gptcore.nlu.blimp import BLIMP, WITHOUT_TRAINING, available_zero_shot, check_zero_shot
from gptcore.nlu.encoded import encoded_splits
from gptcore.nlu.own_task import is_task_file, read_own_task
from gptcore.nlu.registry import BEYOND, REGISTRY
from tasks.report.suites import record_harness
from tasks.store.artifact import Artifact
from tasks.store.lineage import load_tokenizer, opened_model, own_tokenizer
from tasks.store.references import WEIGHTS, best_models, fine_tuned_tasks, imported_names, is_model_folder
from tasks.store.store import Store
from tasks.tracking.logs import Meter


def imported(store: Store, source: str, name: str = "") -> Artifact:
    """The model of a folder, kept in the store and listed in the forms.

    :param source: any fsspec URL of the folder.
    :param name: what it is called; empty: what the folder is called.
    :raises InputError: there is no such model, or it cannot be read.
    """
    if not is_model_folder(source):
        raise InputError(f"{source}: found no model, expected a folder with config.json and {' or '.join(WEIGHTS)}")
    with shown("import"):
        from tasks.stages.imported import import_model

        artifact = import_model.fn(store, source, name)
    if os.environ.get("PREFECT_API_URL"):
        from flows.forms.choices import list_checkpoints

        list_checkpoints(store)
    return artifact


def evaluate(store: Store, task: str, model: str, datasets: str = "") -> dict[str, dict[str, Any]]:
    """Score a fine-tuned model on every labelled split but train.

    :param task: one of the twelve, or the address of the file of a user's own.
    :param model: digest (or its beginning) of a `finetune` artifact, its URL, latest or best (of those for the task).
    :return: split -> metric -> value x 100, and what is counted beside them.
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
        found = {split: score_model.fn(store, artifact, dataset, split) for split in splits}
    return {
        split: {name: 100 * value if isinstance(value, float) else value for name, value in scores.items()}
        for split, scores in found.items()
    }


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
    require(chosen, f"{datasets_url}: found nothing that {artifact.short} can be scored on; expected BLiMP/")
    with shown("zero-shot"):
        from tasks.stages.evaluation import score_blimp, score_zero_shot  # these bring torch along

        results: dict[str, dict[str, Any]] = {}
        if heuristics := [task for task in chosen if task != BLIMP]:
            results |= score_zero_shot.fn(store, artifact, datasets_url, heuristics, max_rows)
        if BLIMP in chosen:
            results |= _by_field(score_blimp.fn(store, artifact, datasets_url, max_rows))
        return results


def harness(
    store: Store,
    model: str,
    names: Sequence[str],
    include: str = "",
    num_fewshot: int | None = None,
    limit: int | None = None,
) -> dict[str, dict[str, Any]]:
    """What EleutherAI's lm-evaluation-harness finds of a pre-trained model; its leaderboard's rows have it, too.

    :param names: of the harness' tasks and groups.
    :param include: folder with task files of the user's own.
    :return: task or group -> as :func:`tasks.stages.harness.score_harness`.
    :raises InputError: the harness is not installed; an unknown task, no such folder, model or rows.
    """
    there = find_spec("lm_eval") is not None
    require(there, "--harness: found no package lm_eval, expected pip install 'gptmill[lm-eval]'")
    require(names, "--harness: found no task, expected names such as hellaswag,arc_easy")
    require(not include or Path(include).is_dir(), f"--include-path: found {include!r}, expected a folder")
    artifact = pretrained_model(store, model)
    os.environ.setdefault("TQDM_DISABLE", "1")  # its bars would be drawn over ours
    logging.getLogger("lm_eval").setLevel(logging.ERROR)  # what its task files leave to defaults is nobody's concern
    with shown("harness"):
        from tasks.stages.evaluation import kept_harness
        from tasks.stages.harness import score_harness

        found: dict[str, dict[str, Any]] = score_harness.fn(store, artifact, names, include, num_fewshot, limit)
        if columns := kept_harness(store, artifact):
            record_harness(artifact.digest, columns)
    return found


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


def submission(
    store: Store, checkpoint: str, out: str, datasets: str = "", tasks: Sequence[str] = ()
) -> dict[str, Any]:
    """Answer GLUE's test files with the best fine-tuned model of each task (dev rows), and write the server's zip.

    :param checkpoint: digest (or its beginning) of a `pretrain` artifact, its URL, or latest.
    :param out: the zip, a local file.
    :param tasks: only these tasks' files: a rehearsal, as the server refuses it. Empty: all of them.
    :return: as :func:`gptcore.evaluation.submission.glue_submission`, with "models" (task -> URL of its artifact).
    :raises InputError: a task is not fine-tuned from this checkpoint yet, or a test file is missing or broken.
    """
    artifact = pretrained_model(store, checkpoint)
    wanted = list(dict.fromkeys(file.task for file in files_of(tasks)))
    datasets_url = datasets_folder(store, datasets)
    models = best_models(store, artifact, is_synthetic(datasets_url))
    if missing := [task for task in wanted if task not in models]:
        raise InputError(
            f"--checkpoint {checkpoint}: not fine-tuned yet on {', '.join(missing)}; "
            f"run `gptmill finetune TASK --checkpoint {artifact.short}` for each"
        )
    folders = {task: store.local(models[task], "model") for task in wanted}
    with shown("submission"):
        words = load_tokenizer(store, artifact)
        report = glue_submission(folders, words, datasets_url, Path(out), tasks, Meter("submission", "rows"))
    return {**report, "models": {task: models[task].url for task in wanted}}


def serve(url: str, name: str, model: str, port: int, max_tokens: int | None = None) -> None:
    """Serve until SIGTERM; see :mod:`flows.serving.model_server`.

    :param url: of the store.
    :param name: a task, whose model ``model`` chooses; or a model itself.
    :param model: empty: the task's best.
    :param max_tokens: the most that a request may ask a language model for; None: its n_ctx.
    :raises InputError: no such model, ``model`` beside a model, or a port that is taken.
    """
    require(max_tokens is None or max_tokens > 0, f"--max-tokens: found {max_tokens}, expected 1 or more")
    listener(port).close()  # one in use is told before torch is imported and the model read
    artifact = served_model(check_addresses({"store": url, "model": model}), name, model)
    folder, tokenizer = opened_model(artifact)
    from flows.serving.answering import Generation, Predictions, Service  # brings torch along
    from flows.serving.model_server import serve
    from gptcore.evaluation.predict import TaskModel
    from gptcore.machine.device import pick_device
    from gptcore.models.network import load_language_model

    tokenizer.encode("word")  # the first one imports spaCy, for which no client should wait
    about: dict[str, Any] = {"model": artifact.url, "digest": artifact.digest}
    service: Service
    if "head" in read_json(folder / "config.json"):
        task_model = TaskModel(folder, tokenizer)
        spec = task_model.spec
        service = Predictions(task_model)
        about |= {"task": spec.name, "fields": [*spec.text_columns, *spec.choices], "labels": list(spec.told_labels)}
    else:
        service = Generation(load_language_model(str(folder)).to(pick_device(0)).eval(), tokenizer, max_tokens)
    what = about.get("task", "a language model")

    def ready() -> None:
        url = f"http://127.0.0.1:{port}"
        print(f"{what} {artifact.short}: {url}{service.path}, /health (SIGTERM ends it); {url} says how to ask")
        sys.stdout.flush()

    try:
        serve(service, about, port, ready)
    except Ended as ended:
        print(f"gptmill: ended by {ended}; what was under way was answered", file=sys.stderr)
        raise SystemExit(ended.exit_code) from None


def served_model(store: Store, name: str, model: str) -> Artifact:
    """The model that is meant: of a task the one that ``model`` names, else the one that ``name`` does itself.

    :param model: empty: the task's best.
    :raises InputError: there is none, or both name one.
    """
    if name in REGISTRY | BEYOND or name.endswith(".toml") or name in fine_tuned_tasks(store):
        return fine_tuned_model(store, model or "best", named_task(store, name))
    if name.isalpha() and name not in ("latest", "best", *imported_names(store)):
        raise InputError(
            f"{name}: found no task and no model of this name; expected one of {', '.join(REGISTRY | BEYOND)}, a REF"
        )
    artifact = any_model(store, name)
    require(not model, f"--model {model}: found {name} beside it, a model itself; expected a task or no --model")
    return artifact
