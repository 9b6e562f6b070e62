"""Products by oneDNN: the numbers of torch's own layer in float64, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from gptcore.machine.device import autocast
from gptcore.models import products
from gptcore.objectives.losses import fused_language_model_loss, language_model_loss

_ROWS = 70


@pytest.fixture(autouse=True)
def by_onednn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Shapes of the rows that oneDNN was given; it is taken for every product."""
    seen = []

    def counted(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        seen.append(tuple(x.shape))
        found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return found

    monkeypatch.setattr(products, "_SMALL_PRODUCT", 0)
    monkeypatch.setattr(products, "_SMALL_ROW", 0)
    monkeypatch.setattr(products, "_mkl_lags", lambda: True)
    monkeypatch.setattr(products, "_onednn", counted)
    return seen


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize(("width", "out", "bias"), [(24, 56, True), (56, 24, True), (24, 24, False)])
def test_a_layer_is_torchs(
    by_onednn: list[tuple[int, ...]], dtype: torch.dtype, tolerance: float, width: int, out: int, bias: bool
) -> None:
    draws = torch.Generator().manual_seed(0)
    layer, plain = products.Linear(width, out, bias), nn.Linear(width, out, bias).double()
    plain.load_state_dict(layer.state_dict())
    x, slopes = (torch.randn(2, _ROWS // 2, n, generator=draws) for n in (width, out))
    found, wanted = x.clone().requires_grad_(), x.double().requires_grad_()
    with autocast(torch.device("cpu"), dtype):
        y = layer(found)
    y.backward(slopes.to(y.dtype))
    expected = plain(wanted)
    expected.backward(slopes.double())
    assert (y.dtype, by_onednn[0]) == (dtype, (_ROWS, width))
    pairs = [(y, expected), (found.grad, wanted.grad)]
    pairs += [(mine.grad, its.grad) for mine, its in zip(layer.parameters(), plain.parameters(), strict=True)]
    for ours, theirs in pairs:
        assert ours is not None
        assert theirs is not None
        assert (ours.double() - theirs).norm() <= tolerance * theirs.norm()


@pytest.mark.parametrize("shape", [(24,), (1, 1, 24), (2, 24), (3, 7, 24), (1, 24, 24)])
@pytest.mark.parametrize(("out", "bias"), [(1, True), (56, True), (57, True), (57, False)])
def test_a_layer_that_only_answers_is_torchs(
    by_onednn: list[tuple[int, ...]], shape: tuple[int, ...], out: int, bias: bool
) -> None:
    layer = products.Linear(24, out, bias)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found = layer(x)
        with autocast(torch.device("cpu"), torch.bfloat16):
            assert layer(x).dtype == torch.bfloat16
    plain = x.double() @ layer.weight.double().T + (layer.bias.double() if bias else 0)
    torch.testing.assert_close(found.double(), plain.detach(), atol=1e-6, rtol=1e-5)
    assert len(by_onednn) == (1 if x.numel() == 24 else 2)  # a single row in float32 is no product of oneDNN's


def test_the_loss_of_a_vocabulary_is_the_plain_one(by_onednn: list[tuple[int, ...]]) -> None:
    draws = torch.Generator().manual_seed(0)
    hidden, table = (torch.randn(n, 16, generator=draws, requires_grad=True) for n in (_ROWS, 90))
    targets = torch.randint(90, (_ROWS,), generator=draws)
    found = torch.autograd.grad(loss := fused_language_model_loss(hidden, table, targets), (hidden, table))
    assert len(by_onednn) == 3
    plain = language_model_loss(hidden @ table.T, targets)
    torch.testing.assert_close((loss, *found), (plain, *torch.autograd.grad(plain, (hidden, table))))
