"""The paper's analyses, each a flow that makes its table or figure from the stages' artifacts.

    tables      Table 1, rows read beside rows published; Tables 2, 3 and 4, our row under the published ones
    table5      full, without pre-training, without the auxiliary objective, LSTM: on eight tasks
    layers      Figure 2, left: 0 (embeddings only) to all blocks transferred, on MultiNLI and RACE
    zero-shot   Figure 2, right: scores without fine-tuning, from the first updates to the last, Transformer and LSTM;
                BLiMP in the same way, where its files are, with the n-gram models beside it

What the store holds is not computed again: after a pipeline an analysis adds only its own runs.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from prefect import flow

from flows.chain import Chain, run_chain
from flows.fanout import Arm, score_tasks
from flows.finetune import pretrained_arm, scratch_arm, seeds_of, settings_of
from flows.names import from_form
from flows.parameters import AnalysisParameters
from gptcore.errors import InputError
from gptcore.nlu.blimp import BLIMP, CHANCE, FIELDS
from gptcore.nlu.published import ABLATIONS, OURS, PUBLISHED
from gptcore.nlu.readers import available
from gptcore.nlu.registry import REGISTRY, task_spec
from gptcore.nlu.zero_shot import available_zero_shot
from tasks.report.card import synthetic_note
from tasks.report.figures import Curve, Figure, Panels
from tasks.report.leaderboard import Row
from tasks.stages.analysis import Analysis, publish
from tasks.stages.blimp import check_blimp, score_blimp, score_blimp_ngrams
from tasks.stages.evaluation import score_model
from tasks.stages.finetune import finetune_recipe
from tasks.stages.zero_shot import Scores, score_zero_shot, snapshots
from tasks.store.artifact import Artifact

_TRAIN_ROWS = 1000
"""Rows of the training split that Figure 2's dashed lines are scored on."""
_MEAN = "mean of the fields"


@flow(name="analysis-tables", flow_run_name=from_form, persist_result=False)
def tables(parameters: AnalysisParameters) -> list[Analysis]:
    """Table 1: rows read beside rows published. Tables 2, 3 and 4: our row under the published ones."""
    chain = run_chain(parameters)
    row = _rows(chain, parameters, list(chain.datasets), [pretrained_arm(chain.checkpoint)])[0]
    found = [_table1(chain), *(_results_table(chain, row, number) for number in (2, 3, 4))]
    return _published(found, parameters)


@flow(name="analysis-table5", flow_run_name=from_form, persist_result=False)
def table5(parameters: AnalysisParameters) -> list[Analysis]:
    """Table 5: what pre-training, the auxiliary objective and the Transformer each contribute."""
    wanted = _wanted(parameters, list(ABLATIONS[0].percent))
    chain = run_chain(parameters, wanted)
    lstm = chain.pretrain_lstm(parameters)
    arms = [
        pretrained_arm(chain.checkpoint),
        scratch_arm(chain.checkpoint),
        Arm("w/o aux LM", chain.checkpoint, {"lm_coef": 0.0}),
        Arm("LSTM", lstm),
    ]
    rows = _rows(chain, parameters, wanted, arms)
    columns = [task for task in ABLATIONS[0].percent if task in wanted]
    body: list[tuple[str, ...]] = []
    metrics: dict[str, float] = {}
    for published, row in zip(ABLATIONS, rows, strict=True):
        ours = row.per_task
        average = statistics.fmean(ours[task] for task in columns)  # section 5: an unweighted average of all results
        metrics |= {f"{row.name.rpartition(' ')[0]}/{task}": ours[task] for task in columns}
        metrics[f"{row.name.rpartition(' ')[0]}/average"] = average
        body.append((published.method, "ours", _percent(average), *(_percent(ours[task]) for task in columns)))
        theirs = statistics.fmean(published.percent[task] for task in columns)
        whole = published.average if len(columns) == len(published.percent) else theirs
        cells = (_percent(published.percent[task]) for task in columns)
        body.append((published.method, "paper, test", _percent(whole), *cells))
    header = ("method", "whose", "average", *(f"{task} ({task_spec(task).headline})" for task in columns))
    notes = [f"ours: {rows[0].split} rows, {rows[0].seeds} seed(s); the paper: GLUE's test server"]
    for published, row in zip(ABLATIONS, rows, strict=True):
        if collapsed := [column for column, cell in row.cells.items() if cell.collapsed]:
            notes.append(f"{published.method}: a run gave every dev row the same answer on {', '.join(collapsed)}")
    notes += _about(chain)
    identity = {"arms": {row.name: row.suite for row in rows}}
    found = Analysis("table5", "Table 5: ablations", header, body, identity, metrics, notes)
    return _published([found], parameters)


