"""L1, L2, L3: each fast form against a plain one."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gptcore.base.errors import InputError
from gptcore.base.files import read_json, write_json_atomic
from gptcore.config import ModelConfig
from gptcore.models import network
from gptcore.models.classifier import ClassificationModel, Head
from gptcore.models.transformer import GPT
from gptcore.nlu.forms import FORMS
from gptcore.objectives import losses
from gptcore.objectives.losses import (
    combined_loss,
    fused_language_model_loss,
    language_model_loss,
    sequence_weights,
    task_loss,
)
from tests.gptcore.tiny_tasks import random_ngrams


def plain_nats(logits: Tensor, target: int) -> float:
    """-log P(target), spelled out in Python floats."""
    scores = logits.double().tolist()
    top = max(scores)
    return top + math.log(sum(math.exp(score - top) for score in scores)) - scores[target]


def problem(n_rows: int = 50, width: int = 6, n_vocab: int = 17) -> tuple[Tensor, Tensor, Tensor]:
    draws = torch.Generator().manual_seed(3)
    hidden = torch.randn(n_rows, width, generator=draws, requires_grad=True)
    table = torch.randn(n_vocab, width, generator=draws, requires_grad=True)
    targets = torch.randint(0, n_vocab, (n_rows,), generator=draws)
    targets[::7] = losses.IGNORE_INDEX
    return hidden, table, targets


def test_language_model_loss_is_the_mean_over_real_targets() -> None:
    hidden, table, targets = problem()
    logits = hidden @ table.t()
    expected = [plain_nats(row, int(t)) for row, t in zip(logits, targets, strict=True) if t >= 0]
    assert language_model_loss(logits, targets).item() == pytest.approx(sum(expected) / len(expected), rel=1e-5)


def test_no_target_at_all_costs_nothing() -> None:
    hidden, table, targets = problem()
    targets[:] = losses.IGNORE_INDEX
    loss = fused_language_model_loss(hidden, table, targets)
    loss.backward()
    assert loss.item() == 0.0
    assert not hidden.grad.any()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("block", [7, 512])
@pytest.mark.parametrize("multiple", [1, 64])
def test_fused_loss_is_the_plain_loss_in_value_and_gradient(
    weighted: bool, block: int, multiple: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "_CPU_ROWS", block)  # 7 does not divide 50: a short last block
    monkeypatch.setitem(network._MULTIPLES, "cpu", multiple)  # 64, as on a GPU: rows of zeros behind the vocabulary's
    hidden, table, targets = problem()
    weights = torch.rand(len(targets), generator=torch.Generator().manual_seed(0)) if weighted else None
    fused = 3.0 * fused_language_model_loss(hidden, table, targets, weights)  # 3: the gradient from above counts
    plain = 3.0 * language_model_loss(hidden @ table.t(), targets, weights)
    torch.testing.assert_close(fused, plain)
    for got, expected in zip(
        torch.autograd.grad(fused, (hidden, table)), torch.autograd.grad(plain, (hidden, table)), strict=True
    ):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("biased", [False, True])
def test_rows_of_zeros_behind_a_vocabulary_have_no_scores(biased: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, table, _ = problem()
    bias = torch.arange(17.0) if biased else None
    expected = hidden @ table.t() + (0 if bias is None else bias)
    monkeypatch.setitem(network._MULTIPLES, "cpu", 64)
    torch.testing.assert_close(network.word_scores(hidden, table, bias), expected)


def test_fused_loss_under_bfloat16_stays_near_float32() -> None:
    hidden, table, targets = problem(n_rows=200, width=32)
    exact = language_model_loss(hidden @ table.t(), targets)
    with torch.autocast("cpu", torch.bfloat16):
        rough = fused_language_model_loss(hidden, table, targets)
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, exact, rtol=5e-3, atol=0.0)
    got, expected = torch.autograd.grad(rough, hidden)[0], torch.autograd.grad(exact, hidden)[0]
    assert (got - expected).norm() < 0.02 * expected.norm()


def test_sequence_weights_average_over_each_sequence_first() -> None:
    targets = torch.tensor([[3, 4, -100, -100], [1, -100, -100, -100], [-100, -100, -100, -100]])
    logits = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(1))
    first = (plain_nats(logits[0, 0], 3) + plain_nats(logits[0, 1], 4)) / 2
    expected = (first + plain_nats(logits[1, 0], 1) + 0.0) / 3
    assert language_model_loss(logits, targets, sequence_weights(targets)).item() == pytest.approx(expected, rel=1e-5)


def test_task_loss_takes_classes_and_distributions() -> None:
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(2))
    labels = torch.tensor([0, 2, 1, 1])
    soft = torch.nn.functional.one_hot(labels, 3).float()
    torch.testing.assert_close(task_loss(logits, labels), task_loss(logits, soft))
    half = torch.tensor([[0.25, 0.75, 0.0]])
    expected = 0.25 * plain_nats(logits[0], 0) + 0.75 * plain_nats(logits[0], 1)
    assert task_loss(logits[:1], half).item() == pytest.approx(expected, rel=1e-5)


def test_combined_loss_weighs_the_auxiliary_objective() -> None:
    assert combined_loss(torch.tensor(2.0), torch.tensor(3.0), 0.5).item() == 3.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_kept_in_the_cache_change_no_bit(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for cached in (1, 300, 1 << 40):  # two rows at a time, a few, all
        monkeypatch.setattr(losses, "_CACHED_SCORES", cached)
        hidden, table, targets = problem(n_rows=53, width=16, n_vocab=101)
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            loss = fused_language_model_loss(hidden, table, targets)
        found.append((loss.detach(), *torch.autograd.grad(loss, (hidden, table))))
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_gradients_are_handed_out_once() -> None:
    hidden, table, targets = problem()
    loss = fused_language_model_loss(hidden, table, targets)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="second backward"):
        loss.backward()


def test_without_gradients_none_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is a view that asks for gradients, also where they are switched off: as in every validation."""
    hidden, table, targets = problem()
    expected = fused_language_model_loss(hidden, table, targets).item()
    asked = []
    plain = losses._softmax

    def spy(scores: Tensor, target: Tensor, weight: Tensor, slopes: bool) -> Tensor:
        asked.append(slopes)
        return plain(scores, target, weight, slopes)

    monkeypatch.setattr(losses, "_softmax", spy)
    with torch.no_grad():
        assert fused_language_model_loss(hidden, table[:], targets).item() == expected
    assert asked == [False]


