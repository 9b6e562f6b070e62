"""The recipe of the released code (openai/finetune-transformer-lm), point by point: one test, or more, a point.

Where paper and code differ, `original` asks for the code; most points hold by default as well. Every expected value is
written out plainly here, so that a test fails as soon as its point no longer holds.
"""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from sklearn.model_selection import train_test_split

from gptcore import GPT, ModelConfig, Tokenizer
from gptcore.config import FinetuneConfig, LSTMConfig
from gptcore.evaluation.predict import Predictions, evaluate
from gptcore.models import transformer
from gptcore.models.export import SPECIAL_NAMES, export_release
from gptcore.models.heads import ClassificationModel
from gptcore.nlu import REGISTRY, load_task
from gptcore.nlu.encoded import encode_task, read_encoded
from gptcore.nlu.inputs import PADDING, build_sequences, predict, released_part_tokens, soft_labels, specials
from gptcore.nlu.published import PUBLISHED
from gptcore.text.clean import standardise, words
from gptcore.training import best_epoch, finetune, loop, process, task_objective
from gptcore.training.batches import TaskRows
from gptcore.training.optim import adam, set_lr
from gptcore.training.schedules import warmup_linear
from tasks.score import Score
from tasks.suites import Suite, row_of
from tests.gptcore.test_export import hugging_face, write_release
from tests.gptcore.tiny_tasks import MODEL, encoded, pretrained
from tests.realdata import real_data

TINY = ModelConfig(n_vocab=50, n_ctx=16, n_layer=2, n_head=2, n_embd=16, n_inner=64)
RELEASED_SIZES = {"n_vocab": 40_478, "n_ctx": 512, "n_layer": 12, "n_head": 12, "n_embd": 768, "n_inner": 3072}
CSV = "cloze_test_{}__spring2016 - cloze_test_ALL_{}.csv"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A pre-trained model and encoded rows of three forms; the stories are longer than n_ctx."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("world")
    pretrained(folder / "model")
    tasks = {task: encoded(folder, task, n_train=70, n_dev=20) for task in ("storycloze", "mrpc", "sst2")}
    return {"model": folder / "model", **tasks}


def job(world: dict[str, Path], task: str, workspace: Path, **settings: object) -> dict[str, object]:
    return {
        "task": task,
        "finetune": {"lr": 1e-2, "batch_size": 16, "precision": "float32", "original": True, **settings},
        "model": str(world["model"]),
        "dataset": str(world[task]),
        "workspace": str(workspace),
        "threads": 1,
    }


def run(given: dict[str, object]) -> dict[str, float]:
    finetune.run(given, process.StopRequest())
    result: dict[str, float] = json.loads((Path(str(given["workspace"])) / "result.json").read_text(encoding="utf-8"))
    return result


def task_network(world: dict[str, Path], task: str, **settings: object) -> ClassificationModel:
    parsed = finetune.FinetuneJob.parse(job(world, task, Path("unused"), **settings))
    return finetune.task_model(parsed, REGISTRY[task])[0]


def randomised(model: torch.nn.Module) -> None:
    draws = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.5, generator=draws)


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
    rows = TaskRows(REGISTRY["storycloze"], world["storycloze"], "train", n_ctx=24, n_vocab=30, max_rows=4, seed=0)
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

    monkeypatch.setattr(transformer, "dropout", recorded)
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
    tokenizer = Tokenizer.train(["banana band\nban nab"], 4)
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
    assert Tokenizer.train(["ab"], 1).encode("AB") == Tokenizer.train(["ab"], 1).encode("ab") != [0]


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
    tokenizer = Tokenizer.train(["one two \n three"], 5)
    newline = tokenizer.n_vocab - 1
    one, two = tokenizer.encode("one two"), tokenizer.encode("three")
    assert tokenizer.encode("one two\n\n three") == [*one, newline, *two]
    assert words("one\ntwo") == ["one", "\n", "two"]


def test_point_12_and_13_in_the_released_vocabulary():
    tokenizer = Tokenizer.load(real_data("openai-gpt"))
    assert tokenizer.encode("hello\nworld") == [*tokenizer.encode("hello"), 40_477, *tokenizer.encode("world")]
    assert tokenizer.encode("\u6f22") == [0]


