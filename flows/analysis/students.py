"""Students beside their teacher: what they keep of its score, what they cost; and what each part of a loss is worth."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prefect import flow

from flows.analysis.common import (
    chosen_tasks,
    of_family,
    percent,
    publish_all,
    scores_of,
    short,
    synthetic_notes,
)
from flows.chain import Chain, chain_of, run_chain
from flows.dispatch import pretrained
from flows.fanout import score_tasks
from flows.finetune import pretrained_arm, seeds_of, settings_of
from flows.forms.parameters import AnalysisParameters
from flows.forms.references import in_store
from flows.forms.run_names import from_form
from flows.forms.settings import chosen_preset
from flows.grid import Arm, Grid
from gptcore.config import EncoderConfig, ModelConfig, NetworkConfig, Preset, PretrainConfig, network_config
from gptcore.config.distillation import DistilConfig, check_teacher, student_of
from gptcore.errors import InputError
from gptcore.families import FAMILIES
from gptcore.nlu.published_encoders import DISTILLED, WITHOUT, PublishedModel
from gptcore.nlu.registry import BEYOND, PLACE_FORMS, REGISTRY
from tasks.report.analysis import Analysis
from tasks.report.figures import Curve, Figure
from tasks.report.leaderboard import Row
from tasks.stages.speed import measure_speed
from tasks.store.artifact import Artifact
from tasks.store.references import teacher_model
from tasks.store.store import Store

_TASKS = tuple(REGISTRY)
_KINDS = {"torch": "torch, float32", "onnx": "ONNX", "int8": "ONNX, int8"}
_TAUGHT = ("taught", "layer_epochs", "augmentation")


@dataclass(frozen=True)
class _Student:
    """One of the models that are compared with the teacher."""

    label: str
    family: str
    n_layer: int
    """0: as deep as the teacher."""
    distil: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the family's distillation that differ."""
    alone: bool = False
    """Whether it learns from the text alone."""


@flow(name="analysis-students", flow_run_name=from_form, persist_result=False)
def students(parameters: AnalysisParameters) -> list[Analysis]:
    """A model, its students of half and a quarter of its layers, and the same without a teacher: scores over costs.

    A BERT that is pre-trained as the form says, or the model that it names as the teacher.
    """
    wanted = chosen_tasks(parameters, _TASKS)
    _with_class(wanted)
    chain = _taught(parameters, wanted)
    shape = _teacher(chain)
    compared = _students_of(shape)
    grid, rows = _scored(chain, parameters, compared)
    title = f"{FAMILIES[shape.family].title}, {shape.n_layer} layers: the teacher"
    labels = [title, *(student.label for student in compared)]
    return publish_all([_costs(chain, grid, rows, labels)], parameters)


