"""GLUE's zip from what one checkpoint was fine-tuned into."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flows.cli.display import shown
from flows.forms.checks import datasets_folder
from flows.forms.references import pretrained_model
from gptcore.base.errors import InputError
from gptcore.base.synthetic import is_synthetic
from gptcore.evaluation.submission import files_of, glue_submission
from gptcore.text.tokenizer import Tokenizer
from tasks.store.lineage import tokenizer_of
from tasks.store.references import best_models
from tasks.store.store import Store
from tasks.tracking.logs import Meter


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
    tokenizer = Tokenizer.load(str(store.local(tokenizer_of(store, artifact))))
    folders = {task: store.local(models[task], "model") for task in wanted}
    with shown("submission"):
        report = glue_submission(folders, tokenizer, datasets_url, Path(out), tasks, Meter("submission", "rows"))
    return {**report, "models": {task: models[task].url for task in wanted}}
