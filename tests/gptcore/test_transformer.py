"""The decoder: causality, dropout, adapting, our own model folders (test_export.py: foreign ones; test_parity.py)."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from gptcore import GPT, ModelConfig
from gptcore.base.errors import InputError
from gptcore.models.cpu import dropout, keep_mask
from gptcore.models.transformer import Attention
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
    with pytest.raises(
        InputError,
        match="model_type = 't5', expected gptmill or openai-gpt or albert or bert or distilbert or electra or gpt2",
    ):
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
    attention = Attention(dataclasses.replace(TINY, n_head=3, smeared_keys=True)).eval()
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


@pytest.mark.parametrize("changes", [{}, {"smeared_keys": True}])
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