def test_point_13_an_unknown_piece_is_the_padding_id():
    tokenizer = Tokenizer.train(["one two three"], 5)
    assert tokenizer.encode("\u6f22") == [0] == [PADDING]
    known, tail = tokenizer.encode("one"), tokenizer.encode("o\u6f22")
    assert 0 not in known
    assert tail[-1] == 0


# Inputs, loss, schedule -----------------------------------------------------------------------------------------------


def test_point_14_each_part_takes_half_of_the_room_at_most():
    assert released_part_tokens(512) == 254
    story, ending, start = np.arange(300), np.arange(1000, 1300), specials(5000)
    spec = REGISTRY["storycloze"]
    (first, second), cut = build_sequences(spec, [story], [ending, ending[:9]], 512, start, 254)
    assert first.tolist() == [5000, *range(254), 5001, *range(1000, 1254), 5002]
    assert second.tolist() == [5000, *range(254), 5001, *range(1000, 1009), 5002]
    assert cut
    assert build_sequences(spec, [story[:254]], [ending[:254]] * 2, 512, start, 254)[1] is False
    (both, turned), _ = build_sequences(REGISTRY["mrpc"], [story, ending[:5]], (), 512, start, 254)
    assert both.tolist() == [5000, *range(254), 5001, *range(1000, 1005), 5002]
    assert turned.tolist() == [5000, *range(1000, 1005), 5001, *range(254), 5002]
    # by analogy: an article gives way to its question; a single text has no other side to share with
    (one, *_), _ = build_sequences(REGISTRY["race"], [story, ending[:6]], [ending[:2]] * 4, 512, start, 254)
    assert one.tolist() == [5000, *range(248), *range(1000, 1006), 5001, 1000, 1001, 5002]
    ((single,), _) = build_sequences(REGISTRY["sst2"], [np.arange(600)], (), 512, start, 254)
    assert single.tolist() == [5000, *range(510), 5002]


def test_point_14_n_ctx_is_the_longest_example_of_all_splits_and_positions_are_cut(world, tmp_path):
    limit = 24 // 2 - 2

    def longest(split):
        return max(
            min(limit, len(row.fields[0])) + max(min(limit, len(choice)) for choice in row.choices) + 3
            for row in read_encoded(world["storycloze"], split)
        )

    def trained(seed):
        shapes = {"n_ctx": 24, "n_vocab": 30, "part_tokens": limit, "max_rows": 2, "seed": seed}
        return TaskRows(REGISTRY["storycloze"], world["storycloze"], "train", **shapes).longest

    n_ctx = max(longest("dev"), longest("test"))
    assert n_ctx < 24
    seed = next(seed for seed in range(100) if trained(seed) < n_ctx)
    settings = {"epochs": 1, "max_train_rows": 2, "seed": seed}
    result = run(job(world, "storycloze", tmp_path, **settings))
    config = json.loads((tmp_path / "model/config.json").read_text(encoding="utf-8"))
    assert config["model"]["n_ctx"] == n_ctx
    assert config["part_tokens"] == limit
    positions = load_file(tmp_path / "model/model.safetensors")["gpt.positions.weight"]
    assert positions.shape == (n_ctx, MODEL.n_embd)
    # rows are cut in the same way when the model is used later
    again = tmp_path / "again.jsonl"
    evaluate(tmp_path / "model", world["storycloze"], "dev", precision="float32", predictions=again)
    assert again.read_bytes() == (tmp_path / "predictions/dev.jsonl").read_bytes()
    kept = run(job(world, "storycloze", tmp_path / "paper", original=False, **settings))
    assert kept["tokens_seen"] > result["tokens_seen"]  # by default the story takes what the endings leave
    assert ClassificationModel.load(tmp_path / "paper/model")[0].gpt.config.n_ctx == 24


