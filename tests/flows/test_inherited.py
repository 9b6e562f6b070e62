"""A fine-tune takes the settings that suit its checkpoint: its preset's by name, else by what is recorded of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.forms.parameters import FinetuneParameters
from flows.forms.settings import inherited, preset_on, with_options
from flows.papers.sweep.forms import sweep_on
from gptcore.base.settings import recorded
from gptcore.config import FinetuneConfig, nearest_preset, network_config, preset_named
from gptcore.families import FAMILIES
from tasks.store.artifact import Artifact, Recipe
from tasks.store.lineage import inherited_preset
from tasks.store.store import Store

CHANGES: dict[str, Any] = {"model": {"n_layer": 3, "n_vocab": 999}, "pretrain": {"steps": 7, "lr": 1e-3, "seed": 5}}
BERT_BASE = {"n_layer": 12, "n_head": 12, "n_embd": 768, "n_inner": 3072}  # its section 3
BERT_TINY = {"n_layer": 2, "n_head": 2, "n_embd": 128, "n_inner": 512}  # Turc et al. 2019, Table 1


@pytest.mark.parametrize("family", ["gpt", "gpt2", "bert", "albert", "electra"])
@pytest.mark.parametrize("name", ["demo", "small", "paper"])
def test_a_preset_is_told_by_what_is_recorded_whatever_was_changed(name: str, family: str) -> None:
    preset = preset_named(name, {"family": family, **CHANGES})
    assert nearest_preset(preset.model, recorded(preset.pretrain)) == name


def test_a_foreign_model_has_the_preset_nearest_in_size() -> None:
    for shape, name in ((BERT_BASE, "paper"), (BERT_TINY, "demo"), ({**BERT_BASE, "n_layer": 24}, "paper")):
        assert nearest_preset(network_config({"family": "bert", "n_vocab": 30_522, **shape})) == name


def test_the_ancestor_says_it_then_the_checkpoint_then_its_teacher(tmp_path: Path) -> None:
    store = Store(str(tmp_path))

    def made(stage: str, said: str = "", preset: str = "paper", **inputs: Artifact) -> Artifact:
        of = preset_named(preset)
        config = {"model": recorded(of.model), **({"pretrain": recorded(of.pretrain)} if stage == "pretrain" else {})}
        counts = {"tokenizer_digest": "t", **({"preset": said} if said else {})}
        recipe = Recipe(stage, 1, {**config, "said": said}, inputs)
        return store.build(recipe, lambda _: counts).artifact

    named, older, foreign = made("pretrain", "small"), made("pretrain", preset="demo"), made("imported", preset="long")
    assert inherited_preset(named) == ("small", "which pre-trained the checkpoint")
    assert inherited_preset(older) == ("demo", "nearest to what is recorded of the checkpoint")
    assert inherited_preset(foreign) == ("small", "nearest in size to the checkpoint"), "of equal sizes the first"
    assert inherited_preset(foreign, tuned=True) == ("imported", "as the checkpoint was pre-trained elsewhere")
    assert inherited_preset(made("pretrain", "of another version")) == (
        "paper",
        "nearest to what is recorded of the checkpoint",
    )
    on = made("pretrain", "paper", start=named)
    assert inherited_preset(on) == ("small", f"which pre-trained its ancestor {named.short}")
    student = made("pretrain", teacher=named)
    assert inherited_preset(student) == ("small", f"which pre-trained its teacher {named.short}")
    assert inherited_preset(made("pretrain", "demo", teacher=named))[0] == "demo"

    form = FinetuneParameters(task="rte", checkpoint=named.digest, max_train_rows=0, overrides={"finetune": {"lr": 1}})
    preset, origin = preset_on(store, named, form.preset, form.overrides)
    assert (preset.finetune.lr, preset.finetune.max_train_rows, origin) == (
        1.0,
        5000,
        "preset small, which pre-trained the checkpoint",
    )
    family = FAMILIES["gpt"]
    settings = {"rte": preset.finetune_for("rte"), "sst2": preset.finetune}
    tuned = with_options(settings, form.options(family), "")
    assert (tuned["rte"].epochs, tuned["sst2"].epochs, tuned["rte"].max_train_rows) == (2, 1, None)
    assert inherited("paper", named) == ("paper", "preset paper, as asked for")
    assert inherited(form.preset, named, "the teacher").origin == "preset small, which pre-trained the teacher"

    plan = {"objective": "dev/score", "trials": 1}
    assert sweep_on(store, plan, named)[0] == {**plan, "preset": "small"}
    assert sweep_on(store, {**plan, "preset": "demo"}, named) == ({**plan, "preset": "demo"}, ())


def test_what_a_user_says_of_all_tasks_counts_for_those_with_values_of_their_own(tmp_path: Path) -> None:
    """For an imported model, whose recipe is not the user's; the other rates are those for its width."""
    store = Store(str(tmp_path))
    network = recorded(network_config({"family": "albert", "n_vocab": 100, "n_embd": 384, "n_head": 4}))
    model = store.build(Recipe("imported", 1, {"model": network}), lambda _: {"tokenizer_digest": "t"}).artifact
    found = {}
    for overrides in ({}, {"finetune": {"lr": 4e-4, "epochs": 1}}, {"tasks": {"cola": {"lr": 1e-3}}}):
        preset, origin = preset_on(store, model, FinetuneParameters(task="rte").preset, overrides)
        found[len(found)] = [preset.finetune_for(task) for task in ("rte", "cola", "mnli")]
        assert ("its rates times 2" in origin) == ("finetune" not in overrides)
    plain, whole, single = found.values()
    assert [config.epochs for config in plain] == [10, 10, 3]  # Table 14 of the paper
    assert {(config.lr, config.epochs) for config in whole} == {(4e-4, 1)}
    assert [config.lr for config in single] == [plain[0].lr, 1e-3, plain[2].lr]
    assert plain[0].lr == 2 * preset_named("paper", {"family": "albert"}).finetune_for("rte").lr


def test_a_published_size_brings_its_own_fine_tuning(tmp_path: Path) -> None:
    """ELECTRA's Table 7: rates, and how they fall from layer to layer."""
    store, shapes = Store(str(tmp_path)), FAMILIES["electra"].shapes
    for size, lr, decay in (("small", 3e-4, 0.8), ("base", 1e-4, 0.8), ("large", 5e-5, 0.9)):
        network = recorded(network_config({"family": "electra", "n_vocab": 30_522, **shapes[f"electra-{size}"]}))
        model = store.build(Recipe("imported", 1, {"model": network}), lambda _: {"tokenizer_digest": "t"}).artifact
        lower = FinetuneParameters(task="rte", layer_decay=1, lm_coef=0.5)
        preset, _ = preset_on(store, model, lower.preset, lower.overrides)
        assert (preset.name, preset.finetune.lr, preset.finetune.layer_decay) == ("imported", lr, decay)
        options = lower.options(FAMILIES["electra"])
        assert with_options({"rte": FinetuneConfig(lm_coef=0)}, options, "")["rte"].layer_decay is None
