"""A student's losses against plain twins; what it takes over from its teacher, and what does not fit together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptcore.base.errors import InputError
from gptcore.config import DistilConfig, EncoderConfig, ModelConfig, NetworkConfig, preset_named
from gptcore.config.distillation import check_teacher, student_of
from gptcore.data.feed import MicroBatch
from gptcore.families import FAMILIES
from gptcore.models.encoder import Encoder
from gptcore.models.network import Network, build_model
from gptcore.models.transformer import GPT
from gptcore.objectives.objective import Text
from gptcore.papers.graphs.config import KnowledgeEncoderConfig
from gptcore.papers.students.distillation import (
    HIDDEN_WORDS,
    NEXT_TOKENS,
    Distilled,
    Student,
    distillation_objective,
    start_from_teacher,
)
from gptcore.papers.students.losses import WordScores, fused_soft_target_loss
from tests.expected import expected as table_of
from tests.toy_family.family import FAMILY, LlamaConfig

V, B, T = 37, 3, 10
SIZES: dict[str, Any] = {
    **{"n_vocab": V, "n_ctx": 12, "n_head": 2, "n_embd": 8, "n_inner": 12, "init_std": 0.5},
    **dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), 0.0),
}
BERT = EncoderConfig(**SIZES, n_layer=4)
DISTILBERT = EncoderConfig(
    **SIZES, n_layer=2, n_segments=0, pooler=False, pair=False, classifier_layer=True, family="distilbert"
)
TINYBERT = EncoderConfig(**{**SIZES, "n_embd": 6, "n_inner": 9}, n_layer=2, pair=False, family="tinybert")
GPT_TEACHER = ModelConfig(**SIZES, n_layer=4)
GPT_STUDENT = dataclasses.replace(GPT_TEACHER, n_layer=2)
LAYERS = DistilConfig(**FAMILIES["tinybert"].settings["distil"])


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def network(config: NetworkConfig, seed: int) -> Network:
    return build_model(config, torch.Generator().manual_seed(seed))


def hidden_words() -> MicroBatch:
    """Two hidden words, sequences of 10, 6 and 4 pieces; the mean over an update that has this batch alone."""
    draws = torch.Generator().manual_seed(3)
    mask = (torch.arange(T) < torch.tensor([10, 6, 4])[:, None]).long()
    return {
        "tokens": torch.randint(0, V, (B, T), generator=draws) * mask,
        "segments": torch.randint(0, 2, (B, T), generator=draws) * mask,
        "mask": mask,
        "places": torch.tensor([3, 12]),
        "targets": torch.tensor([5, 30]),
        "word_weight": torch.tensor(1 / 2),
        "token_weight": 1 / mask.sum(),
    }


def next_tokens() -> MicroBatch:
    draws = torch.Generator().manual_seed(4)
    tokens = torch.randint(0, V, (B, T + 1), generator=draws)
    return {"inputs": tokens[:, :-1], "targets": tokens[:, 1:], "weight": torch.tensor(1 / (B * T))}


def objective_of(
    student: NetworkConfig, teacher: Network, config: DistilConfig, reading: Any
) -> tuple[Student, Callable[[MicroBatch], tuple[Tensor, dict[str, Tensor]]]]:
    own = FAMILIES[student.family].part("objective")
    learnt = Distilled(own, reading, teacher.eval(), config)
    trained = learnt.network(network(student, 1), preset_named("demo").pretrain, torch.Generator().manual_seed(2))
    assert isinstance(trained, Student)
    return trained.train(), learnt.objective(trained, preset_named("demo").pretrain)


# --- losses ---


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("n", [3, 300])
def test_soft_targets_are_torchs_divergence(n: int, temperature: float, with_bias: bool) -> None:
    """Value and every gradient, over more rows than are held at once, with vocabularies read at two widths."""
    mine = [drawn(n, 8, seed=1), drawn(V, 8, seed=2), drawn(V, seed=3) if with_bias else None]
    its = WordScores(drawn(n, 5, seed=4), drawn(V, 5, seed=5), drawn(V, seed=6) if with_bias else None)
    weight = drawn(n, seed=7).abs()
    found = []
    for fused in (True, False):
        parts = [None if part is None else part.clone().requires_grad_() for part in mine]
        hidden, table, bias = parts
        assert hidden is not None
        assert table is not None
        if fused:
            loss = fused_soft_target_loss(WordScores(hidden, table, bias), its, temperature, weight)
        else:
            scores = F.linear(hidden, table, bias)
            told = F.softmax(F.linear(*its) / temperature, -1)
            nats = F.kl_div(F.log_softmax(scores / temperature, -1), told, reduction="none").sum(-1)
            loss = temperature**2 * (weight * nats).sum()
        (3 * loss).backward()
        found.append([loss, *(part.grad for part in parts if part is not None)])
    for ours, plain in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)


def test_a_loss_of_distilbert_is_that_of_its_paper() -> None:
    """The plain twin takes every logit of every position, and leaves out padding by picking the others."""
    teacher = network(BERT, 0)
    trained, objective = objective_of(DISTILBERT, teacher, DistilConfig(), HIDDEN_WORDS)
    batch = hidden_words()
    loss, metrics = objective(batch)
    loss.backward()
    ours = {name: parameter.grad.clone() for name, parameter in trained.network.named_parameters()}
    assert isinstance(trained.network, Encoder)
    assert isinstance(teacher, Encoder)
    trained.zero_grad()
    given = (batch["tokens"], batch["segments"], batch["mask"])
    real = batch["mask"].bool()
    with torch.no_grad():
        its_states, its_logits = teacher.encode(*given), teacher(*given)
    states, logits = trained.network.encode(*given), trained.network(*given)
    soft = F.kl_div(
        F.log_softmax(logits[real] / 2, -1), F.softmax(its_logits[real] / 2, -1), reduction="batchmean"
    ) * 4  # fmt: skip
    words = F.cross_entropy(logits.flatten(0, 1)[batch["places"]], batch["targets"])
    cosine = nn.CosineEmbeddingLoss()(states[real], its_states[real], torch.ones(int(real.sum())))
    plain = 5 * soft + 2 * words + cosine
    for name, expected in (("soft", soft), ("word", words), ("cosine", cosine)):
        torch.testing.assert_close(metrics[f"{name}_loss"], expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(loss, plain)
    plain.backward()
    for name, parameter in trained.network.named_parameters():
        torch.testing.assert_close(ours[name], parameter.grad, rtol=1e-4, atol=1e-5)
    assert all(parameter.grad is None for parameter in teacher.parameters())


def plain_scores(encoder: Encoder, states: Tensor, layer: int) -> Tensor:
    """Queries times keys of one layer, head by head."""
    attention: Any = encoder.attention[layer]
    q, k, _ = attention.qkv(states).chunk(3, -1)
    width = q.shape[-1] // attention.n_head
    heads = [slice(at, at + width) for at in range(0, q.shape[-1], width)]
    return torch.stack([q[..., h] @ k[..., h].transpose(1, 2) / width**0.5 for h in heads], 1)


def test_a_loss_of_tinybert_is_that_of_its_paper() -> None:
    """Layer m stands for layer 2m of the teacher; one linear layer brings all states to its width."""
    teacher = network(BERT, 0)
    trained, objective = objective_of(TINYBERT, teacher, LAYERS, HIDDEN_WORDS)
    assert isinstance(trained.network, Encoder)
    assert isinstance(teacher, Encoder)
    assert trained.fit is not None
    batch = hidden_words()
    loss, metrics = objective(batch)
    given, lengths = (batch["tokens"], batch["segments"], batch["mask"]), batch["mask"].sum(1)
    ours, its = trained.network.layer_states(*given).states, teacher.layer_states(*given).states
    n_words = int(lengths.sum())
    sums = {"embedding": 0.0, "hidden": 0.0, "attention": 0.0}
    for row, length in enumerate(lengths):
        real = (row, slice(int(length)))
        sums["embedding"] += float((trained.fit(ours[0][real]) - its[0][real]).square().mean(-1).sum())
        for layer in range(2):
            mine, theirs = ours[layer + 1][real], its[2 * layer + 2][real]
            sums["hidden"] += float((trained.fit(mine) - theirs).square().mean(-1).sum())
            pairs = (
                plain_scores(network_, states[None, row, : int(length)], number)
                for network_, states, number in (
                    (trained.network, ours[layer], layer),
                    (teacher, its[2 * layer + 1], 2 * layer + 1),
                )
            )
            student_scores, teacher_scores = pairs  # (1, H, length, length)
            sums["attention"] += float((student_scores - teacher_scores).square().mean((0, 1, 3)).sum())
    for name, value in sums.items():
        assert float(metrics[f"{name}_loss"]) == pytest.approx(value / n_words, rel=1e-4)
    told_by_layers = sum(metrics[f"{name}_loss"] for name in sums)
    torch.testing.assert_close(loss, told_by_layers + metrics["word_loss"])
    loss.backward()
    head = trained.network.word_head
    assert head.dense.weight.grad.abs().max() > 0, "the probe learns"


def test_a_probe_of_words_changes_nothing_below_it() -> None:
    """All gradients but the head's are the same, whether its words are told or not."""
    found = []
    for weight in (1.0, 0.0):
        trained, objective = objective_of(TINYBERT, network(BERT, 0), LAYERS, HIDDEN_WORDS)
        batch = hidden_words()
        batch["word_weight"] = batch["word_weight"] * weight
        objective(batch)[0].backward()
        found.append({n: p.grad for n, p in trained.named_parameters() if "word_head" not in n and p.grad is not None})
    assert found[0].keys() == found[1].keys()
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_a_decoder_learns_from_a_larger_one() -> None:
    teacher = network(GPT_TEACHER, 0)
    whole = DistilConfig(embedding_weight=1.0, hidden_weight=1.0, attention_weight=1.0)
    trained, objective = objective_of(GPT_STUDENT, teacher, whole, NEXT_TOKENS)
    assert isinstance(trained.network, GPT)
    assert isinstance(teacher, GPT)
    batch = next_tokens()
    _, metrics = objective(batch)
    logits, its_logits = trained.network(batch["inputs"]), teacher(batch["inputs"])
    words = F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten())
    told = (F.softmax(its_logits / 2, -1), F.log_softmax(logits / 2, -1))
    soft = 4 * F.kl_div(told[1], told[0], reduction="sum") / (B * T)
    torch.testing.assert_close(metrics["word_loss"], words)
    torch.testing.assert_close(metrics["soft_loss"], soft)
    states = trained.network.layer_states(batch["inputs"], trained.network.table(), scores=True)
    its = teacher.layer_states(batch["inputs"], teacher.table(), scores=True)
    expected = sum(
        (states.scores[layer][..., q, : q + 1] - its.scores[2 * layer + 1][..., q, : q + 1]).square().mean()
        for layer in range(2)
        for q in range(T)
    )
    torch.testing.assert_close(metrics["attention_loss"], expected / T)


