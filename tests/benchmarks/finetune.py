"""Fine-tuning, evaluation and `predict` against a plain script around transformers' port of the release.

The script shuffles the rows, pads each 32 of them to the longest (or all to n_ctx), takes the state at the last token
to a linear layer, and with the auxiliary objective multiplies every position with the vocabulary. Rows of MRPC, SST-2
and RACE where GPTMILL_REAL_DATA has them, else generated ones.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import OpenAIGPTModel

from gptcore.config import FinetuneConfig, ModelConfig, small
from gptcore.evaluation.inference import predict_jsonl
from gptcore.evaluation.predict import TaskModel, predict_rows
from gptcore.machine.device import autocast, pick_dtype
from gptcore.machine.distributed import World
from gptcore.machine.process import StopRequest
from gptcore.models.classifier import ClassificationModel, Classifier, Head
from gptcore.models.transformer import GPT
from gptcore.nlu.encoded import encode_task
from gptcore.nlu.forms import form_of
from gptcore.nlu.inputs import N_SPECIAL, Ids, TaskBatch
from gptcore.nlu.own_rows import ANSWERS
from gptcore.nlu.readers import Example, load_task
from gptcore.nlu.registry import TaskSpec, task_spec
from gptcore.nlu.rows import Rows, TaskRows
from gptcore.objectives.task import FinetuneData, finetune_objective
from gptcore.papers.storyworld.write import generate
from gptcore.text.bpe import WordTokenizer
from gptcore.text.tokenizer import Tokenizer
from gptcore.training.loop import Trainer, Training
from gptcore.training.optim import warmup_linear
from tests.benchmarks.step import as_transformers, updating
from tests.benchmarks.table import Work, beside
from tests.gptcore.tiny_tasks import collate, sequences_of, task_rows

_TASKS = ("mrpc", "sst2", "race")
_N_VOCAB = 40_478  # the released one
_EVAL_ROWS, _EVAL_BATCH = 256, 32
_CPU = torch.device("cpu")


def run(seconds: float, folder: Path) -> None:
    """Rows 6 and 7."""
    datasets, tokenizer = sources(folder)
    for spec in map(task_spec, _TASKS):
        dataset = folder / spec.name
        encode_task(spec, str(datasets), tokenizer, dataset)
        _training(spec, dataset, seconds)
        _evaluation(spec, dataset, seconds)
        _answering(spec, datasets, folder / f"{spec.name}-model", tokenizer, seconds)


def sources(folder: Path, kind: type[Tokenizer] = WordTokenizer) -> tuple[Path, Tokenizer]:
    """Where the datasets are, and what they are encoded with: a released vocabulary, or one of generated books."""
    if real := os.environ.get("GPTMILL_REAL_DATA"):
        if kind is not WordTokenizer:
            return Path(real), Tokenizer.load(str(Path(real, "bert")))
        release = Path(real, "openai-gpt")
        files = str(release / "encoder_bpe_40000.json"), str(release / "vocab_40000.bpe")
        return Path(real), Tokenizer.from_openai(*files)
    generate(folder / "world", seed=1, books=4, characters=100_000, pages=80)
    texts = [path.read_text(encoding="utf-8") for path in sorted((folder / "world" / "books").glob("*.txt"))]
    return folder / "world" / "datasets", kind.train(texts, 2000)


def _model_config(n_vocab: int = _N_VOCAB) -> ModelConfig:
    return dataclasses.replace(small().model, n_vocab=n_vocab, n_special=N_SPECIAL)


def network(spec: TaskSpec, n_vocab: int = _N_VOCAB) -> ClassificationModel:
    """A model for a task, of the preset small's shape and with random weights."""
    draws = torch.Generator().manual_seed(0)
    return ClassificationModel(
        GPT(_model_config(n_vocab), draws), Head(spec.form, form_of(spec).n_outputs(spec), 0.1), draws
    )