def test_point_15_one_scalar_a_choice_read_at_classify_under_one_mask(world):
    model = task_network(world, "storycloze", clf_pdrop=0.5)
    assert model.head.weight.shape == (1, MODEL.n_embd)
    assert not model.head.bias.any()
    heads = [task_network(world, "storycloze", seed=seed).head.weight for seed in range(60)]
    assert torch.cat(heads).std().item() == pytest.approx(0.02, rel=0.1)
    assert FinetuneConfig().clf_pdrop == 0.1
    rows = TaskRows(REGISTRY["storycloze"], world["storycloze"], "train", n_ctx=24, n_vocab=30, max_rows=4, seed=0)
    batch = rows.batch([0, 1, 2, 3])
    first = (batch.tokens == 30 + 2).int().argmax(-1)  # the first of the largest
    assert torch.equal(batch.clf_position, first)
    seen = []
    model.head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model.train()
    model.gpt.eval()
    logits, _ = model(batch.tokens, batch.clf_position)
    assert logits.shape == (4, 2)
    dropped = seen[0] == 0  # (B, C, D)
    assert torch.equal(dropped[:, 0], dropped[:, 1])
    assert 0.2 < dropped.float().mean() < 0.8
    loss = task_objective.finetune_objective(model.eval(), 0.0)(task_objective.pack(batch, 1.0, False))[0]
    logits, _ = model(batch.tokens, batch.clf_position)
    probability = logits.softmax(-1)[range(4), batch.labels]
    assert loss.item() == pytest.approx(-probability.log().mean().item(), rel=1e-5)


def test_point_16_every_choices_sequence_is_a_sentence_to_learn_and_counts_the_same(world):
    model = task_network(world, "storycloze").eval()
    randomised(model)
    model.gpt.tokens.weight.data *= 20.0  # so that sequences differ in their losses
    rows = TaskRows(REGISTRY["storycloze"], world["storycloze"], "train", n_ctx=24, n_vocab=30, max_rows=6, seed=0)
    batch = rows.batch(range(6))
    means, every = [], []
    for tokens, end in zip(batch.tokens.flatten(0, 1), batch.clf_position.flatten(), strict=True):
        sequence = tokens[: end + 1]
        assert sequence[0] == 30  # start, never a target; delimiter and classify are
        scores = F.linear(model.gpt.hidden(sequence[None])[0], model.gpt.table()).log_softmax(-1)
        nats = [-scores[at - 1, sequence[at]].item() for at in range(1, len(sequence))]
        means.append(sum(nats) / len(nats))
        every += nats
    assert len(means) == 12  # wrong endings too
    assert sum(means) / 12 != pytest.approx(sum(every) / len(every), rel=1e-4)  # long sequences count no more
    loss, parts = task_objective.finetune_objective(model, FinetuneConfig().lm_coef)(
        task_objective.pack(batch, 1.0, True)
    )
    assert parts["lm_loss"].item() == pytest.approx(sum(means) / 12, rel=1e-5)
    assert loss.item() == pytest.approx(parts["task_loss"].item() + 0.5 * parts["lm_loss"].item(), rel=1e-6)


