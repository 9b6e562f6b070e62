"""Students beside their teacher: what they keep of its score, what they cost; and what each part of a loss is worth."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from prefect import flow

from flows.forms.run_names import from_form
from flows.papers.analyses.common import chosen_tasks, notes_on_chain, plain, scores_of, short
from flows.papers.students.checks import (
    Compared,
    Comparison,
    Plan,
    Student,
    ablations_of,
    plans,
    students_of,
    teachers_form,
)
from flows.papers.students.forms import DistillationParameters, StudentsParameters
from flows.trainings.chain import Chain, chain_of, run_chain
from flows.trainings.failures import Failures
from flows.trainings.grid import Arm, Grid, pretrained_arm
from flows.trainings.leaderboard import score_tasks, with_sources
from gptcore.base.errors import InputError
from gptcore.config import EncoderConfig
from gptcore.families import FAMILIES
from gptcore.nlu.forms import form_of
from gptcore.nlu.published import DISTILLED, WITHOUT
from gptcore.nlu.registry import BEYOND, REGISTRY
from tasks.papers.students.stages import measure_speed
from tasks.report.analysis import Analysis, publish_all
from tasks.report.figures import Curve, Figure
from tasks.report.rows import Row, one_decimal
from tasks.stages.training import Distillation, network_of
from tasks.store.counts import PretrainCounts

_TASKS = tuple(REGISTRY)
_PERPLEXITY = "perplexity: of held-out text, of hidden words where the family hides them"
_KINDS = {"torch": "torch, float32", "onnx": "ONNX", "int8": "ONNX, int8"}


@flow(name="analysis-students", flow_run_name=from_form, persist_result=False)
def students(parameters: StudentsParameters) -> list[Analysis]:
    """A model, its students of half and a quarter of its layers, and the same without a teacher: scores over costs.

    A BERT that is pre-trained as the form says, or the model that it names as the teacher.
    """
    wanted = chosen_tasks(parameters, _TASKS)
    _with_class(wanted)
    chain, compared, grid, rows = _scored(parameters.request, wanted, students_of)
    shape = network_of(chain.store, chain.checkpoint)
    title = f"{FAMILIES[shape.family].title}, {shape.layers} layers: the teacher"
    labels = [title, *(plan.student.label for plan in compared)]
    return publish_all([_costs(chain, grid, rows, labels)], parameters.out)


@flow(name="analysis-distillation", flow_run_name=from_form, persist_result=False)
def distillation(parameters: DistillationParameters) -> list[Analysis]:
    """DistilBERT's and TinyBERT's ablations: a student, one part of what it learns left out."""
    wanted = chosen_tasks(parameters, _TASKS)
    chain, compared, grid, rows = _scored(parameters.request, wanted, ablations_of)
    return publish_all([_ablations(chain, grid, rows, [plan.student for plan in compared])], parameters.out)


def _taught(comparison: Comparison, tasks: Sequence[str]) -> Chain:
    """The chain that ends in the teacher: the model that the form names, else a BERT."""
    if comparison.model is None:
        return run_chain(teachers_form(comparison.form), tasks)
    return chain_of(comparison, comparison.store.adopt(comparison.model), tasks)


def _scored(comparison: Comparison, tasks: Sequence[str], which: Compared) -> tuple[Chain, list[Plan], Grid, list[Row]]:
    """The teacher's chain, its students, the grid of all of them, and its rows, the teacher's first."""
    chain, form = _taught(comparison, tasks), comparison.form
    shape = network_of(chain.store, chain.checkpoint)
    compared = plans(form, shape, f"--teacher {chain.checkpoint.short}", which)
    teacher = pretrained_arm(chain.checkpoint)
    arms = [teacher, *(_arm(chain, plan, teacher) for plan in compared)]
    left_out: Failures = {}
    grid = with_sources(chain.grid(arms, form.seeds), left_out)
    board = score_tasks(grid, form.jobs, left_out=left_out).only(list(chain.datasets))
    return chain, compared, grid, list(board.rows[: len(arms)])


def _arm(chain: Chain, plan: Plan, teacher: Arm) -> Arm:
    """The arm of a student; a TinyBERT learns from the teacher's models of the tasks, as its family's settings say."""
    label = plan.student.label
    if plan.student.alone:
        return Arm(label, chain.pretrain(plan.shape, plan.pretrain))
    distillation = Distillation(chain.checkpoint, plan.distil)
    model = chain.pretrain(plan.shape, plan.pretrain, distillation=distillation)
    return Arm(label, model, plan.taught, teacher)


# --- tables ---


def _costs(chain: Chain, grid: Grid, rows: Sequence[Row], labels: Sequence[str]) -> Analysis:
    """Scores beside sizes and speeds; a picture of the average over milliseconds a row."""
    tasks = list(chain.datasets)
    measured = _with_class([task.name for task in chain.tasks])
    body: list[tuple[str, ...]] = []
    metrics: dict[str, float] = {}
    curves, full = [], 0.0
    for place, (label, arm, row) in enumerate(zip(labels, grid.arms, rows, strict=True)):
        model = grid.training(arm, measured, grid.config(arm, measured)).artifact
        speed = measure_speed(chain.store, model, chain.datasets[measured])
        cells, mean = scores_of(row, tasks)
        average = statistics.fmean(row.per_task.values()) if mean is None else mean
        full = full if place else average
        for kind, words in _KINDS.items():
            cost = speed[kind]
            own = kind == "torch"
            kept = (one_decimal(average), f"{100 * average / full:.1f} %" if full > 0 else "-") if own else ("", "")
            there = one_decimal(100 * cost["score"]) if cost["score"] is not None else ""
            body.append(
                (
                    label if own else "",
                    words,
                    _perplexity(chain, arm) if own else "",
                    short(speed["parameters"]),
                    f"{cost['bytes'] / 1e6:.2f}",
                    f"{cost['milliseconds']:.2f}",
                    f"{cost['rows_per_second']:,.0f}",
                    f"{cost['peak_memory_bytes'] / 1e6:.0f}",
                    *kept,
                    *((cells[task] if own else there if task == measured else "") for task in tasks),
                )
            )
            metrics |= {f"{plain(label)}/{kind}/{name}": cost[name] for name in ("milliseconds", "rows_per_second")}
        metrics[f"{plain(label)}/average"] = average
        curves.append(Curve(label, [(speed[kind]["milliseconds"], average) for kind in ("torch", "onnx")], place))
    if isinstance(network_of(chain.store, chain.checkpoint), EncoderConfig):
        for printed in DISTILLED:
            scores = (printed.scores.get(task, "") for task in tasks)
            columns = ("", printed.weights, "", "", "", "", printed.average, printed.kept)
            body.append((printed.method, printed.source, *columns, *scores))
    first, *others = (short(PretrainCounts.of(chain.store, arm.checkpoint).tokens_seen) for arm in grid.arms)
    costs = ("weights", "MB", "ms a row", "rows/s", "memory, MB")
    header = ("model", "as", "perplexity", *costs, "average", "of the teacher", *tasks)
    notes = [
        *notes_on_chain(chain),
        f"ours: preset {chain.preset.name}, {rows[0].split} rows, {rows[0].seeds} seed(s); "
        f"tokens seen in pre-training: the teacher {first}, the others {', '.join(dict.fromkeys(others))}",
        "ms a row (batch of 1, median), rows/s (batches of 32), memory (above the process without a model): one core "
        f"of this machine, on {measured}'s dev rows; measured once, kept in the store",
        _PERPLEXITY,
        f"exports: their score on up to 1,000 dev rows of {measured}",
    ]
    figure = Figure(curves, "ms a row, one core: ONNX, then torch", "average score", "Students beside their teacher")
    identity = {"rows": [row.suite for row in rows], "tasks": tasks, "seeds": rows[0].seeds}
    return Analysis("students", "Students beside their teacher", header, body, identity, metrics, notes, figure)


def _with_class(tasks: Sequence[str]) -> str:
    """The first of some tasks, names or files, whose answers are classes: speed is measured on it.

    :raises InputError: none is.
    """
    known = REGISTRY | BEYOND
    for task in tasks:
        if task not in known or not form_of(known[task]).places:
            return task
    raise InputError(f"--tasks: found {', '.join(tasks)}, expected one with classes among them, to measure speed on")


def _perplexity(chain: Chain, arm: Arm) -> str:
    """The perplexity of the text that was held out of an arm's pre-training."""
    return f"{PretrainCounts.of(chain.store, arm.checkpoint).validation_perplexity:.1f}"


