"""Encoders against scripts around transformers: updates of pre-training, fine-tuning, answers out of passages.

In pre-training the peer multiplies every position with the vocabulary, as transformers' models do that take labels;
ELECTRA's is its generator and discriminator with shared embeddings, as the paper has them. In fine-tuning it pads each
batch to its longest row. Rows of SST-2, MRPC and SQuAD where GPTMILL_REAL_DATA has them, else generated ones.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraForPreTraining,
)

from gptcore.config import EncoderConfig, PretrainConfig, preset_named
from gptcore.config.distillation import student_of
from gptcore.config.operations import MASK_SHARE
from gptcore.evaluation.own_rows import predict_jsonl
from gptcore.evaluation.predict import TaskModel
from gptcore.families import FAMILIES, students
from gptcore.machine.device import pick_dtype
from gptcore.models.classifier import EncoderClassificationModel
from gptcore.models.encoder import Encoder
from gptcore.nlu.encoded import encode_task
from gptcore.nlu.forms import form_of
from gptcore.nlu.inputs import EncoderReader
from gptcore.nlu.readers import load_task
from gptcore.nlu.registry import TaskSpec, task_spec
from gptcore.objectives.distillation import Distilled
from gptcore.text.tokenizer import Tokenizer
from gptcore.text.wordpiece import WordPieceTokenizer
from tests.benchmarks.finetune import our_updates, script_updates, shuffled, sources
from tests.benchmarks.step import COMPILED, updating
from tests.benchmarks.table import Work, beside
from tests.gptcore.tiny_tasks import task_rows

Loss = Callable[[dict[str, Tensor]], Tensor]

_CPU = torch.device("cpu")
_SHAPES = (("demo", 24, 2_026), ("small", 16, 4_372), ("base", 8, 30_522))
"""Shape, sequences a batch, vocabulary; base: BERT's, with sequences of 128, as nine in ten of its updates have."""
_ANSWERED, _AT_ONCE = 64, 32


def run(seconds: float, folder: Path) -> None:
    """Rows 18 to 21."""
    for family in ("bert", "electra"):
        for shape, rows, n_vocab in _SHAPES:
            _updates(family, shape, rows, n_vocab, seconds)
    for family in students():
        _distillation(family, *_SHAPES[0], seconds)
    datasets, tokenizer = sources(folder, WordPieceTokenizer)
    for task in ("sst2", "mrpc"):
        encode_task(task_spec(task), str(datasets), tokenizer, folder / task)
        _fine_tuning(task_spec(task), folder / task, tokenizer, seconds)
    _answers(task_spec("squad"), datasets, folder / "model", tokenizer, seconds)


# --- pre-training


def pretraining_config(family: str, shape: str, n_vocab: int) -> EncoderConfig:
    """The network of a preset, or of the published base size with sequences of 128."""
    if shape == "base":
        preset = preset_named("paper", {"family": family})
        model = dataclasses.replace(preset.model, **FAMILIES[family].shapes[f"{family}-base"], n_ctx=128)
    else:
        model = preset_named(shape, {"family": family}).model
    assert isinstance(model, EncoderConfig)
    return dataclasses.replace(model, n_vocab=n_vocab)


