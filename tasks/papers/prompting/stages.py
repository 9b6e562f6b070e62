"""Stage `prompted`: what a pre-trained model answers to prompts, behind a number of examples."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.base.files import write_bytes_atomic
from gptcore.papers.prompting.items import SEED, PromptResult
from gptcore.papers.prompting.rows import Selection
from gptcore.papers.prompting.tasks import PromptTask
from tasks.stages.stage import STAGE_OPTIONS, build, recipe_of
from tasks.store.artifact import Artifact
from tasks.store.lineage import load_tokenizer
from tasks.store.store import Store
from tasks.tracking.logs import Meter

FILE = "answers.jsonl"
"""The file of an artifact with one line for each row that was asked: "prompt" (its end), "answer", "right"."""


@task(name="prompted", task_run_name="prompts of {asked.name}", **STAGE_OPTIONS)
def answer_prompts(
    store: Store,
    models: Sequence[Artifact],
    asked: PromptTask,
    selection: Selection,
    shots: Sequence[int],
    max_rows: int | None,
) -> dict[tuple[str, int], PromptResult]:
    """Put a task's rows to pre-trained models, without training them.

    :param models: `pretrain` artifacts, or imported ones.
    :param asked: the task.
    :param selection: the rows, at most ``max_rows`` of them, each with the largest of ``shots`` examples; wrapped in
        Prefect's ``quote``, so that it does not look through them.
    :param shots: numbers of examples before a question, as far as n_ctx holds them.
    :returns: (a model's digest, shots) -> its result, without the answers, which the artifact has.
    :raises InputError: a model with too few positions.
    """

    def answered(model: Artifact, k: int) -> PromptResult:
        settings = {"task": asked.name, **asked.recorded, "shots": k, "max_rows": max_rows, "seed": SEED}
        recipe = recipe_of("prompted", settings, {"checkpoint": model, "rows": selection.digest})

        def produce(out: Path) -> dict[str, Any]:
            from gptcore.machine.device import pick_device
            from gptcore.models.network import load_language_model
            from gptcore.papers.prompting.score import answer

            network = load_language_model(str(store.local(model, "model"))).to(pick_device(0)).eval()
            words, meter = load_tokenizer(store, model), Meter("prompted", "prompts")
            result = answer(network, words, asked, selection, k, lambda done, of: meter(asked.name, done, of))
            lines = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in result.answers)
            write_bytes_atomic(out / FILE, lines.encode())
            return {name: value for name, value in vars(result).items() if name != "answers"}

        item = f"{asked.name}, {k} shots, {model.short}"
        return PromptResult(**build(store, recipe, produce, "prompted", _answered, item, "score").counts)

    return {(model.digest, k): answered(model, k) for k in shots for model in models}


def _answered(counts: Mapping[str, Any]) -> str:
    return f"{counts['metric']} {100 * counts['scores']['score']:.1f}"
