"""Presets, settings that a user changes, and sweeps: what a file says, what trials draw, who goes on, what compares."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from gptcore.base.settings import off_settings, recorded, replace_settings
from gptcore.config import PRESETS, FinetuneConfig, ModelConfig, PretrainConfig, check_same_shape, preset_named
from gptcore.evaluation.bits import bits_per_byte
from gptcore.families import FAMILIES, offered
from gptcore.papers.abstracts.config import AdaptConfig
from gptcore.papers.graphs.config import GroundingConfig, KagNETConfig, TransEConfig
from gptcore.papers.sweep.plan import BITS, LOSS, SCORE, Plan, Rung, fewer_rows, read_plan, rungs, shortened, survivors
from gptcore.papers.sweep.space import Choice, Range, Value, draw
from tests.expected import expected as table_of


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_carries_its_name_and_only_known_tasks(name: str) -> None:
    from gptcore.nlu.registry import BEYOND, REGISTRY

    preset = preset_named(name)
    assert preset.name == name
    assert set(preset.tasks) <= {*REGISTRY, *BEYOND}
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


@pytest.mark.parametrize(("overrides", "words"), table_of(__file__, "test_a_wrong_override_names_its_place"))
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


def learning(setting: str) -> str:
    """A message's end with the names of the families whose objectives read a setting."""
    those = ", ".join(name for name in offered() if setting in FAMILIES[name].objective_settings)
    return rf"that does \({those}\)$"


def test_the_best_preset_is_the_long_one_but_for_what_makes_it_look_up_what_was_said() -> None:
    extended, found = preset_named("long"), preset_named("best")
    assert isinstance(extended.model, ModelConfig)
    assert found.model == dataclasses.replace(extended.model, smeared_keys=True, rotary=True)
    changed = {"optimizer", "lr", "steps", "repeating_steps", "repeating_share", "eval_every", "checkpoint_every"}
    ours, theirs = (dataclasses.asdict(each.pretrain) for each in (found, extended))
    assert {name for name in ours if ours[name] != theirs[name]} == changed
    assert (found.finetune, found.seeds) == (dataclasses.replace(extended.finetune, ngrams=3), extended.seeds)
    own = table_of(__file__, "test_the_best_preset_is_the_long_one_but_for_what_makes_it_look_up_what_was_said")
    tasks = dict.fromkeys([*extended.tasks, *own])
    assert found.tasks == {task: {**extended.tasks.get(task, {}), **own.get(task, {})} for task in tasks}
    assert preset_named("best", {"family": "gptbert"}).pretrain.repeating_steps == 1500
    with pytest.raises(InputError, match=r"preset best: pretrain.repeating_steps = 1500: BERT does not learn so"):
        preset_named("best", {"family": "bert"})
    with pytest.raises(InputError, match=f"x: pretrain.repeating_steps = 9: BERT .*{learning('repeating_steps')}"):
        preset_named("demo", {"family": "bert", "pretrain": {"repeating_steps": 9}}, "x")
    with pytest.raises(InputError, match=f"x: pretrain.mask_share = 0.3: GPT-1 .*{learning('mask_share')}"):
        preset_named("demo", {"pretrain": {"mask_share": 0.3}}, "x")


def test_the_quick_presets_run_one_seed_and_the_papers_as_many_as_each_task_says() -> None:
    seeds = {"demo": 1, "small": 1, "long": None, "best": None, "paper": None}
    assert {name: preset_named(name).seeds for name in PRESETS} == seeds
    assert (preset_named("small", {"seeds": 3}).seeds, preset_named("small", {"seeds": 0}).seeds) == (3, None)


def test_epochs_chosen_on_dev_are_recorded_as_before_the_setting_was_and_read_so() -> None:
    by_dev = replace_settings(FinetuneConfig(), {"select": "dev"}, "a.toml: finetune")
    assert (by_dev.select, FinetuneConfig().select, FinetuneConfig(original=True).select) == (None, "held-out", None)
    assert recorded(FinetuneConfig()) == {**recorded(by_dev), "select": "held-out"}
    assert FinetuneConfig(**{**off_settings(FinetuneConfig), **recorded(by_dev)}) == by_dev
    with pytest.raises(InputError, match=r"original = True with select = 'refit': expected 'dev'"):
        FinetuneConfig(original=True, select="refit")
    with pytest.raises(InputError, match=r"a\.toml: finetune\.select = 'best': expected one of held-out, refit, dev"):
        replace_settings(FinetuneConfig(), {"select": "best"}, "a.toml: finetune")


