"""The job that trains KagNET: questions laid over a graph, and the vectors of their texts, to scores of choices.

    python -m gptcore.training.kagnet JOB.json

JOB.json: {"kagnet": fields of KagNETConfig, "grounded": folder with SPLIT.jsonl and SPLIT.safetensors of each split,
"model": folder of a fine-tuned model that reads the texts, "tokenizer": its tokenizer's, "vectors": folder of the
graph's vectors, "workspace": folder, "threads": int or null}.

The text's model stays as it is: its vectors are found once. The workspace then holds kagnet/ (model.safetensors), for
each split but train SPLIT.jsonl with scores and what counted in them, checkpoints/, metrics.jsonl and result.json.
Exit codes: gptcore.machine.process.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from gptcore.data.draws import below, sample_bits
from gptcore.data.feed import MicroBatch, Objective, Update
from gptcore.evaluation.task_model import TaskModel
from gptcore.files import sha256_file, write_bytes_atomic, write_json_atomic
from gptcore.knowledge.config import KagNETConfig
from gptcore.knowledge.grounded import NONE, Grounded
from gptcore.knowledge.kagnet import Attention, KagNET, choice_loss
from gptcore.machine import process, rng
from gptcore.machine.distributed import World
from gptcore.machine.sharding import Step
from gptcore.nlu.readers.rows import Example
from gptcore.seeds import derive_seed
from gptcore.settings import recorded
from gptcore.text.tokenizer import Tokenizer
from gptcore.training.job import Training, costs, parse_job, run_job, train
from gptcore.training.schedules import warmup_steps_linear

_AT_ONCE = 64  # questions that are scored together
_TOLD = 5  # paths of a choice that are written down, the weightiest


@dataclasses.dataclass(frozen=True)
class KagNETJob:
    """A job file, checked."""

    kagnet: KagNETConfig
    grounded: Path
    model: Path
    tokenizer: Path
    vectors: Path
    workspace: Path
    threads: int | None

    @classmethod
    def parse(cls, job: Mapping[str, Any]) -> KagNETJob:
        """:raises InputError: naming the field that is missing, unknown or of no use."""
        return parse_job(cls, "kagnet", job)


@dataclasses.dataclass(frozen=True, eq=False)
class Questions:
    """A split's questions: their texts' vectors, their places in the graph, the right choices."""

    examples: Sequence[Example]
    texts: NDArray[np.float32]
    """[Q, C, S]"""
    scores: NDArray[np.float32]
    """[Q, C] of the text's model alone."""
    graph: Grounded

    @property
    def n_choices(self) -> int:
        return int(self.texts.shape[1])

    @property
    def labels(self) -> NDArray[np.int64]:
        """[Q]"""
        return np.array([int(example.label or 0) for example in self.examples], np.int64)

    def batch(self, chosen: NDArray[np.int64]) -> MicroBatch:
        """Some questions, as :meth:`KagNET.attended` takes them, and their "labels" [Q]."""
        graph, C = self.graph, self.n_choices
        rows = (chosen[:, None] * C + np.arange(C)).ravel()  # choices
        pairs = _ranges(graph.pair_starts, rows)
        paths = _ranges(graph.path_starts, pairs)
        nodes, edges = _ranges(graph.node_starts, rows), _ranges(graph.edge_starts, rows)
        pair_choice = np.repeat(np.arange(len(rows)), _counts(graph.pair_starts, rows))
        first = np.cumsum(_counts(graph.node_starts, rows)) - _counts(graph.node_starts, rows)  # in this batch
        edge_choice = np.repeat(np.arange(len(rows)), _counts(graph.edge_starts, rows))
        path_pair = np.repeat(np.arange(len(pairs)), _counts(graph.path_starts, pairs))
        places = {
            (choice, entity): first[choice] + place
            for choice, row in enumerate(rows.tolist())
            for place, entity in enumerate(graph.nodes[graph.node_starts[row] : graph.node_starts[row + 1]].tolist())
        }
        pair_nodes = [
            [places[choice, entity] for entity in both]
            for choice, both in zip(pair_choice.tolist(), graph.pairs[pairs].tolist(), strict=True)
        ]
        path_choice = pair_choice[path_pair].tolist()
        path_nodes = [
            [NONE if entity == NONE else places[choice, entity] for entity in path]
            for choice, path in zip(path_choice, graph.path_entities[paths].tolist(), strict=True)
        ]
        longest = graph.path_entities.shape[1]
        arrays = {
            "texts": self.texts[chosen].reshape(len(rows), -1),
            "nodes": graph.nodes[nodes],
            "edges": graph.edges[edges] + first[edge_choice][:, None],
            "pair_nodes": np.array(pair_nodes, np.int64).reshape(-1, 2),
            "pair_choice": pair_choice,
            "path_nodes": np.array(path_nodes, np.int64).reshape(-1, longest),
            "path_relations": graph.path_relations[paths],
            "path_pair": path_pair,
            "labels": self.labels[chosen],
        }
        return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}