def test_point_17_schedule_and_number_of_updates(world, tmp_path):
    assert (FinetuneConfig().warmup, FinetuneConfig().lr, FinetuneConfig().epochs) == (0.002, 6.25e-5, 3)
    factor = warmup_linear(0.002, 10_000)
    assert [factor(t) for t in (0, 5, 20, 21, 5000, 10_000)] == pytest.approx([0, 0.25 * 0.9995, 0.998, 0.9979, 0.5, 0])
    result = run(job(world, "storycloze", tmp_path, epochs=3, warmup=0.25, batch_size=16))
    n_train = len(read_encoded(world["storycloze"], "train"))
    assert n_train % 16  # the incomplete batch is dropped
    total = (n_train // 16) * 3
    assert result["steps"] == total
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    rates = {line["step"]: line["metrics"]["train/lr"] for line in lines if "train/lr" in line["metrics"]}
    shares = [(step - 1) / total for step in rates]
    expected = [1e-2 * (x / 0.25 if x <= 0.25 else 1) * (1 - x) for x in shares]
    assert list(rates.values()) == pytest.approx(expected)


def test_point_17_rows_are_shuffled_plainly(world):
    rows = TaskRows(REGISTRY["sst2"], world["sst2"], "train", n_ctx=24, n_vocab=30, max_rows=None, seed=0)
    rows.sizes = np.arange(len(rows))
    plain, bucketed = (
        task_objective.FinetuneData(rows, FinetuneConfig(batch_size=8, original=original)) for original in (True, False)
    )
    assert len(rows) == 70
    assert plain.batches_per_epoch == 8

    def spread(data):
        chosen = [[rows.names.index(name) for name in data.documents(step)] for step in range(8)]
        assert len(set(itertools.chain(*chosen))) == 64
        return np.mean([max(batch) - min(batch) for batch in chosen])

    assert spread(plain) > 40
    assert spread(bucketed) < 15


def test_point_18_the_released_adam():
    assert FinetuneConfig() == FinetuneConfig(beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0.01)
    config = FinetuneConfig(original=True, epsilon=1e-2, lr=0.1)
    model = GPT(TINY).adapt(3, original=True)
    randomised(model)
    optimizer = adam(model, config)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    seen = {name: (torch.zeros_like(value), torch.zeros_like(value)) for name, value in before.items()}
    model.eval()
    for t in (1, 2, 3):
        optimizer.zero_grad()
        model(torch.tensor([[4, 5, 6]]))[0, :, :10].square().sum().backward()  # few words, three positions
        rate = 0.1 / t  # a schedule
        step = rate * math.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        for name, parameter in model.named_parameters():
            m, v = seen[name]
            m.mul_(0.9).add_(0.1 * parameter.grad)
            v.mul_(0.999).add_(0.001 * parameter.grad**2)
            decay = 0.01 * before[name] if parameter.ndim > 1 else 0.0
            before[name] = before[name] - step * (m / (v.sqrt() + 1e-2) + decay)
        set_lr(optimizer, rate, t - 1)
        optimizer.step()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(parameter.detach(), before[name], rtol=1e-5, atol=1e-6, msg=name)


def test_point_18_rows_that_no_batch_holds_decay_too():
    model = GPT(TINY).adapt(3)
    optimizer = adam(model, FinetuneConfig(original=True, lr=0.1))
    tokens, positions = model.tokens.weight.detach().clone(), model.positions.weight.detach().clone()
    model.hidden(torch.tensor([[1, 2]])).sum().backward()
    set_lr(optimizer, 0.1, 0)
    optimizer.step()
    factor = 1 - 0.1 * math.sqrt(0.001) / 0.1 * 0.01
    torch.testing.assert_close(model.tokens.weight[3:].detach(), tokens[3:] * factor)
    torch.testing.assert_close(model.positions.weight[2:].detach(), positions[2:] * factor)
    assert not torch.allclose(model.tokens.weight[3:].detach(), tokens[3:], rtol=1e-5)


def test_point_19_global_norm_1_and_32_rows_an_update(world, tmp_path, monkeypatch):
    assert (FinetuneConfig().clip_norm, FinetuneConfig().batch_size) == (1.0, 32)
    clip = loop.nn.utils.clip_grad_norm_
    norms = []

    def recorded(parameters, max_norm):
        parameters = list(parameters)
        for parameter in parameters:
            parameter.grad *= 100.0
        found = clip(parameters, max_norm)
        norms.append(math.sqrt(sum(float(parameter.grad.square().sum()) for parameter in parameters)))
        assert len(parameters) == count
        return found

    count = len(list(task_network(world, "storycloze").parameters()))
    monkeypatch.setattr(loop.nn.utils, "clip_grad_norm_", recorded)
    run(job(world, "storycloze", tmp_path, epochs=1, batch_size=32))
    assert norms == pytest.approx([1.0] * (70 // 32), rel=1e-4)


def scripted_run(world, tmp_path, monkeypatch, scores, **settings):
    """A fine-tune whose dev scores are given; the weights at each evaluation, by update."""
    script, weights = iter(scores), {}
    evaluated = best_epoch.BestEpoch.evaluate

    def spy(self, step, interrupted):
        weights[step] = {name: value.clone() for name, value in self._model.state_dict().items()}
        return evaluated(self, step, interrupted)

    monkeypatch.setattr(Predictions, "scores", lambda self, spec: next(script))
    monkeypatch.setattr(best_epoch.BestEpoch, "evaluate", spy)
    return run(job(world, "mrpc", tmp_path, epochs=2, **settings)), weights


F1_FALLS = [
    {"score": 0.9, "f1": 0.9, "accuracy": 0.5},
    {"score": 0.8, "f1": 0.8, "accuracy": 0.7},
    {"score": 0.7, "f1": 0.7, "accuracy": 0.6},
]


def test_point_20_the_best_parameters_by_accuracy_are_restored(world, tmp_path, monkeypatch):
    monkeypatch.setattr(best_epoch, "_RELEASED_UPDATES", {3})
    result, weights = scripted_run(world, tmp_path, monkeypatch, F1_FALLS)
    assert list(weights) == [3, 4, 8]  # within the first epoch, then after each
    assert (result["best_epoch"], result["best_step"], result["dev/accuracy"]) == (1, 4, 0.7)
    kept = load_file(tmp_path / "model/model.safetensors")
    assert all(torch.equal(kept[name], weights[4][name]) for name in kept)


def test_point_20_within_the_first_epoch(world, tmp_path, monkeypatch):
    monkeypatch.setattr(best_epoch, "_RELEASED_UPDATES", {3, 7})
    result, weights = scripted_run(world, tmp_path, monkeypatch, F1_FALLS[1:] + F1_FALLS[:1])
    assert list(weights) == [3, 4, 8]
    assert (result["best_epoch"], result["best_step"]) == (0.75, 3)
    kept = load_file(tmp_path / "model/model.safetensors")
    assert all(torch.equal(kept[name], weights[3][name]) for name in kept)


def test_point_20_by_default_the_headline_metric_after_each_epoch(world, tmp_path, monkeypatch):
    monkeypatch.setattr(best_epoch, "_RELEASED_UPDATES", {3})
    result, weights = scripted_run(world, tmp_path, monkeypatch, F1_FALLS[:2], original=False)
    assert list(weights) == [4, 8]
    assert result["best_step"] == 4


def test_point_20_at_which_updates():
    monitor = object.__new__(best_epoch.BestEpoch)
    monitor._original, monitor._batches_per_epoch = True, 5000
    assert [step for step in range(0, 16_001, 500) if monitor.due(step)] == [1000, 2000, 4000, 5000, 10_000, 15_000]
    monitor._batches_per_epoch = 10**6
    assert [step for step in range(0, 200_000, 500) if monitor.due(step)] == [1000 * 2**n for n in range(6)]
    monitor._original = False
    assert not any(monitor.due(step) for step in range(0, 200_000, 500))


def test_point_21_story_cloze_is_cut_by_scikit_learn_with_the_released_seed(tmp_path):
    """And the whole recipe: 1497 stories in batches of 32, three epochs, are 138 updates."""
    pretrained(tmp_path / "model")
    dataset = encoded(tmp_path, "storycloze", n_train=1497, n_dev=374)
    rows = {split: read_encoded(dataset, split) for split in ("train", "dev")}
    lines = {split: [int(row.rsplit(":", 1)[1]) for row in rows[split].rows] for split in rows}
    train, dev = train_test_split(range(2, 1873), test_size=374, random_state=3535999445)
    assert lines == {"train": train, "dev": dev}
    with open(tmp_path / "datasets" / "StoryCloze" / CSV.format("val", "val"), encoding="utf-8", newline="") as file:
        records = list(csv.reader(file))
    assert len(records) == 1872
    for split in rows:
        assert rows[split].labels.tolist() == [int(records[line - 1][-1]) - 1 for line in lines[split]]
    released = {"batch_size": 32, "epochs": 3, "lr": 6.25e-5}
    result = run(job({"model": tmp_path / "model", "storycloze": dataset}, "storycloze", tmp_path / "run", **released))
    assert result["steps"] == 138
    assert result["rows"] == {"train": 1497, "dev": 374, "test": 374}


def test_point_21_the_real_story_cloze(tmp_path):
    root, tokenizer = real_data(), Tokenizer.load(real_data("openai-gpt"))
    report = encode_task("storycloze", str(root), tokenizer, tmp_path / "storycloze")
    assert [report["splits"][split]["rows"] for split in ("train", "dev", "test")] == [1497, 374, 1871]
    examples = load_task("storycloze", str(root), "train")
    with open(root / "StoryCloze" / CSV.format("val", "val"), encoding="utf-8", newline="") as file:
        records = list(csv.reader(file))
    for example in examples[:50]:
        record = records[int(example.row.rsplit(":", 1)[1]) - 1]
        assert example.fields == (" ".join(record[1:5]),)
        assert example.label == int(record[-1]) - 1
    small = ModelConfig(n_vocab=40_478, n_layer=1, n_head=1, n_embd=8, n_inner=32)
    GPT(small).save(tmp_path / "model")
    world = {"model": tmp_path / "model", "storycloze": tmp_path / "storycloze"}
    # without the language model's loss, whose product with 40 478 words is nearly all of the work
    result = run(job(world, "storycloze", tmp_path / "run", batch_size=32, epochs=3, lm_coef=0.0))
    assert (result["steps"], result["truncated"]) == (138, 0)
    assert ClassificationModel.load(tmp_path / "run/model")[0].gpt.config.n_ctx == 77  # the released code's own number


def test_point_22_sts_b_is_six_soft_classes_and_predicts_the_expected_one():
    spec = REGISTRY["stsb"]
    assert spec.n_outputs == 6
    target = soft_labels(spec, np.asarray([3.6, 0.0, 5.0]))
    np.testing.assert_allclose(target[0], [0, 0, 0, 0.4, 0.6, 0], atol=1e-6)
    assert target[1:].argmax(1).tolist() == [0, 5]
    logits = np.log(np.asarray([[0.1, 0.1, 0.2, 0.3, 0.2, 0.1]]))
    assert predict(spec, logits)[0] == pytest.approx(0.1 + 0.4 + 0.9 + 0.8 + 0.5)


def test_point_23_seeds_are_reported_by_their_median_beside_the_released_median_of_ten():
    percent = [50.0, 86.0, 85.0, 90.0, 84.0]
    origin = {"checkpoint": "c"}
    scores = [
        Score("storycloze", seed, "test", {"storycloze": value}, origin=origin) for seed, value in enumerate(percent)
    ]
    row = row_of(Suite("pre-trained", "ours", origin), scores)
    assert row.percent == {"storycloze": 85.0}
    assert row.seeds == "5"
    released = [each for each in PUBLISHED if each.method == "Released code (median of 10 runs)"]
    assert [each.percent for each in released] == [{"storycloze": 85.8}]
    assert REGISTRY["storycloze"].paper == {"storycloze": 86.5}  # a single run, and so named nowhere as a median


@pytest.mark.parametrize(
    ("n_transfer", "embeddings", "blocks"), [(-1, False, 0), (0, True, 0), (1, True, 1), (2, True, 2)]
)
def test_point_24_what_n_transfer_takes_along(world, n_transfer, embeddings, blocks):
    source = GPT.load(world["model"])
    model = task_network(world, "storycloze", n_transfer=n_transfer).gpt
    assert torch.equal(model.tokens.weight[:30], source.tokens.weight) == embeddings
    assert torch.equal(model.positions.weight, source.positions.weight) == embeddings
    same = [
        all(torch.equal(a, b) for a, b in zip(mine.parameters(), its.parameters(), strict=True) if a.ndim > 1)
        for mine, its in zip(model.blocks, source.blocks, strict=True)
    ]
    assert same == [True] * blocks + [False] * (2 - blocks)


# The whole recipe -----------------------------------------------------------------------------------------------------


class StopAt(process.StopRequest):
    """SIGTERM at the n-th time that anyone asks."""

    def __init__(self, n):
        self._left = n

    @property
    def requested(self):
        self._left -= 1
        return self._left < 0


@pytest.mark.parametrize("asked", [2, 4, 9])
def test_a_run_as_released_goes_on_with_the_same_bits(world, tmp_path, monkeypatch, asked):
    monkeypatch.setattr(best_epoch, "_RELEASED_UPDATES", {2})
    whole = run(job(world, "storycloze", tmp_path / "whole", epochs=2))
    given = job(world, "storycloze", tmp_path / "stopped", epochs=2)
    with pytest.raises(process.Interrupted):
        finetune.run(given, StopAt(asked))
    again = run(given)
    assert {name: again[name] for name in ("dev/score", "test/score", "best_step", "train/loss")} == {
        name: whole[name] for name in ("dev/score", "test/score", "best_step", "train/loss")
    }
    weights = [(tmp_path / kind / "model/model.safetensors").read_bytes() for kind in ("whole", "stopped")]
    assert weights[0] == weights[1]


def test_the_lstm_of_table_5_takes_what_applies_to_it(world, tmp_path):
    shape = LSTMConfig(n_vocab=MODEL.n_vocab, n_ctx=24, n_units=16, n_embd=8)
    given = job(world, "storycloze", tmp_path, epochs=1, pretrained=False)
    run({**given, "model": None, "model_config": dataclasses.asdict(shape)})
    model, config = ClassificationModel.load(tmp_path / "model")
    assert model.gpt.config.n_ctx < 24
    assert config["part_tokens"] == 10
    assert len(model.gpt.table()) == MODEL.n_vocab + 3  # it has no positions