def test_limits_hold_under_another_default() -> None:
    """Settings of a kind of training that say another default of a shared field have that field's limits."""
    for kind in (FinetuneConfig, PretrainConfig, AdaptConfig, TransEConfig, KagNETConfig):
        for name, value, limit in (("lr", 0.0, "more than 0"), ("batch_size", 0, "1 or more")):
            with pytest.raises(InputError, match=rf"^{kind.section}.{name} = {value}: expected {limit}$"):
                kind(**{name: value})


@pytest.mark.parametrize(("kind", "changes", "words"), table_of(__file__, "test_settings_of_no_use_are_refused"))
def test_settings_of_no_use_are_refused(kind: str, changes: dict[str, Any], words: str) -> None:
    kinds = (ModelConfig, PretrainConfig, TransEConfig, KagNETConfig, GroundingConfig)
    with pytest.raises(InputError, match=words):
        next(each for each in kinds if each.__name__ == kind)(**changes)


FILE = "\n".join(table_of(__file__, "FILE"))


def plan(changes: dict[str, Any] | None = None, checkpoint: bool = False, **fields: Any) -> Plan:
    """The plan of a small file with ``changes``."""
    table = {"preset": "demo", "objective": LOSS, "trials": 3, "rungs": 2, "space": {"pretrain": {"lr": [1, 2, 3]}}}
    return read_plan({**table, **fields, **(changes or {})}, "a.toml", checkpoint)


# --- halving


@pytest.mark.parametrize(
    ("trials", "eta", "count", "expected"), table_of(__file__, "test_each_rung_keeps_its_share_and_trains_longer")
)
def test_each_rung_keeps_its_share_and_trains_longer(
    trials: int, eta: int, count: int, expected: list[list[int]]
) -> None:
    """Successive halving of 81 trials is the first bracket of Hyperband's Table 1."""
    found = rungs(trials, eta, count)
    assert [[rung.trials, rung.part] for rung in found] == expected
    assert [rung.number for rung in found] == list(range(1, count + 1))
    for before, after in pairwise(found):
        assert before.part == eta * after.part
        # the rounds cost about the same: that is what the halving is for
        assert after.trials * before.part <= before.trials * after.part * eta


def test_the_best_go_on_and_a_failed_one_never() -> None:
    with pytest.raises(InputError, match="trials = 8; expected 9 or more, for 3 rungs with eta = 3"):
        rungs(8, 3, 3)
    reached = {1: 2.0, 2: None, 3: 1.0, 4: 2.0, 5: 3.0}
    assert survivors(reached, 3, lower_is_better=True) == [3, 1, 4]
    assert survivors(reached, 2, lower_is_better=False) == [5, 1]
    assert survivors({1: None, 2: 5.0}, 2, lower_is_better=True) == [2]
    assert survivors({1: None}, 1, lower_is_better=True) == []


def test_a_part_of_the_length_has_the_whole_schedule() -> None:
    config = PretrainConfig(steps=3200, warmup_steps=200)
    short = shortened(config, 9)
    assert (short.steps, short.warmup_steps, short.lr) == (356, 22, config.lr)
    assert shortened(config, 1) is config  # so its artifact is the pipeline's
    assert shortened(PretrainConfig(epochs=9.0), 9).epochs == 1.0
    assert shortened(PretrainConfig(steps=2), 9).steps == 1
    tuned = FinetuneConfig(max_train_rows=900)
    assert fewer_rows(tuned, 9, 2490).max_train_rows == 100
    assert fewer_rows(tuned, 9, 450).max_train_rows == 50
    assert fewer_rows(FinetuneConfig(), 3, 10).max_train_rows == 3
    assert fewer_rows(tuned, 1, 10) is tuned


