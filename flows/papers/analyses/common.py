"""What the analyses share: rows of the leaderboard, pre-trainings side by side, what a reader must know."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flows.forms.parameters import AnalysisParameters
from flows.trainings.chain import Chain
from flows.trainings.grid import Arm, pretrained_arm, settings_of
from flows.trainings.leaderboard import score_tasks
from gptcore.base.errors import InputError, require
from gptcore.base.settings import replace_settings
from gptcore.config import NetworkConfig, Preset, PretrainConfig
from gptcore.config.operations import pretraining_flops, share_seen
from gptcore.config.training import SELECTIONS
from gptcore.families import DEFAULT, FAMILIES
from gptcore.nlu.published import PublishedModel
from gptcore.nlu.readers import available
from gptcore.nlu.registry import BEYOND, REGISTRY
from tasks.report.analysis import Analysis
from tasks.report.card import start_note, synthetic_note
from tasks.report.leaderboard import Leaderboard
from tasks.report.rows import Row, one_decimal
from tasks.stages.training import network_of
from tasks.store.artifact import Artifact
from tasks.store.counts import PretrainCounts


def scored(chain: Chain, parameters: AnalysisParameters, tasks: list[str], arms: list[Arm]) -> Leaderboard:
    """The arms' rows in their order, then the baselines' and the published ones, cut to ``tasks``."""
    return score_tasks(chain.grid(arms, parameters.seeds, tasks), parameters.jobs).only(tasks)


def rows_of_arms(chain: Chain, parameters: AnalysisParameters, tasks: list[str], arms: list[Arm]) -> list[Row]:
    """The arms' own rows of the leaderboard, in their order."""
    return list(scored(chain, parameters, tasks, arms).rows[: len(arms)])


def named(chain: Chain, title: str) -> str:
    """A figure's own title: a picture travels without its page."""
    return f"{title} (preset {chain.preset.name}, {'synthetic' if synthetic_notes(chain) else 'real'} data)"


def synthetic_notes(chain: Chain) -> tuple[str, ...]:
    """The note that the books, or rows of any dataset, are generated; nothing where all are real."""
    inputs = [chain.corpus, *chain.datasets.values()]
    return next(filter(None, (synthetic_note(chain.store.manifest(artifact)) for artifact in inputs)), ())


def notes_on_chain(chain: Chain) -> list[str]:
    """What else than the network a reader must know of a chain's numbers: generated rows, n-grams beside it."""
    counted = [name for name, config in settings_of(chain.preset, chain.tasks).items() if config.ngrams]
    tasks = ", ".join(task for task in chain.datasets if task in counted)
    left_out = chain.alone and not chain.preset.asks_ngrams
    said = f"n-grams beside the network{': left out, as networks are compared' if left_out else ''} ({tasks})"
    return [*synthetic_notes(chain), *([said] if tasks else [])]


def about(chain: Chain) -> list[str]:
    """What a reader must know of the model behind the numbers."""
    result = PretrainCounts.of(chain.store, chain.checkpoint)
    chosen_on = {SELECTIONS[chain.preset.finetune_for(task).select or "dev"] for task in chain.datasets}
    return [
        *notes_on_chain(chain),
        *(f"ours: epochs of fine-tunes chosen on {words}" for words in sorted(chosen_on)),
        f"preset {chain.preset.name}: {result.tokens_seen:,} tokens seen in pre-training, "
        f"held-out perplexity {result.validation_perplexity:.1f}",
        *start_note(chain.store.manifest(chain.checkpoint)),
    ]


# --- pre-trainings side by side ---


@dataclass(frozen=True)
class Trained:
    """One of the pre-trainings that an analysis compares."""

    label: str
    chain: Chain
    checkpoint: Artifact

    @property
    def arm(self) -> Arm:
        """The arm that fine-tunes the model; that of the chain's own model is the leaderboard's."""
        own = self.checkpoint == self.chain.checkpoint
        return pretrained_arm(self.checkpoint) if own else Arm(self.label, self.checkpoint)

    @property
    def counts(self) -> PretrainCounts:
        return PretrainCounts.of(self.chain.store, self.checkpoint)

    @property
    def network(self) -> NetworkConfig:
        return network_of(self.chain.store, self.checkpoint)

    @property
    def weights(self) -> int:
        """Numbers that its network has, its heads counted, another one beside it not."""
        from gptcore.models.network import build_model, shapes_only

        with shapes_only():
            return build_model(self.network).num_parameters

    @property
    def operations(self) -> float:
        """Floating-point operations of its pre-training, of a network beside it, too; padding counts as tokens."""
        return self.operations_after(self.counts.steps)

    def operations_after(self, steps: int) -> float:
        return pretraining_flops(self.network, self._pretrain, self.counts.steps, steps)

    def share_after(self, steps: int) -> float:
        """The share of its tokens that its first updates had seen."""
        return share_seen(self.network, self._pretrain, self.counts.steps, steps)

    @property
    def _pretrain(self) -> PretrainConfig:
        recorded = self.chain.store.manifest(self.checkpoint)["config"]["pretrain"]
        return replace_settings(PretrainConfig(), recorded, "pretrain")

    @property
    def loss(self) -> str:
        """The held-out loss, and what it is a loss of: losses of different kinds have nothing in common."""
        figures = self.counts.figures
        if (loss := figures.get("validation/replaced_loss")) is not None:
            return f"{loss:.3f} a token that is replaced or not, recall {figures['validation/replaced_recall']:.0%}"
        if (loss := figures.get("validation/told_loss")) is not None:
            return f"{loss:.3f} a word told from filled-in text"
        return f"{self.counts.validation_loss:.2f} a {'hidden word' if self.masked else 'next token'}"

    @property
    def masked(self) -> bool:
        """Whether its held-out loss is of hidden words."""
        return self.counts.validation_unigram_entropy is not None

    @property
    def cost(self) -> tuple[str, str, str, str]:
        """Weights, tokens, operations and seconds, for a table."""
        counts = self.counts
        seconds = f"{counts.wall_seconds:,.0f}"
        return short(self.weights), short(counts.tokens_seen), power(self.operations), seconds