# --- the classification model against a plain twin: one sequence at a time, no padding, no gathering


CFG = ModelConfig(n_vocab=20, n_special=3, n_ctx=12, n_layer=2, n_head=2, n_embd=8, n_inner=16, init_std=0.3)
CLASSIFY = 22


def model(form: str, n_outputs: int = 3, clf_pdrop: float = 0.5, pooling: str | None = None) -> ClassificationModel:
    torch.manual_seed(1)
    return ClassificationModel(GPT(CFG), Head(form, 1 if form == "choices" else n_outputs, clf_pdrop, pooling)).eval()


def batch(n_sequences: int) -> tuple[list[list[list[int]]], torch.Tensor, torch.Tensor]:
    """Three rows of sequences of uneven lengths: as lists, padded, and where each ends."""
    generator = torch.Generator().manual_seed(2)
    rows, tokens, ends = [], torch.zeros(3, n_sequences, 9, dtype=torch.int64), torch.zeros(3, n_sequences).long()
    for b in range(3):
        rows.append([])
        for c in range(n_sequences):
            length = 3 + (2 * b + c) % 6
            ids = [*torch.randint(0, 20, (length - 1,), generator=generator).tolist(), CLASSIFY]
            rows[-1].append(ids)
            tokens[b, c, :length] = torch.tensor(ids)
            ends[b, c] = length - 1
    return rows, tokens, ends


