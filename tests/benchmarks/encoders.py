"""Fine-tuning an encoder on each form of row, and `predict`, beside transformers' own network for that form.

The script shuffles the rows, or windows of long texts, and pads each 32 of them to the longest; it is given ours, so
that its tokenizer takes no time. Rows where GPTMILL_REAL_DATA has them, else generated ones.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import transformers
from torch import Tensor, nn

from gptcore.config import EncoderConfig, preset_named
from gptcore.evaluation.inference import predict_jsonl
from gptcore.evaluation.predict import TaskModel
from gptcore.models.classifier import EncoderClassificationModel, Head
from gptcore.models.encoder import Encoder
from gptcore.nlu.examples import Example
from gptcore.nlu.forms import form_of
from gptcore.nlu.inputs import EncoderReader, TaskBatch
from gptcore.nlu.readers import load_task
from gptcore.nlu.registry import TaskSpec, task_spec
from gptcore.nlu.rows import Rows
from gptcore.text.tokenizer import Tokenizer
from gptcore.text.wordpiece import WordPieceTokenizer
from tests.benchmarks.finetune import our_updates, own_row, script_updates, shuffled, sources
from tests.benchmarks.learners import preset_of
from tests.benchmarks.peers import encoder_settings
from tests.benchmarks.table import Work, beside

_TASKS = ("sst2", "mrpc", "swag", "squad", "conll2003")
"""A single text, a pair, choices, a span, tags."""
_TRAINED, _ANSWERED, _AT_ONCE = 4_000, 256, 32


def run(seconds: float, folder: Path) -> None:
    """Rows 19 and 20."""
    datasets, tokenizer = sources(folder, WordPieceTokenizer)
    for spec in map(task_spec, _TASKS):
        load = partial(load_task, spec.name, str(datasets))
        _fine_tuning(spec, load(split="train")[:_TRAINED], tokenizer, seconds)
        _answers(spec, load(split="dev")[:_ANSWERED], folder / spec.name, tokenizer, seconds)


def _config(tokenizer: Tokenizer) -> EncoderConfig:
    config, _, _ = preset_of("bert", "small")
    assert isinstance(config, EncoderConfig)
    return dataclasses.replace(config, n_vocab=tokenizer.n_vocab, words=False, pair=False)


def _ours(spec: TaskSpec, tokenizer: Tokenizer) -> EncoderClassificationModel:
    draws = torch.Generator().manual_seed(0)
    outputs = form_of(spec).n_outputs(spec)
    return EncoderClassificationModel(Encoder(_config(tokenizer), draws), Head(spec.form, outputs, 0.1), draws)


def _rows(spec: TaskSpec, examples: list[Example], tokenizer: Tokenizer) -> Rows:
    config = _config(tokenizer)
    reader = EncoderReader(spec, config.n_ctx, config.n_vocab, pieces=tokenizer.specials)
    rows: Rows = form_of(spec).part("asked_rows")(reader, tokenizer, examples)
    return rows


def _theirs(
    spec: TaskSpec, tokenizer: Tokenizer, compiled: bool = False
) -> tuple[nn.Module, Callable[[TaskBatch], Tensor]]:
    """A network in eval mode, and the logits that it gives a batch: [B, K], [B, C] or [B, T, K]."""
    form = form_of(spec)
    config = transformers.BertConfig(**encoder_settings(_config(tokenizer)), num_labels=form.n_outputs(spec))
    model = getattr(transformers, f"BertFor{form.transformers}")(config).eval()
    if compiled:
        model.compile(dynamic=True)

    def logits(batch: TaskBatch) -> Tensor:
        marks = batch.marks["segments"], batch.marks["mask"]
        ids, segments, mask = (part if form.choices else part[:, 0] for part in (batch.tokens, *marks))
        output = model(ids, token_type_ids=segments, attention_mask=mask)
        return torch.stack([output.start_logits, output.end_logits], -1) if form.over_positions else output.logits

    return model, logits


def _fine_tuning(spec: TaskSpec, examples: list[Example], tokenizer: Tokenizer, seconds: float) -> None:
    config = dataclasses.replace(preset_named("small", {"family": "bert"}).finetune_for(spec.name), lm_coef=0.0)
    rows, loss_of = _rows(spec, examples, tokenizer), form_of(spec).part("loss")
    script, logits = _theirs(spec, tokenizer)
    batches = shuffled(rows, config.batch_size)

    def loss() -> Tensor:
        batch = next(batches)
        summed: Tensor = loss_of(logits(batch).float(), batch.labels)
        return summed / len(batch.labels)

    peer = (script_updates(script.train(), loss, config), ">= 1.3x", "a script that pads to its batch")
    ours = our_updates(spec, _ours(spec, tokenizer), rows, config)
    beside("19", f"fine-tuning an encoder, {spec.name} ({spec.form})", "rows/s", seconds, ours, peer, warm=1)


def _answers(spec: TaskSpec, examples: list[Example], folder: Path, tokenizer: Tokenizer, seconds: float) -> None:
    """`predict` beside passes over the same rows in their order, whose answers are the likeliest outputs."""
    lines = [json.dumps(own_row(spec, row)).encode() for row in examples]
    extra = {"task": spec.name, "labels": list(spec.labels), "tokenizer_digest": tokenizer.digest}
    _ours(spec, tokenizer).save(folder, extra)
    model = TaskModel(folder, tokenizer)

    def fast() -> float:
        return sum(1 for _ in predict_jsonl(model, lines))

    def passing(script: nn.Module, logits: Callable[[TaskBatch], Tensor]) -> Work:
        @torch.inference_mode()
        def answered() -> float:
            rows = _rows(spec, examples, tokenizer)
            for at in range(0, len(rows), _AT_ONCE):
                logits(rows.batch(range(at, min(at + _AT_ONCE, len(rows))))).softmax(-1).tolist()
            return len(examples)

        return answered

    eager = (passing(*_theirs(spec, tokenizer)), ">= 1.2x", "a script that leaves out what answers say")
    compiled = (passing(*_theirs(spec, tokenizer, compiled=True)), ">= 1.0x", "the same compiled")
    beside("20", f"predict, {spec.name} ({spec.form})", "rows/s", seconds, fast, eager, compiled, warm=1)
    torch._dynamo.reset()