COST = ("weights", "tokens", "operations", "seconds")
"""The columns of :attr:`Trained.cost`."""
ON_THE_WAY = (
    "models on the way are one run's, at the rate it then had: a run that had ended there would be ahead of them"
)
"""What a reader must know of models that a run kept before its end."""


def short(count: float) -> str:
    """A number of weights or tokens as tables print it: 117M, 3.2M, 940k."""
    for size, letter in ((1e9, "G"), (1e6, "M")):
        if count >= size:
            return f"{count / size:.3g}{letter}"
    return f"{count / 1e3:.0f}k"


def power(count: float) -> str:
    """A number of operations as tables print it: 4.0e19."""
    return f"{count:.1e}".replace("e+0", "e").replace("e+", "e")


def tokens_of_update(preset: Preset) -> float:
    """Tokens that an update sees, on the average of many, padding counted."""
    return preset.pretrain.batch_size * preset.pretrain.mean_length(preset.model.n_ctx)


def of_family(
    parameters: AnalysisParameters, family: str, pretrain: Mapping[str, Any] | None = None
) -> AnalysisParameters:
    """The form with another family, and with settings of pre-training on top of its own.

    :raises InputError: the form asks for another one, which the analysis is not about, or where to go on from.
    """
    if parameters.start:
        raise InputError(f"--from {parameters.start}: this analysis pre-trains what it compares; expected no --from")
    require_family(parameters, family)
    return with_family(parameters, family, pretrain)


def with_family(
    parameters: AnalysisParameters, family: str, pretrain: Mapping[str, Any] | None = None, start: str = ""
) -> AnalysisParameters:
    """The form with another family, and with settings of pre-training on top of its own.

    :param start: the model whose weights are gone on with; empty: the form's own.
    """
    overrides = {name: value for name, value in parameters.overrides.items() if name != "family"}
    if pretrain:
        overrides["pretrain"] = {**overrides.get("pretrain", {}), **pretrain}
    changes = {"family": family, "overrides": overrides, "start": start or parameters.start}
    return parameters.model_copy(update=changes)


def require_family(parameters: AnalysisParameters, family: str) -> None:
    """:raises InputError: the form asks for another family than the one that the analysis is about."""
    chosen = parameters.overrides.get("family", parameters.family)
    if chosen not in (DEFAULT, family):
        raise InputError(f"--family {chosen}: this analysis is about {FAMILIES[family].title}; expected no --family")


def require_own_families(parameters: AnalysisParameters, *fields: str) -> None:
    """Refuse a form that says for all families what each of them has for itself.

    :param fields: of the form, beside the family.
    :raises InputError: the form says one of them.
    """
    if (chosen := parameters.overrides.get("family", parameters.family)) != DEFAULT:
        raise InputError(f"--family {chosen}: this analysis compares families; expected no --family")
    for name in fields:
        if getattr(parameters, name):
            raise InputError(f"--{name}: this analysis compares families, each with its own; expected no --{name}")


def chosen_tasks(parameters: AnalysisParameters, defaults: Sequence[str], only: bool = False) -> list[str]:
    """The tasks that were asked for, else those of ``defaults`` whose data is there.

    :param only: whether the analysis is about ``defaults`` alone: of the tasks that were asked for these are taken.
    :raises InputError: there is none.
    """
    if parameters.tasks and not only:
        return list(parameters.tasks)
    wanted = [task for task in defaults if not parameters.tasks or task in parameters.tasks]
    there = [task for task in wanted if not parameters.datasets or task in available(parameters.datasets)]
    asked = "was asked for and " if only else ""
    require(there, f"--tasks: none of {', '.join(defaults)} {asked}has data; expected tasks that have")
    return there


def rows_of(models: Sequence[Trained], parameters: AnalysisParameters) -> list[Row]:
    """The rows of models of one chain, fine-tuned on its tasks."""
    chain = models[0].chain
    return rows_of_arms(chain, parameters, list(chain.datasets), [model.arm for model in models])