def test_in_eval_mode_the_familys_own_loss_is_left() -> None:
    trained, objective = objective_of(DISTILBERT, network(BERT, 0), DistilConfig(), HIDDEN_WORDS)
    trained.eval()
    loss, metrics = objective(hidden_words())
    assert set(metrics) == {"loss", "word_loss", "word_accuracy"}
    assert torch.equal(loss, metrics["word_loss"])


def test_a_bert_that_has_a_teacher_is_told_pairs_too() -> None:
    config = DistilConfig(soft_weight=0.0, cosine_weight=0.0, word_weight=3.0)
    trained, objective = objective_of(dataclasses.replace(BERT, n_layer=2), network(BERT, 0), config, HIDDEN_WORDS)
    batch = hidden_words() | {"labels": torch.tensor([0, 1, 1]), "pair_weight": torch.tensor(1 / 3)}
    loss, metrics = objective(batch)
    assert isinstance(trained.network, Encoder)
    states = trained.network.encode(batch["tokens"], batch["segments"], batch["mask"])
    pairs = F.cross_entropy(trained.network.pair_scores(states), batch["labels"])
    torch.testing.assert_close(metrics["pair_loss"], pairs)
    torch.testing.assert_close(loss, 3 * (metrics["word_loss"] + pairs), msg="by the weight of words")
    trained.eval()
    assert set(objective(batch)[1]) == {"loss", "word_loss", "word_accuracy", "pair_loss", "pair_accuracy"}
    _, wordless = objective_of(dataclasses.replace(DISTILBERT, words=False), network(BERT, 0), config, HIDDEN_WORDS)
    with pytest.raises(InputError, match=r"model.words = False: a student is told words; expected True"):
        wordless(batch)
    settings = dataclasses.replace(preset_named("demo", {"family": "distilbert"}).pretrain, pairs="nsp")
    with pytest.raises(
        InputError, match=r"pretrain.pairs = 'nsp': DistilBERT has no head of pairs here; expected none"
    ):
        FAMILIES["distilbert"].part("objective").data(Text(None, DISTILBERT, settings, None), None)


