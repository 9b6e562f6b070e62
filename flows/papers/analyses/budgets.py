"""What to learn from the same operations: every objective pre-trained from nothing for each of some budgets."""

from __future__ import annotations

from prefect import flow

from flows.forms.parameters import AnalysisParameters
from flows.forms.run_names import from_form
from flows.papers.analyses.common import (
    COST,
    Trained,
    chosen_tasks,
    cost_notes,
    identity_of,
    named,
    of_family,
    require_own_families,
    rows_of,
    scored,
    scores_of,
)
from flows.trainings.chain import run_chain
from gptcore.base.errors import InputError
from gptcore.config.operations import pretraining_flops
from gptcore.families import DEFAULT, FAMILIES
from gptcore.nlu.blimp import has_blimp
from tasks.report.analysis import Analysis, publish_all
from tasks.report.figures import Curve, Figure, Panels
from tasks.report.rows import Row, one_decimal
from tasks.stages.evaluation import check_blimp, score_blimp

OBJECTIVES = ("gpt", "gpt2", "gptbert", "bert", "electra")
"""Families whose objectives are compared, beside the LSTM."""
_LSTM = "LSTM"
_SHARES = (1 / 8, 1 / 4, 1 / 2)
_GLUE_TASKS = ("cola", "sst2", "qnli", "rte")


@flow(name="analysis-objectives", flow_run_name=from_form, persist_result=False)
def objectives(parameters: AnalysisParameters) -> list[Analysis]:
    """GPT-1, GPT-2, GPT-BERT, BERT, ELECTRA and the LSTM at equal operations, for each of some budgets."""
    require_own_families(parameters, "tokenizer", "start", "teacher")
    if (steps := parameters.overrides.get("pretrain", {}).get("steps")) is not None:
        raise InputError(f"pretrain.steps = {steps}: expected --operations, which the updates follow from")
    wanted = chosen_tasks(parameters, _GLUE_TASKS)
    budgets = sorted(set(parameters.operations)) or _budgets(parameters)
    forms = {name: of_family(parameters, name) for name in OBJECTIVES}
    for form in forms.values():  # what one of them refuses is refused before the first is trained
        form.check()
    models: list[Trained] = []
    rows: list[Row] = []
    for name in OBJECTIVES:
        for budget in budgets:
            chain = run_chain(forms[name], wanted, operations=budget)
            trained = [Trained(FAMILIES[name].title, chain, chain.checkpoint)]
            if name == DEFAULT:
                trained.append(Trained(_LSTM, chain, chain.pretrain_lstm(budget)))
            models += trained
            rows += rows_of(trained, parameters)
    return publish_all([_table(models, rows, parameters)], parameters.out)


def _budgets(parameters: AnalysisParameters) -> list[float]:
    """Shares of what the preset's GPT-1 takes.

    :raises InputError: the preset says epochs, of a corpus that nobody has seen yet.
    """
    preset = parameters.chosen_preset
    if preset.pretrain.steps is None:
        raise InputError("--operations: found none, and the preset says epochs; expected numbers, as 1e14,3e14")
    whole = pretraining_flops(preset.model, preset.pretrain, preset.pretrain.steps)
    return [share * whole for share in _SHARES]


def _table(models: list[Trained], rows: list[Row], parameters: AnalysisParameters) -> Analysis:
    """A row for each model, objective by objective; one panel of the figure for each score, over operations."""
    first = models[0].chain
    tasks = list(first.datasets)
    pairs = _blimp_of(models, parameters)
    words = next(
        row for row in scored(first, parameters, tasks, [models[0].arm]).rows if row.name.startswith("bag of words")
    )
    body: list[tuple[str, ...]] = []
    metrics: dict[str, float] = {}
    points: dict[str, dict[str, list[tuple[float, float]]]] = {}  # score -> model -> over operations
    order = list(dict.fromkeys(model.label for model in models))
    together = sorted(zip(models, rows, pairs, strict=True), key=lambda each: order.index(each[0].label))
    for model, row, pair in together:
        cells, mean = scores_of(row, tasks)
        scores = (one_decimal(pair), one_decimal(mean), *(cells.get(task, "-") for task in tasks))
        body.append((model.label, *model.cost, f"{model.counts.steps:,}", model.loss, *scores))
        told = {"average of the tasks": mean, "BLiMP": pair, **{task: row.per_task.get(task) for task in tasks}}
        for score, value in told.items():
            if value is not None:
                points.setdefault(score, {}).setdefault(model.label, []).append((model.operations / 1e12, value))
                metrics[f"{model.label}/{score} at {model.operations / 1e12:.6g}e12"] = value
    cells, mean = scores_of(words, tasks)
    body.append(("bag of words", *("-",) * 7, one_decimal(mean), *(cells.get(task, "-") for task in tasks)))
    title = "Objectives at equal operations"
    levels = {"average of the tasks": mean, "BLiMP": 50.0, **words.per_task}
    figures = [
        Figure(
            [Curve(label, over, order.index(label), label == _LSTM) for label, over in curves.items()],
            "10^12 floating-point operations of pre-training",
            "x 100",
            score,
            log_x=True,
        )
        for score, curves in points.items()
    ]
    lines = {score: "chance" if score == "BLiMP" else "bag of words" for score in points}
    references = [{line: level} if (level := levels.get(score)) is not None else {} for score, line in lines.items()]
    header = ("model", *COST, "updates", "held-out loss", "BLiMP", "average", *tasks)
    how_many = f"about {parameters.max_rows:,} pairs a field" if parameters.max_rows else "all pairs"
    notes = [
        "each pre-trained from nothing, its rate falling over its own updates",
        "losses of hidden words and of next tokens have nothing in common; vocabularies differ, too",
        f"BLiMP: the mean of its 12 fields, {how_many}; decoders by the sentence's probability, the others by that of "
        "each piece given all others; chance: 50",
        *cost_notes(models, rows),
    ]
    panels = Panels(figures, named(first, title), references, one_scale=False)
    identity = identity_of(models, rows) | {"max_pairs": parameters.max_rows}
    return Analysis("objectives", title, header, body, identity, metrics, notes, panels)


def _blimp_of(models: list[Trained], parameters: AnalysisParameters) -> list[float | None]:
    """BLiMP of each model; None where its files are not there."""
    url = models[0].chain.datasets_url
    if not has_blimp(url):
        return [None] * len(models)
    store = models[0].chain.store
    check_blimp(store, url)
    n_pairs = parameters.max_rows or None
    return [100 * score_blimp(store, model.checkpoint, url, n_pairs)["score"] for model in models]
