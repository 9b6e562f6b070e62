"""Answers to a user's own questions by a KagNET of the store, with the paths of the graph that led to each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gptcore.base.errors import InputError
from gptcore.base.settings import replace_settings
from gptcore.evaluation.predict import TaskModel
from gptcore.papers.graphs.config import GroundingConfig, KagNETConfig
from gptcore.papers.graphs.reasoner import Reasoner
from tasks.papers.graphs.counts import GraphCounts
from tasks.store.counts import TrainingCounts
from tasks.store.lineage import ancestor, opened_model
from tasks.store.store import Store


def explain(store: Store, task: str, lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Answer JSON lines with a task's best KagNET on dev rows, and say why; see :mod:`gptcore.evaluation.inference`.

    Each answer says "by" which one, on which graph.

    :raises InputError: the store has none of this version, whose networks are others, or a broken row.
    """
    from tasks.stages.stage import VERSIONS  # brings Prefect, which nothing else here needs

    known = [found for found in store.newest("kagnet") if found.manifest["version"] == VERSIONS["kagnet"]]
    asked = ((found, store.manifest(ancestor(store, found.artifact, "grounded"))) for found in known)
    records = [found for found, grounded in asked if grounded["config"]["task"] == task]
    if not records:
        said = f"--explain: found no KagNET for {task} in {store.url} that this version has trained"
        raise InputError(f"{said}, expected one; gptmill reason makes it")
    scores = [TrainingCounts.parse(found.manifest["counts"]).figures["dev/score"] for found in records]
    best = records[scores.index(max(scores))]  # of equals the newest
    stages = ("grounded", "graph", "vectors", "finetune")
    grounded, graph, vectors, model = (ancestor(store, best.artifact, stage) for stage in stages)
    reasoner = Reasoner(
        store.local(best.artifact),
        TaskModel(*opened_model(model)),
        store.local(graph),
        store.local(vectors),
        replace_settings(KagNETConfig(), best.manifest["config"]["kagnet"], "kagnet"),
        replace_settings(GroundingConfig(), store.manifest(grounded)["config"]["grounding"], "grounding"),
    )
    by = f"{best.artifact.short} on {GraphCounts.of(store, graph).name}"
    return ({**answer, "by": by} for answer in reasoner.answers(lines))
