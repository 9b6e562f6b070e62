"""The decoder: causality, dropout, adapting, folders; attention with its own backward pass, and when it is taken."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from gptcore import GPT
from gptcore.base.errors import InputError
from gptcore.config import EncoderConfig, ModelConfig
from gptcore.models import cpu as module
from gptcore.models.attention import Attention, SmearedAttention
from gptcore.models.cpu import causal_mask, cpu_attention, dropout, keep_mask, visible_mask
from gptcore.models.encoder_parts import SelfAttention
from gptcore.models.files.layout import model_types
from gptcore.training import checkpoint

TINY = ModelConfig(n_vocab=50, n_ctx=16, n_layer=2, n_head=12, n_embd=24, n_inner=96)


def tiny(seed: int = 0, **changes: float) -> GPT:
    config = dataclasses.replace(TINY, **changes)  # type: ignore[arg-type]
    return GPT(config, torch.Generator().manual_seed(seed)).eval()


def tokens(batch: int = 3, length: int = 16) -> torch.Tensor:
    return torch.randint(0, TINY.n_vocab, (batch, length), generator=torch.Generator().manual_seed(1))


def test_own_folder_round_trip_by_path_and_url(tmp_path: Path) -> None:
    model = tiny()
    model.save(tmp_path / "m")
    for place in (tmp_path / "m", f"file://{tmp_path}/m/"):
        again = GPT.load(place)
        assert again.config == model.config
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_a_checkpoint_is_a_model_folder(tmp_path: Path) -> None:
    model = tiny()
    state = {"identity": {"model": dataclasses.asdict(model.config)}}
    folder = checkpoint.save(tmp_path, 3, {"model": model.state_dict()}, state, keep=1)
    assert torch.equal(GPT.load(folder)(tokens()), model(tokens()))


def test_folders_that_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a model folder"):
        GPT.load(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(InputError, match=f"model_type = 't5', expected gptmill or {' or '.join(model_types())}$"):
        GPT.load(tmp_path)
    tiny().save(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"garbage")
    with pytest.raises(InputError, match=r"model\.safetensors: not a safetensors file"):
        GPT.load(tmp_path)
    save_file({"tokens.weight": torch.zeros(3, 24)}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="1 tensors, expected those of 2 blocks"):
        GPT.load(tmp_path)
    save_file(tiny().state_dict() | {"tokens.weight": torch.zeros(3, 24)}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"tokens\.weight has the shape \[3, 24\], expected \[50, 24\]"):
        GPT.load(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match="no such file"):
        GPT.load(tmp_path)


def test_paper_size() -> None:
    with torch.device("meta"):
        assert GPT(ModelConfig()).num_parameters == 116_534_784  # the 117M of the paper's title model


def test_initial_weights() -> None:
    model = GPT(dataclasses.replace(TINY, n_vocab=4000), torch.Generator().manual_seed(0))
    assert model.tokens.weight.std().item() == pytest.approx(0.02, rel=0.02)
    block = model.blocks[0]
    assert not block.attention.qkv.bias.any()  # type: ignore[union-attr, operator]
    assert (block.norm_1.weight == 1).all()  # type: ignore[union-attr]
    same = GPT(dataclasses.replace(TINY, n_vocab=4000), torch.Generator().manual_seed(0))
    assert torch.equal(model.tokens.weight, same.tokens.weight)


def test_gpt2_draws_the_output_of_its_sub_layers_smaller() -> None:
    config = dataclasses.replace(TINY, n_layer=8, norm_first=True)
    ours, theirs = (GPT(c, torch.Generator().manual_seed(0)) for c in (config, dataclasses.replace(TINY, n_layer=8)))
    for (name, mine), its in zip(ours.named_parameters(), theirs.parameters(), strict=False):
        scale = 4.0 if name.endswith("projection.weight") else 1.0  # 16 sub-layers
        torch.testing.assert_close(mine, its / scale)
    assert set(ours.state_dict()) - set(theirs.state_dict()) == {"norm.weight", "norm.bias"}


def test_gpt2_adapted_keeps_its_last_norm() -> None:
    model = tiny(norm_first=True)
    torch.nn.init.normal_(model.norm.weight)  # type: ignore[arg-type]
    assert torch.equal(model.adapt().norm.weight, model.norm.weight)  # type: ignore[arg-type]
    for n_transfer in (0, 1):  # it fits the sum of all blocks
        assert (model.adapt(n_transfer=n_transfer).norm.weight == 1).all()  # type: ignore[operator, union-attr]
    ids = tokens()
    torch.testing.assert_close(model.adapt().eval()(ids)[..., :50], model(ids))


@torch.no_grad()
def test_smeared_keys_head_by_head_and_place_by_place() -> None:
    attention = SmearedAttention(dataclasses.replace(TINY, n_head=3)).eval()
    attention.smear.copy_(torch.tensor([-2.0, 0.0, 3.0]))
    x = torch.randn(1, 5, 24, generator=torch.Generator().manual_seed(0))
    q, k, v = (part.view(5, 3, 8) for part in attention.qkv(x)[0].split(24, dim=-1))
    mixed = torch.zeros(5, 3, 8)
    for head, share in enumerate(torch.sigmoid(attention.smear)):
        for at in range(5):
            keys = [(1 - share) * k[s, head] + share * k[max(0, s - 1), head] for s in range(at + 1)]
            weights = torch.stack([q[at, head] @ key / 8**0.5 for key in keys]).softmax(0)
            mixed[at, head] = weights @ v[: at + 1, head]
    expected = attention.projection(mixed.view(1, 5, 24))
    torch.testing.assert_close(attention(x), expected)
    scores = attention.scores(x).masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
    again = (scores.softmax(-1) @ v[None].transpose(1, 2)).transpose(1, 2).reshape(1, 5, 24)
    torch.testing.assert_close(attention.projection(again), expected)


@torch.no_grad()
def test_rotary_positions_turn_pairs_of_numbers_and_tell_distances_alone() -> None:
    attention = Attention(dataclasses.replace(TINY, n_head=3), rotary=True).eval()
    x = torch.randn(1, 5, 24, generator=torch.Generator().manual_seed(0))
    q, k, v = (part.view(5, 3, 8) for part in attention.qkv(x)[0].split(24, dim=-1))
    rates = torch.tensor([1.0, 1e-1, 1e-2, 1e-3])  # a head of 8 numbers has 4 pairs

    def turned(vector: torch.Tensor, at: int) -> torch.Tensor:
        return torch.complex(*vector.chunk(2)) * torch.polar(torch.ones(4), at * rates)

    mixed = torch.zeros(5, 3, 8)
    for head in range(3):
        for at in range(5):
            keys = [turned(k[s, head], s) for s in range(at + 1)]
            products = [(turned(q[at, head], at) * key.conj()).sum().real for key in keys]
            mixed[at, head] = (torch.stack(products) / 8**0.5).softmax(0) @ v[: at + 1, head]
    expected = attention.projection(mixed.view(1, 5, 24))
    torch.testing.assert_close(attention(x), expected)
    scores = attention.scores(x).masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
    again = (scores.softmax(-1) @ v[None].transpose(1, 2)).transpose(1, 2).reshape(1, 5, 24)
    torch.testing.assert_close(attention.projection(again), expected)
    same = attention.scores(x[:, :1].expand(-1, 5, -1))[0, 0]
    assert same[4, 2] == pytest.approx(same[2, 0].item(), abs=1e-5)
    assert same[4, 1] != pytest.approx(same[2, 0].item(), abs=1e-5)
    with pytest.raises(InputError, match="found heads of 3 numbers, expected an even number"):
        dataclasses.replace(TINY, n_head=8, rotary=True)


@pytest.mark.parametrize("changes", [{}, {"smeared_keys": True}, {"rotary": True}])
def test_later_tokens_change_nothing_before_them(changes: dict[str, bool]) -> None:
    model, ids = tiny(**changes), tokens(1)
    changed = ids.clone()
    changed[0, 9:] = (changed[0, 9:] + 1) % TINY.n_vocab
    with torch.no_grad():
        a, b = model(ids), model(changed)
    assert torch.equal(a[0, :9], b[0, :9])
    assert not torch.isclose(a[0, 9:], b[0, 9:]).all()


def test_a_sequence_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="17 tokens does not fit n_ctx = 16"):
        tiny()(torch.zeros(1, 17, dtype=torch.long))


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_has_its_rate_and_keeps_the_mean(rate: float) -> None:
    torch.manual_seed(0)
    mask = keep_mask(torch.Size([401, 1001]), rate, torch.float32)  # a size that is no multiple of four
    assert (mask == 0).float().mean().item() == pytest.approx(rate, abs=0.003)
    assert mask.max().item() == pytest.approx(1 / (1 - rate))
    lagged = ((mask[:, 1:] == 0) & (mask[:, :-1] == 0)).float().mean().item()
    assert lagged == pytest.approx(rate**2, abs=0.003)  # neighbours from one draw are independent


def test_dropout_is_off_in_eval_mode_and_follows_the_seed() -> None:
    x = torch.ones(1000)
    assert dropout(x, 0.5, training=False) is x
    torch.manual_seed(4)
    first = dropout(x, 0.5, training=True)
    torch.manual_seed(4)
    assert torch.equal(first, dropout(x, 0.5, training=True))
    model = tiny().train()
    assert not torch.equal(model(tokens()), model(tokens()))
    assert torch.equal(model.eval()(tokens()), model(tokens()))


def test_adapting_keeps_what_is_transferred_and_draws_the_rest() -> None:
    model = tiny()
    copy = model.adapt(n_special=3, n_ctx=8, n_transfer=1, generator=torch.Generator().manual_seed(9), attn_pdrop=0.0)
    assert (copy.config.n_special, copy.config.n_ctx, copy.config.attn_pdrop) == (3, 8, 0.0)
    assert torch.equal(copy.tokens.weight[:50], model.tokens.weight)
    assert copy.tokens.weight.shape == (53, 24)
    assert 0.005 < copy.tokens.weight[50:].std().item() < 0.04
    assert torch.equal(copy.positions.weight, model.positions.weight[:8])
    first, second = (b.feed_forward.inner.weight for b in copy.blocks)  # type: ignore[union-attr]
    assert torch.equal(first, model.blocks[0].feed_forward.inner.weight)  # type: ignore[arg-type, union-attr]
    assert not torch.equal(second, model.blocks[1].feed_forward.inner.weight)  # type: ignore[arg-type, union-attr]
    assert copy(tokens(1, 8)).shape == (1, 8, 53)


@pytest.mark.parametrize("wrong", [{"n_ctx": 17}, {"n_ctx": 0}, {"n_transfer": 3}, {"n_transfer": -2}])
def test_adapting_beyond_what_there_is(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match="the model has"):
        tiny().adapt(**wrong)  # type: ignore[arg-type]


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