@flow(name="analysis-distillation", flow_run_name=from_form, persist_result=False)
def distillation(parameters: AnalysisParameters) -> list[Analysis]:
    """DistilBERT's and TinyBERT's ablations: a student of half the layers, one part of what it learns left out."""
    wanted = chosen_tasks(parameters, _TASKS)
    chain = _taught(parameters, wanted)
    if not isinstance(shape := _teacher(chain), EncoderConfig):
        raise InputError(f"--teacher {parameters.teacher}: found {FAMILIES[shape.family].title}, expected BERT")
    half = max(1, shape.n_layer // 2)
    compared = [
        _Student("DistilBERT", "distilbert", half),
        _Student("no soft targets", "distilbert", half, {"soft_weight": 0.0}),
        _Student("no cosine", "distilbert", half, {"cosine_weight": 0.0}),
        _Student("no masked words", "distilbert", half, {"word_weight": 0.0}),
        _Student("random start", "distilbert", half, {"start": "random"}),
        _Student("TinyBERT", "tinybert", half),
        _Student("no attention", "tinybert", half, {"attention_weight": 0.0}),
        _Student("no hidden states", "tinybert", half, {"hidden_weight": 0.0}),
        _Student("no embeddings", "tinybert", half, {"embedding_weight": 0.0}),
    ]
    _, rows = _scored(chain, parameters, compared)
    return publish_all([_ablations(chain, rows[1:], compared)], parameters)


def _students_of(teacher: EncoderConfig | ModelConfig) -> list[_Student]:
    """Students of half and a quarter of a teacher's layers, and what learns from the text alone.

    A decoder's are of its own family; an encoder's are DistilBERTs, and a TinyBERT beside them.
    """
    depth = teacher.n_layer
    half, quarter = max(1, depth // 2), max(1, depth // 4)
    encoder = isinstance(teacher, EncoderConfig)
    family = "distilbert" if encoder else teacher.family
    found = [
        _Student(f"{FAMILIES[family].title}, {n_layer} of {depth} layers", family, n_layer)
        for n_layer in dict.fromkeys((half, quarter))
    ]
    if encoder and depth % half == 0:  # TinyBERT's layers stand for equal parts of the teacher's
        found.append(_Student(f"TinyBERT, {half} of {depth} layers", "tinybert", half))
    alone = "bert" if FAMILIES[teacher.family].teacher else teacher.family  # of a family that needs no teacher
    title = FAMILIES[alone].title
    return [*found, _Student(f"{title} of {half} layers, no teacher", alone, half, alone=True)]


def _taught(parameters: AnalysisParameters, tasks: Sequence[str]) -> Chain:
    """The chain that ends in the teacher: the model that the form names, else a BERT.

    :raises InputError: a model of another family than the form's, or one that is nobody's teacher.
    """
    if not parameters.teacher:
        return run_chain(of_family(parameters, "bert"), tasks)
    store = Store(parameters.store)
    teacher = store.adopt(teacher_model(store, in_store(store, parameters.teacher, ("pretrain",))))
    family = network_config(store.manifest(teacher)["config"]["model"]).family
    chosen = parameters.overrides.get("family", parameters.family)
    if family != chosen or not FAMILIES[family].distillation:
        raise InputError(
            f"--teacher {teacher.short}: found {FAMILIES[family].title}, expected a {FAMILIES[chosen].title} (--family)"
        )
    return chain_of(parameters, teacher, tasks)


def _teacher(chain: Chain) -> EncoderConfig | ModelConfig:
    found = network_config(chain.store.manifest(chain.checkpoint)["config"]["model"])
    assert isinstance(found, EncoderConfig | ModelConfig), "of a family that learns from a teacher"
    if found.n_layer < 2:
        raise InputError(f"model.n_layer = {found.n_layer}: expected 2 or more, so that a student has fewer")
    return found


def _scored(chain: Chain, parameters: AnalysisParameters, compared: Sequence[_Student]) -> tuple[Grid, list[Row]]:
    """The grid of the teacher and what is compared with it, and its rows, the teacher's first."""
    teacher = pretrained_arm(chain.checkpoint)
    plans = [_plan(chain, parameters, student) for student in compared]  # all of them, before the first is trained
    arms = [teacher, *(_arm(chain, parameters, plan, teacher) for plan in plans)]
    settings, seeds = settings_of(chain.preset, chain.tasks), seeds_of(chain.preset, parameters.seeds)
    grid = Grid(chain.store, chain.datasets_url, chain.tasks, chain.datasets, arms, settings, seeds)
    board = score_tasks(grid, parameters.jobs).only(list(chain.datasets))
    return grid, list(board.rows[: len(arms)])


@dataclass(frozen=True)
class _Plan:
    """What a student's pre-training and fine-tunes are made from."""

    student: _Student
    preset: Preset
    shape: NetworkConfig
    pretrain: PretrainConfig
    distil: DistilConfig


def _plan(chain: Chain, parameters: AnalysisParameters, student: _Student) -> _Plan:
    """:raises InputError: settings that its family refuses, or a teacher that it cannot learn from."""
    overrides = {name: value for name, value in parameters.overrides.items() if name not in ("family", "model")}
    preset, schedule = (
        chosen_preset(parameters.model_copy(update={"family": family, "overrides": overrides}))
        for family in (student.family, "distilbert" if student.family == "bert" else student.family)
    )
    teacher = _teacher(chain)
    shape = student_of(teacher, preset.model, student.n_layer)
    distil = dataclasses.replace(preset.distil, **student.distil)
    if not student.alone:
        check_teacher(distil, shape, teacher, f"--teacher {chain.checkpoint.short}")
    return _Plan(student, preset, shape, schedule.pretrain, distil)  # alone: as many updates as a student has


def _arm(chain: Chain, parameters: AnalysisParameters, plan: _Plan, teacher: Arm) -> Arm:
    """Its row; a TinyBERT learns from the teacher's models of the tasks, as its family's settings say."""
    label, preset = plan.student.label, plan.preset
    if plan.student.alone:
        return Arm(label, chain.pretrain(parameters, plan.shape, plan.pretrain))
    model: Artifact = pretrained(
        chain.store,
        shards=chain.shards,
        model=plan.shape,
        config=plan.pretrain,
        ngrams=chain.ngrams,
        nproc=parameters.nproc,
        sharded=parameters.shard,
        teacher=chain.checkpoint,
        distil=plan.distil,
    )
    changes = {name: getattr(preset.finetune, name) for name in _TAUGHT if getattr(preset.finetune, name)}
    return Arm(label, model, changes, teacher)


# --- tables ---


def _costs(chain: Chain, grid: Grid, rows: Sequence[Row], labels: Sequence[str]) -> Analysis:
    """Scores beside sizes and speeds; a picture of the average over milliseconds a row."""
    tasks = list(chain.datasets)
    measured = _with_class([task.name for task in chain.tasks])
    body: list[tuple[str, ...]] = []
    metrics: dict[str, float] = {}
    curves, full = [], 0.0
    for place, (label, arm, row) in enumerate(zip(labels, grid.arms, rows, strict=True)):
        recipe = grid.training(arm, measured, grid.config(arm, measured)).recipe
        model = chain.store.artifact("finetune", recipe.digest)
        found = measure_speed(chain.store, model, chain.datasets[measured])
        cells, mean = scores_of(row, tasks)
        average = statistics.fmean(row.per_task.values()) if mean is None else mean
        full = full if place else average
        for kind, words in _KINDS.items():
            cost = found[kind]
            own = kind == "torch"
            kept = (percent(average), f"{100 * average / full:.1f} %" if full > 0 else "-") if own else ("", "")
            there = percent(100 * cost["score"]) if cost["score"] is not None else ""
            body.append(
                (
                    label if own else "",
                    words,
                    short(found["parameters"]),
                    f"{cost['bytes'] / 1e6:.2f}",
                    f"{cost['milliseconds']:.2f}",
                    f"{cost['rows_per_second']:,.0f}",
                    f"{cost['peak_memory_bytes'] / 1e6:.0f}",
                    *kept,
                    *((cells[task] if own else there if task == measured else "") for task in tasks),
                )
            )
            metrics |= {f"{_plain(label)}/{kind}/{name}": cost[name] for name in ("milliseconds", "rows_per_second")}
        metrics[f"{_plain(label)}/average"] = average
        curves.append(Curve(label, [(found[kind]["milliseconds"], average) for kind in ("torch", "onnx")], place))
    if isinstance(_teacher(chain), EncoderConfig):
        body += [_published(row, tasks) for row in DISTILLED]
    header = ("model", "as", "weights", "MB", "ms a row", "rows/s", "memory, MB", "average", "of the teacher", *tasks)
    notes = [
        *synthetic_notes(chain),
        f"ours: preset {chain.preset.name}, {rows[0].split} rows, {rows[0].seeds} seed(s); {_seen(chain, grid)}",
        "ms a row (batch of 1, median), rows/s (batches of 32), memory (above the process without a model): one core "
        f"of this machine, on {measured}'s dev rows; measured once, kept in the store",
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
        if task not in known or known[task].form not in PLACE_FORMS:
            return task
    raise InputError(f"--tasks: {', '.join(tasks)} have no class; expected one that has, to measure speed on")


def _seen(chain: Chain, grid: Grid) -> str:
    """How much text the teacher saw in its pre-training, and how much the others did in theirs."""
    first, *others = (short(chain.store.manifest(arm.checkpoint)["counts"]["tokens_seen"]) for arm in grid.arms)
    return f"tokens seen in pre-training: the teacher {first}, the others {', '.join(dict.fromkeys(others))}"


def _published(row: PublishedModel, columns: Sequence[str]) -> tuple[str, ...]:
    scores = (row.scores.get(task, "") for task in columns)
    return (row.method, row.source, row.weights, "", "", "", "", row.average, row.kept, *scores)


def _ablations(chain: Chain, rows: Sequence[Row], compared: Sequence[_Student]) -> Analysis:
    tasks = list(chain.datasets)
    printed = {row.method: row for row in WITHOUT}
    body: list[tuple[str, ...]] = []
    metrics: dict[str, float] = {}
    whole = 0.0
    for student, row in zip(compared, rows, strict=True):
        cells, mean = scores_of(row, tasks)
        average = statistics.fmean(row.per_task.values()) if mean is None else mean
        first = student.label == FAMILIES[student.family].title
        whole = average if first else whole
        difference = "" if first else f"{average - whole:+.1f}"
        theirs = printed.get(student.label)
        body.append((student.label, percent(average), difference, theirs.average if theirs else "", *cells.values()))
        metrics[f"{_plain(student.label)}/average"] = average
    header = ("what is learnt", "average", "difference", "published difference", *tasks)
    notes = [
        *synthetic_notes(chain),
        f"ours: preset {chain.preset.name}, {rows[0].split} rows, {rows[0].seeds} seed(s), pre-trained once",
        "published: DistilBERT, Table 4 (GLUE, dev)",
    ]
    identity = {"rows": [row.suite for row in rows], "tasks": tasks, "seeds": rows[0].seeds}
    title = "What a student learns: one part left out"
    return Analysis("distillation", title, header, body, identity, metrics, notes)


def _plain(label: str) -> str:
    """A label as a metric's name may have it."""
    return label.replace(",", "").replace(":", "")
