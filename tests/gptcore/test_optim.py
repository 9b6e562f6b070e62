"""Adam against its formulas in plain numpy; the two schedules at their corners."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gptcore.base.errors import InputError
from gptcore.base.settings import recorded
from gptcore.config import FinetuneConfig, LSTMConfig, PretrainConfig
from gptcore.machine import process
from gptcore.models.classifier import ClassificationModel, Classifier, EncoderClassificationModel, Head
from gptcore.models.encoder import Encoder
from gptcore.models.products import Linear
from gptcore.models.transformer import GPT
from gptcore.papers.analyses.lstm import LSTM
from gptcore.training import finetune
from gptcore.training.optim import (
    Rated,
    adam,
    adam_and_muon,
    finetuning_schedule,
    optimizer_tensors,
    pretraining_schedule,
    rates_by_depth,
    restore_optimizer,
    set_lr,
    warmup_cosine,
    warmup_linear,
    warmup_steps_linear,
)
from tests.expected import expected as table_of
from tests.gptcore.jobs import stopped_and_resumed
from tests.gptcore.test_encoder_head import QUICK
from tests.gptcore.test_finetune import outcome
from tests.gptcore.tiny_tasks import MODEL, PieceTokenizer, config, encoded, finetune_job, pretrained_encoder

SETTINGS = PretrainConfig(lr=0.01, weight_decay=0.1)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 4), nn.LayerNorm(4))


def gradients(model: nn.Module, step: int) -> None:
    draws = torch.Generator().manual_seed(step)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=draws)


@pytest.mark.parametrize("released", ["", "original", "uncorrected"])
def test_adam_follows_its_formulas_and_decays_matrices_only(released: str) -> None:
    """GPT-1's puts epsilon on the uncorrected root, and the bias correction on the decay; BERT's corrects nothing."""
    model = network()
    epsilon = 1e-3 if released else 1e-8
    optimizer = adam(model, dataclasses.replace(SETTINGS, epsilon=epsilon, **({released: True} if released else {})))
    weights = [p.detach().double().numpy().copy() for p in model.parameters()]
    first, second = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    for step in range(1, 6):
        gradients(model, step)
        lr = 0.01 / step
        rate = lr * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        for w, m, v, parameter in zip(weights, first, second, model.parameters(), strict=True):
            g = parameter.grad.double().numpy()  # type: ignore[union-attr]  # `gradients` has set it
            m[:] = 0.9 * m + 0.1 * g
            v[:] = 0.999 * v + 0.001 * g * g
            if released == "uncorrected":
                w -= lr * (m / (np.sqrt(v) + epsilon) + 0.1 * w * (w.ndim > 1))
            elif released:
                w -= rate * (m / (np.sqrt(v) + epsilon) + 0.1 * w * (w.ndim > 1))
            else:
                w -= lr * 0.1 * w * (w.ndim > 1)
                w -= lr * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + epsilon)
        set_lr(optimizer, lr, step - 1)
        optimizer.step()
    for w, parameter in zip(weights, model.parameters(), strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), w, rtol=1e-5, atol=1e-6)


def test_berts_adam_takes_the_published_steps_of_a_constant_gradient() -> None:
    """In units of the rate; m / sqrt(v) of gradients that are 1, whose first steps are too long and then too short."""
    weight = nn.Parameter(torch.zeros(1))
    optimizer = adam(nn.ParameterList([weight]), PretrainConfig(lr=1.0, epsilon=1e-6, uncorrected=True))
    steps = [0.0]
    for update in range(230):
        weight.grad = torch.ones(1)
        before = weight.item()
        set_lr(optimizer, 1.0, update)
        optimizer.step()
        steps.append(before - weight.item())
    assert [round(steps[update], 2) for update in (1, 10, 100, 230)] == [3.16, 6.53, 3.24, 2.21]


def wide_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(5, 16), nn.Linear(16, 24), nn.LayerNorm(24), nn.Linear(24, 2))


def test_muon_sees_queries_keys_and_values_as_three_matrices() -> None:
    """Updates are those of a network that keeps them apart; the state is of the whole, which a resume puts back."""
    torch.manual_seed(0)
    whole, apart = nn.ModuleDict({"qkv": Linear(16, 48)}), nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
    whole["qkv"].matrices = (16, 16, 16)
    weight = whole.get_parameter("qkv.weight")
    for layer, rows in zip(apart, weight.data.chunk(3), strict=True):
        layer.weight.data.copy_(rows)
    ours, theirs = adam_and_muon(whole, SETTINGS), adam_and_muon(apart, SETTINGS)
    for step in range(4):
        gradients(whole, step)
        for layer, rows in zip(apart, weight.grad.chunk(3), strict=True):
            layer.weight.grad, layer.bias.grad = rows.clone(), torch.zeros(16)
        if step == 2:
            kept = {name: value.clone() for name, value in optimizer_tensors(ours, whole).items()}
            restore_optimizer(ours := adam_and_muon(whole, SETTINGS), whole, kept)
        for optimizer in (ours, theirs):
            set_lr(optimizer, 0.01, step)
            optimizer.step()
        assert torch.equal(weight, torch.cat([layer.weight for layer in apart])), step
    assert [name for name in optimizer_tensors(ours, whole) if "weight" in name] == ["qkv.weight/momentum_buffer"]


def test_muon_makes_the_momentum_of_inner_matrices_orthogonal_and_leaves_the_rest_to_adam() -> None:
    model, twin = wide_network(), wide_network()
    optimizer, plain = adam_and_muon(model, SETTINGS), adam(twin, SETTINGS)
    w = model[1].weight.detach().double().numpy().copy()
    momentum = np.zeros_like(w)
    for step in range(1, 6):
        for each, its in ((optimizer, model), (plain, twin)):
            gradients(its, step)
            set_lr(each, 0.01 / step, step - 1)
        g = model[1].weight.grad.double().numpy()
        momentum += 0.05 * (g - momentum)  # torch keeps an average of the gradients
        u, _, v = np.linalg.svd(0.05 * g + 0.95 * momentum, full_matrices=False)
        expected = w * (1 - 0.01 / step * 0.1) - 0.01 / step * 0.2 * np.sqrt(24) * u @ v
        before = w
        for each in (optimizer, plain):
            each.step()
        w = model[1].weight.detach().double().numpy().copy()
        # Newton and Schulz's five rounds, in bfloat16, bring singular values near 1: to 0.7 up to 1.2
        moved, wanted = w - before, expected - before
        assert np.sum(moved * wanted) / np.linalg.norm(moved) / np.linalg.norm(wanted) > 0.97
        assert 0.7 < np.linalg.norm(moved) / np.linalg.norm(wanted) < 1.2
    for (name, ours), (_, theirs) in zip(model.named_parameters(), twin.named_parameters(), strict=True):
        assert torch.equal(ours, theirs) == (name != "1.weight"), name


@pytest.mark.parametrize(("build", "make"), [(network, adam), (wide_network, adam_and_muon)], ids=["adam", "muon"])
def test_state_survives_a_round_trip_bit_for_bit(build: Any, make: Any) -> None:
    model, twin = build(), build()
    optimizer, resumed = make(model, SETTINGS), make(twin, SETTINGS)
    gradients(model, 1)
    optimizer.step()
    twin.load_state_dict(model.state_dict())
    restore_optimizer(
        resumed, twin, {name: value.clone() for name, value in optimizer_tensors(optimizer, model).items()}
    )
    for each, its in ((optimizer, model), (resumed, twin)):
        gradients(its, 2)
        each.step()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(a, b)


def test_no_state_before_the_first_update() -> None:
    model = network()
    assert optimizer_tensors(adam(model, SETTINGS), model) == {}


def test_cosine_rises_from_zero_then_falls_to_zero() -> None:
    factor = warmup_cosine(warmup_steps=10, total_steps=110)
    assert [factor(0), factor(5), factor(10), factor(60)] == pytest.approx([0.0, 0.5, 1.0, 0.5])
    assert factor(110) == pytest.approx(0.0)
    assert factor(35) == pytest.approx(0.5 * (1 + np.cos(np.pi / 4)))


def test_cosine_without_room_for_the_fall() -> None:
    assert warmup_cosine(warmup_steps=2000, total_steps=20)(10) == pytest.approx(10 / 2000)
    assert warmup_cosine(warmup_steps=0, total_steps=4)(0) == 1.0


def test_linear_is_the_product_of_both_ramps() -> None:
    factor = warmup_linear(warmup=0.1, total_steps=100)
    assert [factor(0), factor(5), factor(10)] == pytest.approx([0.0, 0.5 * 0.95, 0.9])
    assert [factor(55), factor(100)] == pytest.approx([0.45, 0.0])
    assert warmup_linear(warmup=0.0, total_steps=10)(0) == 1.0


def test_fine_tunings_of_bert_and_electra_meet_their_warm_up_each_in_its_way() -> None:
    """optimization.py of the two repositories, written out."""
    bert = [step / 10 if step < 10 else 1 - step / 100 for step in range(101)]
    electra = [(1 - step / 100) * min(1.0, step / 10) for step in range(101)]
    for decay, released in (("linear", bert), (None, electra)):
        factor = finetuning_schedule(FinetuneConfig(warmup=0.1, decay=decay), 0, 100)
        assert [factor(step) for step in range(101)] == pytest.approx(released)


@pytest.mark.parametrize(
    ("decay", "after"),
    [
        ("constant", [0, 0.5, 1, 1, 1, 1]),
        ("linear", [0, 0.5, 0.9, 0.5, 0.1, 0]),
        (None, [0, 0.5 * 0.95, 0.9, 0.5, 0.1, 0]),
    ],
)
@pytest.mark.parametrize("own", [None, 0.02])
def test_behind_updates_that_learn_layers_the_schedule_begins_anew(
    decay: str | None, after: list[float], own: float | None
) -> None:
    """20 updates warm up over a tenth, or have a rate of their own; the 100 behind them warm up over 10."""
    config = FinetuneConfig(lm_coef=0.0, lr=0.01, warmup=0.1, decay=decay, layer_lr=own, layer_epochs=1, taught=True)
    factor = finetuning_schedule(config, 20, 120)
    assert [factor(step) for step in (0, 1, 2, 19)] == pytest.approx([0, 0.5, 1, 1] if own is None else [2] * 4)
    assert [factor(20 + step) for step in (0, 5, 10, 50, 90, 100)] == pytest.approx(after)


def test_berts_line_is_counted_from_the_first_update() -> None:
    factor = warmup_steps_linear(warmup_steps=20, total_steps=100)
    assert [factor(0), factor(19), factor(20), factor(60)] == pytest.approx([0.0, 0.95, 0.8, 0.4])
    assert factor(100) == 0.0
    assert pretraining_schedule("linear", 20, 100)(60) == factor(60)
    product = pretraining_schedule("linear-product", 20, 100)  # ELECTRA's
    assert [product(step) for step in (0, 10, 19, 20, 60, 100)] == pytest.approx([0, 0.45, 0.7695, 0.8, 0.4, 0])
    assert [pretraining_schedule("constant", 20, 100)(step) for step in (0, 5, 20, 60, 99)] == [0.0, 0.25, 1, 1, 1]
    assert pretraining_schedule(None, 20, 100)(60) == pretraining_schedule("cosine", 20, 100)(60) == pytest.approx(0.5)


# --- rates that fall from layer to layer: each parameter's share, the same bits where there is no decay, exact resume


DECAY = FinetuneConfig(layer_decay=0.5)


def encoder(family: str, **changes: Any) -> EncoderClassificationModel:
    found = dataclasses.replace(config(family), words=False, pair=False, replaced=False, **changes)
    return EncoderClassificationModel(Encoder(found), Head("pair", 2, 0.1))


def decoder(**changes: Any) -> ClassificationModel:
    return ClassificationModel(GPT(dataclasses.replace(MODEL, n_special=3, **changes)), Head("pair", 2, 0.1))


def lstm() -> ClassificationModel:
    network = LSTM(LSTMConfig(n_vocab=30, n_special=3, n_units=8, n_embd=8))
    return ClassificationModel(network, Head("pair", 2, 0.1))


def factors(model: Classifier, settings: FinetuneConfig) -> dict[str, float]:
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


@pytest.mark.parametrize(
    ("family", "changes", "released", "places"), table_of(__file__, "test_rates_fall_from_depth_to_depth")
)
def test_rates_fall_from_depth_to_depth(
    family: str, changes: dict[str, Any], released: bool, places: dict[str, float]
) -> None:
    """From the linear layer to the embeddings, tied or not; an encoder's pooler is a depth of its own.

    Layers that are one have one depth, that of the last which shares it; the LSTM has one above its embeddings.
    ELECTRA's last layer is one factor below the linear layer, and two as released: without a pooler one is counted.
    """
    kinds = {"gpt": decoder, "lstm": lstm}
    model = kinds[family](**changes) if family in kinds else encoder(family, **changes)
    found = factors(model, dataclasses.replace(DECAY, layer_decay_original=released))
    assert levels(found, *places) == list(places.values())


def test_what_is_off_is_not_recorded_and_1_is_off() -> None:
    assert FinetuneConfig(layer_decay=1.0) == FinetuneConfig()
    assert "layer_decay" not in recorded(FinetuneConfig())
    assert rates_by_depth(decoder(), FinetuneConfig(layer_decay=1.0)) is None
    with pytest.raises(InputError, match=r"finetune\.layer_decay = 1\.1: expected more than 0, and 1 or less"):
        FinetuneConfig(layer_decay=1.1)
    with pytest.raises(InputError, match=r"layer_decay_original = True without finetune\.layer_decay"):
        FinetuneConfig(layer_decay_original=True)


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
            gradients(model, step)
            set_lr(optimizer, 0.01 / (step + 1), step)
            optimizer.step()
        models.append(model)
    assert all(torch.equal(a, b) for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True))


def test_stopped_and_resumed_it_ends_in_the_same_bits(tmp_path: Path) -> None:
    model = pretrained_encoder(tmp_path / "electra", "electra")
    dataset = encoded(tmp_path, "rte", n_train=80, n_dev=20, words=PieceTokenizer())

    def job(name: str, **settings: Any) -> dict[str, Any]:
        chosen = {**QUICK, "batch_size": 40, "epochs": 2, "layer_decay": 0.5, **settings}
        return finetune_job("rte", model, dataset, tmp_path / name, chosen)

    finetune.run(job("whole"), process.StopRequest())
    expected = outcome(tmp_path / "whole")
    for asked in (1, 3, 5):
        stopped_and_resumed(finetune.run, job(f"stopped-{asked}"), asked)
        assert outcome(tmp_path / f"stopped-{asked}") == expected, asked
    finetune.run(job("flat", layer_decay=1.0), process.StopRequest())
    assert outcome(tmp_path / "flat")["weights"] != expected["weights"]
