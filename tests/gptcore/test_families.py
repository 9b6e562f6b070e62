"""Families as settings: what they change in a preset, published sizes, settings that do not go together."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import gptcore.families
from gptcore import GPT
from gptcore.base.errors import InputError
from gptcore.base.files import sha256_json
from gptcore.base.settings import recorded
from gptcore.config import PRESETS, network_config, preset_named
from gptcore.families import FAMILIES, offered, recorded_family
from tests.expected import expected


@pytest.mark.parametrize("name", PRESETS)
def test_the_first_family_is_the_preset_itself(name: str) -> None:
    assert preset_named(name, {"family": "gpt"}) == PRESETS[name]()


@pytest.mark.parametrize("name", PRESETS)
def test_gpt2_changes_text_and_norms_and_keeps_what_training_costs(name: str) -> None:
    ours, plain = preset_named(name, {"family": "gpt2"}), PRESETS[name]()
    assert (ours.corpus.raw, ours.tokenizer.family, ours.model.norm_first) == (True, "gpt2", True)
    assert (ours.model.n_layer, ours.model.n_embd) == (plain.model.n_layer, plain.model.n_embd)
    if name != "paper":  # whose batches are each paper's own
        assert ours.pretrain == plain.pretrain
    assert recorded_family(recorded(ours.model)).titled("pre-trained") == "GPT-2 pre-trained"
    assert recorded_family(recorded(plain.model)).titled("pre-trained") == "pre-trained"


DIGESTS = {
    ("demo", "gpt"): "cb81e6f29541",
    ("demo", "gpt2"): "b1ad18c5e413",
    ("small", "gpt"): "dcf7b4ef9cdc",
    ("small", "gpt2"): "d25296939916",
    ("long", "gpt"): "d8143aa4bd6a",
    ("long", "gpt2"): "bcbab384c5d1",
    ("paper", "gpt"): "024893269ef3",
}
"""Digests of each preset's settings as version 0.1.0 recorded them."""
_ADAM = {"optimizer": "adam", "lr": 2e-3, "warmup_steps": 100, "steps": 1400, "eval_tokens": 32_768}
THEN = {"demo": {"pretrain": _ADAM}}
"""Preset -> what it was then."""


@pytest.mark.parametrize(("preset", "family"), DIGESTS)
def test_what_is_recorded_is_what_was_recorded_before_families_were(preset: str, family: str) -> None:
    """The artifacts of a store of version 0.1.0 are found under the same digests."""
    sections = ("corpus", "tokenizer", "shards", "model", "lstm", "pretrain", "finetune")
    chosen = preset_named(preset, {"family": family, **THEN.get(preset, {})})
    found = {section: recorded(getattr(chosen, section)) for section in sections}
    assert found["corpus"].pop("near_duplicates") == 0.8, "new in 0.2.0, as is the stage's version"
    assert found["finetune"].pop("select") == "held-out", "and how the epoch is chosen: made anew"
    assert sha256_json(found)[:12] == DIGESTS[preset, family]


@pytest.mark.parametrize(
    ("settings", "name"),
    expected(__file__, "test_a_family_is_read_where_it_is_recorded_and_known_where_it_was_not_yet"),
)
def test_a_family_is_read_where_it_is_recorded_and_known_where_it_was_not_yet(
    settings: dict[str, object], name: str
) -> None:
    config = network_config(settings)
    assert config.family == name
    assert network_config(recorded(config)) == config, "and what is recorded leads back to it"
    known = ", ".join(FAMILIES)
    with pytest.raises(InputError, match=f"job: family = 'bart'; did you mean bert. expected one of {known}"):
        network_config({**settings, "family": "bart"}, "job")


def test_families_are_those_of_the_core_and_of_the_papers_the_default_first() -> None:
    """Each paper's room brings its own, which are found without being listed."""
    rooms = Path(gptcore.families.__file__).parents[1]
    files = [*rooms.glob("families/*.toml"), *rooms.glob("papers/*/families/*.toml")]
    first, *others = FAMILIES
    assert (first, others) == ("gpt", sorted(file.stem for file in files if file.stem != "gpt"))
    assert set(offered()) == {name for name in FAMILIES if FAMILIES[name].objective} - {"lstm"}


def test_every_part_that_a_family_names_is_there() -> None:
    for family in FAMILIES.values():
        named = [name for name, value in vars(family).items() if isinstance(value, str) and ":" in value]
        assert {"tokenizer", "config", "network", "inputs", "head"} <= {*named}
        assert "objective" in named or family.layout, "what is not trained here is read from folders"
        assert all(family.part(name) is not None for name in named)
    with pytest.raises(InputError, match="LSTM: this family has no layout"):
        FAMILIES["lstm"].part("layout")


@pytest.mark.parametrize(
    ("shape", "parameters"), expected(__file__, "test_published_sizes_have_the_released_models_parameters")
)
def test_published_sizes_have_the_released_models_parameters(shape: str, parameters: int) -> None:
    """Counted from the shapes of the released checkpoints, tied output once; 762M is what the paper prints of 774M."""
    preset = preset_named("paper", {"family": "gpt2", "shape": shape, "model": {"n_vocab": 50_257}})
    with torch.device("meta"):
        assert sum(weight.numel() for weight in GPT(preset.model).parameters()) == parameters


def test_other_settings_come_on_top_of_family_and_shape_in_any_order() -> None:
    preset = preset_named("demo", {"model": {"n_layer": 3}, "shape": "82M", "family": "gpt2"})
    assert (preset.model.n_layer, preset.model.n_embd, preset.model.norm_first) == (3, 768, True)


@pytest.mark.parametrize(("overrides", "message"), expected(__file__, "test_what_does_not_go_together_is_refused"))
def test_what_does_not_go_together_is_refused(overrides: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("$families", ", ".join(offered()))):
        preset_named("demo", overrides)