def _ablations(chain: Chain, grid: Grid, rows: Sequence[Row], compared: Sequence[Student]) -> Analysis:
    tasks = list(chain.datasets)
    printed = {row.method: row for row in WITHOUT}
    of_teacher, of_student, *_ = (network_of(chain.store, arm.checkpoint).layers for arm in grid.arms)
    body: list[tuple[str, ...]] = []
    metrics: dict[str, float] = {}
    whole = 0.0
    for student, arm, row in zip(compared, grid.arms[1:], rows[1:], strict=True):
        cells, mean = scores_of(row, tasks)
        average = statistics.fmean(row.per_task.values()) if mean is None else mean
        first = student.label == FAMILIES[student.family].title
        whole = average if first else whole
        difference = "" if first else f"{average - whole:+.1f}"
        theirs = printed.get(student.label)
        published = theirs.average if theirs else ""
        body.append(
            (student.label, _perplexity(chain, arm), one_decimal(average), difference, published, *cells.values())
        )
        metrics[f"{plain(student.label)}/average"] = average
    header = ("what is learnt", "perplexity", "average", "difference", "published difference", *tasks)
    notes = [
        *notes_on_chain(chain),
        f"ours: preset {chain.preset.name}, {rows[0].split} rows, {rows[0].seeds} seed(s), pre-trained once; "
        f"students of {of_student} of the teacher's {of_teacher} layers",
        _PERPLEXITY,
        "published: DistilBERT, Table 4 (GLUE, dev)",
    ]
    identity = {"rows": [row.suite for row in rows[1:]], "tasks": tasks, "seeds": rows[0].seeds}
    title = "What a student learns: one part left out"
    return Analysis("distillation", title, header, body, identity, metrics, notes)
