"""Stage `grounded`: the questions of a task with choices laid over a knowledge graph."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import task
from safetensors.numpy import load_file

from gptcore.files import write_bytes_atomic
from gptcore.knowledge.config import GroundingConfig
from gptcore.knowledge.graph import KnowledgeGraph
from gptcore.knowledge.grounded import ground
from gptcore.knowledge.grounding import Concepts
from gptcore.knowledge.paths import Ways
from gptcore.nlu.encoded import dataset_fingerprint
from gptcore.nlu.readers import labelled_splits, load_task
from gptcore.nlu.registry import TaskSpec
from gptcore.settings import recorded
from tasks.stages.stage import STAGE_OPTIONS, build
from tasks.store.artifact import Artifact, Recipe
from tasks.store.store import Store
from tasks.tracking.logs import Meter

VERSION = 1


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
    recipe = Recipe("grounded", VERSION, {"task": spec.name, "grounding": recorded(config)}, inputs)

    def produce(out: Path) -> dict[str, Any]:
        facts = KnowledgeGraph.load(store.local(graph))
        learnt = load_file(str(store.local(vectors) / "vectors" / "model.safetensors"))
        concepts = Concepts(facts)
        ways = Ways(facts, learnt["entities"], learnt["relations"], config.most_neighbours)
        counts: dict[str, Any] = {"task": spec.name, "splits": {}}
        for split in labelled_splits(spec, datasets_url):
            examples = load_task(spec.name, datasets_url, split)
            progress = Meter("grounded", "questions").counting(split, len(examples))
            found, coverage = ground(examples, concepts, ways, config, progress)
            found.save(out / f"{split}.safetensors")
            rows = [
                {"fields": each.fields, "choices": each.choices, "label": each.label, "row": each.row, "id": each.id}
                for each in examples
            ]
            text = "".join(json.dumps(row) + "\n" for row in rows)
            write_bytes_atomic(out / f"{split}.jsonl", text.encode())
            counts["splits"][split] = {"rows": len(examples), **coverage}
        return counts

    return build(store, recipe, produce, "grounded", _made, spec.name).artifact


def _made(counts: Mapping[str, Any]) -> str:
    found = counts["splits"]["dev"]
    return f"{found['rows']:,} dev questions, {100 * found['right_with_path']:.0f} % of right choices have a path"
