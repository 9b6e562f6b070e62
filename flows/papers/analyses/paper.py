"""Tables 1 to 5 and Figure 2, left: what fine-tuned models reach."""

from __future__ import annotations

import dataclasses
import statistics

from prefect import flow

from flows.forms.parameters import AnalysisParameters
from flows.forms.run_names import from_form
from flows.papers.analyses.common import about, chosen_tasks, collapsed, named, rows_of_arms, synthetic_notes
from flows.trainings.chain import Chain, run_chain
from flows.trainings.grid import Arm, pretrained_arm, scratch_arm
from gptcore.config import FinetuneConfig, Preset
from gptcore.families import FAMILIES
from gptcore.nlu.published import PUBLISHED
from gptcore.nlu.registry import REGISTRY, task_spec
from gptcore.papers.analyses.published import ABLATIONS
from tasks.report.analysis import Analysis, publish_all
from tasks.report.figures import Curve, Figure
from tasks.report.rows import Row, one_decimal
from tasks.stages.evaluation import score_model
from tasks.store.artifact import Artifact
from tasks.store.counts import DatasetCounts, FinetuneCounts

_TRAIN_ROWS = 1000
"""Rows of the training split that Figure 2's dashed lines are scored on."""


@flow(name="analysis-tables", flow_run_name=from_form, persist_result=False)
def tables(parameters: AnalysisParameters) -> list[Analysis]:
    """Table 1: rows read beside rows published. Tables 2, 3 and 4: our row under the published ones."""
    chain = dataclasses.replace(run_chain(parameters), alone=False)
    row = rows_of_arms(chain, parameters, list(chain.datasets), [pretrained_arm(chain.checkpoint)])[0]
    analyses = [_table1(chain), *(_results_table(chain, row, number) for number in (2, 3, 4))]
    return publish_all(analyses, parameters.out)


@flow(name="analysis-table5", flow_run_name=from_form, persist_result=False)
def table5(parameters: AnalysisParameters) -> list[Analysis]:
    """Table 5: what pre-training, the auxiliary objective and the Transformer each contribute."""
    wanted = chosen_tasks(parameters, list(ABLATIONS[0].percent), only=True)
    chain = run_chain(parameters, wanted)
    arms = ablations(chain.preset, wanted, chain.checkpoint, chain.pretrain_lstm())
    rows = rows_of_arms(chain, parameters, wanted, arms)
    columns = [task for task in ABLATIONS[0].percent if task in wanted]
    body: list[tuple[str, ...]] = []
    metrics: dict[str, float] = {}
    for published, row in zip(ABLATIONS, rows, strict=True):
        ours = row.per_task
        average = statistics.fmean(ours[task] for task in columns)  # section 5: an unweighted average of all results
        metrics |= {f"{row.name.rpartition(' ')[0]}/{task}": ours[task] for task in columns}
        metrics[f"{row.name.rpartition(' ')[0]}/average"] = average
        body.append((published.method, "ours", one_decimal(average), *(one_decimal(ours[task]) for task in columns)))
        theirs = statistics.fmean(published.percent[task] for task in columns)
        whole = published.average if len(columns) == len(published.percent) else theirs
        cells = (one_decimal(published.percent[task]) for task in columns)
        body.append((published.method, "paper, test", one_decimal(whole), *cells))
    header = ("method", "whose", "average", *(f"{task} ({task_spec(task).headline})" for task in columns))
    notes = [
        f"ours: {rows[0].split} rows, {rows[0].seeds} seed(s); the paper: GLUE's test server",
        *collapsed([published.method for published in ABLATIONS], rows),
        *about(chain),
    ]
    identity = {"arms": {row.name: row.suite for row in rows}, "seeds": rows[0].seeds}
    analysis = Analysis("table5", "Table 5: ablations", header, body, identity, metrics, notes)
    return publish_all([analysis], parameters.out)


def ablations(preset: Preset, tasks: list[str], checkpoint: Artifact, lstm: Artifact) -> list[Arm]:
    """The rows of Table 5: full, without pre-training, without the auxiliary objective, an LSTM.

    Where the preset leaves that objective out of a task, the rows that are to have it get the paper's lambda; where out
    of all of them, the row without it is the leaderboard's own. A family that has no such objective stays without it.
    """
    arms = [pretrained_arm(checkpoint), scratch_arm(checkpoint), Arm("LSTM", lstm)]
    lambdas = [preset.finetune_for(task).lm_coef for task in tasks]
    without = Arm("w/o aux LM", checkpoint, {"lm_coef": 0.0}) if any(lambdas) else arms[0]
    if not all(lambdas) and FAMILIES[preset.family].auxiliary_loss:
        given = {"lm_coef": FinetuneConfig.lm_coef}
        arms = [Arm(f"{arm.label} with aux LM", arm.checkpoint, {**arm.changes, **given}) for arm in arms]
    return [*arms[:2], without, arms[2]]


