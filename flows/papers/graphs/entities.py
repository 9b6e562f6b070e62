"""ERNIE's ablation: what entities beside words are worth in fine-tuning, and the entity objective in pre-training."""

from __future__ import annotations

import dataclasses
from typing import Any

from prefect import flow

from flows.forms.parameters import AnalysisParameters
from flows.forms.run_names import from_form
from flows.forms.settings import refuse_setting
from flows.papers.analyses.common import Trained, notes_on_chain, require_family, scored, with_family
from flows.trainings.chain import Chain, run_chain
from flows.trainings.grid import Arm
from gptcore.nlu.published import ENTITIES
from tasks.papers.graphs.counts import MentionsCounts
from tasks.report.analysis import Analysis, publish_all
from tasks.report.rows import Row, one_decimal

_TASKS = ("fewrel",)
_UNLINKED = {"unlinked": True}


@flow(name="analysis-entities", flow_run_name=from_form, persist_result=False)
def entities(parameters: AnalysisParameters) -> list[Analysis]:
    """ERNIE, the same without its entities, without its objective, without both; and the BERT that it goes on from.

    Without ``--from`` a BERT is pre-trained first, on the same books, or on the generated world's.
    """
    require_family(parameters, "ernie")
    for section, name in (("pretrain", "entity_weight"), ("finetune", "unlinked")):
        refuse_setting(parameters.overrides, section, name)
    wanted = list(map(str, parameters.tasks)) or list(_TASKS)
    start = parameters.start
    if not start:
        plain = parameters.model_copy(update={"graph": "", "links": ""})
        start = run_chain(with_family(plain, "bert"), wanted).checkpoint.digest
    chain = run_chain(with_family(parameters, "ernie", start=start), wanted)
    config = dataclasses.replace(chain.preset.pretrain, entity_weight=0.0)
    without = chain.pretrain(chain.preset.model, config, start=chain.start, mentions=chain.mentions)
    told, untold = Trained("ERNIE", chain, chain.checkpoint), Trained("without the objective", chain, without)
    arms = {
        "ERNIE": told.arm,
        "without entities": Arm("without entities", told.checkpoint, _UNLINKED),
        "without the objective": untold.arm,
        "neither": Arm("neither entities nor objective", untold.checkpoint, _UNLINKED),
    }
    if chain.start and chain.start.stage == "pretrain":
        arms["BERT"] = Arm("that ERNIE goes on from", chain.start)
    board = scored(chain, parameters, wanted, list(arms.values()))
    rows = dict(zip(arms, board.rows, strict=False))
    others = [row for row in board.rows if row.kind == "baseline"]
    trained = {"ERNIE": told, "without entities": told, "without the objective": untold, "neither": untold}
    return publish_all([_ablation(chain, trained, rows, others, wanted)], parameters.out)


def _ablation(
    chain: Chain, trained: dict[str, Trained], rows: dict[str, Row], baselines: list[Row], tasks: list[str]
) -> Analysis:
    printed = {row.method: row for row in ENTITIES}
    body: list[tuple[str, ...]] = []
    metrics: dict[str, float] = {}
    for label, row in rows.items():
        told = trained[label].counts.figures.get("validation/entity_accuracy") if label in trained else None
        entity = "-" if told is None else one_decimal(100 * told)
        body.append((label, "ours", entity, *(_cell(row, task) for task in tasks)))
        metrics |= {f"{label}/{task}": score for task, score in row.per_task.items() if task in tasks}
        if label in printed and "fewrel" in tasks:
            theirs = printed[label]
            body.append((label, theirs.source, "-", *(theirs.scores.get(task, "-") for task in tasks)))
    body += [(row.name, "ours", "-", *(_cell(row, task) for task in tasks)) for row in baselines]
    first, mentions = next(iter(rows.values())), chain.mentions
    assert mentions is not None, "of a family that knows entities"
    linked = MentionsCounts.of(chain.store, mentions).splits["train"]
    notes = [
        *notes_on_chain(chain),
        f"ours: preset {chain.preset.name}, {first.split} rows, the median of {first.seeds} seed(s), pre-trained once; "
        "± the bootstrap error over rows, in brackets the lowest and the highest seed",
        f"pre-trained on {linked.tokens:,} tokens that mention {linked.entities:,} entities {linked.mentions:,} "
        "times; entities told: of held-out text, from among those of a batch",
        *(f"{task.name}: {task.spec.note}" for task in chain.tasks if task.spec.note),
    ]
    identity: dict[str, Any] = {"arms": [row.suite for row in rows.values()], "tasks": tasks, "seeds": first.seeds}
    header = ("network", "whose", "entities told", *tasks)
    title = "ERNIE's ablation: entities and their objective"
    return Analysis("entities", title, header, body, identity, metrics, notes)


def _cell(row: Row, task: str) -> str:
    score, cell = row.per_task.get(task), row.cells.get(task)
    if score is None or cell is None:
        return one_decimal(score)
    error = "" if cell.stderr is None else f"±{cell.stderr:.1f}"
    spread = f" ({cell.low:.1f} to {cell.high:.1f})" if cell.seeds > 1 else ""
    return f"{score:.1f}{error}{spread}"