@pytest.mark.parametrize("pooling", [None, "mean"])
@pytest.mark.parametrize(("form", "n_sequences"), [("single", 1), ("pair", 1), ("pair", 2), ("choices", 4)])
def test_logits_equal_the_plain_twin(form, n_sequences, pooling):
    network = model(form, clf_pdrop=0.0, pooling=pooling)
    rows, tokens, ends = batch(n_sequences)
    with torch.no_grad():
        logits, states = network(tokens, ends)
        network.training = True  # the way of a training, whose network does not drop
        torch.testing.assert_close(network(tokens, ends)[0], logits)
        expected = []
        for sequences in rows:
            each = [network.gpt.hidden(torch.tensor([ids]))[0] for ids in sequences]
            last = [h[-1] + (h.mean(dim=0) if pooling else 0) for h in each]
            if form == "choices":
                expected.append(torch.stack([h @ network.head.weight[0] + network.head.bias[0] for h in last]))
            else:
                expected.append(network.head.weight @ sum(last) + network.head.bias)
    assert states is None
    torch.testing.assert_close(logits, torch.stack(expected))


def test_the_states_are_those_of_the_asked_positions():
    network = model("pair")
    _, tokens, ends = batch(2)
    positions = torch.tensor([0, 2, 9, 17, 40])
    with torch.no_grad():
        _, found = network(tokens, ends, positions)
        every = network.gpt.hidden(tokens.view(6, 9)).reshape(54, -1)
    states, table = found
    torch.testing.assert_close(states, every[positions])
    assert table is network.gpt.tokens.weight


@pytest.mark.parametrize("form", ["choices", "pair"])
def test_all_choices_of_an_example_share_one_dropout_mask(form):
    network = model(form, clf_pdrop=0.5).train()
    seen = []
    network.head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    network.gpt.eval()  # only the classifier's dropout
    _, tokens, ends = batch(4)
    network(tokens, ends)
    kept = seen[0] != 0  # (B, C, D)
    assert (kept == kept[:, :1]).all()
    shares = kept.float().mean(-1)
    assert ((shares > 0) & (shares < 1)).any(), "each dimension by itself"
    assert (kept[0] != kept[1]).any()


@pytest.mark.parametrize(("pooling", "ngrams"), [(None, None), ("mean", None), (None, random_ngrams(3, 2, 23))])
def test_a_saved_model_comes_back_the_same(tmp_path, pooling, ngrams):
    network = model("pair", n_outputs=2, clf_pdrop=0.1, pooling=pooling)
    network.ngrams = ngrams
    network.save(tmp_path / "model", {"task": "rte", "labels": ["entailment", "not_entailment"]})
    again, config = ClassificationModel.load(tmp_path / "model")
    assert config["task"] == "rte"
    assert again.form == "pair"
    assert not again.training
    assert all(
        torch.equal(a, b) for a, b in zip(again.state_dict().values(), network.state_dict().values(), strict=True)
    )
    _, tokens, ends = batch(1)
    with torch.no_grad():
        assert torch.equal(again(tokens, ends)[0], network(tokens, ends)[0])


def test_folders_that_hold_no_fine_tuned_model_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"no config\.json"):
        ClassificationModel.load(tmp_path)
    GPT(CFG).save(tmp_path)
    with pytest.raises(InputError, match="no entry 'head'"):
        ClassificationModel.load(tmp_path)


@pytest.mark.parametrize(("entry", "size"), [("n_outputs", 2**63), ("n_outputs", 2**31), ("n_embd", 2**31 - 1)])
def test_sizes_that_no_tensor_has_are_refused(tmp_path, entry, size):
    model("pair").save(tmp_path, {})
    config = read_json(tmp_path / "config.json")
    (config["model"] if entry in config["model"] else config["head"])[entry] = size
    write_json_atomic(tmp_path / "config.json", config)
    with pytest.raises(InputError, match=entry):
        ClassificationModel.load(tmp_path)


def test_an_unknown_form_is_refused():
    with pytest.raises(InputError, match="form = 'triple', expected one of " + ", ".join(FORMS)):
        model("triple")
