"""`gptmill compare`: two rows of the leaderboard, or two fine-tuned models, on the rows that both have answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from flows.forms.references import fine_tuned_model
from gptcore.base.errors import require
from gptcore.evaluation.comparison import LEVEL, Difference, average, compared, holm
from gptcore.nlu.registry import REGISTRY, TaskSpec, recorded_task
from tasks.report.rows import Row
from tasks.report.suites import our_rows
from tasks.report.table import Table
from tasks.store.artifact import Artifact
from tasks.store.counts import FinetuneCounts
from tasks.store.lineage import home_of, located
from tasks.store.store import Store
from tasks.tracking.logs import Meter

Answers = Mapping[str, tuple[TaskSpec, Sequence[Path]]]
"""Task -> the files of its seeds' predictions, of test rows where these carry labels, else of dev rows."""


def compare(store: Store, names: Sequence[str], task: str = "") -> Iterator[str]:
    """The lines of a comparison: a table with a task a line, then what is certain.

    :param names: two rows or models, each by its name or the beginning of its digest.
    :param task: of which to compare; empty: all that both have.
    :raises InputError: a name that nothing has; no task that both have; answers to other rows.
    """
    rows = our_rows(ask=True)
    first, second = (_answers(store, rows, name, task) for name in names)
    tasks = [name for name in (*REGISTRY, *sorted(first.keys() - REGISTRY.keys())) if name in first and name in second]
    wanted = f"models fine-tuned on {task}" if task else "a task that both are fine-tuned on"
    have = " and ".join(", ".join(answers) or "none" for answers in (first, second))
    require(tasks, f"compare: found {have}, expected {wanted}")
    done, differences = Meter("compare", "tasks").counting("tasks", len(tasks)), dict[str, Difference]()
    for name in tasks:
        differences[name] = compared(first[name][0], first[name][1], second[name][1])
        done(1)
    probabilities = holm({name: each.p for name, each in differences.items()})
    twelve = [differences[name] for name in tasks if name in REGISTRY]
    shown = {name: _cells(name, each, probabilities[name]) for name, each in differences.items()}
    if len(twelve) > 1:
        shown["average"] = _cells("average", mean := average(twelve), mean.p)
    yield Table(("", "rows", *names, "difference", "95 % interval", "p"), list(shown.values()), n_texts=1).text()
    yield ""
    certain = [name for name in tasks if probabilities[name] < LEVEL]
    corrected = ", by Holm over tasks" if len(tasks) > 1 else ""
    yield f"told apart (p < {LEVEL:g}{corrected}): {', '.join(certain) or 'none'}"


def _cells(name: str, each: Difference, p: float) -> tuple[str, ...]:
    low, high = (100 * end for end in each.interval)
    scores = (f"{100 * each.first:.1f}", f"{100 * each.second:.1f}", f"{100 * (each.first - each.second):+.1f}")
    return name, f"{each.rows:,}", *scores, f"{low:+.1f} to {high:+.1f}", f"{p:.4f}"


def _answers(store: Store, rows: Sequence[Row], name: str, task: str) -> Answers:
    """What the models of a row, or one model, have answered."""
    meant = [row for row in rows if name in (row.name, row.told) or (len(name) > 3 and row.suite.startswith(name))]
    require(len(meant) < 2, f"{name}: found {', '.join(row.name for row in meant)}; expected a longer digest")
    if meant:
        models = [located(Artifact("finetune", url.rpartition("/")[2], url)) for url in meant[0].models]
        require(models, f"{name}: found no fine-tuned model of this row, expected one")
    else:
        models = [fine_tuned_model(store, name, task)]
    files: dict[str, tuple[TaskSpec, list[Path]]] = {}
    for model in models:
        home = home_of(model)
        manifest = home.manifest(model)
        spec, scores = recorded_task(manifest["config"]), FinetuneCounts.parse(manifest["counts"]).scores
        split = "test" if "test/score" in scores else "dev"
        if task in ("", spec.name):
            path = home.local(model, "predictions") / f"{split}.jsonl"
            files.setdefault(spec.name, (spec, []))[1].append(path)
    return files
