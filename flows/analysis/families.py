"""Every family side by side: as many tokens, or as many operations, and what comes of it."""

from __future__ import annotations

import dataclasses
import statistics
from dataclasses import dataclass

import torch
from prefect import flow

from flows.analysis.common import cell_text, percent, publish_all, scored, synthetic_notes
from flows.chain import Chain, run_chain
from flows.finetune import pretrained_arm
from flows.forms.parameters import AnalysisParameters
from flows.forms.run_names import from_form
from flows.forms.settings import chosen_preset
from gptcore.config import Preset
from gptcore.errors import InputError
from gptcore.families import FAMILIES, offered
from gptcore.files import read_json
from gptcore.models.build import build_model
from gptcore.models.network import Network
from gptcore.models.shapes import shapes_only
from gptcore.nlu.registry import task_spec
from tasks.report.analysis import Analysis

TASKS = ("rte", "qnli", "sst2")
"""A pair without and one with much context, a single sentence."""
_PUBLISHED = (
    "published GLUE dev averages, of other sizes and texts: BERT-base 79.5 (nine tasks, DistilBERT's README), "
    "ELECTRA-Small-OWT 80.4 and ELECTRA-Base 87.5 (eight, ELECTRA's README)"
)


@dataclass(frozen=True)
class _Training:
    """One pre-training of the table."""

    family: str
    equal_in: str
    updates: int
    tokens: int
    operations: float


@flow(name="analysis-families", flow_run_name=from_form, persist_result=False)
def families(parameters: AnalysisParameters) -> list[Analysis]:
    """GPT-1, GPT-2, BERT, ALBERT, ELECTRA from the same books: at equal tokens and at equal operations."""
    if parameters.family != "gpt":
        raise InputError(f"--family {parameters.family}: found one, expected none: the analysis trains every family")
    wanted = [str(task) for task in parameters.tasks or TASKS]
    body: list[tuple[str, ...]] = []
    metrics: dict[str, float] = {}
    models: dict[str, str] = {}
    notes: list[str] = []
    first = run_chain(parameters, wanted)
    n_vocab = first.store.manifest(first.checkpoint)["config"]["model"]["n_vocab"]
    for training in _trainings(parameters, n_vocab):
        family = FAMILIES[training.family]
        form = _form(parameters, training)
        chain = run_chain(form, wanted)
        (row, *_) = scored(chain, form, wanted, [pretrained_arm(chain.checkpoint)]).rows
        scores = [row.percent.get(task, row.per_task.get(task)) for task in wanted]
        known = [score for score in scores if score is not None]
        result = chain.store.manifest(chain.checkpoint)["counts"]
        label = family.title if training.family == "gpt" else f"{family.title} at equal {training.equal_in}"
        metrics |= {f"{label}/{task}": s for task, s in zip(wanted, scores, strict=True) if s is not None}
        metrics[f"{label}/average"] = statistics.fmean(known)
        models[label] = chain.checkpoint.digest
        body.append(
            (
                family.title,
                training.equal_in,
                f"{read_json(chain.store.local(chain.checkpoint, 'model/meta.json'))['parameters']:,}",
                f"{training.updates:,}",
                f"{training.tokens / 1e6:.2f}",
                f"{training.operations / 1e12:.1f}",
                f"{result['wall_seconds']:.0f}",
                _loss(chain),
                percent(statistics.fmean(known)),
                *map(cell_text, scores),
            )
        )
        notes = [*synthetic_notes(chain), f"ours: {row.split} rows, {row.seeds} seed(s), preset {chain.preset.name}"]
    header = (
        "family",
        "equal in",
        "weights",
        "updates",
        "M tokens",
        "T operations",
        "seconds",
        "held-out loss",
        "average",
    )
    columns = tuple(f"{task} ({task_spec(task).headline})" for task in wanted)
    notes += [
        "operations: 6 a weight of a matrix product and token, and the attention's; of ELECTRA both networks'",
        "held-out loss in nats: of the next token, or of masked words [of as many told by their frequency alone]",
        _PUBLISHED,
    ]
    title = "Families side by side: equal tokens, equal operations"
    found = Analysis("families", title, (*header, *columns), body, {"models": models}, metrics, notes)
    return publish_all([found], parameters)


def _trainings(parameters: AnalysisParameters, n_vocab: int) -> list[_Training]:
    """GPT-1 by its preset; every other family for as many tokens, and for as many operations.

    :param n_vocab: pieces of GPT-1's vocabulary, which the others' are about as large as.
    :raises InputError: a preset that counts epochs.
    """
    first = chosen_preset(parameters)
    if first.pretrain.steps is None:
        raise InputError(f"--preset {first.name}: found a pre-training of epochs, expected one of updates: demo, small")
    budget = first.pretrain.steps * _operations(first, n_vocab)
    found = [_Training("gpt", "both", first.pretrain.steps, first.pretrain.steps * _tokens(first), budget)]
    for name in offered():
        if name == "gpt":
            continue
        preset = chosen_preset(parameters, name)
        for equal_in, updates in (
            ("tokens", round(found[0].tokens / _tokens(preset))),
            ("operations", round(budget / _operations(preset, n_vocab))),
        ):
            updates = max(1, updates)
            cost = updates * _operations(preset, n_vocab)
            found.append(_Training(name, equal_in, updates, updates * _tokens(preset), cost))
    return found


def _tokens(preset: Preset) -> int:
    """Of one update."""
    return preset.pretrain.batch_size * preset.model.n_ctx


def _operations(preset: Preset, n_vocab: int) -> float:
    """Of one update, by all networks that are trained together."""
    objective = FAMILIES[preset.family].part("objective")
    with shapes_only():
        network = build_model(dataclasses.replace(preset.model, n_vocab=n_vocab))
        trained = objective.network(network, torch.Generator())
    networks = [part for part in trained.modules() if isinstance(part, Network)]
    return _tokens(preset) * sum(network.flops_per_token(preset.model.n_ctx) for network in networks)


def _form(parameters: AnalysisParameters, training: _Training) -> AnalysisParameters:
    """The form of one family's chain."""
    overrides = parameters.overrides
    pretrain = {**overrides.get("pretrain", {}), "steps": training.updates}
    given = {"family": training.family, "overrides": {**overrides, "pretrain": pretrain}}
    return parameters.model_copy(update=given)


def _loss(chain: Chain) -> str:
    counts = chain.store.manifest(chain.checkpoint)["counts"]
    entropy = counts.get("validation/unigram_entropy")
    return f"{counts['validation/loss']:.2f}" + (f" [{entropy:.2f}]" if entropy else "")
