"""Rates that fall from layer to layer: each parameter's share, the same bits where there is no decay, exact resume."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from gptcore.base.errors import InputError
from gptcore.base.settings import recorded
from gptcore.config import EncoderConfig, FinetuneConfig, LSTMConfig, preset_named
from gptcore.machine import process
from gptcore.models.classifier import Classifier
from gptcore.models.encoder import Encoder
from gptcore.models.encoder_head import EncoderClassificationModel
from gptcore.models.heads import ClassificationModel
from gptcore.models.lstm import LSTM
from gptcore.models.transformer import GPT
from gptcore.training import finetune
from gptcore.training.optim import Rated, adam, rates_by_depth, set_lr
from tests.gptcore.test_encoder_head import QUICK
from tests.gptcore.test_finetune import outcome
from tests.gptcore.tiny_encoders import PieceTokenizer, config, pretrained_encoder
from tests.gptcore.tiny_tasks import MODEL, StopAt, encoded

DECAY = FinetuneConfig(layer_decay=0.5)


def encoder(family: str, **changes: Any) -> EncoderClassificationModel:
    found = dataclasses.replace(config(family), words=False, pair=False, replaced=False, **changes)
    return EncoderClassificationModel(Encoder(found), "pair", 2, 0.1)


def decoder(**changes: Any) -> ClassificationModel:
    return ClassificationModel(GPT(dataclasses.replace(MODEL, n_special=3, **changes)), "pair", 2, 0.1)


def factors(model: Classifier, settings: FinetuneConfig = DECAY) -> dict[str, float]:
    """The share of the rate that each parameter gets from the optimiser, by its name."""
    optimizer = adam(model, settings, rates_by_depth(model, settings))
    set_lr(optimizer, 1.0, 0)
    assert optimizer.param_groups[0]["lr"] == 1.0, "the rate that is logged"
    names = {parameter: name for name, parameter in model.named_parameters()}
    found = [
        (names[each], group["lr"], group["weight_decay"])
        for group in optimizer.param_groups
        for each in group["params"]
    ]
    assert sorted(name for name, _, _ in found) == sorted(names.values()), "each of them once"
    for name, _, decay in found:
        assert decay == (0.01 if model.get_parameter(name).ndim > 1 else 0.0)
    return {name: rate for name, rate, _ in found}


def levels(found: dict[str, float], *prefixes: str) -> list[float]:
    """The one factor of all parameters below each prefix."""
    chosen = [{rate for name, rate in found.items() if name.startswith(prefix)} for prefix in prefixes]
    assert all(len(rates) == 1 for rates in chosen), chosen
    return [rates.pop() for rates in chosen]


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_decoders_rates_fall_from_the_linear_layer_to_the_tied_embeddings(norm_first: bool) -> None:
    found = factors(decoder(norm_first=norm_first))
    places = ("head.", "gpt.blocks.1.", "gpt.blocks.0.", "gpt.tokens.", "gpt.positions.")
    assert levels(found, *places) == [1.0, 0.5, 0.25, 0.125, 0.125]
    if norm_first:
        assert levels(found, "gpt.norm.") == [0.5]


def test_an_encoders_pooler_is_a_depth_of_its_own() -> None:
    found = factors(encoder("bert"))
    places = ("head.", "encoder.pooler.", "encoder.attention.1.", "encoder.feed_forward.1.", "encoder.attention.0.")
    assert levels(found, *places, "encoder.embeddings.") == [1.0, 0.5, 0.25, 0.25, 0.125, 0.0625]


def test_electras_last_layer_is_one_factor_below_the_linear_layer_and_two_as_released() -> None:
    model = encoder("electra", n_embd_words=8)
    places = ("head.", "encoder.attention.1.", "encoder.attention.0.", "encoder.embeddings.", "encoder.widen.")
    assert levels(factors(model), *places) == [1.0, 0.5, 0.25, 0.125, 0.125]
    released = dataclasses.replace(DECAY, layer_decay_original=True)
    assert levels(factors(model, released), *places) == [1.0, 0.25, 0.125, 0.0625, 0.0625]
    bert = encoder("bert")  # which has the pooler that the released code counts
    assert factors(bert, released) == factors(bert)


def test_layers_that_are_one_have_one_depth() -> None:
    places = ("head.", "encoder.pooler.", "encoder.attention.0.", "encoder.feed_forward.0.", "encoder.widen.")
    assert levels(factors(encoder("albert")), *places) == [1.0, 0.5, 0.25, 0.25, 0.125]
    groups = encoder("albert", n_layer=4, n_groups=2)
    assert levels(factors(groups), "encoder.attention.1.", "encoder.attention.0.") == [0.25, 0.125]
    half = encoder("albert", sharing="attention")  # stands where the last of the layers that share it does
    places = ("encoder.attention.0.", "encoder.feed_forward.1.", "encoder.feed_forward.0.", "encoder.widen.")
    assert levels(factors(half), *places) == [0.25, 0.25, 0.125, 0.0625]


def test_the_lstm_has_one_depth_above_its_embeddings() -> None:
    network = LSTM(LSTMConfig(n_vocab=30, n_special=3, n_units=8, n_embd=8))
    found = factors(ClassificationModel(network, "pair", 2, 0.1))
    assert levels(found, "head.", "gpt.recurrent.", "gpt.projection.", "gpt.tokens.") == [1.0, 0.5, 0.5, 0.25]


def test_what_is_off_is_not_recorded_and_1_is_off() -> None:
    assert FinetuneConfig(layer_decay=1.0) == FinetuneConfig()
    assert "layer_decay" not in recorded(FinetuneConfig())
    assert rates_by_depth(decoder(), FinetuneConfig(layer_decay=1.0)) is None
    with pytest.raises(InputError, match=r"finetune\.layer_decay = 1\.1: expected more than 0, and 1 or less"):
        FinetuneConfig(layer_decay=1.1)
    with pytest.raises(InputError, match=r"layer_decay_original = True without finetune\.layer_decay"):
        FinetuneConfig(layer_decay_original=True)


def test_electra_has_the_appendix_decay_and_the_large_model_its_own() -> None:
    electra = preset_named("paper", {"family": "electra"})
    assert (electra.finetune.layer_decay, electra.finetune.layer_decay_original) == (0.8, False)
    large = preset_named("paper", {"family": "electra", "shape": "electra-large"})
    assert isinstance(large.model, EncoderConfig)
    assert (large.model.n_layer, large.finetune.layer_decay, large.finetune.lr) == (24, 0.9, 5e-5)
    assert preset_named("demo", {"family": "bert"}).finetune.layer_decay is None


@pytest.mark.parametrize("original", [False, True])
def test_groups_of_one_rate_give_the_bits_of_one_group(original: bool) -> None:
    settings = FinetuneConfig(lr=0.01, original=original)
    models = []
    for split in (False, True):
        torch.manual_seed(0)
        model = decoder()
        depths = [[*model.head.parameters()], *reversed(model.network.parameters_by_depth())]
        optimizer = adam(model, settings, [Rated(1.0, each) for each in depths] if split else None)
        for step in range(4):
            draws = torch.Generator().manual_seed(step)
            for parameter in model.parameters():
                parameter.grad = torch.randn(parameter.shape, generator=draws)
            set_lr(optimizer, 0.01 / (step + 1), step)
            optimizer.step()
        models.append(model)
    assert all(torch.equal(a, b) for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True))


def test_stopped_and_resumed_it_ends_in_the_same_bits(tmp_path: Path) -> None:
    model = pretrained_encoder(tmp_path / "electra", "electra")
    dataset = encoded(tmp_path, "rte", n_train=80, n_dev=20, words=PieceTokenizer())

    def job(name: str, **settings: Any) -> dict[str, Any]:
        chosen = {**QUICK, "batch_size": 40, "epochs": 2, "layer_decay": 0.5, **settings}
        paths = {"model": str(model), "dataset": str(dataset), "workspace": str(tmp_path / name)}
        return {"task": "rte", "finetune": chosen, "model_config": None, "threads": 1, **paths}

    finetune.run(job("whole"), process.StopRequest())
    expected = outcome(tmp_path / "whole")
    for asked in (1, 3, 5):
        with pytest.raises(process.Interrupted):
            finetune.run(job(f"stopped-{asked}"), StopAt(asked))
        finetune.run(job(f"stopped-{asked}"), process.StopRequest())
        assert outcome(tmp_path / f"stopped-{asked}") == expected, asked
    finetune.run(job("flat", layer_decay=1.0), process.StopRequest())
    assert outcome(tmp_path / "flat")["weights"] != expected["weights"]