# --- draws


def test_few_trials_cover_every_axis() -> None:
    axes = [Range("pretrain.lr", 1e-4, 1e-2, log=True), Choice("pretrain.batch_size", (8, 16, 32))]
    drawn = draw(axes, 12, seed=3)
    twelfths = [math.floor(6 * math.log10(float(values["pretrain.lr"]) / 1e-4) + 1e-3) for values in drawn]
    assert sorted(twelfths) == list(range(12))
    sizes = [values["pretrain.batch_size"] for values in drawn]
    assert {size: sizes.count(size) for size in (8, 16, 32)} == {8: 4, 16: 4, 32: 4}


def test_draws_follow_from_the_seed_and_the_axis_alone() -> None:
    lr, size = Range("pretrain.lr", 1e-4, 1e-2), Choice("pretrain.batch_size", (8, 16, 32))
    alone = [values["pretrain.lr"] for values in draw([lr], 9, seed=1)]
    assert alone == [values["pretrain.lr"] for values in draw([size, lr], 9, seed=1)]
    assert alone != [values["pretrain.lr"] for values in draw([lr], 9, seed=2)]


def test_a_space_is_used_up_and_no_further() -> None:
    axes = [Choice("a.b", (1, 2, 3)), Range("a.c", 1, 4, whole=True)]
    drawn = draw(axes, 12, seed=0)
    assert len({tuple(values.values()) for values in drawn}) == 12
    with pytest.raises(InputError, match="trials = 13; the space has 12 different ones"):
        draw(axes, 13, seed=0)
    narrow = draw([Range("a.b", 0.999, 0.99999)], 30, seed=0)  # as beta2
    assert len({values["a.b"] for values in narrow}) == 30


@given(st.floats(1e-8, 1e8), st.floats(1.5, 1e6), st.booleans(), st.integers(1, 20), st.integers(0, 9))
@settings(max_examples=60)
def test_a_draw_stays_within_its_range(low: float, times: float, log: bool, trials: int, seed: int) -> None:
    axis = Range("pretrain.lr", low, low * times, log)
    for values in draw([axis], trials, seed):
        assert axis.low <= float(values["pretrain.lr"]) <= axis.high


# --- the file


def test_whole_numbers_of_a_range_are_all_as_likely() -> None:
    for axis in (Range("n", 2, 4, whole=True), Range("n", 1, 7, log=True, whole=True)):
        values = [axis.at(share / 900) for share in range(900)]
        assert {type(value) for value in values} == {int}
        assert sorted(set(values)) == list(range(int(axis.low), int(axis.high) + 1))
        if not axis.log:
            assert {values.count(value) for value in values} == {300}
    linear = [Range("n", 2, 4, whole=True), Range("x", 0.0, 1.0)]
    for seed in range(20):
        assert {values["n"] for values in draw(linear, 3, seed)} == {2, 3, 4}, "one of each part"


def test_a_file_becomes_trials_that_a_config_file_can_say() -> None:
    read = read_plan(tomllib.loads(FILE), "a.toml")
    assert read.rungs == (Rung(1, 12, 9), Rung(2, 4, 3), Rung(3, 1, 1))
    assert (read.objective, read.lower_is_better, read.pretrains) == (BITS, True, True)
    for trial in read.trials:
        preset = trial.preset
        assert preset.pretrain.steps == 900
        assert (preset.model.n_embd, preset.model.n_inner) in {(192, 768), (320, 1280)}
        assert (preset.model.n_embd == 192) == (trial.drawn["size"] == "narrow")
        assert 5e-4 <= preset.pretrain.lr <= 5e-3
        assert 0 <= preset.model.embd_pdrop <= 0.2
        assert preset_named("small", tomllib.loads(tomli_w.dumps(trial.overrides))) == preset
    assert {trial.preset.pretrain.batch_size for trial in read.trials} == {8, 16, 32}