@flow(name="analysis-layers", flow_run_name=from_form, persist_result=False)
def layers(parameters: AnalysisParameters) -> list[Analysis]:
    """Figure 2, left: the more layers are transferred, the better."""
    wanted = _wanted(parameters, ["mnli", "race"])
    chain = run_chain(parameters, wanted)
    n_layer = chain.preset.model.n_layer
    arms = [Arm(f"{n} layers", chain.checkpoint, {"n_transfer": n}) for n in range(n_layer)]
    arms.append(pretrained_arm(chain.checkpoint))  # all of them: the row that the pipeline has made
    rows = _rows(chain, parameters, wanted, arms)
    curves: list[Curve] = []
    body: list[tuple[str, ...]] = []
    metrics: dict[str, float] = {}
    for color, task in enumerate(wanted):
        dev = [row.per_task[task] for row in rows]
        train = [100 * _train_score(chain, task, arm) for arm in arms]
        curves += [
            Curve(f"{task} dev", list(enumerate(dev)), color),
            Curve(f"{task} train", list(enumerate(train)), color, dashed=True),
        ]
        body += [(str(n), task, _percent(dev[n]), _percent(train[n])) for n in range(n_layer + 1)]
        metrics |= {f"{task}/{n} layers": score for n, score in enumerate(dev)}
    title = "Figure 2, left: layers transferred"
    figure = Figure(curves, "layers transferred (0: embeddings only)", "accuracy (%)", _named(chain, title))
    header = ("layers", "task", "dev", "train")
    notes = [f"median of {rows[0].seeds} seed(s); train: seed 0, {_TRAIN_ROWS:,} rows", *_about(chain)]
    identity = {"arms": {row.name: row.suite for row in rows}, "tasks": wanted}
    return _published([Analysis("layers", title, header, body, identity, metrics, notes, figure)], parameters)


@flow(name="analysis-zero-shot", flow_run_name=from_form, persist_result=False)
def zero_shot_curves(parameters: AnalysisParameters) -> list[Analysis]:
    """Figure 2, right: zero-shot scores through pre-training; 0 is a random guess, 1 the state of the art; BLiMP."""
    chain = run_chain(parameters)
    there = available_zero_shot(chain.datasets_url)
    if BLIMP in there:
        check_blimp(chain.store, chain.datasets_url)
    models = {"Transformer": chain.checkpoint, "LSTM": chain.pretrain_lstm(parameters)}
    found = []
    if heuristics := [task for task in there if task != BLIMP]:
        found.append(_heuristics(chain, parameters, models, heuristics))
    if BLIMP in there:
        found.append(_blimp(chain, parameters, models))
    return _published(found, parameters)


def _heuristics(
    chain: Chain, parameters: AnalysisParameters, models: dict[str, Artifact], wanted: list[str]
) -> Analysis:
    curves: list[Curve] = []
    body: list[tuple[str, ...]] = []
    metrics: dict[str, float] = {}
    for label, model in models.items():
        trace = _trace(chain, parameters, model, wanted)
        for color, task in enumerate(wanted):
            points = [(step, _relative(task, scores)) for step, scores in trace.items()]
            curves.append(Curve(f"{task} {label}", points, color, dashed=label == "LSTM"))
            body += [
                (label, task, f"{step:,}", _percent(100 * trace[step][task]["score"]), f"{y:.3f}") for step, y in points
            ]
            metrics[f"{label}/{task}"] = 100 * trace[max(trace)][task]["score"]
        means = [(step, statistics.fmean(_relative(task, scores) for task in wanted)) for step, scores in trace.items()]
        metrics[f"{label}/mean relative score"] = means[-1][1]
        body += [(label, "mean", f"{step:,}", "", f"{y:.3f}") for step, y in means]
    title = "Figure 2, right: zero-shot through pre-training"
    figure = Figure(curves, "updates of pre-training", "relative score", _named(chain, title), log_x=True, level=0.0)
    notes = [
        *(f"{task}: 0 is a random guess, 1 is {_ceiling(task)[1]}" for task in wanted),
        f"at most {parameters.max_rows:,} rows a task" if parameters.max_rows else "all rows",
        *_about(chain),
    ]
    identity = {
        "models": {label: model.digest for label, model in models.items()},
        "tasks": wanted,
        "max_rows": parameters.max_rows,
    }
    header = ("model", "task", "updates", "score", "relative")
    return Analysis("zero-shot", title, header, body, identity, metrics, notes, figure)


