"""Presets, and settings that a user changes."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gptcore.abstracts.config import AdaptConfig
from gptcore.base.errors import InputError
from gptcore.config import PRESETS, FinetuneConfig, ModelConfig, PretrainConfig, check_same_shape, paper, preset_named
from gptcore.knowledge.config import GroundingConfig, KagNETConfig, TransEConfig
from gptcore.sweep.plan import read_plan
from tests.expected import expected


def test_the_paper_preset_is_section_4_1() -> None:
    preset = paper()
    model, pretrain, finetune = preset.model, preset.pretrain, preset.finetune
    assert (model.n_layer, model.n_embd, model.n_head, model.n_inner, model.n_ctx) == (12, 768, 12, 3072, 512)
    assert model.embd_pdrop == model.attn_pdrop == model.resid_pdrop == 0.1
    assert model.init_std == 0.02
    assert preset.tokenizer.n_merges == 40_000
    assert (pretrain.batch_size, pretrain.epochs, pretrain.lr, pretrain.warmup_steps) == (64, 100, 2.5e-4, 2000)
    assert pretrain.weight_decay == finetune.weight_decay == 0.01
    assert (finetune.lr, finetune.batch_size, finetune.epochs, finetune.lm_coef) == (6.25e-5, 32, 3, 0.5)
    assert (finetune.clf_pdrop, finetune.warmup) == (0.1, 0.002)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_carries_its_name_and_only_known_tasks(name: str) -> None:
    from gptcore.nlu.registry import REGISTRY

    preset = preset_named(name)
    assert preset.name == name
    assert set(preset.tasks) <= set(REGISTRY)
    for task in REGISTRY:
        assert isinstance(preset.finetune_for(task), FinetuneConfig)


def test_overrides_change_what_they_name_and_nothing_else() -> None:
    changed = preset_named(
        "small", {"finetune": {"lr": 1, "epochs": 7}, "tasks": {"race": {"batch_size": 8}}, "scratch": True}
    )
    before = preset_named("small")
    assert changed.finetune == dataclasses.replace(before.finetune, lr=1.0, epochs=7)
    assert isinstance(changed.finetune.lr, float)
    assert changed.finetune_for("race").batch_size == 8
    assert changed.finetune_for("race").max_train_rows == before.finetune_for("race").max_train_rows
    assert changed.scratch
    assert changed.pretrain == before.pretrain


@pytest.mark.parametrize(("overrides", "words"), expected(__file__, "test_a_wrong_override_names_its_place"))
def test_a_wrong_override_names_its_place(overrides: dict[str, object], words: str) -> None:
    with pytest.raises(InputError) as error:
        preset_named("demo", overrides, "my.toml")
    assert words in str(error.value)
    assert str(error.value).startswith("my.toml: ")
    assert "None" not in str(error.value)


def test_the_long_preset_is_the_small_one_for_longer() -> None:
    brief, extended = preset_named("small"), preset_named("long")
    check_same_shape(dataclasses.replace(extended.model, n_ctx=brief.model.n_ctx), brief.model, "long")
    assert (extended.corpus, extended.tokenizer, extended.shards) == (brief.corpus, brief.tokenizer, brief.shards)
    assert extended.pretrain.steps is not None
    assert brief.pretrain.steps is not None
    tokens = [p.pretrain.batch_size * p.model.n_ctx * p.pretrain.steps for p in (brief, extended)]
    assert tokens == [6_553_600, 27_443_200]


INFRA = Path(__file__).parents[2] / "infra"


def test_the_settings_file_that_is_shipped_is_valid() -> None:
    path = INFRA / "one-epoch.toml"
    preset = preset_named("small", tomllib.loads(path.read_text(encoding="utf-8")), str(path))
    assert preset.seeds is None
    assert preset.pretrain.steps == 6700
    assert preset.finetune_for("race").max_train_rows == 3000


@pytest.mark.parametrize("path", sorted(INFRA.glob("sweep-*.toml")), ids=lambda path: path.name)
def test_the_sweeps_that_are_shipped_are_valid(path: Path) -> None:
    plan = read_plan(tomllib.loads(path.read_text(encoding="utf-8")), str(path))
    assert plan.preset == "small"
    assert plan.pretrains == (path.name == "sweep-small.toml")


def test_none_is_a_value_only_where_it_means_something() -> None:
    assert preset_named("small", {"pretrain": {"steps": None}}).pretrain.steps is None
    with pytest.raises(InputError, match="expected int"):
        preset_named("small", {"pretrain": {"batch_size": None}})


def test_an_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="demo, small, long, best, paper"):
        preset_named("huge")


def test_the_best_preset_is_the_long_one_but_for_what_makes_it_look_up_what_was_said() -> None:
    extended, found = preset_named("long"), preset_named("best")
    assert isinstance(extended.model, ModelConfig)
    assert found.model == dataclasses.replace(extended.model, smeared_keys=True)
    changed = {"optimizer", "lr", "steps", "repeating_steps", "repeating_share", "eval_every", "checkpoint_every"}
    ours, theirs = (dataclasses.asdict(each.pretrain) for each in (found, extended))
    assert {name for name in ours if ours[name] != theirs[name]} == changed
    assert (found.finetune, found.seeds) == (extended.finetune, extended.seeds)
    own = {
        "cola": {"lr": 2e-4},
        "qqp": {"epochs": 2},
        "race": {"max_train_rows": 6000},
        "rte": {"epochs": 1, "from_task": "mnli"},
        "stsb": {"epochs": 2},
    }
    tasks = dict.fromkeys([*extended.tasks, *own])
    assert found.tasks == {task: {**extended.tasks.get(task, {}), **own.get(task, {})} for task in tasks}
    assert preset_named("best", {"family": "gptbert"}).pretrain.repeating_steps == 1500
    with pytest.raises(InputError, match=r"preset best: pretrain.repeating_steps = 1500: BERT does not learn so"):
        preset_named("best", {"family": "bert"})
    with pytest.raises(InputError, match=r"x: pretrain.repeating_steps = 9: BERT .*that does .gpt, gpt2, gptbert"):
        preset_named("demo", {"family": "bert", "pretrain": {"repeating_steps": 9}}, "x")
    with pytest.raises(InputError, match=r"x: pretrain.mask_share = 0.3: GPT-1 .*albert, bert, dist"):
        preset_named("demo", {"pretrain": {"mask_share": 0.3}}, "x")


def test_the_quick_presets_run_one_seed_and_the_papers_as_many_as_each_task_says() -> None:
    seeds = {"demo": 1, "small": 1, "long": None, "best": None, "paper": None}
    assert {name: preset_named(name).seeds for name in PRESETS} == seeds
    assert (preset_named("small", {"seeds": 3}).seeds, preset_named("small", {"seeds": 0}).seeds) == (3, None)


def test_limits_hold_under_another_default() -> None:
    """Settings of a kind of training that say another default of a shared field have that field's limits."""
    for kind in (FinetuneConfig, PretrainConfig, AdaptConfig, TransEConfig, KagNETConfig):
        for name, value, limit in (("lr", 0.0, "more than 0"), ("batch_size", 0, "1 or more")):
            with pytest.raises(InputError, match=rf"^{kind.section}.{name} = {value}: expected {limit}$"):
                kind(**{name: value})


@pytest.mark.parametrize(("kind", "changes", "words"), expected(__file__, "test_settings_of_no_use_are_refused"))
def test_settings_of_no_use_are_refused(kind: str, changes: dict[str, Any], words: str) -> None:
    kinds = (ModelConfig, PretrainConfig, TransEConfig, KagNETConfig, GroundingConfig)
    with pytest.raises(InputError, match=words):
        next(each for each in kinds if each.__name__ == kind)(**changes)
