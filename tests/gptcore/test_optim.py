"""Adam against its formulas in plain numpy; the two schedules at their corners."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gptcore.config import PretrainConfig
from gptcore.training.optim import adam, adam_and_muon, optimizer_tensors, restore_optimizer, set_lr
from gptcore.training.schedules import pretraining_schedule, warmup_cosine, warmup_linear, warmup_steps_linear

SETTINGS = PretrainConfig(lr=0.01, weight_decay=0.1)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 4), nn.LayerNorm(4))


def gradients(model: nn.Module, step: int) -> None:
    draws = torch.Generator().manual_seed(step)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=draws)


def test_adam_follows_its_formulas_and_decays_matrices_only() -> None:
    model = network()
    optimizer = adam(model, SETTINGS)
    weights = [p.detach().double().numpy().copy() for p in model.parameters()]
    first, second = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    for step in range(1, 6):
        gradients(model, step)
        lr = 0.01 / step
        for w, m, v, parameter in zip(weights, first, second, model.parameters(), strict=True):
            g = parameter.grad.double().numpy()  # type: ignore[union-attr]  # `gradients` has set it
            m[:] = 0.9 * m + 0.1 * g
            v[:] = 0.999 * v + 0.001 * g * g
            w -= lr * 0.1 * w * (w.ndim > 1)
            w -= lr * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
        set_lr(optimizer, lr, step - 1)
        optimizer.step()
    for w, parameter in zip(weights, model.parameters(), strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), w, rtol=1e-5, atol=1e-6)


def test_the_released_adam_puts_epsilon_on_the_uncorrected_root_and_the_correction_on_the_decay() -> None:
    model = network()
    optimizer = adam(model, dataclasses.replace(SETTINGS, original=True, epsilon=1e-3))
    weights = [p.detach().double().numpy().copy() for p in model.parameters()]
    first, second = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    for step in range(1, 6):
        gradients(model, step)
        rate = 0.01 / step * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        for w, m, v, parameter in zip(weights, first, second, model.parameters(), strict=True):
            g = parameter.grad.double().numpy()  # type: ignore[union-attr]  # `gradients` has set it
            m[:] = 0.9 * m + 0.1 * g
            v[:] = 0.999 * v + 0.001 * g * g
            w -= rate * (m / (np.sqrt(v) + 1e-3) + 0.1 * w * (w.ndim > 1))
        set_lr(optimizer, 0.01 / step, step - 1)
        optimizer.step()
    for w, parameter in zip(weights, model.parameters(), strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), w, rtol=1e-5, atol=1e-6)


def wide_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(5, 16), nn.Linear(16, 24), nn.LayerNorm(24), nn.Linear(24, 2))


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


def test_berts_line_is_counted_from_the_first_update() -> None:
    factor = warmup_steps_linear(warmup_steps=20, total_steps=100)
    assert [factor(0), factor(19), factor(20), factor(60)] == pytest.approx([0.0, 0.95, 0.8, 0.4])
    assert factor(100) == 0.0
    assert pretraining_schedule("linear", 20, 100)(60) == factor(60)
    assert pretraining_schedule(None, 20, 100)(60) == pretraining_schedule("cosine", 20, 100)(60) == pytest.approx(0.5)
