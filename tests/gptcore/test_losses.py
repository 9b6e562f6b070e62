"""L1, L2, L3: each fast form against a plain one."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gptcore.objectives import losses
from gptcore.objectives.losses import (
    combined_loss,
    fused_language_model_loss,
    language_model_loss,
    sequence_weights,
    task_loss,
)


def plain_nats(logits: Tensor, target: int) -> float:
    """-log P(target), spelled out in Python floats."""
    scores = logits.double().tolist()
    top = max(scores)
    return top + math.log(sum(math.exp(score - top) for score in scores)) - scores[target]


def problem(n_rows: int = 50, width: int = 6, n_vocab: int = 17) -> tuple[Tensor, Tensor, Tensor]:
    draws = torch.Generator().manual_seed(3)
    hidden = torch.randn(n_rows, width, generator=draws, requires_grad=True)
    table = torch.randn(n_vocab, width, generator=draws, requires_grad=True)
    targets = torch.randint(0, n_vocab, (n_rows,), generator=draws)
    targets[::7] = losses.IGNORE_INDEX
    return hidden, table, targets


def test_language_model_loss_is_the_mean_over_real_targets() -> None:
    hidden, table, targets = problem()
    logits = hidden @ table.t()
    expected = [plain_nats(row, int(t)) for row, t in zip(logits, targets, strict=True) if t >= 0]
    assert language_model_loss(logits, targets).item() == pytest.approx(sum(expected) / len(expected), rel=1e-5)


def test_no_target_at_all_costs_nothing() -> None:
    hidden, table, targets = problem()
    targets[:] = losses.IGNORE_INDEX
    loss = fused_language_model_loss(hidden, table, targets)
    loss.backward()
    assert loss.item() == 0.0
    assert hidden.grad is not None
    assert not hidden.grad.any()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("block", [7, 512])
def test_fused_loss_is_the_plain_loss_in_value_and_gradient(
    weighted: bool, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "_CPU_ROWS", block)  # 7 does not divide 50: a short last block
    hidden, table, targets = problem()
    weights = torch.rand(len(targets), generator=torch.Generator().manual_seed(0)) if weighted else None
    fused = 3.0 * fused_language_model_loss(hidden, table, targets, weights)  # 3: the gradient from above counts
    plain = 3.0 * language_model_loss(hidden @ table.t(), targets, weights)
    torch.testing.assert_close(fused, plain)
    for got, expected in zip(
        torch.autograd.grad(fused, (hidden, table)), torch.autograd.grad(plain, (hidden, table)), strict=True
    ):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-6)


def test_fused_loss_under_bfloat16_stays_near_float32() -> None:
    hidden, table, targets = problem(n_rows=200, width=32)
    exact = language_model_loss(hidden @ table.t(), targets)
    with torch.autocast("cpu", torch.bfloat16):
        rough = fused_language_model_loss(hidden, table, targets)
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, exact, rtol=5e-3, atol=0.0)
    got, expected = torch.autograd.grad(rough, hidden)[0], torch.autograd.grad(exact, hidden)[0]
    assert (got - expected).norm() < 0.02 * expected.norm()


def test_sequence_weights_average_over_each_sequence_first() -> None:
    targets = torch.tensor([[3, 4, -100, -100], [1, -100, -100, -100], [-100, -100, -100, -100]])
    logits = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(1))
    first = (plain_nats(logits[0, 0], 3) + plain_nats(logits[0, 1], 4)) / 2
    expected = (first + plain_nats(logits[1, 0], 1) + 0.0) / 3
    assert language_model_loss(logits, targets, sequence_weights(targets)).item() == pytest.approx(expected, rel=1e-5)


def test_task_loss_takes_classes_and_distributions() -> None:
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(2))
    labels = torch.tensor([0, 2, 1, 1])
    soft = torch.nn.functional.one_hot(labels, 3).float()
    torch.testing.assert_close(task_loss(logits, labels), task_loss(logits, soft))
    half = torch.tensor([[0.25, 0.75, 0.0]])
    expected = 0.25 * plain_nats(logits[0], 0) + 0.75 * plain_nats(logits[0], 1)
    assert task_loss(logits[:1], half).item() == pytest.approx(expected, rel=1e-5)


def test_combined_loss_weighs_the_auxiliary_objective() -> None:
    assert combined_loss(torch.tensor(2.0), torch.tensor(3.0), 0.5).item() == 3.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_kept_in_the_cache_change_no_bit(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for cached in (1, 300, 1 << 40):  # two rows at a time, a few, all
        monkeypatch.setattr(losses, "_CACHED_SCORES", cached)
        hidden, table, targets = problem(n_rows=53, width=16, n_vocab=101)
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            loss = fused_language_model_loss(hidden, table, targets)
        found.append((loss.detach(), *torch.autograd.grad(loss, (hidden, table))))
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_gradients_are_handed_out_once() -> None:
    hidden, table, targets = problem()
    loss = fused_language_model_loss(hidden, table, targets)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="second backward"):
        loss.backward()


def test_without_gradients_none_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is a view that asks for gradients, also where they are switched off: as in every validation."""
    hidden, table, targets = problem()
    expected = fused_language_model_loss(hidden, table, targets).item()
    asked = []
    plain = losses._softmax

    def spy(scores: Tensor, target: Tensor, weight: Tensor, slopes: bool) -> Tensor:
        asked.append(slopes)
        return plain(scores, target, weight, slopes)

    monkeypatch.setattr(losses, "_softmax", spy)
    with torch.no_grad():
        assert fused_language_model_loss(hidden, table[:], targets).item() == expected
    assert asked == [False]
