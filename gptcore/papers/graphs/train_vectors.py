"""The job that learns vectors of a knowledge graph: facts in, vectors of entities and relations out.

    python -m gptcore.papers.graphs.train_vectors JOB.json

JOB.json: {"transe": fields of TransEConfig, "graph": folder of a graph (:meth:`KnowledgeGraph.save`), "workspace":
folder, "threads": int or null}.

The workspace then holds vectors/model.safetensors (entities [E, D], relations [R, D]), vectors/ranks.safetensors (of
the test facts' tails and heads, [N, 2]), checkpoints/, metrics.jsonl and result.json. Exit codes:
gptcore.machine.process.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from gptcore.base.files import sha256_file, write_json_atomic
from gptcore.base.settings import recorded
from gptcore.machine import process, rng
from gptcore.machine.distributed import Step, World
from gptcore.machine.process import Interrupted
from gptcore.papers.graphs.config import TransEConfig
from gptcore.papers.graphs.graph import KnowledgeGraph, Triples
from gptcore.papers.graphs.transe import Facts, TransE, link_prediction, ranks, transe_losses
from gptcore.training.job import Job, costs, runner
from gptcore.training.loop import Monitor, Trainer, Training
from gptcore.training.optim import warmup_steps_linear

RANKS_FILE = "ranks.safetensors"
_RANKED_AT_ONCE = 2048  # facts between two questions whether to stop


@dataclasses.dataclass(frozen=True)
class VectorsJob(Job):
    """A job file, checked."""

    NAME = "vectors"

    transe: TransEConfig
    graph: Path


class RankMonitor(Monitor):
    """Link prediction on some held-out facts, the same ones each time."""

    def __init__(self, model: TransE, graph: KnowledgeGraph, config: TransEConfig, total_steps: int) -> None:
        self._model, self._graph, self._config, self._total_steps = model, graph, config, total_steps
        facts = graph.facts.get("valid", graph.facts["train"][:0])
        self._facts = facts[np.linspace(0, len(facts) - 1, min(len(facts), config.eval_facts)).astype(np.int64)]

    def due(self, step: int) -> bool:
        """Due every ``eval_every`` updates and after the last one; never where no fact is held out."""
        return len(self._facts) > 0 and (step % self._config.eval_every == 0 or step == self._total_steps)

    def evaluate(self, step: int, interrupted: Callable[[], bool]) -> dict[str, float]:
        """Rank held-out facts (:func:`gptcore.papers.graphs.transe.link_prediction`)."""
        metrics = link_prediction(ranks(self._model, self._graph, self._facts))
        return {f"validation/{name}": value for name, value in metrics.items()}


def _learn(job: VectorsJob, world: World, stop: process.StopRequest) -> None:
    config, graph = job.transe, KnowledgeGraph.load(job.graph)
    draws = rng.generator(config.seed, "vectors")
    sizes = len(graph.entities), len(graph.relations), config.dim
    model = TransE(*sizes, config.norm, draws, config.rotation).to(world.device)
    total_steps = config.total_steps(len(graph.facts["train"]))
    training = Training(
        model=model,
        objective=Step(model, partial(transe_losses, model, config)),
        data=Facts(graph, config, world),
        monitor=RankMonitor(model, graph, config, total_steps),
        settings=config,
        total_steps=total_steps,
        schedule=warmup_steps_linear(config.warmup_steps, total_steps),
        identity={"transe": recorded(config), "graph": sha256_file(job.graph / "facts.safetensors")},
        keep_checkpoints=config.keep_checkpoints,
        checkpoint_every=config.checkpoint_every,
    )
    progress = Trainer(training, job.workspace, world, stop).run()
    if not world.main:
        return
    scores: dict[str, float] = {}
    split_ranks = {}
    for split in ("valid", "test"):
        if len(facts := graph.facts.get(split, graph.facts["train"][:0])):
            split_ranks[split] = _ranked(model.cpu(), graph, facts, stop)
            scores |= {f"{split}/{name}": value for name, value in link_prediction(split_ranks[split]).items()}
    folder = job.workspace / "vectors"
    folder.mkdir(exist_ok=True)
    if "test" in split_ranks:
        save_file({"test": split_ranks["test"]}, str(folder / RANKS_FILE))
    vectors = {"entities": model.entities.weight, "relations": model.relations.weight}
    save_file({name: part.detach().contiguous() for name, part in vectors.items()}, str(folder / "model.safetensors"))
    write_json_atomic(job.workspace / "result.json", {**costs(progress, config.precision, world), **scores})


def _ranked(model: TransE, graph: KnowledgeGraph, facts: Triples, stop: process.StopRequest) -> torch.Tensor:
    """Ranks of all facts of a split.

    :raises Interrupted: after SIGTERM; the last checkpoint is that of the last update.
    """
    parts = []
    for first in range(0, len(facts), _RANKED_AT_ONCE):
        if stop.requested:
            raise Interrupted("SIGTERM during the ranking of facts")
        parts.append(ranks(model, graph, facts[first : first + _RANKED_AT_ONCE]))
    return torch.cat(parts)


run = runner(VectorsJob, _learn)
"""Does the job of a file, see :func:`gptcore.training.job.runner`."""

if __name__ == "__main__":
    sys.exit(process.main(run, sys.argv[1:]))
