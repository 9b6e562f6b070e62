"""The recipe of the released code (openai/finetune-transformer-lm), point by point: one test, or more, a point.

Here points 1 to 13, the model and the text; the others are in test_original_finetune.py. Where paper and code differ,
`original` asks for the code; most points hold by default as well. Every expected value is written out plainly, so that
a test fails as soon as its point no longer holds.
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gptcore import GPT, ModelConfig, Tokenizer
from gptcore.models import cpu, transformer
from gptcore.models.files.folder import export_release
from gptcore.models.files.library import SPECIAL_NAMES
from gptcore.nlu import REGISTRY
from gptcore.nlu.inputs import PADDING, specials
from gptcore.objectives import task as task_objective
from gptcore.text.bpe import WordTokenizer
from gptcore.text.clean import words
from gptcore.text.spacy_words import standardise
from tests.gptcore.test_export import hugging_face, write_release
from tests.gptcore.tiny_tasks import randomised, small_world, task_network, task_rows
from tests.realdata import real_data

TINY = ModelConfig(n_vocab=50, n_ctx=16, n_layer=2, n_head=2, n_embd=16, n_inner=64)
RELEASED_SIZES = {"n_vocab": 40_478, "n_ctx": 512, "n_layer": 12, "n_head": 12, "n_embd": 768, "n_inner": 3072}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return small_world(tmp_path_factory.mktemp("world"))


def inputs_of(model: GPT, tokens: torch.Tensor) -> torch.Tensor:
    """What the first block is given: [B, T, D]."""
    seen: list[torch.Tensor] = []
    hook = model.blocks[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    model(tokens)
    hook.remove()
    return seen[0]


def plain_norm(x: np.ndarray, gain: torch.Tensor, bias: torch.Tensor) -> np.ndarray:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)  # biased
    normal: np.ndarray = (x - mean) / np.sqrt(variance + 1e-5) * gain.numpy() + bias.numpy()
    return normal


# Model ----------------------------------------------------------------------------------------------------------------


def test_point_01_dropout_is_on_the_table_once_and_the_softmax_reads_the_same_table(monkeypatch):
    rates = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.5}
    model = GPT(dataclasses.replace(TINY, original=True, **rates)).train()
    drawn = []
    table_of = GPT.table

    def recorded(self):
        drawn.append(table_of(self))
        return drawn[-1]

    monkeypatch.setattr(GPT, "table", recorded)
    states = []
    model.blocks[-1].register_forward_hook(lambda *call: states.append(call[2]))
    tokens = torch.tensor([[7, 7, 3, 7], [1, 2, 3, 4]])
    found = inputs_of(model, tokens)
    assert len(drawn) == 1
    table = drawn[0]
    kept = table.detach() / torch.cat([model.tokens.weight, model.positions.weight]).detach()
    assert ((kept == 0) | torch.isclose(kept, torch.tensor(2.0))).all()
    assert (kept == 0).float().mean().item() == pytest.approx(0.5, abs=0.05)
    assert torch.equal(found, (table[tokens] + table[50:54]).detach())  # token 7 loses the same elements everywhere
    assert torch.equal(model(tokens), F.linear(states[-1], drawn[-1][:50]))
    assert TINY.embd_pdrop == 0.1


def test_point_01_a_fine_tune_as_released_drops_that_table(world):
    config = task_network(world, "storycloze").gpt.config
    assert config.original
    assert not task_network(world, "storycloze", original=False).gpt.config.original


def test_point_02_positions_are_the_last_rows_of_one_table_and_are_added_unscaled(tmp_path):
    model = GPT(TINY).adapt(n_special=3, original=True).eval()
    table = model.table()
    assert table.shape == (50 + 3 + 16, 16)
    assert torch.equal(table[50 + 3 + 4], model.positions.weight[4])
    tokens = torch.tensor([[5, 51, 0]])
    assert torch.equal(inputs_of(model, tokens)[0, 1], (table[51] + table[53 + 1]).detach())
    write_release(tmp_path, hugging_face())
    shapes = json.loads((tmp_path / "params_shapes.json").read_text())
    first = np.load(tmp_path / "params_0.npy")
    assert shapes[0] == [16, 24]  # positions come first
    assert torch.equal(GPT.load(tmp_path).positions.weight.flatten(), torch.from_numpy(first[: 16 * 24]))
    export_release(GPT.load(tmp_path), tmp_path / "again")
    assert json.loads((tmp_path / "again" / "params_shapes.json").read_text())[2] == [1, 24, 72]  # [1, n_in, n_out]


def test_point_03_the_language_models_softmax_runs_over_positions_too(world):
    model = task_network(world, "storycloze", clf_pdrop=0.0).eval()
    rows = task_rows(REGISTRY["storycloze"], world["storycloze"], "train", n_ctx=24, n_vocab=30, max_rows=4, seed=0)
    batch = rows.batch([0, 1, 2, 3])
    found = task_objective.finetune_objective(model, 0.5)(task_objective.pack(batch, 1.0, True))[1]["lm_loss"]
    gpt, losses, over_words = model.gpt, [], []
    everything = torch.cat([gpt.tokens.weight, gpt.positions.weight])
    assert len(everything) == 30 + 3 + 24
    for tokens, end in zip(batch.tokens.flatten(0, 1), batch.clf_position.flatten(), strict=True):
        hidden = gpt.hidden(tokens[None, : end + 1])[0, :-1]
        losses.append(F.cross_entropy(hidden @ everything.T, tokens[1 : end + 1]))
        over_words.append(F.cross_entropy(hidden @ gpt.tokens.weight.T, tokens[1 : end + 1]))
    assert found.item() == pytest.approx(torch.stack(losses).mean().item(), rel=1e-5)
    assert found.item() > torch.stack(over_words).mean().item() + 0.1  # 24 rows more to choose from


def test_point_04_three_special_rows_after_the_vocabulary_drawn_with_0_02():
    assert specials(40_478) == (40_478, 40_479, 40_480)
    assert specials(7)._fields == ("start", "delimiter", "classify")
    assert SPECIAL_NAMES == ("_start_", "_delimiter_", "_classify_")
    source = GPT(ModelConfig(n_vocab=9, n_layer=0, n_head=1, n_embd=30_000, n_ctx=1, n_inner=1))
    rows = source.adapt(3).tokens.weight[9:].detach()
    assert rows.shape == (3, 30_000)
    assert rows.mean().item() == pytest.approx(0.0, abs=5e-4)
    assert rows.std().item() == pytest.approx(0.02, rel=0.02)


def test_point_05_post_norm_with_nothing_before_or_after_the_blocks():
    model = GPT(TINY).eval()
    randomised(model)
    tokens = torch.randint(0, 50, (2, 6), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        x = model.tokens(tokens) + model.positions.weight[:6]  # no norm here
        for block in model.blocks:
            n = plain_norm((x + block.attention(x)).numpy(), block.norm_1.weight, block.norm_1.bias)
            n = torch.from_numpy(n).float()
            h = plain_norm((n + block.feed_forward(n)).numpy(), block.norm_2.weight, block.norm_2.bias)
            x = torch.from_numpy(h).float()
        torch.testing.assert_close(model.hidden(tokens), x, rtol=1e-4, atol=1e-4)  # nor here
    tiny = torch.full((1, 16), 1e-3).cumsum(1)  # small enough that epsilon shows
    norm = model.blocks[0].norm_1
    expected = torch.from_numpy(plain_norm(tiny.numpy(), norm.weight.detach(), norm.bias.detach()))
    torch.testing.assert_close(norm(tiny).detach(), expected.float())


def test_point_06_tanh_gelu_scaled_causal_attention_and_harmless_right_padding():
    model = GPT(dataclasses.replace(TINY, n_head=2, n_embd=128, n_inner=64)).eval()
    randomised(model)
    block = model.blocks[0]
    x = torch.randn(2, 5, 128, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        inner = block.feed_forward.inner(x).double()
        gelu = 0.5 * inner * (1 + torch.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)))
        torch.testing.assert_close(block.feed_forward(x), block.feed_forward.projection(gelu.float()))

        q, k, v = (part.view(2, 5, 2, 64).transpose(1, 2) for part in block.attention.qkv(x).split(128, dim=-1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(64)
        scores = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), -1e9)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 5, 128)
        torch.testing.assert_close(block.attention(x), block.attention.projection(mixed), rtol=1e-4, atol=1e-4)

        tokens = torch.tensor([[4, 8, 15]])
        padded = torch.tensor([[4, 8, 15, PADDING, PADDING]])
        torch.testing.assert_close(model(padded)[:, :3], model(tokens))
    assert PADDING == 0


def test_point_07_three_dropouts_a_block_and_plain_initial_weights(monkeypatch):
    calls = []

    def recorded(x, rate, training):
        calls.append((tuple(x.shape), rate, training))
        return x

    def drawn(shape, rate):
        calls.append((tuple(shape), rate, True))
        return torch.ones(shape, dtype=torch.int8)

    monkeypatch.setattr(transformer, "dropout", recorded)
    monkeypatch.setattr(cpu, "kept_elements", drawn)
    shape = {"n_vocab": 50, "n_head": 2, "n_embd": 64, "n_inner": 256, "n_layer": 12}
    model = GPT(ModelConfig(**shape, original=True), torch.Generator().manual_seed(0)).train()
    model(torch.zeros(3, 5, dtype=torch.long))
    table, *blocks = calls
    assert table == ((50 + 512, 64), 0.1, True)
    assert blocks == [((3, 2, 5, 5), 0.1, True), ((3, 5, 64), 0.1, True), ((3, 5, 64), 0.1, True)] * 12
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:  # no smaller for residual projections of a deeper network
            assert parameter.std().item() == pytest.approx(0.02, rel=0.05), name
        else:
            assert (parameter == (1.0 if "norm" in name and "weight" in name else 0.0)).all(), name
    assert model.blocks[0].attention.qkv.weight.shape == (3 * 64, 64)
    assert {name: getattr(ModelConfig(), name) for name in RELEASED_SIZES} == RELEASED_SIZES


def test_point_08_layout_of_a_vocabulary():
    tokenizer = WordTokenizer.train(["banana band\nban nab"], 4)
    pieces = list(tokenizer.vocabulary)
    characters = pieces[1:5]
    assert sorted(characters) == ["a", "b", "d", "n"]
    assert pieces[0] == "<unk>"
    assert pieces[5:9] == [f"{character}</w>" for character in characters]
    assert pieces[9:-1] == [first + second for first, second in tokenizer.merges]
    assert pieces[-1] == "\n</w>"


def test_point_08_the_released_vocabulary():
    tokenizer = Tokenizer.load(real_data("openai-gpt"))
    pieces = list(tokenizer.vocabulary)
    assert (tokenizer.n_vocab, tokenizer.n_merges) == (40_478, 40_000)
    assert (pieces[0], pieces[40_477]) == ("<unk>", "\n</w>")
    assert pieces[239:477] == [f"{character}</w>" for character in pieces[1:239]]
    assert pieces[477:40_477] == [first + second for first, second in tokenizer.merges]


# Text -----------------------------------------------------------------------------------------------------------------


def test_point_09_order_of_the_steps():
    assert words("don\u00e2\u20ac\u2122t") == ["do", "n't"]  # spaCy sees the quote only where ftfy came first
    assert words("don't_know") == ["do", "n't", "_", "know"]  # and the end of a word only where "_" was set off first
    assert words("the end.Then it") == ["the", "end", ".", "then", "it"]  # a full stop before a capital: not lower yet
    assert words("the end.then it") == ["the", "end.then", "it"]
    assert WordTokenizer.train(["ab"], 1).encode("AB") == WordTokenizer.train(["ab"], 1).encode("ab") != [0]


def test_point_10_standardising():
    assert standardise("a\u2014b\u2013c\u2015d") == "a - b - c - d"
    assert standardise("so\u2026 it\u00b4s") == "so... it's"
    for mark in '-~!";?+,)(/*[]}{|_':
        assert standardise(f"a{mark}{mark}b{mark}") == f"a {mark}{mark} b {mark}", mark
    assert standardise("what?!?") == "what ? ! ?"  # one run of one character at a time
    for other in ".':&%$#@<>=^`":
        assert standardise(f"a{other}b") == f"a{other}b", other
    assert standardise("  a \t b \n\n  c\n ") == "a b \n c"


def test_point_11_a_backslash_is_not_set_off():
    assert standardise("a\\b+c") == "a\\b + c"


def test_point_12_line_breaks_are_tokens():
    tokenizer = WordTokenizer.train(["one two \n three"], 5)
    newline = tokenizer.n_vocab - 1
    one, two = tokenizer.encode("one two"), tokenizer.encode("three")
    assert tokenizer.encode("one two\n\n three") == [*one, newline, *two]
    assert words("one\ntwo") == ["one", "\n", "two"]


def test_point_12_and_13_in_the_released_vocabulary():
    tokenizer = Tokenizer.load(real_data("openai-gpt"))
    assert tokenizer.encode("hello\nworld") == [*tokenizer.encode("hello"), 40_477, *tokenizer.encode("world")]
    assert tokenizer.encode("\u6f22") == [0]


def test_point_13_an_unknown_piece_is_the_padding_id():
    tokenizer = WordTokenizer.train(["one two three"], 5)
    assert tokenizer.encode("\u6f22") == [0] == [PADDING]
    known, tail = tokenizer.encode("one"), tokenizer.encode("o\u6f22")
    assert 0 not in known
    assert tail[-1] == 0