def test_layers_of_a_network_are_those_that_it_runs() -> None:
    """Last states are encode's, and a softmax of the scores mixes the values as attention does."""
    encoder, batch = network(BERT, 0), hidden_words()
    assert isinstance(encoder, Encoder)
    given = (batch["tokens"], batch["segments"], batch["mask"])
    found = encoder.layer_states(*given, scores=True)
    assert torch.equal(found.states[-1], encoder.encode(*given))
    assert [len(found.states), len(found.scores)] == [5, 4]
    attention: Any = encoder.attention[0]
    v = attention.qkv(found.states[0])[..., -8:].view(B, T, 2, 4).transpose(1, 2)
    seen = found.scores[0].masked_fill(batch["mask"][:, None, None, :] == 0, -torch.inf)
    mixed = (seen.softmax(-1) @ v).transpose(1, 2).reshape(B, T, 8)
    after = attention.norm(found.states[0] + attention.projection(mixed))
    torch.testing.assert_close(encoder.feed_forward[0](after), found.states[1], rtol=1e-4, atol=1e-5)
    decoder = network(GPT_TEACHER, 0)
    assert isinstance(decoder, GPT)
    tokens = next_tokens()["inputs"]
    assert torch.equal(decoder.layer_states(tokens, decoder.table()).states[-1], decoder.hidden(tokens))


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

