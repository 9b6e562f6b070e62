"""Stage `prompted`: pre-trained models' answers to one task's prompts, behind a number of examples each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.files import write_bytes_atomic
from gptcore.prompting.items import SEED, Answered
from gptcore.prompting.tasks import digest, prompt_task, read_rows
from gptcore.text.tokenizer import Tokenizer
from tasks.stages.stage import STAGE_OPTIONS, build
from tasks.store.artifact import Artifact, Recipe
from tasks.store.lineage import tokenizer_of
from tasks.store.store import Store
from tasks.tracking.logs import Meter

VERSION = 4
FILE = "answers.jsonl"
"""One line a row that was asked: "prompt" (its end), "answer", "right"."""


@task(name="prompted", task_run_name="prompts of {task_name}", **STAGE_OPTIONS)
def answer_prompts(
    store_url: str,
    models: Sequence[Artifact],
    datasets_url: str,
    task_name: str,
    shots: Sequence[int],
    max_rows: int | None,
) -> dict[tuple[str, int], Answered]:
    """Put a task's rows to pre-trained models, without training them; the rows are read once.

    :param models: `pretrain` artifacts, or imported ones.
    :param task_name: of :data:`gptcore.prompting.tasks.PROMPT_TASKS`.
    :param shots: numbers of examples before a question, as far as n_ctx holds them.
    :param max_rows: at most so many rows, drawn by a seed; None: all.
    :returns: (a model's digest, shots) -> what came of it, without the answers, which the artifact has.
    :raises InputError: an unknown task, missing or broken data, or a model with too few positions.
    """
    store, found, rows = Store(store_url), prompt_task(task_name), read_rows(task_name, datasets_url)
    identity = digest(rows)

    def answered(model: Artifact, k: int) -> Answered:
        settings = {"task": task_name, **found.recorded, "shots": k, "max_rows": max_rows, "seed": SEED}
        recipe = Recipe("prompted", VERSION, settings, {"checkpoint": model, "rows": identity})

        def produce(out: Path) -> dict[str, Any]:
            from gptcore.machine.device import pick_device
            from gptcore.models.build import load_model  # torch: not where the store has the answers
            from gptcore.prompting.score import answer

            words = Tokenizer.load(str(store.local(tokenizer_of(store, model))))
            network = load_model(str(store.local(model) / "model")).to(pick_device(0)).eval()
            told = Meter("prompted", "prompts")
            came = answer(network, words, found, rows, k, max_rows, lambda done, of: told(task_name, done, of))
            lines = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in came.answers)
            write_bytes_atomic(out / FILE, lines.encode())
            return {name: value for name, value in vars(came).items() if name != "answers"}

        built = build(store, recipe, produce, "prompted", _made, f"{task_name}, {k} shots, {model.short}", "score")
        return Answered(**built.manifest["counts"])

    return {(model.digest, k): answered(model, k) for k in shots for model in models}


def _made(counts: Mapping[str, Any]) -> str:
    return f"{counts['metric']} {100 * counts['scores']['score']:.1f}"
