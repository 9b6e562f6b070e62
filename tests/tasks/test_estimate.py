"""Estimates of trainings' times: what they count, and what they say."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from gptcore.base.settings import recorded
from gptcore.config import FinetuneConfig, ModelConfig, PretrainConfig, preset_named
from gptcore.config.operations import pretraining_flops, share_seen
from gptcore.nlu.registry import task_settings, task_spec
from tasks.jobs import devices
from tasks.papers.abstracts.stages import AdaptRequest
from tasks.stages import training as module
from tasks.stages.finetune import FinetuneRequest
from tasks.stages.pretrain import PretrainRequest
from tasks.stages.training import Distillation, about, estimate
from tasks.store.artifact import Artifact, Recipe
from tasks.store.counts import FinetuneCounts
from tasks.store.store import Store
from tests.expected import expected

TOKENS = 1_000_000
SETTINGS = task_settings(task_spec("rte"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


def made(store: Store, stage: str, counts: dict[str, Any], **config: Any) -> Artifact:
    return store.build(Recipe(stage, 1, config), lambda _: counts).artifact


def pretraining(store: Store, steps: int | None, n_vocab: int = 40_478, **config: Any) -> PretrainRequest:
    counts = {"n_vocab": n_vocab, "splits": {"train": {"n_tokens": TOKENS}}, "tokenizer_digest": "t"}
    shards = made(store, "shards", counts, of=n_vocab)
    return PretrainRequest(store, shards, preset_named("paper").model, PretrainConfig(steps=steps, **config))


def test_pre_trainings_with_muon_alone_are_made_anew(store: Store) -> None:
    versions = [pretraining(store, 100, optimizer=optimizer).recipe.version for optimizer in (None, "muon")]
    assert versions == [1, 2], "in which query, key and value are no longer one matrix"


def test_a_pre_training_counts_six_for_each_weight_and_token(store: Store) -> None:
    from gptcore.models.network import build_model, shapes_only

    with shapes_only():
        network = build_model(preset_named("paper").model)
    exact = network.flops_per_token(512) * 100 * 64 * 512
    work = pretraining(store, steps=100).work
    assert work.operations == pytest.approx(exact)
    assert work.updates == 100
    by_epochs = pretraining(store, steps=None).work
    assert by_epochs.updates == math.ceil(100 * TOKENS / (64 * 512))
    assert by_epochs.operations == pytest.approx(network.flops_per_token(512) * by_epochs.updates * 64 * 512)
    short = pretraining(store, steps=100, short_length=128, short_share=0.5)
    halves = 50 * 64 * (128 * network.flops_per_token(128) + 512 * network.flops_per_token(512))
    assert short.work.operations == pytest.approx(halves)


def test_a_pre_training_on_hidden_words_counts_those_alone_and_a_generators_work_too(store: Store) -> None:
    shards = pretraining(store, steps=100).shards

    def of(family: str, **changes: Any) -> float:
        preset = preset_named("demo", {"family": family})
        config = dataclasses.replace(
            preset.pretrain, **{"steps": 100, "short_length": None, "short_share": None, **changes}
        )
        return PretrainRequest(store, shards, preset.model, config).work.operations

    sizes = {family: preset_named("demo", {"family": family}).pretrain for family in ("gpt", "bert", "electra")}
    tokens = {family: 100 * config.batch_size * 96 for family, config in sizes.items()}
    each = {family: of(family) / n for family, n in tokens.items()}
    head = 6 * 40_478 * 128
    assert each["gpt"] - each["bert"] == pytest.approx(0.85 * head, rel=0.01)
    assert of("bert", mask_share=0.3) / tokens["bert"] - each["bert"] == pytest.approx(0.15 * head, rel=0.02)
    assert each["bert"] < each["electra"]
    telling = dataclasses.replace(preset_named("demo", {"family": "electra"}).model, words=True, n_vocab=40_478)
    every, some = (
        pretraining_flops(telling, PretrainConfig(batch_size=1, replaced_objective=name), 1) / telling.n_ctx
        for name in ("all-tokens-mlm", "replace-mlm")
    )
    assert every - some == pytest.approx(0.85 * head, rel=0.01)


def test_short_sequences_come_first_and_are_counted_as_such() -> None:
    model = preset_named("demo", {"family": "bert"}).model
    config = PretrainConfig(batch_size=2, short_length=32, short_share=0.75)
    of = {length: 2 * length * model.flops_per_token(length, 0.15) for length in (32, 96)}
    assert pretraining_flops(model, config, 100, 75) == pytest.approx(75 * of[32])
    assert pretraining_flops(model, config, 100) == pytest.approx(75 * of[32] + 25 * of[96])
    assert share_seen(model, config, 100, 75) == pytest.approx(75 * 32 / (75 * 32 + 25 * 96))
    assert share_seen(model, config, 100, 100) == 1
    assert share_seen(preset_named("demo").model, PretrainConfig(), 100, 25) == 0.25
    longer = dataclasses.replace(config, short_length=512)
    assert longer.mean_length(96) == 96, "no sequence is longer than the network's"
    assert pretraining_flops(model, longer, 100) == pytest.approx(100 * of[96])


def test_a_fine_tune_counts_the_rows_that_it_takes(store: Store) -> None:
    model = preset_named("demo").model
    checkpoint = made(store, "pretrain", {}, model=recorded(model))
    dataset = made(store, "dataset", {"splits": {"train": {"rows": 100, "tokens": 5_000}}}, **SETTINGS)

    def of(**changes: Any) -> float:
        config = FinetuneConfig(epochs=3, **changes)
        return FinetuneRequest(store, "rte", dataset, checkpoint, config, "arm").work.operations

    assert of() > 0
    assert of(max_train_rows=20) == pytest.approx(of() / 5)
    assert of(max_train_rows=2_000) == of()


@pytest.mark.parametrize(
    ("task", "settings", "said"),
    [
        ("rte", {"select": None}, set()),
        ("rte", {"select": "held-out"}, {"held_out"}),
        ("rte", {"select": "refit", "ngrams": 3}, {"held_out", "grams"}),
        ("rte", {"select": None, "ngrams": 3}, {"grams"}),
        ("mrpc", {"select": None, "ngrams": 3}, {"grams"}),
        ("mrpc", {"select": "held-out"}, {"held_out", "decision"}),
        ("cola", {"select": "refit"}, {"held_out", "decision"}),
        ("qqp", {"select": "held-out", "ngrams": 2}, {"held_out", "decision", "grams"}),
    ],
)
def test_a_fine_tune_says_what_its_settings_mean_today(
    task: str, settings: dict[str, Any], said: set[str], store: Store
) -> None:
    """Exactly where a setting once meant something else, so that no result of then is taken for one of now."""
    checkpoint = made(store, "pretrain", {}, model=recorded(preset_named("demo").model))
    counts = {"splits": {"train": {"rows": 100, "tokens": 5_000}}}
    dataset = made(store, "dataset", counts, **task_settings(task_spec(task)))
    config = FinetuneConfig(**settings)
    request = FinetuneRequest(store, task, dataset, checkpoint, config, "arm")
    stated = dict(request.recipe.config)
    meanings = {
        "held_out": "groups of texts",
        "grams": "words and runs of pieces, by side, calibrated; alone where they are ahead",
        "decision": "best for the metric, and epochs and n-grams with it",
    }
    assert {name: stated.pop(name) for name in said} == {name: meanings[name] for name in said}
    assert stated == {**task_settings(task_spec(task)), "finetune": recorded(config)}
    assert dict(request.recipe.inputs) == {"dataset": dataset, "checkpoint": checkpoint}
    scratch = FinetuneRequest(store, task, dataset, checkpoint, dataclasses.replace(config, pretrained=False), "arm")
    assert set(scratch.recipe.inputs) == {"dataset"}
    assert scratch.recipe.config["model"] == recorded(preset_named("demo").model)
    assert said <= scratch.recipe.config.keys()


def test_who_a_fine_tune_starts_from_and_learns_from_is_in_its_recipe(store: Store) -> None:
    checkpoint = made(store, "pretrain", {}, model=recorded(preset_named("demo").model))
    dataset = made(store, "dataset", {"splits": {"train": {"rows": 100, "tokens": 5_000}}}, **SETTINGS)
    start, teacher = made(store, "finetune", {}, task="mnli"), made(store, "finetune", {}, task="rte")

    def inputs(**more: Artifact) -> dict[str, Artifact]:
        return dict(FinetuneRequest(store, "rte", dataset, checkpoint, FinetuneConfig(), "arm", **more).recipe.inputs)

    plain = {"dataset": dataset, "checkpoint": checkpoint}
    assert inputs() == plain
    assert inputs(start=start) == {**plain, "start": start}
    assert inputs(teacher=teacher) == {**plain, "teacher": teacher}


def test_an_adaptation_counts_the_papers_tokens(store: Store) -> None:
    from gptcore.papers.abstracts.config import AdaptConfig

    checkpoint = made(store, "pretrain", {}, model=recorded(preset_named("demo").model))
    rows = [{"split": "train", "bpe_tokens": 700}, {"split": "test", "bpe_tokens": 10**9}]
    ids = made(store, "ids", {"distribution": rows})
    one, five = (
        AdaptRequest(store, ids, checkpoint, AdaptConfig(epochs=epochs)).work.operations for epochs in (1.0, 5.0)
    )
    assert 0 < one < 1e12
    assert five == pytest.approx(5 * one)


def test_what_is_short_on_any_machine_is_not_measured(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "training_speed", lambda: pytest.fail("no need"))
    assert estimate([]).seconds == 0
    network = ModelConfig(n_layer=1, n_head=1, n_embd=8, n_inner=32, n_ctx=8)
    tiny = dataclasses.replace(pretraining(store, steps=5_000, n_vocab=100), model=network)
    assert estimate([tiny]).seconds == pytest.approx(50, rel=0.2), "an update takes its time"
    monkeypatch.setenv("GPTMILL_JOBS", "slurm")
    assert estimate([pretraining(store, 10**6)]).seconds is None, "how busy a cluster is"


def test_a_long_one_is_measured_in_a_process_of_its_own(store: Store) -> None:
    devices.training_speed.cache_clear()
    found = estimate([pretraining(store, 10**6)])
    assert found.seconds is not None
    assert found.seconds > 3600, "some 2e19 operations"
    assert "operations, at" in str(found)


def test_a_machine_that_cannot_say_its_speed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    devices.training_speed.cache_clear()
    monkeypatch.setattr(devices.sys, "executable", "/bin/false")
    found = estimate([pretraining(store, 10**6)])
    assert found.seconds is None
    assert str(found).startswith("for a time that is not known (2")


@pytest.mark.parametrize(("seconds", "words"), expected(__file__, "test_times_are_as_rough_as_they_are_known"))
def test_times_are_as_rough_as_they_are_known(seconds: float, words: str) -> None:
    assert about(seconds) == words


def test_a_student_counts_its_teachers_forward_pass_and_every_words_scores(store: Store) -> None:
    shards = pretraining(store, steps=100).shards
    preset = preset_named("demo", {"family": "distilbert"})
    its = dataclasses.replace(preset_named("demo", {"family": "bert"}).model, n_vocab=40_478)
    teacher = made(store, "pretrain", {"tokenizer_digest": "t"}, model=recorded(its))
    config = dataclasses.replace(preset.pretrain, steps=100, short_length=None, short_share=None)
    request = PretrainRequest(store, shards, preset.model, config, distillation=Distillation(teacher, preset.distil))
    taught = request.work
    alone = pretraining_flops(dataclasses.replace(preset.model, n_vocab=40_478), config, 100)
    student = dataclasses.replace(preset.model, n_vocab=40_478)
    more = its.flops_per_token(96) / 3 + student.flops_per_token(96) - student.flops_per_token(96, 0.15)
    assert taught.operations - alone == pytest.approx(100 * config.batch_size * 96 * more)
    assert taught.updates == 100
    dataset = made(store, "dataset", {"splits": {"train": {"rows": 320, "tokens": 3200}}}, **SETTINGS)
    recipe = Recipe("pretrain", 1, {"model": recorded(student), "distil": {}}, {"teacher": teacher})
    checkpoint = store.build(recipe, lambda _: {}).artifact
    plain = FinetuneConfig(lm_coef=0.0, epochs=1)
    tuned = dataclasses.replace(plain, taught=True, layer_epochs=2)
    first, second = (
        FinetuneRequest(store, "rte", dataset, checkpoint, each, "arm", teacher=teacher).work for each in (plain, tuned)
    )
    forward = its.flops_per_token(96, 0.0) / 3 * 3 * 3200
    assert second.operations == pytest.approx(3 * first.operations + forward)
    assert second.updates == 3 * first.updates


@pytest.mark.parametrize(
    ("figures", "at_chance"),
    [
        ({"validation/score": 0.51, "validation/chance": 0.5}, False),
        ({"validation/score": 0.5, "validation/chance": 0.5}, True),
        ({"validation/score": 0.49, "validation/chance": 0.5}, True),
        ({"validation/score": 0.0}, False),
        ({"validation/chance": 0.1}, True),
    ],
)
def test_a_fine_tune_that_one_answer_to_all_would_equal_is_at_chance(
    figures: dict[str, float], at_chance: bool
) -> None:
    counted = object.__new__(FinetuneCounts)
    object.__setattr__(counted, "figures", {"dev/score": 0.75, **figures})
    assert counted.at_chance == at_chance
    assert counted.validation_score == pytest.approx(100 * figures.get("validation/score", 0.75))
    assert counted.scores == {"dev/score": 75.0}