def _blimp(chain: Chain, parameters: AnalysisParameters, models: dict[str, Artifact]) -> Analysis:
    """Per field and mean, every model kept through pre-training; the n-gram models, which have no updates, beside."""
    url, n_pairs = chain.datasets_url, parameters.max_rows or None
    counted = {
        label: _by_field(scores)
        for label, scores in score_blimp_ngrams(chain.store.url, chain.shards, url, n_pairs, parameters.dask).items()
    }
    traces = {
        label: {
            updates: _by_field(score_blimp(chain.store.url, model, url, n_pairs, step))
            for updates, step in _kept_steps(chain, model).items()
        }
        for label, model in models.items()
    }
    body: list[tuple[str, ...]] = []
    metrics: dict[str, float] = {}
    figures: list[Figure] = []
    for name in (_MEAN, *FIELDS):
        curves = [
            Curve(label, [(updates, scores[name]) for updates, scores in trace.items()], color, label == "LSTM")
            for color, (label, trace) in enumerate(traces.items())
        ]
        figures.append(Figure(curves, "updates of pre-training", "accuracy (%)", name, log_x=True, level=100 * CHANCE))
        body += [(curve.label, name, f"{updates:,}", _percent(y)) for curve in curves for updates, y in curve.points]
        body += [(label, name, "-", _percent(scores[name])) for label, scores in counted.items()]
        metrics |= {f"{curve.label}/{name}": curve.points[-1][1] for curve in curves}
        metrics |= {f"{label}/{name}": scores[name] for label, scores in counted.items()}
    title = "BLiMP through pre-training"
    references = [{label: scores[name] for label, scores in counted.items()} for name in (_MEAN, *FIELDS)]
    notes = [
        "the good sentence of a minimal pair is the likelier one, by full-sentence log-probability; chance: 50",
        f"{_MEAN}: of 12 fields, as BabyLM reports it; a field's score is the mean of its paradigms",
        f"about {n_pairs:,} pairs a field" if n_pairs else "all pairs",
        *_about(chain),
    ]
    identity = {
        "models": {label: model.digest for label, model in models.items()},
        "shards": chain.shards.digest,
        "max_pairs": n_pairs,
    }
    header = ("model", "field", "updates", "accuracy")
    panels = Panels(figures, _named(chain, title), references)
    return Analysis("blimp", title, header, body, identity, metrics, notes, panels)


def _by_field(scores: Mapping[str, Any]) -> dict[str, float]:
    """BLiMP's scores in per cent, the mean first."""
    return {_MEAN: 100 * scores["score"], **{field: 100 * score for field, score in scores["fields"].items()}}


ANALYSES: dict[str, Callable[[AnalysisParameters], list[Analysis]]] = {
    "tables": tables,
    "table5": table5,
    "layers": layers,
    "zero-shot": zero_shot_curves,
}
"""Name on the command line -> flow."""


def _published(found: list[Analysis], parameters: AnalysisParameters) -> list[Analysis]:
    for analysis in found:
        publish(analysis, parameters.out)
    return found


def _wanted(parameters: AnalysisParameters, tasks: list[str]) -> list[str]:
    """Those of an analysis' tasks that were asked for and whose data is there.

    :raises InputError: there is none.
    """
    chosen = [task for task in tasks if not parameters.tasks or task in parameters.tasks]
    there = [task for task in chosen if not parameters.datasets or task in available(parameters.datasets)]
    if not there:
        raise InputError(
            f"--tasks: none of {', '.join(tasks)} was asked for and has data; this analysis is about these"
        )
    return there


def _rows(chain: Chain, parameters: AnalysisParameters, tasks: list[str], arms: list[Arm]) -> list[Row]:
    """Every arm's row of the leaderboard, cut to ``tasks``, in the arms' order."""
    datasets = {task: chain.datasets[task] for task in tasks}
    settings, jobs = settings_of(chain.preset), parameters.jobs
    seeds = seeds_of(chain.preset, parameters.seeds)
    board = score_tasks(chain.store.url, chain.datasets_url, datasets, arms, settings, seeds, jobs)
    return [row.only(tasks) for row in board.rows[: len(arms)]]


def _named(chain: Chain, title: str) -> str:
    """A figure's own title: a picture travels without its page."""
    return f"{title} (preset {chain.preset.name}, {'synthetic' if _synthetic_notes(chain) else 'real'} data)"


def _synthetic_notes(chain: Chain) -> tuple[str, ...]:
    """The note that the books, or rows of any dataset, are generated; nothing where all are real."""
    inputs = [chain.corpus, *chain.datasets.values()]
    return next(filter(None, (synthetic_note(chain.store.manifest(artifact)) for artifact in inputs)), ())


