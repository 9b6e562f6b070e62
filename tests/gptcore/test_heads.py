"""The classification model against a plain twin: one sequence at a time, no padding, no gathering."""

from __future__ import annotations

import pytest
import torch

from gptcore.base.errors import InputError
from gptcore.base.files import read_json, write_json_atomic
from gptcore.config import ModelConfig
from gptcore.models.heads import ClassificationModel
from gptcore.models.transformer import GPT
from gptcore.nlu.forms import FORMS

CFG = ModelConfig(n_vocab=20, n_special=3, n_ctx=12, n_layer=2, n_head=2, n_embd=8, n_inner=16, init_std=0.3)
CLASSIFY = 22


def model(form: str, n_outputs: int = 3, clf_pdrop: float = 0.5) -> ClassificationModel:
    torch.manual_seed(1)
    return ClassificationModel(GPT(CFG), form, 1 if form == "choices" else n_outputs, clf_pdrop).eval()


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


@pytest.mark.parametrize(("form", "n_sequences"), [("single", 1), ("pair", 1), ("pair", 2), ("choices", 4)])
def test_logits_equal_the_plain_twin(form, n_sequences):
    network = model(form)
    rows, tokens, ends = batch(n_sequences)
    with torch.no_grad():
        logits, states = network(tokens, ends)
        expected = []
        for sequences in rows:
            last = [network.gpt.hidden(torch.tensor([ids]))[0, -1] for ids in sequences]
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


def test_all_choices_of_an_example_share_one_dropout_mask():
    network = model("choices", clf_pdrop=0.5).train()
    seen = []
    network.head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    network.gpt.eval()  # only the classifier's dropout
    _, tokens, ends = batch(4)
    network(tokens, ends)
    kept = seen[0] != 0  # (B, C, D)
    assert (kept == kept[:, :1]).all()
    assert 0 < kept.float().mean() < 1
    assert (kept[0] != kept[1]).any()


def test_a_saved_model_comes_back_the_same(tmp_path):
    network = model("pair", n_outputs=2, clf_pdrop=0.1)
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
