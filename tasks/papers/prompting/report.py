"""What the flow of prompts tells: scores over the number of examples, and over the size of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from gptcore.papers.prompting.items import UNKNOWN, Normalisation, PromptResult
from gptcore.papers.prompting.tasks import PromptTask
from tasks.report.analysis import Analysis
from tasks.report.card import SYNTHETIC
from tasks.report.figures import Curve, Figure, Panels
from tasks.store.artifact import Artifact
from tasks.store.counts import WeightsCounts
from tasks.store.references import n_parameters
from tasks.store.store import Store

_BASELINES = ("Lede-3", "Random-3", f'always "{UNKNOWN}"')
_MEANING = {
    Normalisation.TOTAL: "their probability",
    Normalisation.PER_TOKEN: "their likelihood per token (GPT-3, section 2.4)",
    Normalisation.UNCONDITIONAL: 'their probability over that behind "Answer:" (GPT-3, section 2.4)',
    Normalisation.CONTEXTUAL: "their probability over that behind a question without content (Zhao et al. 2021)",
}
Cells = dict[tuple[str, int, str], PromptResult]
"""(task, shots, label of the model) -> its result."""
Lines = Mapping[str, Sequence[tuple[float, float]]]
"""Label of a curve -> its points."""


def by_shots(
    store: Store,
    asked: Sequence[PromptTask],
    cells: Cells,
    models: Mapping[str, Artifact],
    synthetic: bool,
    no_room: Sequence[str],
) -> Analysis:
    """Every score of every task, a column a model; the curves over the examples.

    :param asked: the tasks of ``cells``.
    :param no_room: tasks whose data is there, and whose answers one of the models has too few positions for.
    """
    shots = _shots(cells)
    body: list[tuple[str, ...]] = []
    metrics: dict[str, float] = {}
    for each in asked:
        task = each.name
        for k in shots:
            row = [cells[task, k, label] for label in models]
            for name in _scores(each, row[0]):
                called = _called(each, name, row[0])
                values = [cell.scores[name] for cell in row]
                texts = [f"{v:,.1f}" if name.startswith("perplexity") else _percent(v) for v in values]
                if name.partition(", ")[0] in _BASELINES and k != shots[0]:
                    continue  # they see no examples
                has_chance = row[0].chance is not None and name in ("score", *Normalisation)
                chance = _percent(row[0].chance or 0.0) if has_chance else ""
                body.append((task, called, str(k), *texts, chance, _examples(row), f"{row[0].rows:,}"))
            metrics |= {f"{task}/{k} shots/{label}": _headline(cell) for label, cell in zip(models, row, strict=True)}

    def over_shots(task: str) -> Lines:
        return {label: [(k, _headline(cells[task, k, label])) for k in shots] for label in models}

    title = "Few-shot: scores over examples in the prompt"
    header = ("task", "score", "shots", *models, "chance", "found room", "rows")
    return Analysis(
        "few-shot",
        title,
        header,
        body,
        _identity(cells, models),
        metrics,
        [
            *_notes(store, asked, cells, models, synthetic),
            *([f"too few positions (n_ctx) for {', '.join(no_room)}: not asked"] if no_room else []),
        ],
        _panels(title, cells, synthetic, "examples before the question", over_shots),
    )


def by_size(
    store: Store, asked: Sequence[PromptTask], cells: Cells, models: Mapping[str, Artifact], synthetic: bool
) -> Analysis:
    """The headline of every task, a column a number of examples; the curves over the models' weights."""
    tasks, shots = [task.name for task in asked], _shots(cells)
    sizes = {label: n_parameters(store, model) for label, model in models.items()}
    ordered = sorted(models, key=lambda label: sizes[label])
    body = [
        (task, label, f"{sizes[label]:,}", *(f"{_headline(cells[task, k, label]):.1f}" for k in shots))
        for task in tasks
        for label in ordered
    ]
    if any(cell.metric == "accuracy" for cell in cells.values()):
        body += [
            ("mean of accuracies", label, f"{sizes[label]:,}", *(f"{_mean(cells, tasks, k, label):.1f}" for k in shots))
            for label in ordered
        ]

    def over_sizes(task: str) -> Lines:
        millions = {label: sizes[label] / 1e6 for label in ordered}
        return {
            f"{k} examples": [(x, _headline(cells[task, k, label])) for label, x in millions.items()] for k in shots
        }

    title = "Few-shot: scores over the size of the model"
    header = ("task", "model", "weights", *(f"{k} shots" for k in shots))
    notes = _notes(store, asked, cells, models, synthetic)
    panels = _panels(title, cells, synthetic, "million weights", over_sizes, log_x=True)
    return Analysis("few-shot-size", title, header, body, _identity(cells, models), {}, notes, panels)


