"""A family of another package, made of the product's parts: its operations, its cache of shared keys, its settings."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from gptcore.base.errors import InputError
from gptcore.base.settings import recorded
from gptcore.config import preset_named
from gptcore.config.network import network_config
from gptcore.families import FAMILIES
from gptcore.machine.rng import generator
from gptcore.models.incremental import bytes_per_position, open_reader
from gptcore.models.network import build_model
from tests.packages import ROOT
from tests.toy_family.family import FAMILY, LlamaConfig
from tests.toy_family.llama import Llama

CONFIG = LlamaConfig(n_vocab=50, n_ctx=12, n_layer=2, n_head=4, n_head_keys=2, n_embd=16, n_inner=24, init_std=0.4)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES._theirs, FAMILY.name, FAMILY)  # type: ignore[attr-defined]


def test_it_takes_at_most_ninety_lines() -> None:
    files = (ROOT / "tests/toy_family" / name for name in ("family.py", "llama.py"))
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) <= 90


def test_its_operations_are_six_for_each_weight_with_those_of_attention() -> None:
    model = Llama(LlamaConfig(n_vocab=800, n_ctx=64, n_layer=3, n_head=8, n_head_keys=2, n_embd=128, n_inner=344))
    inner = model.num_parameters - model.tokens.weight.numel()
    attention = 12 * 3 * 64 * 128
    assert model.flops_per_token(64) == pytest.approx(6 * model.num_parameters + attention, rel=0.01)
    assert model.config.flops_per_token(64, told=0) == pytest.approx(6 * inner + attention, rel=0.01)


@pytest.mark.parametrize("cuts", [[1] * 12, [5, 1, 6], [12]])
def test_reading_on_agrees_with_the_full_pass(cuts: list[int]) -> None:
    model = build_model(CONFIG, generator(0, "test")).eval()
    assert isinstance(model, Llama)
    ids = torch.randint(50, (12,), generator=generator(1, "test")).tolist()
    for batch in (1, 3):
        reader, done = open_reader(model, batch), 0
        for count in cuts:
            logits = reader.feed([ids[done : done + count]] * batch)
            done += count
            expected = model(torch.tensor([ids[:done]]))[0, -1].expand(batch, -1)
            torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)
    assert bytes_per_position(model) == 2 * 2 * 8 * 4, "of keys and values that two heads share"


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_what_is_told_apart_by_no_dropout_is_the_same_by_each_kernel(rate: float) -> None:
    """Shared beginnings and torch's kernel against separate sequences and our own."""
    model = Llama(dataclasses.replace(CONFIG, attn_pdrop=rate, embd_pdrop=0.0, resid_pdrop=0.0), generator(0, "test"))
    tokens = torch.tensor([[[3, 4, 5, 6, 7], [3, 4, 5, 8, 9]]])
    ends, table = torch.tensor([[4, 3]]), model.table()
    model.eval()
    shared, places = model.choices(tokens, ends, table)
    alone = model.states(tokens[0], table)
    torch.testing.assert_close(shared[places[:5]], alone[0])
    torch.testing.assert_close(model.last_states(tokens, ends, table)[0], alone[[0, 1], [4, 3]])
    scores = model.layer_states(tokens[0], table, scores=True).scores
    assert [tuple(each.shape) for each in scores] == [(2, 4, 5, 5)] * 2
    with torch.autocast("cpu", torch.bfloat16):
        trained = model.train().states(tokens[0], table)
    trained.float().square().mean().backward()
    assert all(each.grad is not None for each in model.parameters())
    if not rate:
        torch.testing.assert_close(trained.float(), alone, atol=0.1, rtol=0.05)


def test_its_network_has_no_biases_and_its_own_norms() -> None:
    model = Llama(CONFIG, generator(0, "test"))
    assert not [name for name in model.state_dict() if name.endswith("bias")]
    assert not any(isinstance(part, nn.LayerNorm) for part in model.modules())
    assert model.blocks[0].attention.qkv.weight.shape == (16 + 2 * 8, 16)  # type: ignore[union-attr]
    adapted = model.adapt(n_ctx=6)
    assert adapted.config == dataclasses.replace(CONFIG, n_ctx=6, n_special=3)
    ids = torch.tensor([[1, 2, 3]])
    torch.testing.assert_close(adapted.eval()(ids)[..., :50], model.eval()(ids))
    assert sum(map(len, model.parameters_by_depth())) == len(list(model.parameters()))


def test_its_own_settings_are_a_presets_and_are_recorded() -> None:
    preset = preset_named("demo", {"family": "toyllama", "model": {"n_head_keys": 1}})
    assert isinstance(preset.model, LlamaConfig)
    assert preset.model.n_head_keys == 1
    with pytest.raises(InputError, match=r"^a.toml: model.n_head = 4 is not a multiple of model.n_head_keys = 3$"):
        preset_named("demo", {"family": "toyllama", "model": {"n_head_keys": 3}}, "a.toml")
    settings = recorded(preset.model)
    assert (settings["family"], settings["n_head_keys"]) == ("toyllama", 1)
    assert network_config(settings) == preset.model