def _rows(spec: TaskSpec, dataset: Path, split: str, max_rows: int | None = None) -> TaskRows:
    n_ctx = _model_config().n_ctx
    return task_rows(spec, dataset, split, n_ctx=n_ctx, n_vocab=_N_VOCAB, max_rows=max_rows, seed=0)


class _Plain(nn.Module):
    """A linear layer on transformers' decoder; of the released port's heads none covers all forms."""

    def __init__(self, spec: TaskSpec) -> None:
        super().__init__()
        config = _model_config()
        self.decoder = OpenAIGPTModel(as_transformers(config))
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(config.n_embd, form_of(spec).n_outputs(spec))
        self.form = spec.form

    def forward(self, batch: TaskBatch) -> tuple[Tensor, Tensor]:
        """Task logits (B, K) or (B, C), and states (B*C, T, D)."""
        rows, sequences, positions = batch.tokens.shape
        hidden = self.decoder(batch.tokens.view(rows * sequences, positions)).last_hidden_state
        last = hidden[torch.arange(rows * sequences), batch.clf_position.flatten()].view(rows, sequences, -1)
        if self.form == "choices":
            return self.head(self.dropout(last))[..., 0], hidden
        return self.head(self.dropout(last.sum(dim=1))), hidden

    def loss(self, batch: TaskBatch, lm_coef: float) -> Tensor:
        logits, hidden = self(batch)
        loss = F.cross_entropy(logits, batch.labels)
        if lm_coef:
            scores = F.linear(hidden, self.decoder.tokens_embed.weight)  # (B*C, T, V)
            loss = loss + lm_coef * F.cross_entropy(scores.flatten(0, 1), batch.lm_targets.flatten())
        return loss


def shuffled(rows: Rows, size: int) -> Iterator[TaskBatch]:
    """Batches of shuffled rows for ever, each padded to its longest."""
    generator = np.random.default_rng(0)
    while True:
        order = generator.permutation(len(rows))
        yield from (rows.batch(order[at : at + size]) for at in range(0, len(order) - size + 1, size))


def _padded(batch: TaskBatch, length: int) -> TaskBatch:
    extra = (0, length - batch.tokens.shape[-1])
    return dataclasses.replace(
        batch, tokens=F.pad(batch.tokens, extra), lm_targets=F.pad(batch.lm_targets, extra, value=-100)
    )


def _training(spec: TaskSpec, dataset: Path, seconds: float) -> None:
    rows = _rows(spec, dataset, "train")
    config = dataclasses.replace(small().finetune_for(spec.name), lm_coef=0.0)
    auxiliary = dataclasses.replace(config, lm_coef=0.5)
    ours = our_updates(spec, network(spec), rows, config)
    batch = (_their_updates(spec, rows, config, None), ">= 1.5x", "a script that pads to its batch")
    whole = (_their_updates(spec, rows, config, _model_config().n_ctx), ">= 3x", "one that pads to n_ctx")
    beside("6", f"fine-tuning, {spec.name}", "rows/s", seconds, ours, batch, whole, warm=1)
    both = our_updates(spec, network(spec), rows, auxiliary)
    theirs = (_their_updates(spec, rows, auxiliary, None), "", "the script with it")
    without = (ours, ">= 0.63x", "ours without")
    beside("6", f"fine-tuning, {spec.name}, L3", "rows/s", seconds, both, without, theirs, warm=1)


class _Silent:
    """A monitor that never has anything to do."""

    def due(self, step: int) -> bool:
        return False


def our_updates(spec: TaskSpec, model: Classifier, rows: Rows, config: FinetuneConfig) -> Work:
    """The loop's own update, batches included."""
    data = FinetuneData(rows, config, repeats=form_of(spec).choices)
    training = Training(
        model=model,
        objective=finetune_objective(model, config.lm_coef),
        data=data,
        monitor=_Silent(),  # type: ignore[arg-type]  # never asked for more
        settings=dataclasses.replace(config, precision="auto"),
        total_steps=1 << 20,
        schedule=warmup_linear(config.warmup, 1 << 20),
        identity={},
        keep_checkpoints=1,
        checkpoint_every=1 << 20,
    )
    trainer = Trainer(training, Path(os.devnull), World(0, 1, _CPU), StopRequest())

    def update() -> float:
        trainer._update(data.update(trainer.at.step))
        return config.batch_size

    return update