@flow(name="analysis-layers", flow_run_name=from_form, persist_result=False)
def layers(parameters: AnalysisParameters) -> list[Analysis]:
    """Figure 2, left: the more layers are transferred, the better."""
    wanted = chosen_tasks(parameters, ["mnli", "race"], only=True)
    chain = run_chain(parameters, wanted)
    n_layer = chain.preset.model.layers
    arms = [Arm(f"{n} layers", chain.checkpoint, {"n_transfer": n}) for n in range(n_layer)]
    arms.append(pretrained_arm(chain.checkpoint))  # all of them: the row that the pipeline has made
    rows = rows_of_arms(chain, parameters, wanted, arms)
    curves: list[Curve] = []
    body: list[tuple[str, ...]] = []
    metrics: dict[str, float] = {}
    for color, task in enumerate(wanted):
        dev = [_dev_score(chain, task, arm, row) for arm, row in zip(arms, rows, strict=True)]
        models = [_tuned(chain, task, arm, seed=0) for arm in arms]
        rows_of_task = chain.datasets[task]
        train = [100 * score_model(chain.store, model, rows_of_task, "train", _TRAIN_ROWS)["score"] for model in models]
        curves += [
            Curve(f"{task} dev", list(enumerate(dev)), color),
            Curve(f"{task} train", list(enumerate(train)), color, dashed=True),
        ]
        body += [(str(n), task, one_decimal(dev[n]), one_decimal(train[n])) for n in range(n_layer + 1)]
        metrics |= {f"{task}/{n} layers": score for n, score in enumerate(dev)}
    title = "Figure 2, left: layers transferred"
    figure = Figure(curves, "layers transferred (0: embeddings only)", "accuracy (%)", named(chain, title))
    header = ("layers", "task", "dev", "train")
    notes = [f"median of {rows[0].seeds} seed(s); train: seed 0, {_TRAIN_ROWS:,} rows", *about(chain)]
    identity = {"arms": {row.name: row.suite for row in rows}, "tasks": wanted, "seeds": rows[0].seeds}
    return publish_all([Analysis("layers", title, header, body, identity, metrics, notes, figure)], parameters.out)


def _table1(chain: Chain) -> Analysis:
    body = []
    for name, artifact in chain.datasets.items():
        for split, counts in DatasetCounts.of(chain.store, artifact).splits.items():
            share = f"{counts.rows / counts.published:.1%}" if counts.published else "-"
            dropped = sum(counts.dropped.values())
            body.append((name, split, f"{counts.rows:,}", f"{counts.published:,}", share, f"{dropped:,}"))
    header = ("dataset", "split", "rows read", "rows published", "share", "dropped")
    identity = {"datasets": {name: artifact.digest for name, artifact in chain.datasets.items()}}
    title = "Table 1: datasets, rows read and published"
    return Analysis("table1", title, header, body, identity, notes=about(chain))


def _results_table(chain: Chain, ours: Row, number: int) -> Analysis:
    """One of Tables 2, 3 and 4: the published rows, then ours."""
    specs = [spec for spec in REGISTRY.values() if spec.table == number]
    columns = [column for spec in specs for column in spec.paper]
    ours = ours.only([spec.name for spec in specs])
    printed = [row for row in PUBLISHED if row.table == f"Table {number}"]
    body = [(row.method, row.split, *(one_decimal(row.percent.get(column)) for column in columns)) for row in printed]
    body.append((f"gptmill {ours.name}", ours.split, *(one_decimal(ours.percent.get(column)) for column in columns)))
    metrics = {column: ours.percent[column] for column in columns if column in ours.percent}
    tested = [column for column in columns if column in ours.cells and ours.cells[column].split == "test"]
    notes = [f"ours: {ours.seeds} seed(s)", *about(chain)]
    if tested and len(tested) < len(ours.cells):
        notes.insert(1, f"ours: {', '.join(tested)} on test rows, the others on dev rows")
    if not synthetic_notes(chain):  # what sets real rows apart from the published ones
        notes += [f"{spec.name}: {spec.note}" for spec in specs if spec.note and spec.name in chain.datasets]
    title = f"Table {number}: published rows and ours"
    identity = {"suite": ours.suite, "seeds": ours.seeds}
    return Analysis(f"table{number}", title, ("method", "split", *columns), body, identity, metrics, notes)


def _dev_score(chain: Chain, task: str, arm: Arm, row: Row) -> float:
    """A task's score on dev rows, x 100, the median over seeds: the figure is on those, test labels or not."""
    cells = [row.cells[column] for column in task_spec(task).paper if column in row.cells]
    if all(cell.split == "dev" for cell in cells):
        return row.per_task[task]
    tuned = [_tuned(chain, task, arm, seed) for seed in range(cells[0].seeds)]
    return statistics.median(FinetuneCounts.of(chain.store, model).scores["dev/score"] for model in tuned)


def _tuned(chain: Chain, task: str, arm: Arm, seed: int) -> Artifact:
    grid = chain.grid([arm], 0)
    return grid.training(arm, task, grid.config(arm, task, seed)).artifact