def identity_of(models: Sequence[Trained], rows: Sequence[Row]) -> dict[str, Any]:
    """What a table of pre-trainings follows from."""
    digests = [f"{model.label}: {model.checkpoint.digest}" for model in models]
    tasks = list(models[0].chain.datasets)
    return {"models": digests, "arms": [row.suite for row in rows], "tasks": tasks, "seeds": rows[0].seeds}


def scores_of(row: Row, tasks: Sequence[str]) -> tuple[dict[str, str], float | None]:
    """A row's cells as text, and their mean; None: a task has no score."""
    scores = row.per_task
    mean = statistics.fmean(scores[task] for task in tasks) if all(task in scores for task in tasks) else None
    return {task: one_decimal(scores.get(task)) for task in tasks}, mean


def plain(label: str) -> str:
    """A model's label without what MLflow does not take in a metric's name."""
    return label.replace(",", "").replace("= ", "").replace(":", "").replace("%", " percent")


def columns_of_tasks(tasks: Sequence[str], published: Sequence[PublishedModel]) -> list[str]:
    """The tasks of a table: ours first, then those that only the published rows have."""
    printed = {task for row in published for task in row.scores}
    return [*tasks, *(task for task in (*BEYOND, *REGISTRY) if task in printed and task not in tasks)]


def table_of_models(
    name: str,
    title: str,
    models: Sequence[Trained],
    rows: Sequence[Row],
    published: Sequence[PublishedModel],
    notes: Sequence[str],
    side_by_side: bool = False,
) -> Analysis:
    """Pre-trainings with their cost, their loss and the scores of their fine-tunes, and the published rows.

    :param side_by_side: whether a published row stands below ours of the same label, and is left out where there is
        none; else all of them stand at the end.
    """
    tasks = list(models[0].chain.datasets)
    columns = columns_of_tasks(tasks, published)
    printed = {row.method: _published_cells(row, columns) for row in published}
    body: list[tuple[str, ...]] = []
    metrics: dict[str, float] = {}
    for model, row in zip(models, rows, strict=True):
        cells, mean = scores_of(row, tasks)
        scores = (cells.get(task, "-") for task in columns)
        body.append((model.label, "ours", *model.cost, model.loss, one_decimal(mean), *scores))
        if side_by_side and model.label in printed:
            body.append(printed[model.label])
        label = plain(model.label)
        metrics |= {f"{label}/weights": model.weights, f"{label}/operations": model.operations}
        metrics |= {f"{label}/{task}": score for task, score in row.per_task.items() if task in tasks}
        if mean is not None:
            metrics[f"{label}/average"] = mean
    if not side_by_side:
        body += [_published_cells(row, columns) for row in published]
    header = ("model", "whose", *COST, "held-out loss", "average", *columns)
    return Analysis(name, title, header, body, identity_of(models, rows), metrics, [*notes, *cost_notes(models, rows)])


def _published_cells(row: PublishedModel, columns: Sequence[str]) -> tuple[str, ...]:
    """A published row of :func:`table_of_models`."""
    cost = (row.weights or "-", "-", row.operations or "-", "-")
    scores = (row.scores.get(task, "-") for task in columns)
    return (row.method, row.source, *cost, "-", row.average or "-", *scores)


def collapsed(labels: Iterable[str], rows: Sequence[Row]) -> list[str]:
    """A note for each row in which a run's answers are all the same."""
    columns = [[column for column, cell in row.cells.items() if cell.collapsed] for row in rows]
    words = "a run gave every dev row the same answer on"
    return [f"{label}: {words} {', '.join(names)}" for label, names in zip(labels, columns, strict=True) if names]


def cost_notes(models: Sequence[Trained], rows: Sequence[Row]) -> list[str]:
    """What a reader must know of pre-trainings side by side."""
    chain = models[0].chain
    machines = dict.fromkeys(f"{model.counts.threads} thread(s), on {model.counts.device}" for model in models)
    notes = [
        *notes_on_chain(chain),
        f"ours: preset {chain.preset.name}, {rows[0].split} rows, {rows[0].seeds} seed(s), pre-trained once",
        "operations: floating-point, 6 a weight of a matrix product and token, with those of attention, and of a "
        "generator where one is trained; only the states of hidden words reach the vocabulary",
        f"seconds: of pre-training; {'; '.join(machines)}",
    ]
    notes += collapsed([model.label for model in models], rows)
    entropies: dict[str, list[str]] = {}  # each tokenizer has its own
    for model in models:
        if (entropy := model.counts.validation_unigram_entropy) is not None:
            entropies.setdefault(f"{entropy:.2f}", []).append(model.label)
    for nats, labels in entropies.items():
        whose = f" ({', '.join(labels)})" if len(entropies) > 1 else ""
        notes.append(f"a loss of {nats} a hidden word is that of knowing how frequent words are, and no more{whose}")
    return notes
