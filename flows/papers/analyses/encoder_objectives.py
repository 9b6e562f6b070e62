"""What encoders learn in pre-training: ALBERT's pairs of segments, ELECTRA beside masked words, and its controls."""

from __future__ import annotations

import dataclasses
import statistics
from typing import Any

from prefect import flow

from flows.forms.parameters import AnalysisParameters
from flows.forms.run_names import from_form
from flows.forms.settings import refuse_setting
from flows.papers.analyses.common import (
    ON_THE_WAY,
    Trained,
    chosen_tasks,
    columns_of_tasks,
    cost_notes,
    identity_of,
    named,
    of_family,
    power,
    rows_of,
    rows_of_arms,
    scores_of,
    table_of_models,
    tokens_of_update,
)
from flows.trainings.chain import run_chain
from flows.trainings.grid import Arm
from gptcore.config import EncoderConfig
from gptcore.config.operations import operations_of_update
from gptcore.papers.analyses.published import REPLACED, SENTENCES
from tasks.report.analysis import Analysis, publish_all
from tasks.report.figures import Curve, Figure
from tasks.report.rows import one_decimal
from tasks.stages.evaluation import score_pairs
from tasks.store.lineage import snapshots

PAIRS = {"none": "none", "nsp": "nsp", "sop": None}
"""Label -> the setting `pretrain.pairs`; sentence order is ALBERT's own, which its settings leave open."""
CONTROLS: dict[str, tuple[str | None, dict[str, Any]]] = {
    "ELECTRA": (None, {}),
    "All-Tokens MLM": ("all-tokens-mlm", {"words": True}),
    "Replace MLM": ("replace-mlm", {"words": True, "replaced": False}),
    "ELECTRA 15%": ("electra-15", {}),
}
"""Row of ELECTRA's Table 5 -> the setting `pretrain.replaced_objective`, and the heads that it trains."""
_PAIR_TASKS = ("mnli", "sst2", "qnli")
_GLUE_TASKS = ("cola", "sst2", "qnli", "rte")
_KEPT = 2  # models on the way that are fine-tuned: after a quarter and half of the updates


@flow(name="analysis-sentences", flow_run_name=from_form, persist_result=False)
def sentences(parameters: AnalysisParameters) -> list[Analysis]:
    """ALBERT's Table 5: nothing, the next sentence or the sentences' order told beside the hidden words."""
    refuse_setting(parameters.overrides, "pretrain", "pairs")
    wanted = chosen_tasks(parameters, _PAIR_TASKS)
    chain = run_chain(of_family(parameters, "albert"), wanted)
    models = []
    for label, pairs in PAIRS.items():
        config = dataclasses.replace(chain.preset.pretrain, pairs=pairs)
        models.append(Trained(label, chain, chain.pretrain(chain.preset.model, config)))
    tasks = list(chain.datasets)
    rows = rows_of(models, parameters)
    columns = columns_of_tasks(tasks, SENTENCES)
    body: list[tuple[str, ...]] = []
    metrics: dict[str, float] = {}
    for model, row, printed in zip(models, rows, SENTENCES, strict=True):
        told = _told(model)
        cells, mean = scores_of(row, tasks)
        ours = (*map(one_decimal, told.values()), one_decimal(mean), *(cells.get(task, "-") for task in columns))
        body.append((model.label, "ours", *ours))
        theirs = (printed.scores.get(task, "-") for task in columns)
        body.append((printed.method, printed.source, *printed.intrinsic.values(), printed.average, *theirs))
        metrics |= {f"{model.label}/{name} told": value for name, value in told.items()}
        metrics |= {f"{model.label}/{task}": score for task, score in row.per_task.items() if task in tasks}
    header = ("pairs", "whose", "words told", "nsp told", "sop told", "average", *columns)
    notes = [
        "words, nsp, sop told: accuracy on held-out text, by each model's own heads; words on text whose second "
        "segment goes on with the first; a model that learnt one kind of pairs tells the other's by the same head, "
        "and the head of none is as it was drawn",
        "nsp: the second segment follows or is of another document; sop: it follows or the two are swapped",
        f"ours: {chain.preset.pretrain.steps or models[0].counts.steps:,} updates each",
        *cost_notes(models, rows),
    ]
    title = "ALBERT, Table 5: what the second segment is"
    analysis = Analysis("sentences", title, header, body, identity_of(models, rows), metrics, notes)
    return publish_all([analysis], parameters.out)


def _told(model: Trained) -> dict[str, float]:
    """Accuracy in per cent of hidden words, next sentences and sentence order."""
    chain = model.chain
    accuracies = {pairs: score_pairs(chain.store, model.checkpoint, chain.shards, pairs) for pairs in PAIRS}
    pairs = {name: 100 * accuracies[name]["pair_accuracy"] for name in ("nsp", "sop")}
    return {"words": 100 * accuracies["none"]["word_accuracy"], **pairs}


