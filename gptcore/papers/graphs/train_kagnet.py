"""The job that trains KagNET: questions laid over a graph, and the vectors of their texts, to scores of choices.

    python -m gptcore.papers.graphs.train_kagnet JOB.json

JOB.json: {"kagnet": fields of KagNETConfig, "grounded": folder with SPLIT.jsonl and SPLIT.safetensors of each split,
"model": folder of a fine-tuned model that reads the texts, "tokenizer": its tokenizer's, "vectors": folder of the
graph's vectors, "workspace": folder, "threads": int or null}.

The text's model stays as it is: its vectors are found once. The workspace then holds kagnet/ (model.safetensors), for
each split but train SPLIT.jsonl with scores and what counted in them, metrics.jsonl and result.json; what only a job
that resumes needs: checkpoints/ and those vectors (texts-SPLIT.safetensors).
Exit codes: gptcore.machine.process.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from gptcore.base.files import sha256_file, write_bytes_atomic, write_json_atomic
from gptcore.base.seeds import below, derive_seed, sample_bits
from gptcore.base.settings import recorded
from gptcore.data.feed import Data, Losses, MicroBatch, Update
from gptcore.evaluation.predict import TaskModel
from gptcore.machine import process, rng
from gptcore.machine.distributed import Step, World
from gptcore.nlu.examples import Example
from gptcore.papers.graphs.config import KagNETConfig
from gptcore.papers.graphs.grounded import Grounded
from gptcore.papers.graphs.kagnet import KagNET, Questions, choice_loss, explained
from gptcore.text.tokenizer import Tokenizer
from gptcore.training.job import Job, costs, runner
from gptcore.training.loop import Trainer, Training, Unwatched
from gptcore.training.optim import warmup_steps_linear

_AT_ONCE = 64  # questions that are scored together


@dataclasses.dataclass(frozen=True)
class KagNETJob(Job):
    """A job file, checked."""

    NAME = "kagnet"

    kagnet: KagNETConfig
    grounded: Path
    model: Path
    tokenizer: Path
    vectors: Path


class _Drawn(Data):
    """Updates of questions drawn at random, each a pure function of the seed and its number."""

    def __init__(self, questions: Questions, config: KagNETConfig) -> None:
        self._questions, self._size = questions, config.batch_size
        self._seed = derive_seed(config.seed, "questions")

    def update(self, step: int) -> Update:
        """Questions step * batch_size .. (step + 1) * batch_size."""
        numbers = np.arange(step * self._size, (step + 1) * self._size)
        drawn = below(sample_bits(self._seed, numbers, 1)[:, 0], len(self._questions.examples))
        return Update([self._questions.batch(drawn)], self._size)


def kagnet_losses(model: KagNET, n_choices: int, batch: MicroBatch) -> Losses:
    """What the choices of questions cost, and how many are right."""
    scores = model(batch).view(-1, n_choices)  # (Q, C)
    loss = choice_loss(scores, batch["labels"], model.config)
    return loss, {"loss": loss, "accuracy": (scores.argmax(1) == batch["labels"]).float().mean()}


def _train(job: KagNETJob, world: World, stop: process.StopRequest) -> None:
    config = job.kagnet
    splits = sorted(file.stem for file in job.grounded.glob("*.jsonl"))
    reader = TaskModel(job.model, Tokenizer.load(str(job.tokenizer)))
    questions = {split: _questions(job, split, reader) for split in splits}
    vectors = load_file(str(job.vectors / "vectors" / "model.safetensors"))
    learnt = questions["train"]
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(rng.derive_seed(config.seed, "kagnet weights") % 2**63)
        model = KagNET(vectors["entities"], vectors["relations"], int(learnt.texts.shape[2]), config)
    model.to(world.device)
    total_steps = max(1, math.ceil(config.epochs * len(learnt.examples) / config.batch_size))
    training = Training(
        model=model,
        objective=Step(model, partial(kagnet_losses, model, learnt.n_choices)),
        data=_Drawn(learnt, config),
        monitor=Unwatched(),  # no epoch is chosen by held-out questions
        settings=config,
        total_steps=total_steps,
        schedule=warmup_steps_linear(config.warmup_steps, total_steps),
        identity={
            "kagnet": recorded(config),
            "grounded": sha256_file(job.grounded / "train.safetensors"),
            "questions": sha256_file(job.grounded / "train.jsonl"),
            "vectors": sha256_file(job.vectors / "vectors" / "model.safetensors"),
            "text": sha256_file(job.model / "model.safetensors"),
        },
        keep_checkpoints=1,
        checkpoint_every=config.checkpoint_every,
    )
    progress = Trainer(training, job.workspace, world, stop).run()
    model.cpu().eval()
    scores: dict[str, Any] = {}
    for split in splits:
        if split != "train":
            metrics, collapsed = _scored(job, split, model, questions[split])
            scores |= {f"{split}/{name}": value for name, value in metrics.items()}
            scores |= {"majority_collapse": collapsed} if split == "dev" else {}
    folder = job.workspace / "kagnet"
    folder.mkdir(exist_ok=True)
    save_file({name: part.contiguous() for name, part in model.state_dict().items()}, str(folder / "model.safetensors"))
    write_json_atomic(job.workspace / "result.json", {**costs(progress, config.precision, world), **scores})


def _questions(job: KagNETJob, split: str, reader: TaskModel) -> Questions:
    """A split's questions; what the text's model makes of them is kept in the workspace for a job that resumes."""
    rows = [json.loads(line) for line in (job.grounded / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()]
    examples = [
        Example(tuple(row["fields"]), tuple(row["choices"]), row["label"], "", row["row"], id=row["id"]) for row in rows
    ]
    kept = job.workspace / f"texts-{split}.safetensors"
    if kept.is_file():
        tensors = load_file(str(kept))
        texts, scores = tensors["texts"].numpy(), tensors["scores"].numpy()
    else:
        texts, scores = reader.summaries(examples)
        part = kept.with_suffix(".part")
        save_file({"texts": torch.from_numpy(texts), "scores": torch.from_numpy(scores)}, str(part))
        part.rename(kept)
    return Questions(examples, texts, scores, Grounded.load(job.grounded / f"{split}.safetensors"))


def _scored(job: KagNETJob, split: str, model: KagNET, questions: Questions) -> tuple[dict[str, float], bool]:
    """Accuracy with the graph and without it, and whether every question got the same answer.

    Every question's scores, and what counted, are written as a file.
    """
    logits, lines = [], []
    for first in range(0, len(questions.examples), _AT_ONCE):
        chosen = np.arange(first, min(first + _AT_ONCE, len(questions.examples)))
        with torch.no_grad():
            scores, attention = model.attended(questions.batch(chosen))
        logits.append(scores.view(len(chosen), -1).numpy())
        lines += explained(questions, chosen, logits[-1], attention)
    write_bytes_atomic(job.workspace / f"{split}.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode())
    labels, answers = questions.labels, np.concatenate(logits).argmax(1)
    right = answers == labels
    told = {
        "score": float(right.mean()),
        "score_stderr": float(right.std() / math.sqrt(len(right))),
        "text_score": float((questions.scores.argmax(1) == labels).mean()),
        "rows": float(len(labels)),
    }
    return told, bool((answers == answers[0]).all())


run = runner(KagNETJob, _train, alone=True)
"""Does the job of a file, see :func:`gptcore.training.job.runner`."""

if __name__ == "__main__":
    sys.exit(process.main(run, sys.argv[1:]))
