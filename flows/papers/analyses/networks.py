"""Encoders and decoders side by side: families at the same cost, ALBERT's shared parameters, BERT's sizes."""

from __future__ import annotations

import dataclasses

from prefect import flow

from flows.forms.parameters import AnalysisParameters
from flows.forms.run_names import from_form
from flows.papers.analyses.common import (
    Trained,
    chosen_tasks,
    of_family,
    power,
    require_own_families,
    rows_of,
    short,
    table_of_models,
    tokens_of_update,
)
from flows.trainings.chain import run_chain
from gptcore.base.errors import InputError
from gptcore.config import EncoderConfig, Preset
from gptcore.config.operations import operations_of_update
from gptcore.families import FAMILIES
from gptcore.nlu.published import FAMILIES as PUBLISHED_FAMILIES
from gptcore.papers.analyses.published import SHARING, SIZES
from tasks.report.analysis import Analysis, publish_all
from tasks.report.rows import Row

COMPARED = ("gpt", "gpt2", "bert", "albert", "electra")
_GLUE_TASKS = ("cola", "sst2", "qnli", "rte")
_ALBERT_TASKS = ("mnli", "sst2", "qnli")
_SHARINGS = {"all": "all-shared", "attention": "shared-attention", "feed-forward": "shared-FFN", "none": "not-shared"}
_HALF = 0.5
"""The share of the preset's updates for which each of ALBERT's eight networks is pre-trained."""


@flow(name="analysis-families", flow_run_name=from_form, persist_result=False)
def families(parameters: AnalysisParameters) -> list[Analysis]:
    """GPT-1, GPT-2, BERT, ALBERT and ELECTRA, pre-trained at equal tokens and at equal operations."""
    require_own_families(parameters, "tokenizer", "start")
    wanted = chosen_tasks(parameters, _GLUE_TASKS)
    forms = {name: of_family(parameters, name) for name in COMPARED}
    for form in forms.values():  # what one of them refuses is refused before the first is trained
        form.check()
    presets = {name: form.chosen_preset for name, form in forms.items()}
    n_tokens = min(_steps(preset) * tokens_of_update(preset) for preset in presets.values())
    budget = 0.0
    models: list[Trained] = []
    rows: list[Row] = []
    for name, preset in presets.items():
        title = FAMILIES[name].title
        steps = max(1, round(n_tokens / tokens_of_update(preset)))
        chain = run_chain(of_family(parameters, name, {"steps": steps}), wanted)
        equal = Trained(f"{title}, equal tokens", chain, chain.checkpoint)
        each = operations_of_update(equal.network, chain.preset.pretrain)
        budget = budget or each * steps
        config = dataclasses.replace(chain.preset.pretrain, steps=max(1, round(budget / each)))
        trained = [equal]
        if config.steps != steps:
            checkpoint = chain.pretrain(chain.preset.model, config)
            trained.append(Trained(f"{title}, equal operations", chain, checkpoint))
        rows += rows_of(trained, parameters)
        models += trained
    n_first = FAMILIES[COMPARED[0]].title
    notes = [
        f"equal tokens: {short(n_tokens)}, the least of the families' presets, each by its own tokenizer, padding "
        f"counted; equal operations: those of {n_first}, {power(budget)}, to which {n_first} alone comes by both",
        "ELECTRA's loss and that of hidden words have nothing in common with that of next tokens",
        "published averages are GLUE's, over tasks that are not all here",
    ]
    table = table_of_models("families", "Families of models", models, rows, PUBLISHED_FAMILIES, notes)
    return publish_all([table], parameters.out)


@flow(name="analysis-sharing", flow_run_name=from_form, persist_result=False)
def sharing(parameters: AnalysisParameters) -> list[Analysis]:
    """ALBERT's Table 4: two widths of the embeddings, and what all layers have in common."""
    wanted = chosen_tasks(parameters, _ALBERT_TASKS)
    preset = of_family(parameters, "albert").chosen_preset
    own = _encoder(preset)
    if own.n_embd_words == own.n_embd:
        raise InputError(f"model.n_embd_words = {own.n_embd}: expected a width below that of the states, {own.n_embd}")
    steps = parameters.overrides.get("pretrain", {}).get("steps") or max(1, round(_HALF * _steps(preset)))
    chain = run_chain(of_family(parameters, "albert", {"steps": steps}), wanted)
    wide, narrow = None, own.n_embd_words or max(1, own.n_embd // 2)
    models = []
    for width in (wide, narrow):
        for shared, title in _SHARINGS.items():
            network = dataclasses.replace(_encoder(chain.preset), n_embd_words=width, sharing=shared)
            checkpoint = chain.pretrain(network)
            models.append(Trained(f"E = {width or own.n_embd}, {title}", chain, checkpoint))
    rows = rows_of(models, parameters)
    notes = [f"ours: {steps:,} updates each, H = {own.n_embd}; the paper: H = 768, 125,000 updates"]
    title = "ALBERT, Table 4: parameters that layers share"
    return publish_all([table_of_models("sharing", title, models, rows, SHARING, notes)], parameters.out)


@flow(name="analysis-sizes", flow_run_name=from_form, persist_result=False)
def sizes(parameters: AnalysisParameters) -> list[Analysis]:
    """BERT by its size: half as deep and wide as the preset's network, half as deep, and that network itself."""
    wanted = chosen_tasks(parameters, _GLUE_TASKS)
    chain = run_chain(of_family(parameters, "bert"), wanted)
    own = _encoder(chain.preset)
    n_layer, n_head = max(1, own.n_layer // 2), max(1, own.n_head // 2)
    width = own.n_embd // own.n_head * n_head  # heads as wide as the preset's
    shallow = dataclasses.replace(own, n_layer=n_layer)
    small = dataclasses.replace(shallow, n_head=n_head, n_embd=width, n_inner=own.n_inner // 2)
    networks = {network.shape: network for network in (small, shallow, own)}.values()  # of one head: only two
    models = [Trained(network.shape, chain, chain.pretrain(network)) for network in networks]
    rows = rows_of(models, parameters)
    notes = [
        "ours: at equal tokens",
        "published: QQP is F1, or F1 and accuracy; MNLI matched and mismatched; averages are GLUE's",
    ]
    return publish_all([table_of_models("sizes", "BERT by its size", models, rows, SIZES, notes)], parameters.out)


def _encoder(preset: Preset) -> EncoderConfig:
    assert isinstance(preset.model, EncoderConfig)
    return preset.model


def _steps(preset: Preset) -> int:
    """Updates of a pre-training.

    :raises InputError: the preset says epochs, of a corpus that nobody has seen yet.
    """
    if preset.pretrain.steps is None:
        raise InputError("pretrain.steps: found none; expected a number of updates, so that families can be compared")
    return preset.pretrain.steps
