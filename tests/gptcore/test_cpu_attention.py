"""Attention with its own backward pass against the same spelled out under autograd, and when it is taken."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from gptcore.config import EncoderConfig, ModelConfig
from gptcore.models import cpu as module
from gptcore.models.cpu import causal_mask, cpu_attention, dropout, visible_mask
from gptcore.models.encoder_parts import SelfAttention
from gptcore.models.transformer import Attention

B, T, H, D = 5, 20, 3, 24
LENGTHS = torch.tensor([20, 1, 7, 19, 12])
WORDS = (torch.arange(T) < LENGTHS[:, None])[:, None, None, :]  # (B, 1, 1, T)


def causal_attention(qkv: torch.Tensor, n_head: int, rate: float) -> torch.Tensor:
    return cpu_attention(qkv, n_head, rate, causal_mask(qkv))


def padded_attention(qkv: torch.Tensor, n_head: int, rate: float) -> torch.Tensor:
    return cpu_attention(qkv, n_head, rate, visible_mask(WORDS[: len(qkv), ..., : qkv.shape[1]], qkv.dtype))


def open_attention(qkv: torch.Tensor, n_head: int, rate: float) -> torch.Tensor:
    return cpu_attention(qkv, n_head, rate, None)


UNSEEN = {
    causal_attention: torch.ones(T, T, dtype=torch.bool).triu_(1),
    padded_attention: ~WORDS,
    open_attention: torch.zeros(T, T, dtype=torch.bool),
}


def spelled_out(qkv: torch.Tensor, n_head: int, rate: float, unseen: torch.Tensor) -> torch.Tensor:
    """The plain twin: autograd keeps the weights before and after dropout, and the mask."""
    b, t, width = qkv.shape
    q, k, v = qkv.view(b, t, 3, n_head, -1).permute(2, 0, 3, 1, 4)
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    weights = torch.softmax(scores.masked_fill(unseen, float("-inf")), dim=-1, dtype=scores.dtype)
    return (dropout(weights, rate, training=True) @ v).transpose(1, 2).reshape(b, t, width // 3)


def drawn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("scores", [1, 2 * H * T * T, 1 << 22], ids=["a text", "two texts", "all texts"])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("attention", UNSEEN)
def test_output_gradient_and_draws_have_the_bits_of_the_plain_twin(attention, scores, rate, dtype, monkeypatch):
    monkeypatch.setattr(module, "_SCORES", scores)
    found = []
    for attend in (partial(spelled_out, unseen=UNSEEN[attention]), attention):
        torch.manual_seed(7)
        qkv = drawn(B, T, 3 * D, dtype=dtype).requires_grad_()
        mixed = attend(qkv, H, rate)
        mixed.backward(drawn(B, T, D, dtype=dtype, seed=1))
        found.append((mixed, qkv.grad, torch.rand(3)))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("scores", [1, 1 << 22])
@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("attention", UNSEEN)
def test_the_gradient_is_the_derivative(attention, scores, rate, monkeypatch):
    monkeypatch.setattr(module, "_SCORES", scores)

    def attend(qkv: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(7)
        return attention(qkv, 2, rate)

    assert torch.autograd.gradcheck(attend, drawn(2, 5, 12, dtype=torch.float64).requires_grad_())


def test_without_dropout_it_is_torch_attention():
    qkv = drawn(B, T, 3 * D)
    q, k, v = qkv.view(B, T, 3, H, -1).permute(2, 0, 3, 1, 4)
    for attend, given in (
        (causal_attention, {"is_causal": True}),
        (padded_attention, {"attn_mask": WORDS}),
        (open_attention, {}),
    ):
        expected = F.scaled_dot_product_attention(q, k, v, **given).transpose(1, 2).reshape(B, T, D)
        torch.testing.assert_close(attend(qkv, H, 0.0), expected)


def test_what_waits_for_the_backward_pass_does_not_grow_with_the_number_of_scores_but_for_a_byte_each(monkeypatch):
    def kept(attend) -> int:
        sizes: dict[int, int] = {}

        def note(tensor: torch.Tensor) -> torch.Tensor:
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            mixed = attend(qkv, H, 0.1)
        assert mixed.requires_grad
        return sum(sizes.values())

    qkv = drawn(B, T, 3 * D).requires_grad_()
    monkeypatch.setattr(module, "_SCORES", H * T * T)
    padded = -(-B * H * T * T // 4) * 4
    mask = T * T * 4
    assert kept(causal_attention) == qkv.nbytes + padded + mask
    plain = partial(spelled_out, unseen=UNSEEN[causal_attention])
    assert kept(plain) > qkv.nbytes + 12 * B * H * T * T  # three times float32


@pytest.mark.parametrize(
    ("dtype", "training", "rate", "taken"),
    [
        (torch.bfloat16, True, 0.0, True),
        (torch.bfloat16, True, 0.1, True),
        (torch.bfloat16, False, 0.1, False),
        (torch.float32, True, 0.0, False),
        (torch.float32, True, 0.1, True),
        (torch.float32, False, 0.1, False),
    ],
)
def test_it_is_taken_in_training_with_dropout_or_under_bfloat16(dtype, training, rate, taken):
    rates = {"attn_pdrop": rate, "resid_pdrop": 0.0}
    decoder = Attention(ModelConfig(n_ctx=T, n_embd=D, n_head=H, **rates)).train(training)
    encoder = SelfAttention(EncoderConfig(n_ctx=T, n_embd=D, n_head=H, **rates)).train(training)
    for attend in (decoder, partial(encoder, visible=None), partial(encoder, visible=WORDS[:2])):
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            found = attend(drawn(2, T, D)).grad_fn
            assert found is not None
        names, waiting = set(), [found]
        while waiting:
            node = waiting.pop()
            names.add(node.name())
            waiting += [before for before, _ in node.next_functions if before is not None]
        assert ("_AttentionBackward" in names) == taken
        assert any("ScaledDotProduct" in name for name in names) == (not taken)
