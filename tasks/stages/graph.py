"""Stage `graph`: a knowledge graph's files, read strictly, as numbered facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.base.files import sha256_json
from gptcore.base.filesystems import file_fingerprint
from gptcore.base.synthetic import is_synthetic
from gptcore.knowledge.graph import SPLITS, graph_files, read_graph
from tasks.stages.stage import STAGE_OPTIONS, build
from tasks.store.artifact import Artifact, Recipe
from tasks.store.store import Store

VERSION = 1


@task(name="graph", task_run_name="graph {url}", **STAGE_OPTIONS)
def read_knowledge(store: Store, url: str, columns: Sequence[str]) -> Artifact:
    """Read the facts of a folder, anywhere fsspec reaches.

    The manifest's counts hold "entities", "relations", "facts" (split -> how many), "labelled" entities, "false" rows,
    "name" of the folder, and whether it is "synthetic".

    :param columns: what the files' first three columns are.
    :raises InputError: missing or broken files.
    """
    files = {file.rpartition("/")[2]: file_fingerprint(file) for file in graph_files(url)}
    recipe = Recipe("graph", VERSION, {"columns": list(columns)}, {"files": sha256_json(files)})

    def produce(out: Path) -> dict[str, Any]:
        graph = read_graph(url, columns)
        graph.save(out)
        return {
            "name": url.rstrip("/").rpartition("/")[2],
            "entities": len(graph.entities),
            "relations": len(graph.relations),
            "facts": {split: len(graph.facts.get(split, ())) for split in SPLITS},
            "labelled": len(graph.labels),
            "false": graph.n_false,
            "synthetic": is_synthetic(url.rstrip("/").rpartition("/")[0]),  # the mark stands beside all its datasets
        }

    return build(store, recipe, produce, "graph", _made).artifact


def _made(counts: Mapping[str, Any]) -> str:
    facts = sum(counts["facts"].values())
    return f"{facts:,} facts of {counts['entities']:,} entities, {counts['relations']:,} relations"