def _panels(
    title: str, cells: Cells, synthetic: bool, x_label: str, lines_of: Callable[[str], Lines], log_x: bool = False
) -> Panels:
    """A panel a task with its headlines, each with what a random guess reaches there."""
    figures, references = [], []
    for task in dict.fromkeys(name for name, _, _ in cells):
        first = _first(cells, task)
        curves = [Curve(label, points, color) for color, (label, points) in enumerate(lines_of(task).items())]
        figures.append(Figure(curves, x_label, f"{first.metric} x 100", task, log_x))
        references.append({} if first.chance is None else {"a random guess": 100 * first.chance})
    return Panels(figures, f"{title} ({'synthetic' if synthetic else 'real'} data)", references, one_scale=False)


def _scores(task: PromptTask, cell: PromptResult) -> list[str]:
    """The names of the scores, the headline's first; names that repeat the headline's number are left out."""
    again = {cell.metric, task.name, task.normalisation.value}
    others = cell.scores.keys() - again - {"score"}
    return ["score", *sorted(others, key=lambda name: (name not in set(Normalisation), name))]


def _called(task: PromptTask, name: str, cell: PromptResult) -> str:
    """The name of a row of the table; it says by which normalisation candidates compare, where there are several."""
    if name == "score":
        several = Normalisation.TOTAL in cell.scores
        return f"{cell.metric}, {task.normalisation}" if several else cell.metric
    return f"{cell.metric}, {name}" if name in set(Normalisation) else name


def _examples(row: Sequence[PromptResult]) -> str:
    texts = [f"{cell.shots:.1f}" for cell in row]
    return texts[0] if len(set(texts)) == 1 else " ".join(texts)


def _shots(cells: Cells) -> list[int]:
    return list(dict.fromkeys(shots for _, shots, _ in cells))


def _mean(cells: Cells, tasks: list[str], shots: int, label: str) -> float:
    of_tasks = [cells[task, shots, label] for task in tasks]
    return fmean(_headline(cell) for cell in of_tasks if cell.metric == "accuracy")


def _headline(cell: PromptResult) -> float:
    return 100 * cell.scores["score"]


def _first(cells: Cells, task: str) -> PromptResult:
    """Any of a task's results, for what all of them share."""
    return next(cell for (name, _, _), cell in cells.items() if name == task)


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _identity(cells: Cells, models: Mapping[str, Artifact]) -> dict[str, object]:
    return {
        "models": {label: model.digest for label, model in models.items()},
        "tasks": list(dict.fromkeys(task for task, _, _ in cells)),
        "shots": _shots(cells),
        "scores": [_headline(cell) for (task, _, _), cell in cells.items()],  # other rows, another run
    }


def _notes(
    store: Store, asked: Sequence[PromptTask], cells: Cells, models: Mapping[str, Artifact], synthetic: bool
) -> list[str]:
    notes = [SYNTHETIC] if synthetic else []
    for label, model in models.items():
        tokens = WeightsCounts.of(store, model).tokens_seen
        seen = "" if tokens is None else f", {tokens:,} tokens seen"
        notes.append(f"{label}: {n_parameters(store, model):,} weights{seen}; model {model.short}")
    headlines: dict[Normalisation, list[str]] = {}
    sources: dict[str, list[str]] = {}
    for task in asked:
        cell = _first(cells, task.name)
        if Normalisation.TOTAL in cell.scores:
            headlines.setdefault(task.normalisation, []).append(task.name)
        sources.setdefault(cell.examples_from, []).append(task.name)
    notes += [f"candidates compare by {_MEANING[name]}: {', '.join(tasks)}" for name, tasks in headlines.items()]
    notes += [f"examples are from {source}: {', '.join(tasks)}" for source, tasks in sources.items()]
    notes.append(
        "rows and examples are drawn by seed 0; a prompt that is too long for n_ctx drops examples: found room"
    )
    published = {task.name: task.published for task in asked if task.published}
    return notes + [f"{task}, published: " + ", ".join(map(str, items)) for task, items in published.items()]
