"""KagNET: questions answered from their text and the paths of a knowledge graph, beside the text alone."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefect import flow

from flows.forms.run_names import from_form
from flows.papers.graphs.forms import ReasonParameters, ReasonRequest
from flows.papers.graphs.graph import vectors_of
from flows.servers import signals
from gptcore.base.settings import recorded
from gptcore.nlu.published import PUBLISHED
from gptcore.papers.graphs.graph import KnowledgeGraph, path_in_words
from tasks.papers.graphs.counts import GraphCounts, GroundedCounts
from tasks.papers.graphs.report import Choice, Route, Routes
from tasks.papers.graphs.stages import ground_questions, train_kagnet
from tasks.report.analysis import Analysis, publish_all
from tasks.report.score import commit_of, score_of
from tasks.report.suites import Suite, open_suite, record_row, row_of
from tasks.store.artifact import Artifact
from tasks.store.counts import TrainingCounts
from tasks.tracking.tracker import Tracker

_ROUTES = 3  # of a choice, in pictures and on pages


@flow(name="reason", flow_run_name=from_form, persist_result=False)
def reason(parameters: ReasonParameters) -> list[Analysis]:
    """KagNET's accuracy beside that of the text's model alone, what the graph covers, and why it answers as it does."""
    signals.listen()
    request = parameters.request
    store, model = request.store, request.model
    graph, vectors = vectors_of(store, request.graph, request.columns, request.transe)
    grounded = ground_questions(store, request.datasets_url, request.spec, graph, vectors, request.grounding)
    configs = [dataclasses.replace(request.kagnet, seed=seed) for seed in range(parameters.seeds)]
    trained = [train_kagnet(store, grounded, vectors, model, config) for config in configs]
    answered = _Answered(request, graph, grounded, trained)
    _record(answered)
    return publish_all([_scores(answered), *_why(answered, parameters.questions)], parameters.out)


@dataclass(frozen=True)
class _Answered:
    """What a run of the flow was asked, and what it has made."""

    request: ReasonRequest
    graph: Artifact
    grounded: Artifact
    trained: Sequence[Artifact]
    """A KagNET a seed."""


def _record(answered: _Answered) -> None:
    """A row of the leaderboard beside those of the models that have the text alone."""
    request, graph, grounded, trained = answered.request, answered.graph, answered.grounded, answered.trained
    store, model = request.store, request.model
    made, about = store.manifest(trained[0]), GraphCounts.of(store, graph)
    settings = {name: value for name, value in made["config"]["kagnet"].items() if name != "seed"}
    same = {"checkpoint": model.digest, "code": {"kagnet": made["version"]}}
    laid = {"graph": graph.digest, "grounding": recorded(request.grounding), "grounded": grounded.digest}
    identity = {**same, **laid, "kagnet": settings}  # "grounded": on the vectors and the questions' files, too
    suite = Suite(f"KagNET on {about.name}, text {model.digest[:6]}", "ours", identity)
    scores = []
    for seed, artifact in enumerate(trained):
        manifest = store.manifest(artifact)
        commit = commit_of(manifest)
        scores.append(score_of(request.spec, seed, manifest["counts"], (), same, commit, about.synthetic))
    with open_suite(Tracker(), suite) as run:
        record_row(run, row_of(suite, scores))


def _scores(answered: _Answered) -> Analysis:
    """The text alone, KagNET over the seeds, their difference with its error; what the graph covers."""
    request, trained = answered.request, answered.trained
    store, task, model = request.store, request.spec.name, request.model
    counts = [TrainingCounts.of(store, artifact).figures for artifact in trained]
    about = GroundedCounts.of(store, answered.grounded).splits
    splits = [split for split in ("dev", "test") if f"{split}/score" in counts[0]]
    body: list[tuple[str, ...]] = []
    metrics: dict[str, float] = {}
    cells: dict[str, list[str]] = {"the text alone": [], f"KagNET, {len(trained)} seed(s)": [], "difference": []}
    for split in splits:
        alone = 100 * counts[0][f"{split}/text_score"]
        scores = [100 * each[f"{split}/score"] for each in counts]
        mean, n = statistics.fmean(scores), counts[0][f"{split}/rows"]
        rows = math.sqrt(mean * (100 - mean) / n + alone * (100 - alone) / n)  # of two accuracies, as if apart
        seeds = statistics.stdev(scores) if len(scores) > 1 else 0.0
        spread = f" ({min(scores):.1f} to {max(scores):.1f})" if len(scores) > 1 else ""
        texts = (f"{alone:.1f}", f"{mean:.1f}{spread}", f"{mean - alone:+.1f} \u00b1 {math.hypot(rows, seeds):.1f}")
        for row, text in zip(cells.values(), texts, strict=True):
            row.append(text)
        metrics |= {f"{split}/text": alone, f"{split}/kagnet": mean}
    body += [(label, *texts) for label, texts in cells.items()]
    for printed in PUBLISHED if "test" in splits else ():
        if task in printed.percent:
            by_split = ("-" if split == "dev" else f"{printed.percent[task]:.1f}" for split in splits)
            body.append((f"{printed.method} (published)", *by_split))
    graph = GraphCounts.of(store, answered.graph)
    notes = [
        *(["Synthetic data: the numbers are of gptmill's generated world."] if graph.synthetic else []),
        *(
            f"{split}: {about[split].rows:,} questions, {about[split].with_concept:.0%} with a concept of the "
            f"graph; a path leads to {about[split].right_with_path:.1%} of the right choices and "
            f"{about[split].wrong_with_path:.1%} of the wrong ones"
            for split in splits
        ),
        f"graph {graph.name}: {graph.entities:,} entities, {sum(graph.facts.values()):,} facts; texts read by "
        f"{model.short}; accuracy x 100; \u00b1: of rows and of seeds",
        "the last weights are scored: no epoch is chosen by dev questions",
    ]
    identity = {"kagnet": [artifact.digest for artifact in trained]}
    title = f"KagNET on {task}"
    return Analysis("kagnet", title, ("answers by", *splits), body, identity, metrics, notes)


def _why(answered: _Answered, wanted: int) -> list[Analysis]:
    """For some dev questions what led to each choice by the first seed: a table of paths, and a picture."""
    store, trained = answered.request.store, answered.trained[0]
    facts = KnowledgeGraph.load(store.local(answered.graph))
    asked, told = (
        [json.loads(line) for line in (store.local(artifact) / "dev.jsonl").read_text(encoding="utf-8").splitlines()]
        for artifact in (answered.grounded, trained)
    )
    analyses = []
    chosen = range(0, len(asked), max(1, len(asked) // wanted))[:wanted]
    for number, place in enumerate(chosen, start=1):
        routes = routes_of(facts, asked[place], told[place])
        body = [
            (f"{choice.text}{' (right)' if choice.right else ''}", f"{choice.score:.0%}", _in_words(choice))
            for choice in routes.choices
        ]
        notes = ["the weightiest paths of each choice, and what share of the attention over its paths each had"]
        header = ("choice", "probability", "paths")
        name = f"kagnet-why-{number}"
        identity = {"kagnet": trained.digest, "question": told[place]["row"]}
        analyses.append(Analysis(name, routes.question, header, body, identity, {}, notes, routes, page=True))
    return analyses


def routes_of(facts: KnowledgeGraph, asked: Mapping[str, Any], told: Mapping[str, Any]) -> Routes:
    """A question in words: its choices, the likeliest first, with the paths that counted."""
    highest = max(choice["score"] for choice in told["choices"])
    shares = [math.exp(choice["score"] - highest) for choice in told["choices"]]
    choices = [
        Choice(
            text,
            share / sum(shares),
            number == asked["label"],
            [
                Route(
                    [facts.called(entity) for entity in path["entities"]],
                    [facts.spoken(relation) for relation in path["relations"]],
                    path["weight"],
                )
                for path in choice["paths"][:_ROUTES]
            ],
        )
        for number, (text, choice, share) in enumerate(zip(asked["choices"], told["choices"], shares, strict=True))
    ]
    return Routes(" ".join(asked["fields"]), sorted(choices, key=lambda choice: -choice.score))


def _in_words(choice: Choice) -> str:
    said = [f"{route.weight:.0%}: {path_in_words(route.entities, route.relations)}" for route in choice.routes]
    return "; ".join(said) or "no path"