def test_a_model_is_swept_by_the_settings_of_its_own_family() -> None:
    space = {"model": {"n_segments": [2, 3, 4], "attn_pdrop": {"low": 0.0, "high": 1.0}}}
    models = [trial.preset.model for trial in plan({"settings": {"family": "bert"}, "space": space}).trials]
    assert sorted(vars(model)["n_segments"] for model in models) == [2, 3, 4]


def test_a_draw_holds_for_the_tasks_that_the_preset_excepts() -> None:
    table: dict[str, Any] = {"preset": "small", "objective": SCORE, "tasks": ["rte", "mrpc"], "trials": 2, "rungs": 1}
    read = read_plan({**table, "space": {"finetune": {"epochs": [3, 4]}}}, "a.toml")
    for trial in read.trials:
        assert {trial.preset.finetune_for(task).epochs for task in ("rte", "mrpc")} == {trial.drawn["finetune.epochs"]}
        assert trial.preset.finetune_for("cola").epochs == 2  # no task of this sweep
    kept = read_plan(
        {**table, "space": {"finetune": {"epochs": [3, 4]}}, "settings": {"tasks": {"rte": {"epochs": 9}}}}, "a.toml"
    )
    assert {trial.preset.finetune_for("rte").epochs for trial in kept.trials} == {9}, "the file itself says so"


BAD: dict[str, tuple[dict[str, Any], str]] = table_of(__file__, "BAD")


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_file_is_one_line_that_names_file_and_field(case: str) -> None:
    changes, message = BAD[case]
    with pytest.raises(InputError, match=message) as caught:
        plan(changes)
    assert str(caught.value).startswith("a.toml: ")
    assert "\n" not in str(caught.value)


def test_a_given_checkpoint_is_only_fine_tuned() -> None:
    with pytest.raises(InputError, match=r"pretrain.lr changes nothing of a given --checkpoint"):
        plan({"objective": SCORE, "tasks": ["rte"]}, checkpoint=True)
    read = plan({"objective": SCORE, "tasks": ["rte"], "space": {"finetune": {"lr": [1, 2, 3]}}}, checkpoint=True)
    assert not read.pretrains


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_NAMES = st.sampled_from(["pretrain", "model", "finetune", "tasks", "lr", "n_embd", "low", "high", "rte", "size", "x"])
_NEARLY = st.recursive(_ANYTHING, lambda inner: st.dictionaries(_NAMES, inner, max_size=3), max_leaves=8)


@given(
    st.dictionaries(
        st.sampled_from(["space", "together", "settings", "tasks", "trials", "seed", "rungs", "x"]), _NEARLY
    )
)
@settings(max_examples=150)
def test_any_file_is_a_plan_or_one_line(changes: dict[str, Any]) -> None:
    said, read = "", None
    try:
        read = plan(changes)
    except InputError as error:
        said = str(error)
    assert "\n" not in said
    if read is None:
        assert said.startswith("a.toml: ")
    else:
        assert len(read.trials) == read.rungs[0].trials
        assert tomllib.loads(tomli_w.dumps(read.trials[0].overrides)) == read.trials[0].overrides


# --- the loss


def test_bits_a_byte_are_the_same_whatever_cuts_the_text() -> None:
    """One distribution over texts, spelt in letters and in pairs of letters: two losses a token, one a byte."""
    letters = {"a": 0.5, "b": 0.25, "c": 0.25}
    text = "abcabbaacaab" * 10
    alone = [-math.log(letters[letter]) for letter in text]
    pairs = [-math.log(letters[text[i]] * letters[text[i + 1]]) for i in range(0, len(text), 2)]
    found: list[Value] = []
    for nats in (alone, pairs):
        loss = math.fsum(nats) / len(nats)
        found.append(bits_per_byte(loss, len(nats), len(nats), 9, len(text.encode())))
    assert found[0] == pytest.approx(found[1], rel=1e-12)
    assert found[0] == pytest.approx(1.5)  # the entropy: half of the letters cost one bit, half two
    # a token that nothing predicts costs a blind guess
    assert bits_per_byte(math.log(2), 7, 8, 16, 1) == pytest.approx(7 * 1 + 4)
    assert bits_per_byte(0.0, 3, 4, 256, 1) == pytest.approx(8)
