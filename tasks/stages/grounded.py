"""Stages `grounded` and `kagnet`: a task's questions laid over a knowledge graph, and a network that answers them.

The network reads a question's text and the graph's paths; it is trained by a job that resumes after a crash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from prefect import task
from safetensors.numpy import load_file

from gptcore.base.files import write_bytes_atomic
from gptcore.base.settings import recorded
from gptcore.knowledge.config import GroundingConfig, KagNETConfig
from gptcore.knowledge.graph import KnowledgeGraph
from gptcore.knowledge.grounded import Concepts, Coverage, Grounded, ground
from gptcore.knowledge.paths import Ways
from gptcore.nlu.encoded import dataset_fingerprint
from gptcore.nlu.examples import Example
from gptcore.nlu.readers import labelled_splits, load_task
from gptcore.nlu.registry import TaskSpec
from tasks.jobs.parallel import partition_map
from tasks.stages.graph import build_by_job
from tasks.stages.stage import JOB_OPTIONS, STAGE_OPTIONS, build, recipe_of
from tasks.store.artifact import Artifact
from tasks.store.counts import GroundedCounts, TrainingCounts
from tasks.store.lineage import model_files
from tasks.store.store import Store
from tasks.tracking.logs import Meter

_BLOCK = 64  # questions that a process takes at a time
_SMALL = 2000
"""Questions that are grounded before other processes have started."""


@task(name="grounded", task_run_name="ground {spec.name} in graph {graph.short}", **STAGE_OPTIONS)
def ground_questions(
    store: Store, datasets_url: str, spec: TaskSpec, graph: Artifact, vectors: Artifact, config: GroundingConfig
) -> Artifact:
    """Find the concepts of questions and choices, and the paths between them.

    The artifact has for each split SPLIT.jsonl, the questions, and SPLIT.safetensors
    (:class:`gptcore.knowledge.grounded.Grounded`); its counts say how many have a concept and a path.

    :raises InputError: missing or broken data.
    """
    inputs: dict[str, Artifact | str] = {"graph": graph, "vectors": vectors}
    inputs["files"] = dataset_fingerprint(spec, datasets_url)
    recipe = recipe_of("grounded", {"task": spec.name, "grounding": recorded(config)}, inputs)

    def produce(out: Path) -> dict[str, Any]:
        counts: dict[str, Any] = {"task": spec.name, "splits": {}}
        splits = {split: load_task(spec.name, datasets_url, split) for split in labelled_splits(spec, datasets_url)}
        folders = store.local(graph), store.local(vectors)
        meter = Meter("grounded", "questions")
        with partition_map(small=sum(map(len, splits.values())) <= _SMALL) as each:
            for split, examples in splits.items():
                blocks = [examples[first : first + _BLOCK] for first in range(0, len(examples), _BLOCK)]
                jobs = [_Block(*folders, config, tuple(block)) for block in blocks]
                done, parts, coverage = meter.counting(split, len(examples)), [], Coverage()
                for block, (part, covered) in zip(blocks, each(_ground, jobs), strict=True):
                    parts.append(part)
                    coverage += covered
                    done(len(block))
                Grounded.joined(parts).save(out / f"{split}.safetensors")
                rows = [
                    {"fields": row.fields, "choices": row.choices, "label": row.label, "row": row.row, "id": row.id}
                    for row in examples
                ]
                text = "".join(json.dumps(row) + "\n" for row in rows)
                write_bytes_atomic(out / f"{split}.jsonl", text.encode())
                counts["splits"][split] = {"rows": len(examples), **coverage.shares}
        return counts

    return build(store, recipe, produce, "grounded", _covered, spec.name).artifact


@dataclass(frozen=True)
class _Block:
    """Questions to be laid over a graph, and the folders that say what it is."""

    graph: Path
    vectors: Path
    config: GroundingConfig
    examples: tuple[Example, ...]


def _ground(block: _Block) -> tuple[Grounded, Coverage]:
    return ground(block.examples, *_opened(block.graph, block.vectors, block.config), block.config)


@lru_cache(maxsize=1)
def _opened(graph: Path, vectors: Path, config: GroundingConfig) -> tuple[Concepts, Ways]:
    """What a process needs to know of a graph, once."""
    facts = KnowledgeGraph.load(graph)
    learnt = load_file(str(vectors / "vectors" / "model.safetensors"))
    return Concepts(facts), Ways(facts, learnt["entities"], learnt["relations"], config.most_neighbours)


def _covered(counts: Mapping[str, Any]) -> str:
    found = GroundedCounts.parse(counts).splits["dev"]
    return f"{found.rows:,} dev questions, {100 * found.right_with_path:.0f} % of right choices have a path"


@task(name="kagnet", task_run_name="kagnet on {grounded.short}", **JOB_OPTIONS)
def train_kagnet(
    store: Store, grounded: Artifact, vectors: Artifact, model: Artifact, config: KagNETConfig
) -> Artifact:
    """Train KagNET over a fine-tuned model's vectors of the texts; see :mod:`gptcore.training.kagnet`.

    The artifact has kagnet/model.safetensors and for each split but train SPLIT.jsonl with scores and weights; its
    counts hold "SPLIT/score" with the graph, its standard error, and "SPLIT/text_score" of the fine-tuned model alone.

    :param model: fine-tuned on the task whose questions were grounded.
    """
    inputs = {"grounded": grounded, "vectors": vectors, "model": model}
    recipe = recipe_of("kagnet", {"kagnet": recorded(config)}, inputs)

    def reads() -> dict[str, Path]:
        folders = {"grounded": store.local(grounded), "vectors": store.local(vectors)}
        return {**folders, "model": store.local(model, "model"), "tokenizer": model_files(model)[1]}

    texts = [f"texts-{split}.safetensors" for split in GroundedCounts.of(store, grounded).splits]
    return build_by_job(store, recipe, grounded, reads, "questions", _answered, f"seed {config.seed}", texts)


def _answered(counts: Mapping[str, Any]) -> str:
    found = TrainingCounts.parse(counts).figures
    return f"dev {100 * found['dev/score']:.1f}, the text alone {100 * found['dev/text_score']:.1f}"