def _counts(starts: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return starts[rows + 1] - starts[rows]


def _ranges(starts: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """What lies between each row's start and the next one, row after row."""
    counts = _counts(starts, rows)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    found: NDArray[np.int64] = np.repeat(starts[rows], counts) + within
    return found


class _Drawn:
    """Updates of questions drawn at random, each a pure function of the seed and its number."""

    def __init__(self, questions: Questions, config: KagNETConfig) -> None:
        self._questions, self._size = questions, config.batch_size
        self._seed = derive_seed(config.seed, "questions")

    def update(self, step: int) -> Update:
        """Questions step * batch_size .. (step + 1) * batch_size."""
        numbers = np.arange(step * self._size, (step + 1) * self._size)
        drawn = below(sample_bits(self._seed, numbers, 1)[:, 0], len(self._questions.examples))
        return Update([self._questions.batch(drawn)], self._size)

    def documents(self, step: int) -> list[str]:
        """Questions are of no document."""
        return []


class _NoMonitor:
    """Nothing is scored before the end: no epoch is chosen by held-out questions."""

    def due(self, step: int) -> bool:
        return False

    def evaluate(self, step: int, interrupted: Callable[[], bool]) -> dict[str, float]:
        return {}

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        return


def kagnet_objective(model: KagNET, n_choices: int) -> Objective:
    """What the choices of questions cost, and how many are right."""

    def objective(batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
        scores = model(batch).view(-1, n_choices)  # (Q, C)
        loss = choice_loss(scores, batch["labels"], model.config)
        return loss, {"loss": loss, "accuracy": (scores.argmax(1) == batch["labels"]).float().mean()}

    return objective


def run(job: Mapping[str, Any], stop: process.StopRequest) -> None:
    """Do the job in this process.

    :raises InputError: before any work, if the job cannot be done as given.
    :raises Interrupted: after SIGTERM, with a checkpoint written.
    """
    run_job(KagNETJob.parse(job), _train, stop, alone=True)


def _train(job: KagNETJob, world: World, stop: process.StopRequest) -> None:
    config = job.kagnet
    splits = sorted(file.stem for file in job.grounded.glob("*.jsonl"))
    reader = TaskModel(job.model, Tokenizer.load(str(job.tokenizer)))
    questions = {split: _questions(job, split, reader) for split in splits}
    found = load_file(str(job.vectors / "vectors" / "model.safetensors"))
    learnt = questions["train"]
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(rng.derive_seed(config.seed, "kagnet weights") % 2**63)
        model = KagNET(found["entities"], found["relations"], int(learnt.texts.shape[2]), config)
    model.to(world.device)
    total_steps = max(1, math.ceil(config.epochs * len(learnt.examples) / config.batch_size))
    training = Training(
        model=model,
        objective=Step(model, kagnet_objective(model, learnt.n_choices)),
        data=_Drawn(learnt, config),
        monitor=_NoMonitor(),
        settings=config,
        total_steps=total_steps,
        schedule=warmup_steps_linear(config.warmup_steps, total_steps),
        identity={
            "kagnet": recorded(config),
            "grounded": sha256_file(job.grounded / "train.safetensors"),
            "text": sha256_file(job.model / "model.safetensors"),
        },
        keep_checkpoints=1,
        checkpoint_every=config.checkpoint_every,
    )
    progress = train(training, job, world, stop)
    model.cpu().eval()
    scores: dict[str, float] = {}
    for split in splits:
        if split != "train":
            scores |= {f"{split}/{name}": value for name, value in _scored(job, split, model, questions[split]).items()}
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
        found = load_file(str(kept))
        texts, scores = found["texts"].numpy(), found["scores"].numpy()
    else:
        texts, scores = reader.summaries(examples)
        part = kept.with_suffix(".part")
        save_file({"texts": torch.from_numpy(texts), "scores": torch.from_numpy(scores)}, str(part))
        part.rename(kept)
    return Questions(examples, texts, scores, Grounded.load(job.grounded / f"{split}.safetensors"))


def _scored(job: KagNETJob, split: str, model: KagNET, questions: Questions) -> dict[str, float]:
    """Accuracy with the graph and without it; every question's scores, and what counted, as a file."""
    found, lines = [], []
    for first in range(0, len(questions.examples), _AT_ONCE):
        chosen = np.arange(first, min(first + _AT_ONCE, len(questions.examples)))
        with torch.no_grad():
            scores, attention = model.attended(questions.batch(chosen))
        found.append(scores.view(len(chosen), -1).numpy())
        lines += _explained(questions, chosen, found[-1], attention)
    write_bytes_atomic(job.workspace / f"{split}.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode())
    labels = questions.labels
    return {
        "score": float((np.concatenate(found).argmax(1) == labels).mean()),
        "text_score": float((questions.scores.argmax(1) == labels).mean()),
        "rows": float(len(labels)),
    }


def _explained(
    questions: Questions, chosen: NDArray[np.int64], scores: NDArray[np.float32], attention: Attention
) -> list[dict[str, Any]]:
    """Each question's scores, and the weightiest paths of each choice with their weight: pair's times path's."""
    graph, C = questions.graph, questions.n_choices
    pair_at = path_at = 0
    lines = []
    for question, mine in zip(chosen.tolist(), scores.tolist(), strict=True):
        choices = []
        for choice in range(C):
            row = question * C + choice
            paths: list[tuple[float, list[int], list[int]]] = []
            for pair in range(graph.pair_starts[row], graph.pair_starts[row + 1]):
                of_pair = float(attention.pairs[pair_at])
                pair_at += 1
                for entities, relations in graph.paths_of(pair):
                    weight = of_pair * float(attention.paths[path_at])
                    path_at += 1
                    paths.append((weight, entities, relations))
            told = sorted(paths, key=lambda path: -path[0])[:_TOLD]
            said = [dict(zip(("weight", "entities", "relations"), path, strict=True)) for path in told]
            choices.append({"score": mine[choice], "paths": said})
        example = questions.examples[question]
        lines.append({"id": example.id, "row": example.row, "choices": choices})
    return lines


if __name__ == "__main__":
    sys.exit(process.main(run, sys.argv[1:]))
