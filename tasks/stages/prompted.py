"""Stage `prompted`: a pre-trained model's answers to one task's prompts behind a number of examples."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.files import write_bytes_atomic
from gptcore.prompting.tasks import fingerprint, prompt_task
from gptcore.text.tokenizer import Tokenizer
from tasks.stages.stage import STAGE_OPTIONS, build
from tasks.store.artifact import Artifact, Recipe
from tasks.store.lineage import tokenizer_of
from tasks.store.store import Store
from tasks.tracking.logs import Meter

VERSION = 1
FILE = "answers.jsonl"
"""One line a row that was asked: "prompt" (its end), "answer", "right"."""


@task(name="prompted", task_run_name="{task_name}, {shots} shots, {checkpoint.short}", **STAGE_OPTIONS)
def answer_prompts(
    store_url: str, checkpoint: Artifact, datasets_url: str, task_name: str, shots: int, max_rows: int | None
) -> dict[str, Any]:
    """Put a task's rows to a pre-trained model, without training it.

    :param checkpoint: a `pretrain` artifact, or an imported model.
    :param task_name: of :data:`gptcore.prompting.tasks.PROMPT_TASKS`.
    :param shots: examples before each question, as far as n_ctx holds them.
    :param max_rows: at most so many rows, drawn by a seed; None: all.
    :returns: "scores" (fractions, "score" the headline), "chance", "shots", "rows", "metric".
    :raises InputError: an unknown task, missing or broken data, or a model with too few positions.
    """
    store, found = Store(store_url), prompt_task(task_name)
    settings = {"task": task_name, "shots": shots, "max_rows": max_rows}
    inputs: dict[str, Artifact | str] = {"checkpoint": checkpoint, "rows": fingerprint(task_name, datasets_url)}
    recipe = Recipe("prompted", VERSION, settings, inputs)

    def produce(out: Path) -> dict[str, Any]:
        from gptcore.models.build import load_model  # torch: not where the store has the answers
        from gptcore.prompting.score import answer
        from gptcore.training.device import pick_device

        words = Tokenizer.load(str(store.local(tokenizer_of(store, checkpoint))))
        network = load_model(str(store.local(checkpoint) / "model")).to(pick_device(0)).eval()
        told = Meter("prompted", "prompts")
        rows = found.read(datasets_url)
        came = answer(network, words, found, rows, shots, max_rows, lambda done, of: told(task_name, done, of))
        lines = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in came.answers)
        write_bytes_atomic(out / FILE, lines.encode())
        return {
            "scores": came.scores,
            "chance": came.chance,
            "shots": came.shots,
            "rows": came.rows,
            "metric": found.metric,
        }

    item = f"{task_name}, {shots} shots, {checkpoint.short}"
    return dict(build(store, recipe, produce, "prompted", _made, item, "score").manifest["counts"])


def _made(counts: Mapping[str, Any]) -> str:
    return f"{counts['metric']} {100 * counts['scores']['score']:.1f}"
