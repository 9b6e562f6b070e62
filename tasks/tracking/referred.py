"""Which artifacts MLflow refers to: every digest that a row, its fine-tunes, an analysis or an alias mentions anywhere.

Tags and settings are not read one by one but searched for digests: a reference that somebody adds tomorrow counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tasks.store.garbage import Referred
from tasks.tracking.tracker import Tracker
from tasks.tracking.views import ABSTRACTS, LEADERBOARD, PRETRAIN, SWEEPS

if TYPE_CHECKING:
    from mlflow.entities import Run as MlflowRun

_DIGEST = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_OURS = "gptmill/"  # experiments
_PAGE = 1000


def referred(tracker: Tracker) -> Referred:
    """What the tracker says of artifacts.

    A language model's training run alone keeps nothing once it has ended, nor does a trial: a row, an analysis, an
    alias or a sweep does, which names its winner. Deleted runs keep nothing either, but they have been heard of.
    """
    tracker.reconcile()  # what a killed process left RUNNING would keep its artifacts for ever
    named: dict[str, str] = {}
    heard: set[str] = set()
    for experiment in _pages(tracker.client.search_experiments, view_type=_all()):
        if not experiment.name.startswith(_OURS):
            continue
        runs = list(_pages(tracker.client.search_runs, experiment_ids=[experiment.experiment_id], run_view_type=_all()))
        deleted = experiment.lifecycle_stage != "active"
        living = {run.info.run_id for run in runs if run.info.lifecycle_stage == "active" and not deleted}
        for run in runs:
            digests = _digests(run)
            heard |= digests
            if run.info.run_id in living and (reason := _reason(run, experiment.name, living)):
                named |= dict.fromkeys(digests - named.keys(), reason)
    aliases, versions = _registry(tracker)
    named |= dict.fromkeys(aliases - named.keys(), "aliases")
    return Referred(named, heard | versions)


def _reason(run: MlflowRun, experiment: str, living: set[str]) -> str:
    """What a run that is there keeps artifacts as; nothing where it keeps none."""
    if run.info.status == "RUNNING":
        return "runs under way"
    if experiment in (PRETRAIN, ABSTRACTS):
        return ""
    parent = run.data.tags.get("mlflow.parentRunId")
    if experiment == SWEEPS:
        return "sweeps" if parent is None else ""
    if experiment != LEADERBOARD:
        return "analyses"
    return "rows" if parent is None or parent in living else ""


def _registry(tracker: Tracker) -> tuple[set[str], set[str]]:
    """Digests of the versions that have an alias, and of all versions."""
    marked, every = set(), set()
    for model in _pages(tracker.client.search_registered_models):
        numbers = {str(number) for number in model.aliases.values()}
        for version in _pages(tracker.client.search_model_versions, filter_string=f"name = '{model.name}'"):
            digest = version.tags.get("digest", "")
            every.add(digest)
            if str(version.version) in numbers:
                marked.add(digest)
    return marked, every


def _digests(run: MlflowRun) -> set[str]:
    texts = [*run.data.tags.values(), *run.data.params.values()]
    return {digest for text in texts for digest in _DIGEST.findall(text)}


def _pages(search: Any, **arguments: Any) -> Iterator[Any]:
    """Everything that one of the client's searches finds."""
    token = None
    while True:
        page = search(max_results=_PAGE, page_token=token, **arguments)
        yield from page
        token = page.token
        if not token:
            return


def _all() -> int:
    from mlflow.entities import ViewType

    return int(ViewType.ALL)