def micro_batch(config: EncoderConfig, rows: int) -> dict[str, Tensor]:
    """Whole sequences of two segments, of which 15 % of the words are hidden."""
    draws = torch.Generator().manual_seed(0)
    shape = (rows, config.n_ctx)
    tokens = torch.randint(config.n_vocab, shape, generator=draws)
    n_told = round(MASK_SHARE * tokens.numel())
    places = torch.randperm(tokens.numel(), generator=draws)[:n_told].sort().values
    return {
        "tokens": tokens,
        "segments": (torch.arange(config.n_ctx) >= config.n_ctx // 2).long().expand(shape).contiguous(),
        "mask": torch.ones(shape, dtype=torch.long),
        "places": places,
        "targets": torch.randint(config.n_vocab, (n_told,), generator=draws),
        "draws": torch.rand(n_told, generator=draws),
        "labels": torch.randint(2, (rows,), generator=draws),
        "word_weight": torch.tensor(1.0 / n_told),
        "pair_weight": torch.tensor(1.0 / rows),
        "token_weight": torch.tensor(1.0 / tokens.numel()),
    }


def our_loss(family: str, config: EncoderConfig) -> tuple[nn.Module, Loss]:
    """What is trained, and the family's objective."""
    draws = torch.Generator().manual_seed(0)
    preset = preset_named("demo", {"family": family})
    recipe = FAMILIES[family].part("objective")
    trained = recipe.network(Encoder(config, draws), preset.pretrain, draws).train()
    objective = recipe.objective(trained, preset.pretrain)
    return trained, lambda batch: objective(batch)[0]


def their_loss(family: str, config: EncoderConfig) -> tuple[nn.Module, Loss]:
    """The same of transformers' networks."""
    model = (_Bert if family == "bert" else _Electra)(config).train()

    def loss(batch: dict[str, Tensor]) -> Tensor:
        labels = torch.full_like(batch["tokens"], -100).flatten().scatter(0, batch["places"], batch["targets"])
        marks = batch["segments"], batch["mask"], labels.view_as(batch["tokens"])
        found: Tensor = model(batch["tokens"], *marks, batch["labels"])
        return found

    return model, loss


def as_transformers(config: EncoderConfig) -> dict[str, Any]:
    """The network's settings under transformers' names."""
    return {
        "vocab_size": config.n_vocab,
        "hidden_size": config.n_embd,
        "embedding_size": config.width_of_words,
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "intermediate_size": config.n_inner,
        "max_position_embeddings": config.n_ctx,
        "hidden_dropout_prob": config.resid_pdrop,
        "attention_probs_dropout_prob": config.attn_pdrop,
    }


class _Bert(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.model = BertForPreTraining(BertConfig(**as_transformers(config)))

    def forward(self, tokens: Tensor, segments: Tensor, mask: Tensor, words: Tensor, pairs: Tensor) -> Tensor:
        """The loss; words are -100 where nothing is to be told."""
        found = self.model(
            tokens, token_type_ids=segments, attention_mask=mask, labels=words, next_sentence_label=pairs
        )
        return found.loss


class _Electra(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        recipe = FAMILIES["electra"].part("objective")
        small_one = recipe.network(Encoder(config), PretrainConfig(), torch.Generator()).generator.config
        self.generator = ElectraForMaskedLM(ElectraConfig(**as_transformers(small_one)))
        self.discriminator = ElectraForPreTraining(ElectraConfig(**as_transformers(config)))
        self.discriminator.electra.embeddings = self.generator.electra.embeddings

    def forward(self, tokens: Tensor, segments: Tensor, mask: Tensor, words: Tensor, _: Tensor) -> Tensor:
        """Both losses, the discriminator's fifty times; words are -100 where nothing is to be told."""
        told = self.generator(tokens, token_type_ids=segments, attention_mask=mask, labels=words)
        with torch.no_grad():
            scores = told.logits.float()
            drawn = (scores - torch.empty_like(scores).exponential_().log()).argmax(-1)
            hidden = words != -100
            text = torch.where(hidden, drawn, tokens)
            replaced = (hidden & (drawn != words)).long()
        judged = self.discriminator(text, token_type_ids=segments, attention_mask=mask, labels=replaced)
        return told.loss + 50 * judged.loss


def _updates(family: str, shape: str, rows: int, n_vocab: int, seconds: float) -> None:
    config = pretraining_config(family, shape, n_vocab)
    batch, dtype = micro_batch(config, rows), pick_dtype("auto", _CPU)
    n_tokens = batch["tokens"].numel()

    def work(model: nn.Module, loss: Loss, wrap: Callable[[Loss], Loss] = lambda loss: loss) -> Work:
        wrapped = wrap(loss)
        return updating(model, lambda: wrapped(batch), dtype, n_tokens)

    what = f"update, {FAMILIES[family].title} {shape} {rows} x {config.n_ctx}, {str(dtype)[6:]}"
    eager = (work(*their_loss(family, config)), ">= 1.3x", "transformers")
    compiled = (work(*their_loss(family, config), torch.compile), ">= 1.0x", COMPILED)
    beside("18", what, "tokens/s", seconds, work(*our_loss(family, config)), eager, compiled, warm=2)
    torch._dynamo.reset()


def _distillation(family: str, shape: str, rows: int, n_vocab: int, seconds: float) -> None:
    """A student of half the layers beside its teacher, and the teacher's own pre-training."""
    config = pretraining_config("bert", shape, n_vocab)
    batch, dtype = micro_batch(config, rows), pick_dtype("auto", _CPU)
    preset, draws = preset_named(shape, {"family": family}), torch.Generator().manual_seed(0)
    shape_of_student = student_of(config, preset.model, config.n_layer // 2)
    assert isinstance(shape_of_student, EncoderConfig)
    own, reading = FAMILIES[family].part("objective"), FAMILIES[family].part("distillation")
    recipe = Distilled(own, reading, Encoder(config, draws).eval(), preset.distil)
    trained = recipe.network(Encoder(shape_of_student, draws), preset.pretrain, draws).train()
    objective = recipe.objective(trained, preset.pretrain)
    teacher, loss = our_loss("bert", config)
    n_tokens = batch["tokens"].numel()
    what = f"update, {FAMILIES[family].title} of half the layers beside its teacher, {shape} {rows} x {config.n_ctx}"
    student = updating(trained, lambda: objective(batch)[0], dtype, n_tokens)
    peer = (updating(teacher, lambda: loss(batch), dtype, n_tokens), ">= 0.6x", "the teacher's own")
    beside("21", what, "tokens/s", seconds, student, peer, warm=2)


# --- fine-tuning


def _config(tokenizer: Tokenizer) -> EncoderConfig:
    return dataclasses.replace(pretraining_config("bert", "small", tokenizer.n_vocab), words=False, pair=False)


def _ours(spec: TaskSpec, tokenizer: Tokenizer) -> EncoderClassificationModel:
    draws = torch.Generator().manual_seed(0)
    return EncoderClassificationModel(
        Encoder(_config(tokenizer), draws), spec.form, form_of(spec).n_outputs(spec), 0.1, draws
    )


def _fine_tuning(spec: TaskSpec, dataset: Path, tokenizer: Tokenizer, seconds: float) -> None:
    config = dataclasses.replace(preset_named("small", {"family": "bert"}).finetune_for(spec.name), lm_coef=0.0)
    network = _config(tokenizer)
    sizes = {"n_ctx": network.n_ctx, "n_vocab": network.n_vocab}
    rows = task_rows(spec, dataset, "train", **sizes, max_rows=None, seed=0, kind=EncoderReader)
    script = BertForSequenceClassification(
        BertConfig(**as_transformers(network), num_labels=form_of(spec).n_outputs(spec))
    ).train()
    batches = shuffled(rows, config.batch_size)

    def loss() -> Tensor:
        chosen = next(batches)
        marks = {name: mark[:, 0] for name, mark in chosen.marks.items()}
        found = script(chosen.tokens[:, 0], token_type_ids=marks["segments"], attention_mask=marks["mask"])
        return F.cross_entropy(found.logits, chosen.labels)

    peer = (script_updates(script, loss, config), ">= 1.5x", "a script that pads to its batch")
    ours = our_updates(spec, _ours(spec, tokenizer), rows, config)
    beside("19", f"fine-tuning an encoder, {spec.name}", "rows/s", seconds, ours, peer, warm=1)


# --- answers


def _answers(spec: TaskSpec, datasets: Path, folder: Path, tokenizer: Tokenizer, seconds: float) -> None:
    """`predict` on questions; the script reads their windows, padded batch by batch, and takes the best ends."""
    examples = load_task(spec.name, str(datasets), split="dev")[:_ANSWERED]
    lines = [json.dumps({"question": row.fields[0], "context": row.fields[1]}).encode() for row in examples]
    _ours(spec, tokenizer).save(
        folder, {"task": spec.name, "labels": list(spec.labels), "tokenizer_digest": tokenizer.digest}
    )
    model, network = TaskModel(folder, tokenizer), _config(tokenizer)
    script = BertForQuestionAnswering(BertConfig(**as_transformers(network))).eval()
    specials = tokenizer.specials
    assert specials is not None

    def fast() -> float:
        return sum(1 for _ in predict_jsonl(model, lines))

    @torch.inference_mode()
    def plain() -> float:
        windows: list[tuple[list[int], int]] = []
        for row in examples:
            question, passage = (tokenizer.encode(text) for text in row.fields)
            question = question[:64]
            room = network.n_ctx - len(question) - 3
            for start in range(0, max(1, len(passage) - room + 1 + 64), 64):
                ids = [specials.cls, *question, specials.sep, *passage[start : start + room], specials.sep]
                windows.append((ids, len(question) + 2))
                if start + room >= len(passage):
                    break
        for at in range(0, len(windows), _AT_ONCE):
            some = windows[at : at + _AT_ONCE]
            longest = max(len(ids) for ids, _ in some)
            tokens = torch.tensor([ids + [specials.pad] * (longest - len(ids)) for ids, _ in some])
            mask = torch.tensor([[1] * len(ids) + [0] * (longest - len(ids)) for ids, _ in some])
            segments = torch.tensor([[0] * first + [1] * (longest - first) for _, first in some])
            found = script(tokens, token_type_ids=segments, attention_mask=mask)
            for start, end in zip(found.start_logits, found.end_logits, strict=True):
                pairs = (start[:, None] + end[None, :]).triu().tril(29)
                pairs.argmax().item()
        return len(examples)

    peer = (plain, "", "a script, the spans' text left out")
    beside("20", "predict, squad", "rows/s", seconds, fast, peer, warm=1)
