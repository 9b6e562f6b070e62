"""Choices that share their document against each choice run alone: same logits, same losses, same gradients."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gptcore.config import ModelConfig
from gptcore.models.classifier import ClassificationModel, Head
from gptcore.models.context import fold
from gptcore.models.network import LanguageModel
from gptcore.models.transformer import GPT
from gptcore.nlu.inputs import TaskBatch
from gptcore.nlu.registry import task_spec
from gptcore.objectives.losses import language_model_loss, sequence_weights
from gptcore.objectives.task import finetune_objective, pack
from tests.gptcore.tiny_tasks import collate

CFG = ModelConfig(
    n_vocab=8,
    n_special=3,
    n_ctx=12,
    n_layer=2,
    n_head=2,
    n_embd=8,
    n_inner=16,
    init_std=0.3,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
    resid_pdrop=0.0,
)
RACE = task_spec("race")

ids = st.lists(st.integers(0, 7), max_size=5)
examples = st.tuples(ids, st.lists(ids, min_size=4, max_size=4)).map(
    lambda parts: [torch.tensor([8, *parts[0], 9, *own, 10]).numpy()[-12:] for own in parts[1]]
)
batches = st.lists(examples, min_size=1, max_size=4).map(lambda rows: collate(RACE, rows, [0.0] * len(rows)))


class Plain(GPT):
    """Every sequence from its start."""

    def choices(self, tokens: Tensor, ends: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        return LanguageModel.choices(self, tokens, ends, table)

    def last_states(self, tokens: Tensor, ends: Tensor, table: Tensor) -> Tensor:
        return LanguageModel.last_states(self, tokens, ends, table)


def network(kind: type[GPT] = GPT, config: ModelConfig = CFG) -> ClassificationModel:
    torch.set_num_threads(1)
    draws = torch.Generator().manual_seed(1)
    return ClassificationModel(kind(config, draws), Head("choices", 1, 0.0), draws)


@settings(max_examples=40)
@given(batch=batches)
def test_folding_keeps_every_token_what_stood_before_it_and_where(batch: TaskBatch) -> None:
    found = fold(batch.tokens, batch.clf_position)
    for b, c in torch.cartesian_prod(torch.arange(batch.tokens.shape[0]), torch.arange(4)).tolist():
        for t in range(int(batch.clf_position[b, c]) + 1):
            seen = found.visible[b, 0, found.origins[b, c, t]]
            assert found.tokens[b, seen].tolist() == batch.tokens[b, c, : t + 1].tolist()
            assert found.positions[b, seen].tolist() == list(range(t + 1))
            assert found.previous[b, found.origins[b, c, t]] == found.origins[b, c, max(0, t - 1)]
    assert found.visible.any(dim=-1).all()  # a softmax over nothing is no number
    assert found.tokens.shape[1] <= int((batch.clf_position + 1).sum(dim=1).max())


@settings(max_examples=25)
@given(
    batch=batches,
    changes=st.sampled_from(
        [{}, {"original": True}, {"norm_first": True}, {"smeared_keys": True}, {"smeared_keys": True, "rotary": True}]
    ),
)
def test_shared_states_give_the_logits_losses_and_gradients_of_separate_ones(
    batch: TaskBatch, changes: dict[str, bool]
) -> None:
    config = dataclasses.replace(CFG, **changes)  # type: ignore[arg-type]
    fast, plain = network(config=config), network(Plain, config)
    one, metrics = finetune_objective(fast, 0.5)(pack(batch, 1.0, True, repeats=True))
    other, expected = finetune_objective(plain, 0.5)(pack(batch, 1.0, True))
    torch.testing.assert_close(metrics, expected, rtol=1e-4, atol=1e-5)
    one.backward()  # type: ignore[no-untyped-call]
    other.backward()  # type: ignore[no-untyped-call]
    for mine, its in zip(fast.parameters(), plain.parameters(), strict=True):
        assert mine.grad is not None
        torch.testing.assert_close(mine.grad, its.grad, rtol=1e-3, atol=1e-5)
    with torch.no_grad():
        logits = [model.eval()(batch.tokens, batch.clf_position)[0] for model in (fast, plain)]
    torch.testing.assert_close(logits[0], logits[1], rtol=1e-4, atol=1e-5)


def test_shared_positions_give_the_same_gradients_every_time() -> None:
    """A state that is asked for once a choice: on two threads its gradients must be added in one order all the same."""
    sizes = {"n_vocab": 500, "n_ctx": 64, "n_layer": 1, "n_embd": 256, "n_inner": 256, "init_std": 0.05}
    config = dataclasses.replace(CFG, **sizes)
    draws = torch.Generator().manual_seed(0)
    rows = []
    for _ in range(9):
        document, choices = torch.randint(500, (41,), generator=draws), torch.randint(500, (4, 18), generator=draws)
        rows.append([torch.cat([document, choice, torch.tensor([502])]).numpy() for choice in choices])
    part = pack(collate(RACE, rows, [0.0] * len(rows)), 1.0, True, repeats=True)
    model = network(config=config).train()
    places = model.gpt.choices(part["tokens"], part["clf_position"], model.gpt.table())[1][part["lm_positions"]]
    assert len(places.unique()) < len(places)
    states = model(part["tokens"], part["clf_position"], part["lm_positions"])[1][0]
    assert states.grad_fn.name() == "EmbeddingBackward0"  # an index's order varies on busy cores only
    torch.set_num_threads(2)
    try:
        found = []
        for _ in range(10):
            model.zero_grad()
            finetune_objective(model, 0.5)(part)[0].backward()  # type: ignore[no-untyped-call]
            found.append([parameter.grad for parameter in model.parameters()])
    finally:
        torch.set_num_threads(1)
    for again in found[1:]:
        for mine, first in zip(again, found[0], strict=True):
            assert mine is not None
            assert first is not None
            assert torch.equal(mine, first)


def test_what_is_shared_is_computed_once_and_the_last_block_answers_for_the_ends() -> None:
    rows = [[torch.tensor([8, 1, 2, 3, 4, 9, own, 10]).numpy() for own in (1, 2, 3, 4)]]
    batch = collate(RACE, rows, [0.0])
    model = network()
    assert isinstance(model.gpt, GPT)
    seen: list[int] = []
    for part in (model.gpt.blocks[0], model.gpt.blocks[-1].feed_forward):
        assert isinstance(part, torch.nn.Module)
        part.register_forward_hook(lambda _module, _given, made: seen.append(made.shape[1]))
    model.train()(batch.tokens, batch.clf_position)
    assert seen == [6 + 4 * 2, 6 + 4 * 2]  # of 4 * 8 positions
    seen.clear()
    model.eval()(batch.tokens, batch.clf_position)
    assert seen == [6 + 4 * 2, 4]


def test_a_sequence_beyond_n_ctx_is_refused_by_each_way() -> None:
    tokens = torch.zeros(1, 4, 20, dtype=torch.int64)
    model, ends = network().gpt.eval(), torch.full((1, 4), 19)
    for way in (model.choices, model.last_states):
        with pytest.raises(ValueError, match="does not fit n_ctx = 12"):
            way(tokens, ends, model.table())


def test_targets_that_repeat_are_kept_once_with_all_their_weight() -> None:
    rows = [[torch.tensor([8, 1, 2, 9, *own, 10]).numpy() for own in ([3], [4, 5], [3], [6])]]
    batch = collate(RACE, rows, [0.0])
    once, every = (pack(batch, 1.0, True, repeats=repeats) for repeats in (True, False))
    assert len(once["lm_targets"]) == 3 + 2 + 3 + 2 + 2  # 1, 2 and the delimiter, then each choice and its end
    assert len(every["lm_targets"]) == 3 * 4 + 2 + 3 + 2 + 2
    table = torch.randn(11, 11, generator=torch.Generator().manual_seed(0))  # a bigram model: the state is the token
    losses = [
        language_model_loss(table[batch.tokens.flatten()[part["lm_positions"]]], part["lm_targets"], part["lm_weights"])
        for part in (once, every)
    ]
    torch.testing.assert_close(losses[0], losses[1])
    plain = language_model_loss(table[batch.tokens], batch.lm_targets, sequence_weights(batch.lm_targets[0])[None])
    torch.testing.assert_close(losses[1], plain)


@pytest.mark.parametrize("name", ["embd_pdrop", "attn_pdrop", "resid_pdrop"])
def test_with_dropout_each_sequence_draws_its_own(name: str) -> None:
    config = dataclasses.replace(CFG, **{name: 0.3})
    rows = [[torch.tensor([8, 1, 2, 9, 3, 10]).numpy()] * 4]
    batch = collate(RACE, rows, [0.0])
    seen = []
    for kind in (GPT, Plain):
        torch.manual_seed(0)
        seen.append(network(kind, config).train()(batch.tokens, batch.clf_position)[0])
    assert not network(GPT, config).shares_choices
    assert network().shares_choices
    assert torch.equal(seen[0], seen[1])
    assert len(set(seen[0].flatten().tolist())) == 4
