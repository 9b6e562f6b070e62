"""Families as settings: what they change in a preset, published sizes, settings that do not go together."""

from __future__ import annotations

import pytest
import torch

from gptcore import GPT
from gptcore.config import PRESETS, preset_named
from gptcore.errors import InputError
from gptcore.families import recorded_family
from gptcore.settings import recorded


@pytest.mark.parametrize("name", PRESETS)
def test_the_first_family_is_the_preset_itself(name: str) -> None:
    assert preset_named(name, {"family": "gpt"}) == PRESETS[name]()


@pytest.mark.parametrize("name", PRESETS)
def test_gpt2_changes_text_and_norms_and_keeps_what_training_costs(name: str) -> None:
    ours, plain = preset_named(name, {"family": "gpt2"}), PRESETS[name]()
    assert (ours.corpus.raw, ours.tokenizer.family, ours.model.norm_first) == (True, "gpt2", True)
    assert (ours.model.n_layer, ours.model.n_embd) == (plain.model.n_layer, plain.model.n_embd)
    assert (ours.pretrain.steps, ours.pretrain.batch_size) == (plain.pretrain.steps, plain.pretrain.batch_size)
    assert recorded_family(recorded(ours.model)).titled("pre-trained") == "GPT-2 pre-trained"
    assert recorded_family(recorded(plain.model)).titled("pre-trained") == "pre-trained"


def test_gpt2_at_its_papers_size() -> None:
    paper = preset_named("paper", {"family": "gpt2"})
    assert (paper.model.n_ctx, paper.tokenizer.n_merges) == (1024, 50_000)


@pytest.mark.parametrize(
    ("shape", "parameters"),
    [
        ("82M", 81_912_576),
        ("117M", 124_439_808),
        ("345M", 354_823_168),
        ("774M", 774_030_080),
        ("762M", 774_030_080),  # as the paper prints it
        ("1558M", 1_557_611_200),
    ],
)
def test_published_sizes_have_the_released_models_parameters(shape: str, parameters: int) -> None:
    """Counted from the shapes of the released checkpoints, tied output once."""
    preset = preset_named("paper", {"family": "gpt2", "shape": shape, "model": {"n_vocab": 50_257}})
    with torch.device("meta"):
        assert sum(weight.numel() for weight in GPT(preset.model).parameters()) == parameters


def test_other_settings_come_on_top_of_family_and_shape_in_any_order() -> None:
    preset = preset_named("demo", {"model": {"n_layer": 3}, "shape": "82M", "family": "gpt2"})
    assert (preset.model.n_layer, preset.model.n_embd, preset.model.norm_first) == (3, 768, True)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"family": "bert"}, "family = 'bert'; expected one of gpt, gpt2"),
        ({"shape": "117"}, "shape = '117'; expected one of 82M"),
        ({"family": ["gpt"]}, "family = "),
        ({"family": "lstm"}, "family = 'lstm'; expected one of gpt, gpt2"),
        ({"tokenizer": {"family": "gpt2"}}, "tokenizer.family is not a setting"),
        ({"family": "gpt2", "corpus": {"raw": False}}, "corpus.raw is not a setting"),
        ({"model": {"family": "gpt2"}}, "model.family is not a setting"),
    ],
)
def test_what_does_not_go_together_is_refused(overrides: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        preset_named("demo", overrides)