def _about(chain: Chain) -> list[str]:
    """What a reader must know of the model behind the numbers."""
    result = chain.store.manifest(chain.checkpoint)["counts"]
    return [
        *_synthetic_notes(chain),
        f"preset {chain.preset.name}: {result['tokens_seen']:,} tokens seen in pre-training, "
        f"held-out perplexity {result['validation/perplexity']:.1f}",
    ]


def _table1(chain: Chain) -> Analysis:
    """Every split's rows read beside the public distribution's."""
    body = []
    for name, artifact in chain.datasets.items():
        for split, counts in chain.store.manifest(artifact)["counts"]["splits"].items():
            share = f"{counts['rows'] / counts['published']:.1%}" if counts["published"] else "-"
            dropped = sum(counts["dropped"].values())
            body.append((name, split, f"{counts['rows']:,}", f"{counts['published']:,}", share, f"{dropped:,}"))
    header = ("dataset", "split", "rows read", "rows published", "share", "dropped")
    identity = {"datasets": {name: artifact.digest for name, artifact in chain.datasets.items()}}
    title = "Table 1: datasets, rows read and published"
    return Analysis("table1", title, header, body, identity, notes=_about(chain))


def _results_table(chain: Chain, ours: Row, number: int) -> Analysis:
    """One of Tables 2, 3 and 4: the published rows, then ours."""
    specs = [spec for spec in REGISTRY.values() if spec.table == number]
    columns = [column for spec in specs for column in spec.paper]
    printed = [row for row in PUBLISHED if row.table == f"Table {number}"]
    body = [(row.method, row.split, *(_cell(row.percent.get(column)) for column in columns)) for row in printed]
    body.append((f"gptmill {ours.name}", ours.split, *(_cell(ours.percent.get(column)) for column in columns)))
    metrics = {column: ours.percent[column] for column in columns if column in ours.percent}
    notes = [f"ours: {ours.seeds} seed(s)", *_about(chain)]
    if not _synthetic_notes(chain):  # what sets real rows apart from the published ones
        notes += [f"{spec.name}: {spec.note}" for spec in specs if spec.note and spec.name in chain.datasets]
    title = f"Table {number}: published rows and ours"
    identity = {"suite": ours.suite}
    return Analysis(f"table{number}", title, ("method", "split", *columns), body, identity, metrics, notes)


def _train_score(chain: Chain, task: str, arm: Arm) -> float:
    """Accuracy of an arm's model of seed 0 on training rows."""
    store, dataset = chain.store, chain.datasets[task]
    config = dataclasses.replace(arm.settings(chain.preset.finetune_for(task)), seed=0)
    recipe = finetune_recipe(store, task, dataset, arm.checkpoint, config)
    scores = score_model(store.url, store.artifact("finetune", recipe.digest), dataset, "train", _TRAIN_ROWS)
    return float(scores["score"])


def _trace(chain: Chain, parameters: AnalysisParameters, model: Artifact, tasks: list[str]) -> dict[int, Scores]:
    """Update -> zero-shot scores, over every model that a pre-training run kept."""
    rows = parameters.max_rows or None
    return {
        updates: score_zero_shot(chain.store.url, model, chain.datasets_url, tasks, rows, step)
        for updates, step in _kept_steps(chain, model).items()
    }


def _kept_steps(chain: Chain, model: Artifact) -> dict[int, int | None]:
    """Updates -> the name of the model after them: a snapshot's step, None for the final one."""
    last = chain.store.manifest(model)["counts"]["steps"]
    return {**{step: step for step in snapshots(chain.store, model)}, last: None}


def _relative(task: str, scores: Scores) -> float:
    """0 for a random guess, 1 for the state of the art before the paper."""
    found = scores[task]
    top, _ = _ceiling(task)
    return float((100 * found["score"] - 100 * found["chance"]) / (top - 100 * found["chance"]))


def _ceiling(task: str) -> tuple[float, str]:
    """The best score of the paper's tables that is not the paper's own, in per cent, and whose it is.

    The paper's tables do not have DPRD: there 1 is every schema resolved.
    """
    rows = [row for row in PUBLISHED if row.table.startswith("Table") and row.method != OURS and task in row.percent]
    if not rows:
        return 100.0, "100, every row right"
    best = max(rows, key=lambda row: row.percent[task])
    return best.percent[task], f"{best.percent[task]}, {best.method}"


def _percent(value: float) -> str:
    return f"{value:.1f}"


def _cell(value: float | None) -> str:
    return "-" if value is None else _percent(value)
