"""What analyses compare with a teacher: the plans that follow from settings, the forms, and the flows end to end."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from flows.forms.parameters import (
    DistillationParameters,
    DistilParameters,
    PipelineParameters,
    PretrainParameters,
    StudentsParameters,
)
from flows.forms.settings import chosen_preset, distilled_preset
from flows.forms.students import ablations_of, plans, students_of, teachers_form
from flows.trainings.grid import Arm
from gptcore.base.errors import InputError
from gptcore.config import EncoderConfig, ModelConfig, preset_named
from gptcore.config.distillation import DistilConfig, check_teacher
from tasks.store.artifact import Artifact
from tests.expected import expected
from tests.flows.world import OVERRIDES

DEEPER = {**OVERRIDES, "model": {**OVERRIDES["model"], "n_layer": 2}, "scratch": False}
NOWHERE = Artifact("pretrain", "0" * 64, "/nowhere")


# --- plans, of settings alone ---


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        (ModelConfig(n_layer=4, smeared_keys=True), [("gpt", 2), ("gpt", 1), ("gpt", 2)]),
        (ModelConfig(n_layer=2, family="gpt2"), [("gpt2", 1), ("gpt2", 1)]),
        (EncoderConfig(n_layer=12), [("distilbert", 6), ("distilbert", 3), ("tinybert", 6), ("bert", 6)]),
        (EncoderConfig(n_layer=5), [("distilbert", 2), ("distilbert", 1), ("bert", 2)]),
        (EncoderConfig(n_layer=2, family="distilbert"), [("distilbert", 1), ("tinybert", 1), ("bert", 1)]),
    ],
)
def test_a_teacher_has_students_of_its_kind(network: Any, expected: list[tuple[str, int]]) -> None:
    found = students_of(network)
    assert [(student.family, student.n_layer) for student in found] == expected
    assert [student.alone for student in found] == [False] * (len(found) - 1) + [True]


@pytest.mark.parametrize(("depth", "half"), [(2, 1), (4, 2), (5, 1), (9, 3), (12, 6)])
def test_an_ablations_students_stand_for_equal_parts_of_the_teacher(depth: int, half: int) -> None:
    form = StudentsParameters(preset="demo")
    teacher = dataclasses.replace(preset_named("demo", {"family": "bert"}).model, n_layer=depth)
    found = plans(form, teacher, "here", ablations_of)
    assert {plan.shape.layers for plan in found} == {half}
    assert [plan.student.label for plan in found if plan.taught["taught"]] == [
        *("TinyBERT", "no attention", "no hidden states", "no embeddings")
    ]
    assert len({tuple(dataclasses.asdict(plan.distil).items()) for plan in found}) == len(found)


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_who_learns_alone_has_as_many_updates_as_the_students(family: str) -> None:
    teacher = preset_named("demo", {"family": family}).model
    found = plans(StudentsParameters(preset="demo"), teacher, "here", students_of)
    assert [plan.student.alone for plan in found] == [False, False, False, True]
    assert found[-1].shape.family == family
    assert {plan.pretrain.steps for plan in found} == {1000}


def test_settings_of_fine_tunes_that_are_taught_reach_those_alone() -> None:
    form = StudentsParameters(preset="demo", overrides={"finetune": {"layer_epochs": 7, "lr": 1e-4}})
    found = plans(form, preset_named("demo", {"family": "bert"}).model, "here", students_of)
    assert [plan.taught["layer_epochs"] for plan in found] == [None, None, 7, None]
    assert {plan.preset.finetune.lr for plan in found} == {1e-4}


@pytest.mark.parametrize(
    ("teacher", "message"),
    [
        (EncoderConfig(n_layer=1), "here: its n_layer is 1; expected 2 or more, so that a student has fewer"),
        (preset_named("demo", {"family": "electra"}).model, "here: ELECTRA has no students; expected one that has"),
        (preset_named("demo").model, "--teacher: found GPT-1, expected BERT, whose students these are"),
    ],
)
def test_nobodys_teacher_is_refused(teacher: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}$"):
        plans(StudentsParameters(preset="demo"), teacher, "here", ablations_of)


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        ({"hidden_weight": 1.0, "cosine_weight": 0.0}, {"n_layer": 0}, "model.n_layer = 0: expected 1 or more, where"),
        ({}, {"words": False}, "model.words = False: DistilBERT learns words; expected True, or 0 as"),
    ],
)
def test_a_student_without_what_is_told_is_refused(config: Any, changes: Any, message: str) -> None:
    student = dataclasses.replace(preset_named("demo", {"family": "distilbert"}).model, **changes)
    teacher = dataclasses.replace(preset_named("demo", {"family": "bert"}).model)
    with pytest.raises(InputError, match=f"^{message}"):
        check_teacher(DistilConfig(**config), student, teacher, "here")


@pytest.mark.parametrize(("teacher", "fields", "message"), expected(__file__, "test_a_students_family_is_said_once"))
def test_a_students_family_is_said_once(teacher: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        distilled_preset(
            DistilParameters(preset="demo", **fields), preset_named("demo", {"family": teacher}).model, "abc"
        )


def test_a_students_size_may_be_a_published_one() -> None:
    teacher = preset_named("demo", {"family": "bert"}).model
    form = DistilParameters(preset="demo", family="tinybert", overrides={"shape": "tinybert-4"})
    with pytest.raises(
        InputError, match=r"its n_head is \d+, the student's 12; expected equal, or distil.attention_wei"
    ):
        distilled_preset(form, teacher, "abc")
    found = distilled_preset(form, dataclasses.replace(teacher, n_embd=384, n_head=12), "abc").model
    assert (found.n_layer, found.n_embd, found.n_inner) == (4, 312, 1200)  # type: ignore[union-attr]  # an encoder's


def test_a_tinyberts_students_are_taught_as_their_own_family_has_it() -> None:
    teacher = preset_named("demo", {"family": "tinybert"}).model
    form = StudentsParameters(preset="demo")
    theirs = chosen_preset(teachers_form(form, "tinybert")).finetune_for("rte")
    assert theirs.taught
    for plan in plans(form, teacher, "here", students_of):
        arm = Arm(plan.student.label, NOWHERE, plan.taught, Arm("teacher", NOWHERE))
        assert arm.settings(theirs).taught == (plan.student.family == "tinybert")


def test_a_setting_of_taught_fine_tunes_is_of_all_tasks() -> None:
    form = StudentsParameters(preset="demo", overrides={"tasks": {"rte": {"layer_epochs": 5}}})
    with pytest.raises(InputError, match=r"^tasks.rte.layer_epochs: of all tasks here or of none; expected finetune"):
        plans(form, preset_named("demo", {"family": "bert"}).model, "here", students_of)


@pytest.mark.parametrize("form", [StudentsParameters, DistillationParameters])
@pytest.mark.parametrize(("fields", "message"), expected(__file__, "test_what_a_form_of_students_asks_in_vain"))
def test_what_a_form_of_students_asks_in_vain(form: Any, fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        form(preset="demo", store=str(tmp_path), **fields).check()


@pytest.mark.parametrize("form", [PipelineParameters, PretrainParameters])
def test_muon_is_not_sharded(form: Any, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"^--shard: preset best has pretrain.optimizer = 'muon'; expected adam beside"
    ):
        form(preset="best", shard=True, store=str(tmp_path)).check()


@pytest.mark.parametrize("name", ["soft_weight", "cosine_weight", "word_weight", "start", "attention_weight"])
def test_an_ablation_varies_its_weights_itself(name: str, tmp_path: Path) -> None:
    given = {"start": "random"}.get(name, 0.5)
    form = DistillationParameters(preset="demo", store=str(tmp_path), overrides={"distil": {name: given}})
    with pytest.raises(InputError, match=rf"^distil.{name} = {given!r}: the analysis compares its values"):
        form.check()