@flow(name="analysis-replaced", flow_run_name=from_form, persist_result=False)
def replaced(parameters: AnalysisParameters) -> list[Analysis]:
    """ELECTRA's Table 5, its controls at equal tokens; and ELECTRA beside BERT at equal operations, on their way."""
    refuse_setting(parameters.overrides, "pretrain", "replaced_objective")
    wanted = chosen_tasks(parameters, _GLUE_TASKS)
    chain = run_chain(of_family(parameters, "electra"), wanted)
    own = chain.preset.model
    assert isinstance(own, EncoderConfig)
    models = []
    for label, (objective, heads) in CONTROLS.items():
        config = dataclasses.replace(chain.preset.pretrain, replaced_objective=objective)
        checkpoint = chain.pretrain(dataclasses.replace(own, **heads), config)
        models.append(Trained(label, chain, checkpoint))
    rows = rows_of(models, parameters)
    electra, config = models[0], chain.preset.pretrain
    n_updates = electra.counts.steps
    without = _without(parameters, "replaced_weight")
    n_tokens = n_updates * tokens_of_update(chain.preset)
    alike = round(n_tokens / tokens_of_update(of_family(without, "bert").chosen_preset))
    bert = run_chain(of_family(without, "bert", {"steps": max(1, alike)}), wanted)
    masked = Trained("BERT", bert, bert.checkpoint)
    cost = operations_of_update(masked.network, bert.preset.pretrain)
    steps = max(1, round(operations_of_update(electra.network, config) * n_updates / cost))
    longer = dataclasses.replace(bert.preset.pretrain, steps=steps)
    more = Trained("BERT, equal operations", bert, bert.pretrain(bert.preset.model, longer))
    rows += rows_of([masked, more], parameters)
    models += [masked, more]
    notes = [
        "ours: at equal tokens but for the last row; published averages are GLUE's, over eight tasks",
        "ELECTRA 15%: the discriminator learns at the places of hidden words alone; Replace MLM: hidden words are told "
        "from the generator's text; All-Tokens MLM: every word is, or copied",
        "BERT tells next sentences, too",
    ]
    title = "ELECTRA, Table 5: what its gain comes from"
    controls = table_of_models("replaced", title, models, rows, REPLACED, notes, side_by_side=True)
    return publish_all([controls, _on_the_way(parameters, electra, more)], parameters.out)


def _on_the_way(parameters: AnalysisParameters, electra: Trained, masked: Trained) -> Analysis:
    """Scores over operations: both models, and those that their runs kept on the way."""
    tasks = list(electra.chain.datasets)
    curves: list[Curve] = []
    body: list[tuple[str, ...]] = []
    metrics: dict[str, float] = {}
    suites = []
    for color, model in enumerate((electra, masked)):
        chain, label = model.chain, model.label.partition(",")[0]
        last = model.counts.steps
        kept = snapshots(chain.store, model.checkpoint)[-_KEPT:]
        arms = [Arm(f"after {step:,} updates", model.checkpoint, {"snapshot": step}) for step in kept]
        arms.append(model.arm)
        rows = rows_of_arms(chain, parameters, tasks, arms)
        suites += [row.suite for row in rows]
        points = []
        for step, row in zip([*kept, last], rows, strict=True):
            mean = statistics.fmean(row.per_task[task] for task in tasks)
            done = model.operations_after(step)
            points.append((done / 1e12, mean))
            scores = (one_decimal(row.per_task[task]) for task in tasks)
            body.append((label, f"{step:,}", power(done), one_decimal(mean), *scores))
            metrics[f"{label}/after {step} updates"] = mean
        curves.append(Curve(label, points, color))
    title = "ELECTRA and masked words at equal operations"
    figure = Figure(curves, "10^12 operations of pre-training", "mean score", named(electra.chain, title), log_x=True)
    notes = [
        f"mean score: of {', '.join(tasks)}, x 100",
        ON_THE_WAY,
        *cost_notes([electra, masked], [rows[-1], rows[-1]]),
    ]
    header = ("model", "updates", "operations", "average", *tasks)
    identity = {"suites": suites, "tasks": tasks}
    return Analysis("replaced-operations", title, header, body, identity, metrics, notes, figure)


def _without(parameters: AnalysisParameters, *settings: str) -> AnalysisParameters:
    """The form without these of its own settings of pre-training, which are another family's alone."""
    pretrain = {k: v for k, v in parameters.overrides.get("pretrain", {}).items() if k not in settings}
    return parameters.model_copy(update={"overrides": {**parameters.overrides, "pretrain": pretrain}})