def _their_updates(spec: TaskSpec, rows: TaskRows, config: FinetuneConfig, length: int | None) -> Work:
    model, batches = _Plain(spec).train(), shuffled(rows, config.batch_size)

    def loss() -> Tensor:
        batch = next(batches)
        return model.loss(batch if length is None else _padded(batch, length), config.lm_coef)

    return script_updates(model, loss, config)


def script_updates(model: nn.Module, loss: Callable[[], Tensor], config: FinetuneConfig) -> Work:
    """Updates as a plain script has them."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=config.weight_decay, fused=True)
    return updating(model, loss, pick_dtype("auto", _CPU), config.batch_size, optimizer)


def _evaluation(spec: TaskSpec, dataset: Path, seconds: float) -> None:
    rows = _rows(spec, dataset, "dev", _EVAL_ROWS)
    ours, plain = network(spec).eval(), _Plain(spec).eval()
    dtype = pick_dtype("auto", _CPU)

    def fast() -> float:
        predict_rows(ours, spec, rows, _CPU, dtype)
        return len(rows)

    def script() -> float:
        for at in range(0, len(rows), _EVAL_BATCH):
            _read(plain, rows.batch(range(at, min(at + _EVAL_BATCH, len(rows)))), dtype)
        return len(rows)

    beside("7", f"evaluation, {spec.name}", "rows/s", seconds, fast, (script, ">= 2x", "a script"))


def _answering(spec: TaskSpec, datasets: Path, folder: Path, tokenizer: Tokenizer, seconds: float) -> None:
    """`predict`, a model in memory; the script has our tokenizer too, as transformers' is the slower one."""
    examples = load_task(spec.name, str(datasets), split="dev")[:_EVAL_ROWS]
    lines = [json.dumps(own_row(spec, example)).encode() for example in examples]
    extra = {"task": spec.name, "labels": list(spec.labels), "tokenizer_digest": tokenizer.digest}
    network(spec, tokenizer.n_vocab).save(folder, extra)
    model, plain = TaskModel(folder, tokenizer), _Plain(spec).eval()
    tokenizer.encode_batch([text for row in examples for text in (*row.fields, *row.choices)])  # both find it warm

    def fast() -> float:
        return sum(1 for _ in predict_jsonl(model, lines))

    def script() -> float:
        for at in range(0, len(examples), _EVAL_BATCH):
            some = examples[at : at + _EVAL_BATCH]
            batch = collate(spec, [_sequences(spec, row, tokenizer) for row in some], [None] * len(some))
            _read(plain, batch, torch.float32)
        return len(examples)

    beside("7", f"predict, {spec.name}", "rows/s", seconds, fast, (script, ">= 2x", "a script"))


@torch.inference_mode()
def _read(model: _Plain, batch: TaskBatch, dtype: torch.dtype) -> list[list[float]]:
    with autocast(_CPU, dtype):
        return model(batch)[0].float().softmax(dim=-1).tolist()  # type: ignore[no-any-return]


def own_row(spec: TaskSpec, example: Example) -> dict[str, Any]:
    """A row as a user writes it."""
    row: dict[str, Any] = dict(zip(form_of(spec).names_of(spec), example.fields, strict=False))
    return row | ({ANSWERS: list(example.choices)} if example.choices else {})


def _sequences(spec: TaskSpec, example: Example, tokenizer: Tokenizer) -> list[Ids]:
    fields = [np.asarray(ids) for ids in tokenizer.encode_batch(list(example.fields))]
    choices = [np.asarray(ids) for ids in tokenizer.encode_batch(list(example.choices))]
    return sequences_of(spec, fields, choices, small().model.n_ctx, tokenizer.n_vocab)[0]