ERNIE = KnowledgeEncoderConfig(**SIZES, n_layer=4)
CONFIGS = {
    **{"BERT": BERT, "DISTILBERT": DISTILBERT, "TINYBERT": TINYBERT, "ERNIE": ERNIE},
    **{"GPT_TEACHER": GPT_TEACHER, "GPT_STUDENT": GPT_STUDENT, "DistilBERT": DistilConfig(), "TinyBERT": LAYERS},
}
REFUSED = table_of(__file__, "REFUSED")
"""The settings, the student and the teacher, each a config and what is changed of it; and the refusal."""


@pytest.mark.parametrize("what", REFUSED)
def test_a_teacher_that_does_not_fit_is_refused(what: str) -> None:
    *parts, message = REFUSED[what]
    config, student, teacher = (dataclasses.replace(CONFIGS[name], **changes) for name, changes in parts)
    learners = ", ".join(name for name, family in FAMILIES.items() if family.distillation)
    with pytest.raises(InputError, match=message.replace("$LEARNERS", learners)) as refused:
        check_teacher(config, student, teacher, "--teacher 0123")
    assert "\n" not in str(refused.value)


def test_a_decoder_of_another_package_teaches_one_with_weights_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES._theirs, FAMILY.name, FAMILY)  # type: ignore[attr-defined]
    teacher, random = LlamaConfig(**SIZES, n_layer=4, n_head_keys=1), DistilConfig(start="random")
    check_teacher(random, GPT_STUDENT, teacher, "")
    trained, objective = objective_of(GPT_STUDENT, network(teacher, 0), random, NEXT_TOKENS)
    loss, _ = objective(next_tokens())
    loss.backward()
    assert all(part.grad is not None for part in trained.network.parameters())
    with pytest.raises(InputError, match=r"^here: its .* expected equal, or distil.start = random$"):
        check_teacher(DistilConfig(), GPT_STUDENT, teacher, "here")
    with pytest.raises(InputError, match=r"^here: found ToyLlama, expected an encoder as the teacher of DistilBERT$"):
        check_teacher(random, DISTILBERT, teacher, "here")


@pytest.mark.parametrize(("settings", "message"), table_of(__file__, "test_settings_that_teach_nothing_are_refused"))
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
