"""What a student takes over from its teacher, which of its layers stand for which, and what does not fit together."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from gptcore.base.errors import InputError
from gptcore.config import (
    DistilConfig,
    KnowledgeEncoderConfig,
    NetworkConfig,
    preset_named,
)
from gptcore.config.distillation import check_teacher, student_of
from gptcore.models.encoder import Encoder
from gptcore.objectives.distillation import HIDDEN_WORDS, Student, distillation_objective, start_from_teacher
from tests.expected import expected
from tests.gptcore.test_distillation import (
    BERT,
    DISTILBERT,
    GPT_STUDENT,
    GPT_TEACHER,
    LAYERS,
    SIZES,
    TINYBERT,
    hidden_words,
    network,
    objective_of,
)

# --- where a student starts ---


@pytest.mark.parametrize(
    ("teacher", "student"),
    [(BERT, DISTILBERT), (GPT_TEACHER, GPT_STUDENT), (BERT, dataclasses.replace(BERT, n_layer=4))],
)
def test_a_student_starts_from_layers_of_its_teacher(teacher: NetworkConfig, student: NetworkConfig) -> None:
    theirs, ours = network(teacher, 0), network(student, 1)
    layers = DistilConfig().layer_map(student.n_layer, teacher.n_layer)  # type: ignore[attr-defined]  # both have it
    start_from_teacher(ours, theirs, layers)
    for mine, its in enumerate(layers):
        for part, other in zip(ours.layer_parts(mine), theirs.layer_parts(its - 1), strict=True):
            assert all(torch.equal(a, b) for a, b in zip(part.parameters(), other.parameters(), strict=True))
    table = "embeddings.words.weight" if isinstance(ours, Encoder) else "tokens.weight"
    assert torch.equal(ours.state_dict()[table], theirs.state_dict()[table])
    if student.layers == teacher.layers:
        assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_layers_that_share_parameters_become_a_students_own() -> None:
    albert = dataclasses.replace(BERT, sharing="all", family="albert")
    theirs, ours = network(albert, 0), network(DISTILBERT, 1)
    start_from_teacher(ours, theirs, (1, 4))
    for layer in range(2):
        (mine, _), (its, _) = ours.layer_parts(layer), theirs.layer_parts(0)
        assert torch.equal(mine.state_dict()["qkv.weight"], its.state_dict()["qkv.weight"])


def test_layer_maps() -> None:
    assert DistilConfig().layer_map(6, 12) == (1, 3, 5, 8, 10, 12), "the release's, counted from 1"
    assert DistilConfig().layer_map(1, 4) == (1,)
    assert LAYERS.layer_map(4, 12) == (3, 6, 9, 12), "TinyBERT, section 4.1"
    assert dataclasses.replace(LAYERS, layers="1, 2,4").layer_map(3, 4) == (1, 2, 4)


# --- what does not fit ---

REFUSED: dict[str, tuple[DistilConfig, NetworkConfig, NetworkConfig, str]] = {
    "deeper": (DistilConfig(), dataclasses.replace(DISTILBERT, n_layer=5), BERT, "no more layers than its teacher, 4"),
    "map": (LAYERS, dataclasses.replace(TINYBERT, n_layer=3), BERT, "the teacher's 4 layers make no 3 equal parts"),
    "map of others": (dataclasses.replace(LAYERS, layers="1,5"), TINYBERT, BERT, "the teacher has 4 layers"),
    "map too short": (dataclasses.replace(LAYERS, layers="1"), TINYBERT, BERT, "expected 2 layers, one a student's"),
    "decoder": (DistilConfig(), DISTILBERT, GPT_TEACHER, "found GPT-1, expected an encoder as the teacher"),
    "encoder": (DistilConfig(), GPT_STUDENT, BERT, "found BERT, expected a decoder as the teacher of GPT-1"),
    "vocabulary": (DistilConfig(), DISTILBERT, dataclasses.replace(BERT, n_vocab=40), "its n_vocab is 40"),
    "positions": (DistilConfig(), DISTILBERT, dataclasses.replace(BERT, n_ctx=8), "its n_ctx is 8, expected"),
    "width": (
        dataclasses.replace(DistilConfig(), start="random"),
        TINYBERT,
        BERT,
        "its n_embd is 8, the student's 6; expected equal, or distil.cosine_weight = 0",
    ),
    "start": (
        DistilConfig(cosine_weight=0.0),
        dataclasses.replace(DISTILBERT, n_inner=16),
        BERT,
        "its n_inner is 12, the student's 16; expected equal, or distil.start = random",
    ),
    "entities": (
        DistilConfig(),
        DISTILBERT,
        KnowledgeEncoderConfig(**SIZES, n_layer=4),
        "ERNIE has layers of two inputs; expected distil.start = random",
    ),
    "marks": (
        DistilConfig(),
        dataclasses.replace(GPT_STUDENT, n_special=3),
        dataclasses.replace(GPT_TEACHER, n_special=1),
        "its n_special is 1, the student's 3; expected as many or fewer",
    ),
    "heads": (LAYERS, dataclasses.replace(TINYBERT, n_head=3), BERT, "expected equal, or distil.attention_weight = 0"),
    "no words": (
        DistilConfig(),
        DISTILBERT,
        dataclasses.replace(BERT, words=False, pair=False, pooler=False, replaced=True, family="electra"),
        "ELECTRA has no head that tells words; expected distil.soft_weight = 0",
    ),
    "no learner": (
        DistilConfig(),
        dataclasses.replace(BERT, words=False, pair=False, pooler=False, replaced=True, family="electra"),
        BERT,
        "ELECTRA learns from no teacher; expected one of gpt, albert, bert, distilbert, gpt2, tinybert",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_teacher_that_does_not_fit_is_refused(what: str) -> None:
    config, student, teacher, message = REFUSED[what]
    with pytest.raises(InputError, match=message) as refused:
        check_teacher(config, student, teacher, "--teacher 0123")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("settings", "message"), expected(__file__, "test_settings_that_teach_nothing_are_refused"))
def test_settings_that_teach_nothing_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        preset_named("demo", {"family": "distilbert", "distil": settings})


def test_a_student_has_its_teachers_shape_and_its_familys_heads() -> None:
    family = preset_named("demo", {"family": "distilbert"}).model
    student = student_of(BERT, family, 2)
    assert student == DISTILBERT
    check_teacher(DistilConfig(), student, BERT, "")


def test_the_loss_weighs_nothing_that_its_settings_leave_out() -> None:
    """Each weight of 0 leaves a metric out, and doubling another doubles its part of the loss."""
    teacher = network(BERT, 0)
    for name in ("soft", "cosine"):
        config = dataclasses.replace(DistilConfig(), **{f"{name}_weight": 0.0})
        _, objective = objective_of(DISTILBERT, teacher, config, HIDDEN_WORDS)
        assert f"{name}_loss" not in objective(hidden_words())[1]
    trained = Student(network(DISTILBERT, 1), None).train()
    losses = [
        distillation_objective(trained, teacher, HIDDEN_WORDS, DistilConfig(word_weight=weight), (1, 4))(hidden_words())
        for weight in (1.0, 3.0)
    ]
    (one, metrics), (three, _) = losses
    torch.testing.assert_close(three - one, 2 * metrics["word_loss"])
